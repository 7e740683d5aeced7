# SPDX-License-Identifier: Apache-2.0
"""Servers that fit once the fullest host of each zone is lost."""

import json
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from novasched.tools.simulate import headroom
from novasched.tools.simulate.evacuations import Evacuee
from novasched.tools.simulate.headroom import Headroom
from tests.lab.builders import (
    a_flavor,
    a_group,
    a_host,
    a_request,
    numbered_uuids,
)
from tests.lab.memory_simulators import MemoryCandidates, a_simulator

TOTAL = 4096


def a_zone_host(name, free, servers):
    """A host of 4 GiB with a number of servers of 512 MiB; the zone is the first letter
    of its name."""
    uuids = numbered_uuids(name, servers)
    return a_host(name, ram=free, total_usable_ram_mb=TOTAL, instances=uuids)


def evacuees_of(hosts):
    evacuees = []
    for host in hosts:
        for uuid in host.instances:
            request = a_request(instance_uuids=(uuid,), instance_uuid=uuid)
            evacuees.append(Evacuee(uuid, host.host, 'active', request))
    return evacuees


def a_zone_simulator(hosts):
    """A simulator whose Placement has the free memory of the hosts."""
    return a_simulator(
        hosts, MemoryCandidates({host.uuid: host.free_ram_mb for host in hosts})
    )


@pytest.mark.parametrize(
    ('free', 'expected'),
    [
        # The two servers of a1 take two of three places of a2. Of b1's four, three go
        # there; b2 has no room.
        (
            {'a1': (0, 2), 'a2': (1536, 0), 'b1': (0, 4), 'b2': (0, 0)},
            {'a': (2, 0, 1), 'b': (4, 1, 0)},
        ),
        ({'a1': (0, 0), 'a2': (1024, 0)}, {'a': (0, 0, 2)}),
        ({'a1': (512, 1)}, {'a': (1, 1, 0)}),
    ],
)
def test_headroom_counts_probes_after_the_loss_of_the_fullest_host(free, expected):
    """Servers may move to another zone, the probe may not. The simulator is unchanged
    at the end."""
    hosts = [a_zone_host(name, *each) for name, each in free.items()]
    simulator = a_zone_simulator(hosts)
    zones = {}
    for host in hosts:
        zones.setdefault(host.host[0], set()).add(host.host)
    probe = a_request(flavor=a_flavor(memory_mb=512, name='m1'))
    where = simulator.read_all()
    found = headroom.headroom(simulator, zones, evacuees_of(hosts), where, probe, 99)

    numbers = {}
    for result in found:
        numbers[result.name] = (result.servers, result.unplaced, result.fit)
        assert result.fullest == f'{result.name}1'
    assert numbers == expected
    lefts = [result.left for result in found]
    assert lefts == sorted(lefts)
    assert simulator.hosts == hosts


def test_affinity_groups_are_left_out():
    """Servers of strict affinity groups never find a place, so they need no alert."""
    hosts = [a_zone_host('a1', 0, 2), a_zone_host('a2', 1024, 0)]
    one, two = evacuees_of(hosts)
    group = a_group('affinity', [two.uuid])
    bound = replace(two, request=replace(two.request, instance_group=group))
    simulator = a_zone_simulator(hosts)
    (found,) = headroom.headroom(
        simulator,
        {'a': {'a1', 'a2'}},
        [one, bound],
        simulator.read_all(),
        a_request(),
        99,
    )

    assert (found.servers, found.unplaced, found.fit) == (1, 0, 1)


ROOMS = [Headroom('b "x"', 'b1', 4, 2, 0), Headroom('a', 'a1', 2, 0, 7)]


def test_prometheus_reads_the_headroom_of_each_zone():
    """A number for each zone: servers that fit, or servers without a place as a
    negative number."""
    text = headroom.as_prometheus('zone', 'm1.large', ROOMS)
    (family,) = text_string_to_metric_families(text + '\n')
    assert (family.name, family.type) == ('novasched_headroom_servers', 'gauge')
    rows = [(sample.labels, sample.value) for sample in family.samples]
    assert rows == [
        ({'zone': 'a', 'flavor': 'm1.large'}, 7),
        ({'zone': 'b "x"', 'flavor': 'm1.large'}, -2),
    ]


def test_text_and_json_show_the_headroom_of_each_zone():
    text = headroom.as_text('zone', 'm1.large', ROOMS)
    assert 'm1.large that fit then' in text.splitlines()[1]
    assert [row.split()[-2] for row in text.splitlines()[3:5]] == ['0', '7']
    said = json.loads(headroom.as_json('zone', 'm1.large', ROOMS))
    assert [each['left'] for each in said['headroom']] == [-2, 7]
