# SPDX-License-Identifier: Apache-2.0
"""Instances with devices in request groups. The candidates are worked out from answers
to base queries, and Placement checks the claims."""

import contextlib
from collections import Counter
from dataclasses import replace
from itertools import chain

import pytest

from novasched.scheduler.ports import MAX_CLAIMS_PER_HOST
from tests.lab.compute_rows import Flavor
from tests.lab.daemon import Daemon, Group, Refused, a_call, new_uuids
from tests.lab.processes import wait_until
from tests.lab.proxy import Proxy

DEVICES = 8
"""Devices of each host."""
PLAIN = Flavor()
DIAGNOSIS_S = 30.0
"""Maximum time until a diagnosis is recorded, in seconds."""


def with_devices(number, policy='isolate', **extra_specs):
    """A flavor with devices, each in a request group."""
    for index in range(1, number + 1):
        extra_specs[f'resources{index}:VGPU'] = '1'
    return Flavor(extra_specs=extra_specs | {'group_policy': policy})


@pytest.fixture(scope='module')
def between(cloud):
    """The proxy between Placement and the scheduler."""
    cloud.reset()
    with Proxy(cloud.placement_url) as proxy:
        yield proxy


@pytest.fixture(scope='module')
def daemon(cloud, between):
    """The scheduler of all tests of this module."""
    config = {
        'placement': {'endpoint': between.url},
        'novasched': {'in_flight_timeout': 3600},  # no claim expires
    }
    with Daemon(cloud, config) as daemon:
        yield daemon


@pytest.fixture
def hosts(cloud, between, daemon):
    """Three hosts with devices, and a host without a device."""
    cloud.reset()
    hosts = {}
    for number in range(3):
        host = cloud.add_host(f'gpu-{number}', ram_mb=131072)
        hosts[host.name] = add_devices(cloud, host)
    cloud.add_host('plain', ram_mb=131072)
    between.asked.clear()
    return hosts


def add_devices(cloud, host, count=DEVICES, **traits):
    """Add devices to a host; the UUIDs of their providers.

    :param traits: a trait for all devices.
    """
    devices = new_uuids(count)
    inventory = {'VGPU': {'total': 1, 'max_unit': 1, 'allocation_ratio': 1.0}}
    for uuid in devices:
        cloud.placement.add_provider(
            uuid, f'{host.name}-{uuid}', inventory, [*traits.values()], host.uuid
        )
    return devices


def devices_of(cloud, *instances):
    """The devices of instances, each with the number of its instances."""
    devices = Counter()
    for instance in instances:
        for provider, amounts in cloud.placement.allocations(instance).items():
            if 'VGPU' in amounts:
                devices[provider] += amounts['VGPU']
    return devices


def all_devices(hosts):
    return [*chain.from_iterable(hosts.values())]


def check_queries(between):
    """Check that Placement was asked for no permutations of more than two devices."""
    queries = [line for line in between.asked if '/allocation_candidates?' in line]
    assert queries
    for query in queries:
        assert query.count('VGPU') <= 2


def check_queries_about_hosts(between):
    """Check that Placement was asked about hosts, and not for devices."""
    check_queries(between)
    for query in between.asked:
        assert '/allocation_candidates?' not in query or 'VGPU' not in query


