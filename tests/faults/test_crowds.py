# SPDX-License-Identifier: Apache-2.0
"""More requests than can be answered at once, requests that nobody waits for any more,
and one query of Placement that takes a minute beside many that are answered at once."""

import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

import pytest

from tests.faults.fault import BEFORE, RECOVERY, SETTLED, Fault, Result, judge, run
from tests.faults.server_faults import following
from tests.lab import proxy
from tests.lab.daemon import new_uuids
from tests.lab.processes import Failed, wait_until
from tests.lab.rpc_load import Answer, Load, arguments_for, concurrent_callers, load
from tests.lab.tables import Sheet, show
from tests.lab.wire import primitive

PATIENCE = 1800  # seconds: nova's long_rpc_timeout
GIVEN_UP = 500
EXPIRATION = 1.0


def held(site, servers):
    every = site.cloud.all_allocations()
    return {(server, host) for server in servers for host in every.get(server, ())}


def counted(site, callers, seconds):
    """What became of a crowd's requests, as if each had waited to the end."""

    def answer(server):
        host = callers.hosts.get(server)
        if host:
            error = None
        elif server in callers.hosts:
            error = 'refused'
        else:
            error = 'MessagingTimeout'
        return Answer(0.0, seconds, server, host, error)

    return judge(
        site, Load([answer(server) for server in callers.asked]), None, seconds
    )


@pytest.mark.long
def test_all_at_once(site, results, pytestconfig):
    """Each request of a great many is answered once, before its caller gives up."""
    count = pytestconfig.getoption('--at-once')
    with site.running(), concurrent_callers(site.rabbitmq.url) as callers:
        begun = time.monotonic()
        servers = callers.ask(count)
        with suppress(Failed):  # the outcome says how many are lost
            callers.listen(
                lambda: callers.answered(servers), PATIENCE, 'answer to each'
            )
        outcome = counted(site, callers, time.monotonic() - begun)
        results.append(Result(f'{count:,} requests at once', 'one', outcome))
        assert [outcome.lost, outcome.refused, outcome.left_over, outcome.missing] == [
            0
        ] * 4
        assert set(callers.answers.values()) == {1}


def test_given_up(site, results):
    """A scheduler that was held up finds a queue full of calls that have expired: those
    who call now are answered, and for those who have given up nothing is claimed."""
    expired: list[str] = []

    with site.running(), concurrent_callers(site.rabbitmq.url) as callers:

        @contextmanager
        def held_up(_site):
            with site.frozen_workers():
                expired.extend(callers.ask(GIVEN_UP, lifetime=EXPIRATION))
                yield

        outcome = run(site, Fault('queue full of expired calls', held_up, seconds=3))
        outcome = replace(
            outcome, left_over=outcome.left_over + len(held(site, expired))
        )
        results.append(Result('queue full of expired calls', 'one', outcome))
        assert outcome.recovery is not None
        assert [outcome.lost, outcome.missing, outcome.left_over] == [0, 0, 0]


@dataclass(frozen=True)
class Outage:
    """Placement is away while requests come in a steady stream. Times are in seconds.

    :ivar patience: for which a request waits for Placement.
    :ivar silence: without a heartbeat, after which a caller gives up.
    :ivar prefetched: the number of messages that wait for a thread, at the most.
    """

    seconds: float
    patience: float
    silence: int
    threads: int
    prefetched: int

    def config(self):
        return {
            'DEFAULT': {'executor_thread_pool_size': self.threads},
            'oslo_messaging_rabbit': {'rabbit_qos_prefetch_count': self.prefetched},
            'novasched': {'placement_patience': self.patience},
        }


PER_SECOND = 10
LATER_S = 5  # beyond the patience, until everybody is told
OUTAGES = {
    '12 s, little is prefetched': Outage(12, 3, 6, threads=8, prefetched=4),
    '12 s': Outage(12, 3, 6, threads=8, prefetched=1000),
    'five minutes': Outage(300, 30, 60, threads=64, prefetched=1000),
    'five minutes, little is prefetched': Outage(
        300, 30, 60, threads=64, prefetched=32
    ),
}


QUICK, *LONG = OUTAGES


