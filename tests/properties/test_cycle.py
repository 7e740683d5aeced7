# SPDX-License-Identifier: Apache-2.0
"""Whatever is asked, the books balance."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from novasched.scheduler.filters.affinity import ServerGroupAntiAffinityFilter
from novasched.scheduler.weighers.ram import RAMWeigher
from tests.lab.builders import a_group, a_host, a_request, a_uuid
from tests.lab.ports import CountingPlacement, a_driver


@given(
    slots=st.lists(st.integers(0, 3), min_size=1, max_size=6),
    stale=st.sets(st.integers(0, 5)),
    counts=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    apart=st.booleans(),
    subset=st.integers(1, 4),
    seed=st.integers(0, 99),
)
def test_allocations_equal_what_was_answered(slots, stale, counts, apart, subset, seed):
    """After any requests each answered server has its allocation on the host that was
    answered, no refused one has any, and no host holds more than fits."""
    hosts = [
        a_host(f'h{i}', ram=1024 * (i % 3), cell=f'c{i % 2}') for i in range(len(slots))
    ]
    placement = CountingPlacement(
        {host.uuid: left for host, left in zip(hosts, slots, strict=True)},
        stale=frozenset(hosts[i].uuid for i in stale if i < len(hosts)),
    )
    driver = a_driver(
        hosts,
        ServerGroupAntiAffinityFilter,
        placement=placement,
        weighers=[RAMWeigher],
        host_subset_size=subset,
    )
    answered = {}
    for number, count in enumerate(counts):
        uuids = tuple(a_uuid(f'{number}-{i}') for i in range(count))
        group = a_group('anti-affinity', uuids) if apart else None
        request = a_request(
            count=count, instance_uuids=uuids, group=group, return_alternates=True
        )
        decision = driver.decide(request, seed)
        if decision.refusal is not None:
            continue
        rows = decision.selections
        chosen = {
            uuid: row[0].compute_node_uuid
            for uuid, row in zip(uuids, rows, strict=True)
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
    assert all(
        taken[host.uuid] <= fits for host, fits in zip(hosts, slots, strict=True)
    )