@pytest.mark.parametrize('number', [1, 2, 4, 8])
@pytest.mark.parametrize('policy', ['isolate', 'none'])
def test_instances_with_devices_fill_the_cloud_to_the_last_device(
    cloud, client, between, hosts, number, policy
):
    """Instances with devices fill the cloud to the last device, and then no instance
    fits."""
    flavor = with_devices(number, policy)
    instances = new_uuids(3 * DEVICES // number)
    chosen = Counter()
    for uuid in instances:
        chosen.update(client.chosen(uuid, flavor=flavor))

    assert chosen == dict.fromkeys(hosts, DEVICES // number)
    devices = devices_of(cloud, *instances)
    assert devices == dict.fromkeys(all_devices(hosts), 1)
    check_queries_about_hosts(between)
    client.refusal(flavor=flavor)
    assert client.chosen(flavor=PLAIN)
    check_queries(between)


def test_large_and_small_instances_share_the_devices_of_hosts(cloud, client, hosts):
    """Large and small instances share hosts, to the last device that fits."""
    instances = []
    for number in (8, 4, 4, 4, 2, 1, 1):
        [uuid] = new_uuids()
        assert set(client.chosen(uuid, flavor=with_devices(number))) <= set(hosts)
        instances.append(uuid)
    assert devices_of(cloud, *instances) == dict.fromkeys(all_devices(hosts), 1)


def test_instances_of_a_request_get_different_devices(cloud, client, hosts):
    """The instances of a request have different devices."""
    instances = new_uuids(12)
    assert len(client.chosen(*instances, flavor=with_devices(2))) == 12
    assert devices_of(cloud, *instances) == dict.fromkeys(all_devices(hosts), 1)
    client.refusal(flavor=with_devices(1))


def test_concurrent_requests_get_different_devices(cloud, client, hosts):
    """Requests at the same time get different devices, and no request is refused."""
    instances = new_uuids(24)
    calls = [a_call([uuid], with_devices(1)) for uuid in instances]
    for answer in client.select_at_once(calls, threads=8):
        assert not isinstance(answer, Refused)
    assert devices_of(cloud, *instances) == dict.fromkeys(all_devices(hosts), 1)


def test_devices_allocated_by_another_consumer_are_avoided(cloud, client, hosts):
    """Another consumer has taken devices since the last answer of Placement."""
    assert client.chosen(flavor=with_devices(8))
    free = set(all_devices(hosts))
    for amounts in cloud.placement.all_allocations().values():
        free -= amounts.keys()
    last = free.pop()
    for device in free:
        cloud.placement.allocate(new_uuids()[0], device, {'VGPU': 1})

    [uuid] = new_uuids()
    assert client.chosen(uuid, flavor=with_devices(1))
    assert devices_of(cloud, uuid) == {last: 1}
    client.refusal(flavor=with_devices(1))


def test_instances_fill_the_devices_of_a_named_host(cloud, client, between, hosts):
    """An administrator names the host of instances. Instances with devices fill the
    host to the last device."""
    instances = new_uuids(2)
    for uuid in instances:
        chosen = client.chosen(uuid, flavor=with_devices(4), force_hosts=['gpu-1'])
        assert chosen == ['gpu-1']
    assert devices_of(cloud, *instances) == dict.fromkeys(hosts['gpu-1'], 1)
    check_queries_about_hosts(between)
    client.refusal(flavor=with_devices(1), force_hosts=['gpu-1'])
    check_queries(between)


def test_a_request_is_refused_if_placement_lacks_a_forbidden_trait(
    cloud, client, between, hosts
):
    """Placement refuses a query with a trait that it does not know, and offers hosts
    once the trait exists."""
    flavor = with_devices(4, **{'trait:CUSTOM_NOWHERE': 'forbidden'})
    client.refusal(flavor=flavor)
    other = with_devices(4, **{'trait:CUSTOM_NOWHERE_ELSE': 'forbidden'})
    cloud.placement.call('PUT', '/traits/CUSTOM_NOWHERE_ELSE')
    between.asked.clear()

    assert client.chosen(flavor=other)
    check_queries_about_hosts(between)


def test_alternates_have_candidates_with_as_many_devices(cloud, client, hosts):
    """Alternates have candidates with as many devices."""
    [[best, *alternates]] = client.select_destinations(
        new_uuids(), with_devices(4), return_alternates=True
    )
    assert len(alternates) == 2
    for selection in (best, *alternates):
        assert selection['allocation_request'].count('VGPU') == 4


UNITS = {
    'hidden from the query about all hosts': ({'min_unit': 2}, True),
    'refused at the claim': ({'max_unit': 1}, False),
}


@pytest.mark.parametrize('number', [1, 4])
@pytest.mark.parametrize('name', UNITS)
def test_units_of_inventories_cause_few_refused_claims(
    cloud, client, between, hosts, name, number
):
    """Placement's answer about all hosts does not tell the units of inventories. Few
    claims are refused before Placement is asked the query of the request."""
    units, is_allowed = UNITS[name]
    flavor = replace(with_devices(number), vcpus=2)
    names = [*hosts]
    for index in range(5):
        host = cloud.add_host(f'more-{index}', ram_mb=131072)
        add_devices(cloud, host)
        names.append(host.name)
    for host in names:
        set_units(cloud, host, units)
    if is_allowed:
        assert set(client.chosen(flavor=flavor)) <= set(names)
        return

    last = cloud.add_host('last', ram_mb=65536)
    add_devices(cloud, last)
    between.asked.clear()
    [[best, *alternates]] = client.select_destinations(
        new_uuids(), flavor, return_alternates=True
    )
    assert best['service_host'] == last.name
    assert alternates == []
    assert between.count('PUT /allocations') <= MAX_CLAIMS_PER_HOST + 1

    set_units(cloud, last.name, units)
    between.asked.clear()
    client.refusal(flavor=flavor)
    # The first claim may be of an earlier answer.
    assert between.count('PUT /allocations') <= MAX_CLAIMS_PER_HOST + 1


def set_units(cloud, name, units):
    """Change the units of the VCPU inventory of a host."""
    inventories = cloud.computes[name].inventories()
    inventories['VCPU'] |= units
    cloud.placement.put(cloud.computes[name].uuid, inventories=inventories)


def test_a_refusal_is_explained_by_the_free_devices_of_each_host(
    cloud, client, tool, between, daemon, hosts
):
    """The explanation has the number of free devices of each host. The diagnosis asks
    for no permutations of devices either."""
    for host, free in zip(hosts, (3, 2, 0), strict=True):
        for device in hosts[host][free:]:
            cloud.placement.allocate(new_uuids()[0], device, {'VGPU': 1})
    [uuid] = new_uuids()
    client.refusal(uuid, flavor=with_devices(4))

    def explained():
        with contextlib.suppress(ValueError):  # no record
            return tool('explain', daemon.config, uuid)[1].get('counts')
        return None

    wait_until(explained, DIAGNOSIS_S, 'diagnosis')
    assert explained() == {'have fewer than 4 free VGPU': 2, 'lack VGPU': 2}
    for host, reason in {'gpu-0': '3 of 4 VGPU free', 'plain': '1 VGPU'}.items():
        _, explanation = tool('explain', daemon.config, uuid, '--host', host)
        [why] = explanation['host']['why']
        assert reason in why
    check_queries(between)


def a_move(cloud, **differences):
    """The parameters of a request for an instance that is in a cell already."""
    return {'destination': {'cell': cloud.cell_uuids['cell1']}, **differences}


def test_an_evacuated_instance_gets_devices_on_another_host(cloud, client, hosts):
    """An instance that is evacuated keeps the devices of its source, and gets as many
    devices on another host."""
    flavor = with_devices(2)
    [uuid] = new_uuids()
    [source] = client.chosen(uuid, flavor=flavor)
    before = cloud.placement.allocations(uuid)

    move = a_move(cloud, ignore_hosts=[source])
    [destination] = client.chosen(uuid, flavor=flavor, **move)

    assert destination in hosts.keys() - {source}
    devices = devices_of(cloud, uuid)
    assert len(devices.keys() & set(hosts[source])) == 2
    assert len(devices.keys() & set(hosts[destination])) == 2
    assert cloud.placement.allocations(uuid).items() >= before.items()


def test_devices_stay_with_the_migration_during_a_resize(cloud, client, hosts):
    """The devices of an instance stay with its migration while the instance is resized
    on the same host, and are free once the migration has ended."""
    for host in ('gpu-1', 'gpu-2'):
        for device in hosts[host]:
            cloud.placement.allocate(new_uuids()[0], device, {'VGPU': 1})
    [uuid, migration] = new_uuids(2)
    assert client.chosen(uuid, flavor=with_devices(2)) == ['gpu-0']

    cloud.placement.hand_over(uuid, migration)
    larger = with_devices(6)
    assert client.chosen(uuid, flavor=larger, **a_move(cloud)) == ['gpu-0']
    assert devices_of(cloud, uuid, migration) == dict.fromkeys(hosts['gpu-0'], 1)
    client.refusal(flavor=with_devices(1))

    cloud.placement.release(migration)
    assert client.chosen(flavor=with_devices(2)) == ['gpu-0']


def test_devices_of_a_reverted_resize_are_free_again(cloud, client, hosts):
    """The devices that a reverted resize has claimed are free again."""
    [uuid, migration] = new_uuids(2)
    client.chosen(uuid, flavor=with_devices(2))
    before = devices_of(cloud, uuid)
    cloud.placement.hand_over(uuid, migration)
    client.chosen(uuid, flavor=with_devices(4), **a_move(cloud))

    cloud.placement.release(uuid)
    cloud.placement.hand_over(migration, uuid)

    assert devices_of(cloud, uuid) == before
    others = new_uuids(3 * DEVICES - 2)
    for other in others:
        client.chosen(other, flavor=with_devices(1))
    assert devices_of(cloud, uuid, *others) == dict.fromkeys(all_devices(hosts), 1)


@pytest.mark.parametrize(('policy', 'number'), [('anti-affinity', 3), ('affinity', 4)])
def test_group_members_get_devices_on_hosts_allowed_by_the_policy(
    cloud, client, hosts, policy, number
):
    """The members of a group get devices on different hosts, or on the same host."""
    group = Group(policy)
    flavor = with_devices(2)
    members = new_uuids(number)
    chosen = client.chosen(*members, flavor=flavor, group=group)
    assert len({*chosen}) == (1 if policy == 'affinity' else number)
    assert len(devices_of(cloud, *members)) == 2 * number

    group.members = members
    group.hosts = [*{*chosen}]
    client.refusal(flavor=flavor, group=group)
