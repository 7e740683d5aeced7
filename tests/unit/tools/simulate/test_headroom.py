# SPDX-License-Identifier: Apache-2.0
"""What fits once the fullest host of each zone is lost."""

import json
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from novasched.tools.simulate import headroom
from novasched.tools.simulate.evacuations import Evacuee
from novasched.tools.simulate.headroom import Headroom
from tests.lab.builders import a_flavor, a_group, a_host, a_request, a_uuid
from tests.lab.ports import Asked, a_simulator

TOTAL = 4096


def a_zone_host(name, free, servers):
    """A host of 4 GiB with so many servers of 512 MiB, whose zone is its first
    letter."""
    uuids = [a_uuid(f'{name}{i}') for i in range(servers)]
    return a_host(name, ram=free, total_usable_ram_mb=TOTAL, instances=uuids)


def evacuees_of(hosts):
    return [
        Evacuee(
            uuid,
            host.host,
            'active',
            a_request(instance_uuids=(uuid,), instance_uuid=uuid),
        )
        for host in hosts
        for uuid in host.instances
    ]


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
def test_headroom(free, expected):
    """A zone's servers may go to another zone, and the probe may not; the simulator is
    as before."""
    hosts = [a_zone_host(name, *each) for name, each in free.items()]
    ask = Asked({host.uuid: host.free_ram_mb for host in hosts})
    simulator = a_simulator(hosts, ask)
    zones = {}
    for host in hosts:
        zones.setdefault(host.host[0], set()).add(host.host)
    probe = a_request(flavor=a_flavor(memory_mb=512, name='m1'))
    where = simulator.read_all()
    found = headroom.headroom(simulator, zones, evacuees_of(hosts), where, probe, 99)
    assert {
        each.name: (each.servers, each.unplaced, each.fit) for each in found
    } == expected
    assert all(each.fullest == f'{each.name}1' for each in found)
    assert [each.left for each in found] == sorted(each.left for each in found)
    assert simulator.hosts == hosts


def test_affinity_groups_are_left_out():
    """They find no place, whatever is free, so that nobody is to be woken for them."""
    hosts = [a_zone_host('a1', 0, 2), a_zone_host('a2', 1024, 0)]
    one, two = evacuees_of(hosts)
    group = a_group('affinity', [two.uuid])
    bound = replace(two, request=replace(two.request, instance_group=group))
    simulator = a_simulator(
        hosts, Asked({host.uuid: host.free_ram_mb for host in hosts})
    )
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


def test_what_prometheus_reads():
    """One number for each: what fits, or less than 0 if servers have no place."""
    text = headroom.as_prometheus('zone', 'm1.large', ROOMS)
    (family,) = text_string_to_metric_families(text + '\n')
    assert (family.name, family.type) == ('novasched_headroom_servers', 'gauge')
    assert {
        (x.labels['zone'], x.labels['flavor']): x.value for x in family.samples
    } == {
        ('a', 'm1.large'): 7,
        ('b "x"', 'm1.large'): -2,
    }


def test_for_people_and_machines():
    text = headroom.as_text('zone', 'm1.large', ROOMS)
    assert 'm1.large that fit then' in text.splitlines()[1]
    assert [row.split()[-2] for row in text.splitlines()[3:5]] == ['0', '7']
    said = json.loads(headroom.as_json('zone', 'm1.large', ROOMS))
    assert [each['left'] for each in said['headroom']] == [-2, 7]
