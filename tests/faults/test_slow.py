# SPDX-License-Identifier: Apache-2.0
"""One query of Placement that takes a minute, beside many that are answered at once."""

import statistics
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.lab import proxy
from tests.lab.daemon import new_uuids
from tests.lab.processes import wait_until
from tests.lab.steady import Caller, arguments_for, load
from tests.lab.tables import Sheet, show
from tests.lab.wire import primitive

from .server_faults import following
from .site import Site

LARGE = 4096  # MB of memory, which no other request wants
SLOW_S, QUICK_ONES = 60, 200
PAUSE_S = 0.15  # between quick ones, which come one after the other and not in each other's way
AFTER = 20  # quick ones that are answered after the slow one has ended


def place_large(caller: Caller) -> float:
    """Ask for a server that nobody else asks for; the seconds that it takes."""
    [server] = new_uuids()
    asked = arguments_for(server)
    sizes = {'vcpus': 2, 'memory_mb': LARGE, 'root_gb': 1, 'ephemeral_gb': 0, 'swap': 0}
    flavor = primitive('Flavor', '1.2', **sizes, extra_specs={})
    asked['spec_obj']['nova_object.data']['flavor'] = flavor
    began = time.monotonic()
    caller.call('select_destinations', asked, timeout=3 * SLOW_S)
    return time.monotonic() - began


@pytest.mark.long
def test_one_slow_query(site: Site) -> None:
    """None of the quick ones is refused, neither meanwhile nor when its time is over."""

    def rule(_method: str, path: str, _body: bytes) -> proxy.Fault | None:
        return proxy.slow(SLOW_S + 5) if f'MEMORY_MB%3A{LARGE}' in path else None

    with site.running(), following(site, rule), ThreadPoolExecutor(1) as pool:
        with load(site.caller, 1, pause=PAUSE_S, timeout=20) as alone:
            wait_until(lambda: len(alone.answers) > QUICK_ONES, 120, 'quick ones')
        slow = pool.submit(place_large, site.caller)
        wait_until(lambda: any(str(LARGE) in each for each in site.proxy.asked), 60, 'slow query')
        with load(site.caller, 1, pause=PAUSE_S, timeout=20) as found:
            wait_until(slow.done, 3 * SLOW_S, 'end of the slow one')
            count = len(found.answers) + AFTER
            wait_until(lambda: len(found.answers) > count, 60, 'quick ones')
        site.proxy.faults = None
    rows = []
    for name, load_of in (('before the slow query', alone), ('beside it', found)):
        taken = [each.taken for each in load_of.answers]
        middle, longest = statistics.median(taken), max(taken)
        numbers = (middle, longest, longest / middle)
        refused = str(len(load_of.failures()))
        rows.append([name, str(len(taken)), refused, *(f'{each:.3g}' for each in numbers)])
    columns = ('quick ones', 'number', 'refused', 'median (s)', 'longest (s)', 'x median')
    show([Sheet('One slow query', columns, rows)])
    assert slow.exception() is not None
    assert len(found.answers) > QUICK_ONES
    assert found.failures() == []
