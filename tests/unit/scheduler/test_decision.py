# SPDX-License-Identifier: Apache-2.0
"""Decisions of requests that are placed, refused or failed."""

import gc
import sys
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from types import ModuleType

import pytest

from novasched.conf.settings import Settings
from novasched.scheduler.decision import (
    FAILED,
    PLACED,
    REFUSED,
    STEPS,
    Decision,
    FilterResult,
)
from novasched.scheduler.errors import NoValidHost, PlacementUnavailable
from novasched.scheduler.filters.compute import ComputeFilter
from novasched.scheduler.model.host import Host
from tests.lab.builders import a_host, a_request, numbered_hosts
from tests.lab.counting_placement import CountingPlacement, slots_on
from tests.lab.decision_records import RecordedScheduler

A = a_host('a', ram=8192)
B = a_host('b', ram=4096)
OFF = a_host('off', disabled=True)


REFUSED_SINCE_AWAY = NoValidHost()
REFUSED_SINCE_AWAY.__cause__ = PlacementUnavailable('away')


@pytest.mark.parametrize(
    ('error', 'result', 'refusal', 'failure'),
    [
        (NoValidHost('No such host'), REFUSED, 'No such host', None),
        (REFUSED_SINCE_AWAY, FAILED, '', 'away'),
        (PlacementUnavailable('away'), FAILED, None, 'away'),
        (RuntimeError('a secret'), FAILED, None, 'RuntimeError'),
    ],
)
def test_errors_are_recorded_as_refusal_or_failure(error, result, refusal, failure):
    """NoValidHost is a refusal. An error that an operator must repair is a failure,
    although the caller receives NoValidHost too. The failed step has a duration."""

    def failing(request, basis):
        raise error

    settings = Settings(placement_patience=0)
    scheduler = RecordedScheduler([A], prefilters=[failing], settings=settings)

    with suppress(type(error)):
        scheduler.driver.select_destinations(a_request())

    (decision,) = scheduler.log.decisions
    assert decision.result == result
    assert decision.refusal == refusal
    assert decision.failure == failure
    assert decision.seconds == {'prefilters': 1.0}
    assert decision.selections == []


def test_requests_with_a_shared_error_have_separate_decisions():
    """Requests that share an answer of Placement raise the same error, and have a
    decision each."""
    error = PlacementUnavailable('away')
    both = threading.Barrier(2)

    def failing(request, basis):
        both.wait()
        raise error

    settings = Settings(placement_patience=0)
    scheduler = RecordedScheduler([A], prefilters=[failing], settings=settings)

    def ask(name):
        with pytest.raises(PlacementUnavailable):
            scheduler.driver.select_destinations(a_request(request_id=name))

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(ask, ('one', 'other')))

    decisions = scheduler.log.decisions
    request_ids = {decision.request.request_id for decision in decisions}
    assert request_ids == {'one', 'other'}
    assert [len(decision.steps) for decision in decisions] == [1, 1]


def test_a_decision_records_hosts_reasons_and_durations():
    """A decision has the hosts, reasons and duration of each filter, and the durations
    of weighers and steps."""
    scheduler = RecordedScheduler([A, B, OFF])

    decision = scheduler.driver.decide(a_request(), 1)

    assert (decision.result, decision.hosts) == (PLACED, ('a',))
    assert [*decision.seconds] == [*STEPS]
    (attempt,) = decision.attempts
    assert (attempt.index, attempt.start, attempt.pending) == (0, 3, 0)
    assert list(attempt.ranking.hosts) == [A, B]
    results = {result.name: result for result in attempt.ranking.filters}
    why = results['ComputeFilter'].reasons[0]
    assert results['ComputeFilter'] == FilterResult(
        'ComputeFilter', 3, (OFF,), (why,), 1.0
    )
    assert [best.host for best in attempt.ranking.best] == ['a', 'b']
    assert all(seconds == 1.0 for _, seconds in attempt.ranking.weighers)


def test_a_decision_records_every_refused_claim():
    """A refused request has every refused claim in its decision."""
    slots = {A.uuid: 0, B.uuid: 0}
    scheduler = RecordedScheduler(
        [A, B], CountingPlacement(slots, stale=frozenset(slots))
    )

    decision = scheduler.ask(a_request())

    assert decision.result == REFUSED
    assert decision.attempts[0].refused == (A.key, B.key)
    claims = [step for step in decision.steps if step.name == 'claim']
    assert [claim.refused for claim in claims] == ['a', 'b']


@pytest.mark.parametrize('host', [A, OFF], ids=['placed', 'refused'])
def test_a_decision_is_freed_without_garbage_collection(host):
    """A decision is freed with its hosts after the last reference, without a garbage
    collection, whether the request is placed or refused."""
    scheduler = RecordedScheduler(
        [host], filters=[ComputeFilter(RecordedScheduler([host]).driver.deps.settings)]
    )
    scheduler.driver.deps = replace(scheduler.driver.deps, recorder=None)
    gc.collect()
    gc.disable()
    try:
        with suppress(NoValidHost):
            scheduler.driver.select_destinations(a_request(request_id='gone'))

        remaining = []
        for referent in gc.get_objects():
            if isinstance(referent, Decision):
                remaining.append(referent.request.request_id)
        assert 'gone' not in remaining
    finally:
        gc.enable()


def hosts_held_by(decision):
    """Number of direct and indirect references from the decision to hosts."""
    waiting = [decision]
    seen = {}
    count = 0

    while waiting:
        value = waiting.pop()
        for referent in gc.get_referents(value):
            if isinstance(referent, Host):
                count += 1
            elif id(referent) not in seen and not isinstance(
                referent, type | ModuleType
            ):
                seen[id(referent)] = referent
                waiting.append(referent)
    return count


@pytest.mark.parametrize('claims', [True, False])
def test_a_decision_keeps_ranked_hosts_of_the_first_instance_only(claims):
    """However many instances are placed, the decision refers to the ranked hosts of the
    first instance alone, and to each rejected host. For every instance, the decision
    has the number of hosts that fit."""
    hosts = numbered_hosts(30, ram=8192)
    placement = CountingPlacement(slots_on(hosts, 1))
    scheduler = RecordedScheduler([*hosts, OFF], placement if claims else None)
    number = 20
    unclaimed = {} if claims else {'instance_uuids': None}

    decision = scheduler.ask(a_request(count=number, **unclaimed))

    assert (decision.result, len(decision.attempts)) == (PLACED, number)
    assert hosts_held_by(decision) <= 2 * len(hosts) + 1
    assert [attempt.passed for attempt in decision.attempts] == [len(hosts)] * number
    first, *later_attempts = decision.attempts
    assert len(first.ranking.hosts) == len(hosts)
    for attempt in later_attempts:
        assert not attempt.ranking.hosts


def test_further_instances_of_a_multi_create_take_little_memory():
    """While a multi-create is decided, each further instance takes less memory than a
    reference to each host."""
    hosts = numbered_hosts(2000, ram=8192)
    scheduler = RecordedScheduler(hosts)
    scheduler.driver.deps = replace(scheduler.driver.deps, recorder=None)

    def peak(number):
        uuids = tuple(f'{number}-{i}' for i in range(number))
        request = a_request(count=number, instance_uuids=uuids)
        gc.collect()
        tracemalloc.start()
        try:
            scheduler.driver.select_destinations(request)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(3)
    few = peak(2)
    many = peak(22)
    assert (many - few) / 20 < len(hosts) * sys.getsizeof(0)
