# SPDX-License-Identifier: Apache-2.0
"""Hosts that are lost in turn, against new simulators that lose a single host."""

import copy
from collections import Counter, defaultdict

from hypothesis import given
from hypothesis import strategies as st

from novasched.tools.simulate.evacuations import Evacuee
from novasched.tools.simulate.losses import lose, lose_each, members
from tests.lab.builders import a_group, a_host, a_request, numbered_uuids
from tests.lab.memory_simulators import MemoryCandidates, a_simulator

NAMES = 'abcd'
AMOUNT = 512
"""Memory of each instance, in MiB."""


@st.composite
def clouds(draw):
    """Free memory of each host, and the policies of the groups of its instances."""
    room = {name: AMOUNT * draw(st.integers(0, 3)) for name in NAMES}
    policies = st.sampled_from([None, None, 'affinity', 'anti-affinity'])
    return room, {name: draw(st.lists(policies, max_size=3)) for name in NAMES}


def instances_on(host, policies):
    """The UUIDs of the instances on a host."""
    return numbered_uuids(host, len(policies))


def evacuees_of(policies_of):
    """The instances of all hosts. The instances of a policy are in the same group."""
    members = defaultdict(list)
    for host, policies in policies_of.items():
        for uuid, policy in zip(instances_on(host, policies), policies, strict=True):
            members[policy].append(uuid)

    evacuees = []
    for host, policies in policies_of.items():
        for uuid, policy in zip(instances_on(host, policies), policies, strict=True):
            group = a_group(policy, members[policy]) if policy else None
            request = a_request(instance_uuids=(uuid,), instance_uuid=uuid, group=group)
            evacuees.append(Evacuee(uuid, host, 'active', request))
    return evacuees


def new_simulator(room, policies_of):
    hosts = []
    for name, free_ram in room.items():
        instances = instances_on(name, policies_of[name])
        hosts.append(a_host(name, ram=free_ram, instances=instances))
    free = {host.uuid: host.free_ram_mb for host in hosts}
    return a_simulator(hosts, MemoryCandidates(free, AMOUNT))


@given(clouds(), st.permutations(NAMES))
def test_a_loss_equals_the_loss_in_a_new_simulator(cloud, order):
    """The loss of a host has the outcomes of a new simulator, in any order of losses. A
    loss leaves hosts and free amounts unchanged. A host gets no more instances than
    fit, no instance goes to a lost host, and the members of a group with anti-affinity
    stay apart."""
    room, policies_of = cloud
    evacuees = evacuees_of(policies_of)
    simulator = new_simulator(room, policies_of)
    host_of = simulator.read_all()
    assert len(host_of) == len(evacuees)
    for evacuee in evacuees:
        assert host_of[evacuee.uuid] == evacuee.host

    hosts = simulator.hosts
    losses = lose_each(simulator, members('host', hosts, None), evacuees, host_of)
    loss_of = {loss.name: loss for loss in losses}
    free = copy.deepcopy(simulator.placement.free.by_provider)

    for name in order:
        lost = [evacuee for evacuee in evacuees if evacuee.host == name]
        fresh = new_simulator(room, policies_of)
        alone = lose(fresh, name, {name}, lost, fresh.read_all())
        again = lose(simulator, name, {name}, lost, host_of)
        assert alone.outcomes == again.outcomes == loss_of[name].outcomes

        placed = Counter(alone.places)
        assert name not in placed
        for host, number in placed.items():
            assert AMOUNT * number <= room[host]
        for outcome in alone.outcomes:
            check_anti_affinity(outcome, name, host_of)

    assert list(map(id, simulator.hosts)) == list(map(id, hosts))
    assert free == simulator.placement.free.by_provider
    assert simulator.placement.allocations == {}


def check_anti_affinity(outcome, lost_host, host_of):
    """An evacuated member of the group gets a host without other members."""
    group = outcome.evacuee.request.instance_group
    if group and group.policy == 'anti-affinity' and outcome.host:
        hosts_of_members = {host_of[uuid] for uuid in group.members}
        assert outcome.host not in hosts_of_members - {lost_host}


@given(clouds())
def test_the_loss_with_the_most_unplaced_instances_is_first(cloud):
    """The loss with the most unplaced instances is first. Instances without a group are
    unplaced only where the other hosts have no room."""
    room, policies_of = cloud
    simulator = new_simulator(room, policies_of)
    losses = lose_each(
        simulator,
        members('host', simulator.hosts, None),
        evacuees_of(policies_of),
        simulator.read_all(),
    )

    numbers = [len(loss.unplaced) for loss in losses]
    assert numbers == sorted(numbers, reverse=True)
    for loss in losses:
        policies = policies_of[loss.name]
        slots = 0
        for name, free in room.items():
            if name != loss.name:
                slots += free // AMOUNT
        if not any(policies):
            assert len(loss.unplaced) == max(0, len(policies) - slots)
