# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from novasched.scheduler.model.numa import HostCell, HostTopology, Pages
from novasched.scheduler.model.values import MAX_AMOUNT
from novasched.scheduler.numa.plain_fit import fits_plainly, is_plain
from tests.lab.topologies import a_guest, a_pinned, a_shared

CPUS = frozenset(range(4))
HALF_USED = Pages(4, 1 << 20, used=1 << 19)
OVERUSED = Pages(4, 0, MAX_AMOUNT, MAX_AMOUNT)

ROOMY = HostTopology(
    (
        HostCell(0, CPUS, 4096, CPUS, cpu_usage=2),
        HostCell(1, CPUS, 4096, CPUS, cpu_usage=2),
    )
)
FULL = HostTopology(
    (
        HostCell(0, CPUS, 4096, CPUS, 4, 4096, CPUS),
        HostCell(1, CPUS, 4096, CPUS, 4, 4096, CPUS),
    )
)
PAGED = HostTopology((HostCell(0, CPUS, 4096, CPUS, mempages=(HALF_USED,)),))
ABSURD = HostTopology((HostCell(0, CPUS, 1, CPUS, mempages=(OVERUSED,)),))


@pytest.mark.parametrize(
    ('guest', 'fitting'),
    [
        (a_guest(a_shared(2, 1024)), (True, False, True, False, False)),
        (a_guest(a_shared(4, 1024)), (False, False, True, False, False)),
        (a_guest(a_shared(2, 4096)), (True, False, True, False, False)),
        (a_guest(a_pinned(4, memory=2048)), (True, False, True, False, False)),
        (a_guest(a_pinned(4, memory=4096)), (True, False, False, False, False)),
        (a_guest(a_pinned(2), a_shared(2)), (True, False, False, False, False)),
        (a_guest(*[a_pinned(1)] * 3), (False, False, False, False, False)),
    ],
)
def test_plain_guests_fit_hosts_with_free_cpus_and_memory(guest, fitting):
    """The hosts are: free, full, half of the pages used, impossible numbers, and
    without a topology."""
    hosts = (ROOMY, FULL, PAGED, ABSURD, None)
    ratios = np.ones(len(hosts))
    assert is_plain(guest)

    verdicts = fits_plainly(hosts, guest, ratios, ratios)

    assert tuple(verdicts.tolist()) == fitting


@pytest.mark.parametrize(
    'guest',
    [
        a_guest(),
        a_guest(a_pinned(1), emulator='share'),
        a_guest(a_shared(1), a_shared(1, pagesize=-2)),
        a_guest(a_pinned(1, cpu_thread_policy='isolate')),
        a_guest(a_pinned(1, cpu_policy='unheard of')),
        a_guest(a_shared(1, memory=10**400)),
    ],
)
def test_guests_that_need_the_search_are_not_plain(guest):
    assert not is_plain(guest)


def test_an_empty_host_list_gives_no_verdicts():
    nothing = np.ones(0)
    assert fits_plainly((), a_guest(a_shared()), nothing, nothing).tolist() == []
