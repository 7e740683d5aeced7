# SPDX-License-Identifier: Apache-2.0
"""More requests than can be answered at once, expired requests, and a query of Placement
that takes a minute beside many quick queries."""

import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

import pytest

from tests.faults.fault import (
    BEFORE,
    RECOVERY,
    SETTLED,
    Fault,
    Result,
    allocations_of,
    judge,
    run,
)
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


def outcome_of(site, callers, seconds):
    """The outcome of the requests of concurrent callers. A request without an answer
    counts as a timeout."""
    answers = []
    for server in callers.asked:
        host = callers.hosts.get(server)
        error = None
        if server not in callers.hosts:
            error = 'MessagingTimeout'
        elif host is None:
            error = 'refused'
        answers.append(Answer(0.0, seconds, server, host, error))
    return judge(site, Load(answers), None, seconds)


@pytest.mark.long
def test_thousands_of_requests_at_once_are_answered(site, results, pytestconfig):
    """Thousands of requests at once are answered once each, before the callers time
    out."""
    count = pytestconfig.getoption('--at-once')
    with site.running(), concurrent_callers(site.rabbitmq.url) as callers:
        begin = time.monotonic()
        servers = callers.ask(count)
        with suppress(Failed):  # the outcome has the number of lost requests
            callers.listen(
                lambda: callers.answered(servers), PATIENCE, 'answer to each'
            )

        outcome = outcome_of(site, callers, time.monotonic() - begin)
        results.append(Result(f'{count:,} requests at once', 'one', outcome))
        assert [outcome.lost, outcome.refused] == [0, 0]
        assert [outcome.left_over, outcome.missing] == [0, 0]
        assert set(callers.answers.values()) == {1}


def test_no_claim_is_made_for_expired_calls(site, results):
    """A suspended scheduler finds a queue full of expired calls. The scheduler answers
    new calls, and claims nothing for expired calls."""
    name = 'queue full of expired calls'
    expired: list[str] = []

    with site.running(), concurrent_callers(site.rabbitmq.url) as callers:

        @contextmanager
        def suspended(_site):
            with site.frozen_workers():
                expired.extend(callers.ask(GIVEN_UP, lifetime=EXPIRATION))
                yield

        outcome = run(site, Fault(name, suspended, seconds=3))

        left_over = outcome.left_over + len(allocations_of(site, expired))
        outcome = replace(outcome, left_over=left_over)
        results.append(Result(name, 'one', outcome))
        assert outcome.recovery is not None
        assert [outcome.lost, outcome.missing, outcome.left_over] == [0, 0, 0]


