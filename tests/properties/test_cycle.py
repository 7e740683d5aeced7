# SPDX-License-Identifier: Apache-2.0
"""Whatever is asked, allocations equal the answers, and no answer depends on what is
noted of a decision."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from novasched.scheduler.cycle import Cycle
from novasched.scheduler.decision import PlacementAttempt, Ranking
from novasched.scheduler.drivers.filter_scheduler import FilterScheduler
from novasched.scheduler.filters.affinity import ServerGroupAntiAffinityFilter
from novasched.scheduler.weighers.ram import RAMWeigher
from tests.lab.builders import a_group, a_host, a_request, a_uuid
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
"""Hosts with slots, of which Placement offers the stale ones though they are full, and
requests of so many instances each."""


def a_cloud(slots, stale, subset, kind=FilterScheduler):
    """A driver, and the Placement that it asks."""
    hosts = [
        a_host(f'h{i}', ram=1024 * (i % 3), cell=f'c{i % 2}') for i in range(len(slots))
    ]
    placement = CountingPlacement(
        {host.uuid: free for host, free in zip(hosts, slots, strict=True)},
        stale=frozenset(hosts[i].uuid for i in stale if i < len(hosts)),
    )
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
    """A request of so many instances each, with a server group if they are to be
    apart."""
    for number, count in enumerate(counts):
        uuids = tuple(a_uuid(f'{number}-{i}') for i in range(count))
        group = a_group('anti-affinity', uuids) if apart else None
        yield a_request(
            count=count, instance_uuids=uuids, group=group, return_alternates=True
        )


class Unobserved(Cycle):
    """Notes neither steps nor attempts."""

    def _end_step(self, name, attempt=None, refused=None):
        """Forget the step."""

    def _begin_attempt(self, request, state, ranking):
        return PlacementAttempt(None, 0, 0, 0, Ranking(()))


class UnobservedScheduler(FilterScheduler):
    def _cycle(self, basis, seed):
        return Unobserved(super()._cycle(basis, seed).parts, basis, seed)


@given(**CLOUDS)
def test_nothing_is_decided_by_what_is_noted(slots, stale, counts, apart, subset, seed):
    """Without steps and attempts every request gets the same answer."""
    observed, placement = a_cloud(slots, stale, subset)
    unobserved, other_placement = a_cloud(slots, stale, subset, UnobservedScheduler)
    for request in requests_for(counts, apart):
        expected = observed.decide(request, seed)
        answer = unobserved.decide(request, seed)
        assert answer.attempts == ()
        assert answer.refusal == expected.refusal
        assert answer.hosts == expected.hosts
        assert [len(row) for row in answer.selections] == [
            len(row) for row in expected.selections
        ]
    assert placement.hosts == other_placement.hosts


@given(**CLOUDS)
def test_allocations_equal_what_was_answered(slots, stale, counts, apart, subset, seed):
    """After any requests each answered server has its allocation on the host that was
    answered, no refused one has any, and no host holds more than fits."""
    driver, placement = a_cloud(slots, stale, subset)
    answered = {}
    for request in requests_for(counts, apart):
        decision = driver.decide(request, seed)
        if decision.refusal is not None:
            continue
        rows = decision.selections
        chosen = {
            uuid: row[0].compute_node_uuid
            for uuid, row in zip(request.instance_uuids, rows, strict=True)
        }
        answered |= chosen
        assert not apart or max(Counter(chosen.values()).values()) == 1
        for row in rows:
            assert len({each.cell_uuid for each in row}) == 1
            assert not {each.compute_node_uuid for each in row[1:]} & set(
                chosen.values()
            )
    assert placement.hosts == answered
    taken = Counter(answered.values())
    assert all(taken[a_uuid(f'h{i}')] <= fits for i, fits in enumerate(slots))