@pytest.mark.parametrize(
    'name', [QUICK, *[pytest.param(name, marks=pytest.mark.long) for name in LONG]]
)
def test_placement_away_for_long(name, site, results):
    """More requests come than threads can wait with, and in some cases more than may be
    taken from the broker. Each caller is told in time, none gives up before, and once
    Placement is back nothing is claimed for callers that have given up."""
    outage = OUTAGES[name]
    with (
        site.running(1, outage.config()),
        concurrent_callers(site.rabbitmq.url) as callers,
    ):

        def ask(until, what):
            """Send a steady stream of requests until something holds."""
            begun = time.monotonic()
            asked = 0
            while not until():
                assert time.monotonic() < begun + outage.seconds + RECOVERY, what
                asked += 1
                callers.ask(1, patience=outage.silence)
                due = begun + asked / PER_SECOND
                callers.listen(
                    lambda due=due: time.monotonic() >= due, SETTLED, 'next request'
                )

        ask(lambda: len(callers.hosts) >= BEFORE, 'answers before')
        first = len(callers.asked)
        with site.proxy.down():
            end = time.monotonic() + outage.seconds
            ask(lambda: time.monotonic() >= end, 'end of the outage')
        ended = time.monotonic()
        last = len(callers.asked)
        ask(
            lambda: (
                sum(callers.hosts.get(x) is not None for x in callers.asked[last:])
                >= BEFORE
            ),
            'recovery',
        )
        recovery = time.monotonic() - ended
        callers.listen(
            lambda: callers.answered(callers.asked),
            outage.patience + SETTLED,
            'answer to each',
        )
        # A claim that was on its way when Placement went away may have been made.
        with suppress(Failed):
            wait_until(
                lambda: not counted(site, callers, recovery).left_over,
                SETTLED,
                'order',
                pause=0.5,
            )
        outcome = replace(
            counted(site, callers, recovery), longest=max(callers.waited.values())
        )
        results.append(
            Result(f'Placement away for {name}, 10 requests a second', 'one', outcome)
        )
        during = callers.asked[first:last]
        late = [x for x in during if callers.waited[x] > outage.patience + LATER_S]
        print(
            f'{len(during)} during the outage, {len(late)} told late, {len(callers.gave_up)} gave up'
        )
        print(outcome)
        assert [outcome.lost, outcome.left_over, outcome.missing] == [0, 0, 0]
        assert held(site, callers.gave_up) == set()
        assert callers.gave_up == set()
        assert late == []
        assert set(callers.answers.values()) == {1}


LARGE = 4096  # MB of memory, which no other request wants
SLOW_S = 60
QUICK_ONES = 200
# between quick ones, which come one after the other and not in each other's way
PAUSE_S = 0.15
AFTER = 20  # quick ones that are answered after the slow one has ended


def place_large(caller):
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
def test_one_slow_query(site):
    """None of the quick ones is refused, neither meanwhile nor when its time is
    over."""

    def rule(_method, path, _body):
        if f'MEMORY_MB%3A{LARGE}' in path:
            return proxy.slow(SLOW_S + 5)
        return None

    with site.running(), following(site, rule), ThreadPoolExecutor(1) as pool:
        with load(site.caller, 1, pause=PAUSE_S, timeout=20) as alone:
            wait_until(lambda: len(alone.answers) > QUICK_ONES, 120, 'quick ones')
        slow = pool.submit(place_large, site.caller)
        wait_until(
            lambda: any(str(LARGE) in each for each in site.proxy.asked),
            60,
            'slow query',
        )
        with load(site.caller, 1, pause=PAUSE_S, timeout=20) as found:
            wait_until(slow.done, 3 * SLOW_S, 'end of the slow one')
            count = len(found.answers) + AFTER
            wait_until(lambda: len(found.answers) > count, 60, 'quick ones')
        site.proxy.faults = None
    rows = []
    for name, load_of in (('before the slow query', alone), ('beside it', found)):
        taken = [each.seconds for each in load_of.answers]
        middle = statistics.median(taken)
        longest = max(taken)
        numbers = (middle, longest, longest / middle)
        refused = str(len(load_of.failures()))
        rows.append(
            [name, str(len(taken)), refused, *(f'{each:.3g}' for each in numbers)]
        )
    columns = (
        'quick ones',
        'number',
        'refused',
        'median (s)',
        'longest (s)',
        'x median',
    )
    show([Sheet('One slow query', columns, rows)])
    assert slow.exception() is not None
    assert len(found.answers) > QUICK_ONES
    assert found.failures() == []