@dataclass(frozen=True)
class Outage:
    """An outage of Placement while requests come at a constant rate. Times are in
    seconds.

    :ivar patience: how long a request waits for Placement.
    :ivar silence: how long a caller waits for a heartbeat.
    :ivar threads: number of threads of the scheduler.
    :ivar prefetched: maximum number of messages that wait for a thread.
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
LATE_S = 5  # seconds after the patience until which refusals arrive
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
def test_every_caller_gets_an_answer_in_a_long_outage_of_placement(name, site, results):
    """More requests come than threads can wait, and in some cases more than the
    scheduler may take from the broker. Every caller has an answer in time, and no caller
    gives up earlier. After the outage nothing is claimed for callers that gave up."""
    outage = OUTAGES[name]
    with (
        site.running(1, outage.config()),
        concurrent_callers(site.rabbitmq.url) as callers,
    ):

        def ask(until, description):
            """Send requests at a constant rate until a condition holds."""
            begin = time.monotonic()
            asked = 0
            while not until():
                is_in_time = time.monotonic() < begin + outage.seconds + RECOVERY
                assert is_in_time, description
                asked += 1
                callers.ask(1, patience=outage.silence)
                due = begin + asked / PER_SECOND
                callers.listen(
                    lambda due=due: time.monotonic() >= due, SETTLED, 'next request'
                )

        # Requests before, during and after the outage.
        ask(lambda: len(callers.hosts) >= BEFORE, 'answers before')
        first = len(callers.asked)
        with site.proxy.down():
            end = time.monotonic() + outage.seconds
            ask(lambda: time.monotonic() >= end, 'end of the outage')
        end = time.monotonic()
        last = len(callers.asked)

        def has_recovered():
            hosts = [callers.hosts.get(server) for server in callers.asked[last:]]
            return len(hosts) - hosts.count(None) >= BEFORE

        ask(has_recovered, 'recovery')
        recovery = time.monotonic() - end
        callers.listen(
            lambda: callers.answered(callers.asked),
            outage.patience + SETTLED,
            'answer to each',
        )

        # A claim that was on its way when the outage began may have been made.
        with suppress(Failed):
            wait_until(
                lambda: not outcome_of(site, callers, recovery).left_over,
                SETTLED,
                'order',
                pause=0.5,
            )
        longest = max(callers.waited.values())
        outcome = replace(outcome_of(site, callers, recovery), longest=longest)
        title = f'Placement away for {name}, 10 requests a second'
        results.append(Result(title, 'one', outcome))

        during = callers.asked[first:last]
        max_wait = outage.patience + LATE_S
        late = [server for server in during if callers.waited[server] > max_wait]
        print(
            f'{len(during)} during the outage, {len(late)} told late,'
            f' {len(callers.gave_up)} gave up'
        )
        print(outcome)
        assert [outcome.lost, outcome.left_over, outcome.missing] == [0, 0, 0]
        assert allocations_of(site, callers.gave_up) == set()
        assert callers.gave_up == set()
        assert late == []
        assert set(callers.answers.values()) == {1}


LARGE = 4096  # MB of memory, an amount of the slow request alone
SLOW_S = 60
QUICK_REQUESTS = 150  # a slow machine answers four a second
PAUSE_S = 0.15
"""Seconds between quick requests, so that quick requests do not delay each other."""
AFTER = 20  # quick requests after the end of the slow request


def place_large(caller):
    """Ask for a server of the large flavor; the seconds until the answer."""
    [server] = new_uuids()
    arguments = arguments_for(server)
    sizes = {'vcpus': 2, 'memory_mb': LARGE, 'root_gb': 1, 'ephemeral_gb': 0, 'swap': 0}
    flavor = primitive('Flavor', '1.2', **sizes, extra_specs={})
    arguments['spec_obj']['nova_object.data']['flavor'] = flavor

    begin = time.monotonic()
    caller.call('select_destinations', arguments, timeout=3 * SLOW_S)
    return time.monotonic() - begin


@pytest.mark.long
def test_no_quick_request_is_refused_beside_a_slow_query(site):
    """No quick request is refused, neither during the slow query nor when the slow query
    times out."""

    def rule(_method, path, _body):
        if f'MEMORY_MB%3A{LARGE}' in path:
            return proxy.slow(SLOW_S + 5)
        return None

    # Every request asks Placement: an earlier answer would serve the slow request.
    asking = {'novasched': {'candidates_max_age': 0}}
    with (
        site.running(overrides=asking),
        following(site, rule),
        ThreadPoolExecutor(1) as pool,
    ):
        with load(site.caller, 1, pause=PAUSE_S, timeout=20) as before:
            wait_until(
                lambda: len(before.answers) > QUICK_REQUESTS, 120, 'quick requests'
            )

        slow = pool.submit(place_large, site.caller)
        wait_until(
            lambda: any(str(LARGE) in request for request in site.proxy.asked),
            60,
            'slow query',
        )
        with load(site.caller, 1, pause=PAUSE_S, timeout=20) as beside:
            wait_until(slow.done, 3 * SLOW_S, 'end of the slow request')
            count = len(beside.answers) + AFTER
            wait_until(lambda: len(beside.answers) > count, 60, 'quick requests')
        site.proxy.faults = None

    rows = [
        quick_requests_row('before the slow query', before),
        quick_requests_row('beside it', beside),
    ]
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
    assert len(beside.answers) > QUICK_REQUESTS
    assert beside.failures() == []


def quick_requests_row(name, requests):
    """A row of the table of quick requests."""
    seconds = [answer.seconds for answer in requests.answers]
    median = statistics.median(seconds)
    longest = max(seconds)
    refused = len(requests.failures())
    return [
        name,
        str(len(seconds)),
        str(refused),
        f'{median:.3g}',
        f'{longest:.3g}',
        f'{longest / median:.3g}',
    ]
