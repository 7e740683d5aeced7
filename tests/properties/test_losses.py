# SPDX-License-Identifier: Apache-2.0
"""Hosts that are lost in memory, against simulators that lose nothing before."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from novasched.tools.simulate.evacuations import Evacuee
from novasched.tools.simulate.losses import lose, lose_each, members
from tests.lab.builders import a_group, a_host, a_request, a_uuid
from tests.lab.memory_simulators import MemoryCandidates, a_simulator

NAMES = 'abcd'
AMOUNT = 512  # MiB, of each server


@st.composite
def clouds(draw):
    """Free memory of each host, and its servers with the policy of their group."""
    room = {name: AMOUNT * draw(st.integers(0, 3)) for name in NAMES}
    policies = st.sampled_from([None, None, 'affinity', 'anti-affinity'])
    return room, {name: draw(st.lists(policies, max_size=3)) for name in NAMES}


def evacuees_of(servers):
    """The servers of each policy are in one group."""
    uuids = {
        (host, i): a_uuid(f'{host}{i}')
        for host, kept in servers.items()
        for i in range(len(kept))
    }
    found = []
    for (host, i), uuid in uuids.items():
        policy = servers[host][i]
        same = [each for (h, j), each in uuids.items() if servers[h][j] == policy]
        group = a_group(policy, same) if policy else None
        request = a_request(instance_uuids=(uuid,), instance_uuid=uuid, group=group)
        found.append(Evacuee(uuid, host, 'active', request))
    return found


def new_simulator(room, servers):
    uuids = {
        host: [a_uuid(f'{host}{i}') for i in range(len(kept))]
        for host, kept in servers.items()
    }
    hosts = [
        a_host(name, ram=left, instances=uuids[name]) for name, left in room.items()
    ]
    return a_simulator(
        hosts, MemoryCandidates({host.uuid: host.free_ram_mb for host in hosts}, AMOUNT)
    )


@given(clouds(), st.permutations(NAMES))
def test_each_is_lost_alone(cloud, order):
    """Whatever was lost before, and in whatever order, each host lost is as the first
    that a new simulator loses; nothing of it stays: hosts are the same, and so are the
    books. A host gets no more servers than it has room for, none goes to a lost host,
    and those of a group stay apart."""
    room, servers = cloud
    evacuees = evacuees_of(servers)
    simulator = new_simulator(room, servers)
    where = simulator.read_all()
    assert where == {each.uuid: each.host for each in evacuees}
    hosts = simulator.hosts
    lost = members('host', hosts, None)
    found = {each.name: each for each in lose_each(simulator, lost, evacuees, where)}
    books = {
        rp: dict(left) for rp, left in simulator.placement.free.by_provider.items()
    }
    for name in order:
        own = [each for each in evacuees if each.host == name]
        fresh = new_simulator(room, servers)
        alone = lose(fresh, name, {name}, own, fresh.read_all())
        again = lose(simulator, name, {name}, own, where)
        assert alone.outcomes == again.outcomes == found[name].outcomes
        placed = Counter(alone.places)
        assert name not in placed
        assert all(AMOUNT * number <= room[host] for host, number in placed.items())
        for each in alone.outcomes:
            group = each.evacuee.request.instance_group
            if group and group.policy == 'anti-affinity' and each.host:
                others = [where[uuid] for uuid in group.members if where[uuid] != name]
                assert each.host not in others
    assert all(one is other for one, other in zip(hosts, simulator.hosts, strict=True))
    assert books == simulator.placement.free.by_provider
    assert simulator.placement.allocations == {}


@given(clouds())
def test_the_worst_is_first(cloud):
    """By the number of servers without a place; where there is room for all and no
    group, there is none."""
    room, servers = cloud
    simulator = new_simulator(room, servers)
    losses = lose_each(
        simulator,
        members('host', simulator.hosts, None),
        evacuees_of(servers),
        simulator.read_all(),
    )
    numbers = [len(each.unplaced) for each in losses]
    assert numbers == sorted(numbers, reverse=True)
    for each in losses:
        left = sum(free // AMOUNT for name, free in room.items() if name != each.name)
        if not any(servers[each.name]):
            assert len(each.unplaced) == max(0, len(servers[each.name]) - left)
