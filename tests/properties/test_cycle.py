# SPDX-License-Identifier: Apache-2.0
"""Allocations equal the answers, and no answer depends on the notes of a decision."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from novasched.scheduler.decision import PlacementAttempt, Ranking
from novasched.scheduler.drivers.filter_scheduler import FilterScheduler
from novasched.scheduler.explanation import Explanation
from novasched.scheduler.filters.affinity import ServerGroupAntiAffinityFilter
from novasched.scheduler.weighers.ram import RAMWeigher
from tests.lab.builders import a_group, a_host, a_request, a_uuid, numbered_uuids
from tests.lab.counting_placement import CountingPlacement
from tests.lab.memory_schedulers import a_driver

CLOUDS = {
    'slots': st.lists(st.integers(0, 3), min_size=1, max_size=6),
    'stale': st.sets(st.integers(0, 5)),
    'counts': st.lists(st.integers(1, 5), min_size=1, max_size=4),
    'apart': st.booleans(),
    'subset': st.integers(1, 4),
    'seed': st.integers(0, 99),
}
"""``slots`` of the hosts, the ``stale`` hosts, which Placement offers although they are
full, and the ``counts`` of instances of the requests."""


def a_cloud(slots, stale, subset, kind=FilterScheduler):
    """A driver, and its Placement."""
    hosts = []
    slots_of = {}
    for number, count in enumerate(slots):
        host = a_host(f'h{number}', ram=1024 * (number % 3), cell=f'c{number % 2}')
        hosts.append(host)
        slots_of[host.uuid] = count
    stale_hosts = frozenset(hosts[i].uuid for i in stale if i < len(hosts))
    placement = CountingPlacement(slots_of, stale=stale_hosts)

    driver = a_driver(
        hosts,
        ServerGroupAntiAffinityFilter,
        placement=placement,
        weighers=[RAMWeigher],
        host_subset_size=subset,
        kind=kind,
    )
    return driver, placement


def requests_for(counts, apart):
    """A request for each count of instances, with an anti-affinity group if
    ``apart``."""
    for number, count in enumerate(counts):
        uuids = tuple(numbered_uuids(f'{number}-', count))
        group = a_group('anti-affinity', uuids) if apart else None
        yield a_request(
            count=count, instance_uuids=uuids, group=group, return_alternates=True
        )


class NoExplanation(Explanation):
    """Notes neither steps nor attempts."""

    def end_step(self, name, attempt=None, refused=None):
        """Forget the step."""

    def begin_attempt(self, request, state, ranking):
        return PlacementAttempt(None, 0, 0, 0, Ranking(()))


class UnobservedScheduler(FilterScheduler):
    def _cycle(self, basis, seed):
        cycle = super()._cycle(basis, seed)
        cycle.explanation = NoExplanation(seed, cycle.deps.pipeline.clock)
        return cycle


@given(**CLOUDS)
def test_a_decision_does_not_depend_on_noted_steps_and_attempts(
    slots, stale, counts, apart, subset, seed
):
    """Without steps and attempts every request gets the same answer."""
    observed, placement = a_cloud(slots, stale, subset)
    unobserved, second_placement = a_cloud(slots, stale, subset, UnobservedScheduler)

    for request in requests_for(counts, apart):
        expected = observed.decide(request, seed)
        answer = unobserved.decide(request, seed)
        assert answer.attempts == ()
        assert answer.refusal == expected.refusal
        assert answer.hosts == expected.hosts
        assert [*map(len, answer.selections)] == [*map(len, expected.selections)]

    assert placement.hosts == second_placement.hosts


@given(**CLOUDS)
def test_allocations_equal_the_answers_to_requests(
    slots, stale, counts, apart, subset, seed
):
    """After any requests, a placed instance has its allocation on the host of the
    answer, a refused instance has no allocation, and no host exceeds its slots."""
    driver, placement = a_cloud(slots, stale, subset)
    answered = {}
    for request in requests_for(counts, apart):
        decision = driver.decide(request, seed)
        if decision.refusal is not None:
            continue
        rows = decision.selections
        chosen = [destination.compute_node_uuid for destination, *_ in rows]
        answered |= dict(zip(request.instance_uuids, chosen, strict=True))

        assert not apart or len(set(chosen)) == len(chosen)
        for row in rows:
            assert len({selection.cell_uuid for selection in row}) == 1
            for alternate in row[1:]:
                assert alternate.compute_node_uuid not in chosen

    assert placement.hosts == answered
    instances = Counter(answered.values())
    for number, max_instances in enumerate(slots):
        assert instances[a_uuid(f'h{number}')] <= max_instances
