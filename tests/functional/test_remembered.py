# SPDX-License-Identifier: Apache-2.0
"""Remembered answers of Placement, compared with new answers of Placement."""

import time
from dataclasses import replace
from random import Random

import pytest
from keystoneauth1 import adapter, session, token_endpoint

from novasched.conf.settings import Settings
from novasched.placement.client import PlacementClient
from novasched.scheduler.model.basis import Basis
from novasched.scheduler.model.request import Destination
from tests.lab.builders import a_flavor, a_request
from tests.lab.daemon import Daemon, new_uuids
from tests.lab.placement_api import TOKEN
from tests.lab.processes import wait_until
from tests.lab.proxy import Proxy

from .test_placement_fails import placed

WAIT = 30.0
FROM_MEMORY = Basis(from_memory=True)
LONG = 3600.0
TRAITS = ('HW_CPU_X86_AVX', 'HW_CPU_X86_AVX2', 'CUSTOM_GOLD', 'COMPUTE_STATUS_DISABLED')
ZONES = new_uuids(2)
CLASSES = ('VCPU', 'MEMORY_MB', 'DISK_GB')


@pytest.fixture
def placement_client(cloud):
    """A Placement client that keeps answers for very long."""
    cloud.reset()
    token_session = session.Session(
        auth=token_endpoint.Token(cloud.placement_url, TOKEN)
    )
    http = adapter.Adapter(
        token_session,
        service_type='placement',
        endpoint_override=cloud.placement_url,
    )
    client = PlacementClient(Settings(candidates_max_age=LONG), http)
    yield client
    client.close()
    cloud.reset()


def fill(api, random, number):
    """Add hosts of random sizes and use, with random traits and zones. The first host
    has no traits, is in all zones, and fits every request."""
    add_large_host(api, random)
    for index in range(1, number):
        add_random_host(api, random, index)


def add_large_host(api, random):
    [uuid] = new_uuids()
    inventories = {}
    for name, total in {'VCPU': 64, 'MEMORY_MB': 8192, 'DISK_GB': 500}.items():
        inventories[name] = {
            'total': total,
            'reserved': 0,
            'allocation_ratio': random.choice([1.0, 1.5, 4.0]),
        }
    api.add_provider(uuid, 'host-0', inventories, [])
    for zone in ZONES:
        api.join_aggregate(uuid, zone)


def add_random_host(api, random, index):
    [uuid] = new_uuids()
    totals = {
        'VCPU': random.randrange(1, 9),
        'MEMORY_MB': 512 * random.randrange(1, 9),
        'DISK_GB': random.randrange(5, 60),
    }
    inventories = {}
    for name, total in totals.items():
        inventories[name] = {
            'total': total,
            'reserved': random.randrange(2),
            'allocation_ratio': random.choice([1.0, 1.5, 4.0]),
        }
    if random.random() < 0.2:
        del inventories['DISK_GB']

    traits = [name for name in TRAITS if random.random() < 0.5]
    api.add_provider(uuid, f'host-{index}', inventories, traits)
    for zone in ZONES:
        if random.random() < 0.5:
            api.join_aggregate(uuid, zone)

    if random.random() < 0.7:
        used = {}
        for name in inventories:
            if totals[name] > 2:
                used[name] = random.randrange(1, max(2, totals[name] - 1))
        if used:
            [consumer] = new_uuids()
            api.allocate(consumer, uuid, used)


def random_request(random):
    """A small or large request, with or without disk, traits, and aggregates. The host
    must be in an aggregate of a set, as for zones, or in an aggregate of every set, as
    for a zone and a tenant."""
    traits = {}
    for name in TRAITS:
        if random.random() < 0.3:
            traits[f'trait:{name}'] = random.choice(['required', 'forbidden'])
    flavor = a_flavor(
        traits,
        vcpus=random.choice([1, 1, 2, 4, 8]),
        memory_mb=random.choice([1, 512, 1024, 3072]),
        root_gb=random.choice([1, 10, 30]),
    )

    first = frozenset(ZONES[:1])
    second = frozenset(ZONES[1:])
    both = frozenset(ZONES)
    zones = random.choice([(), (), (first,), (both,), (first, second)])
    avoided = random.choice([frozenset(), frozenset(), second])
    destination = Destination(aggregates=zones, forbidden_aggregates=avoided)

    is_bfv = random.random() < 0.3
    return a_request(flavor=flavor, is_bfv=is_bfv, requested_destination=destination)


@pytest.mark.parametrize('seed', range(2))
def test_a_remembered_answer_offers_the_same_candidates_as_placement(
    cloud, placement_client, seed
):
    """For random hosts and requests, a remembered answer has the same hosts with the
    same amounts and providers as a new answer of Placement."""
    random = Random(seed)
    fill(cloud.placement, random, 14)

    compared = 0
    for _ in range(40):
        request = random_request(random)
        if request.requested_destination.forbidden_aggregates != frozenset(ZONES[1:]):
            wait_until_remembered(placement_client, request)

        remembered = placement_client.candidates(request, FROM_MEMORY)
        real = placement_client.candidates(request)
        if remembered.is_remembered:
            compared += 1
            assert comparable(remembered) == comparable(real)
    assert compared > 12


def wait_until_remembered(placement_client, request):
    """Wait until the client remembers the answer about all hosts, by a request for the
    smallest flavor with the same traits and aggregates."""
    smallest = replace(request, flavor=a_flavor(vcpus=1, memory_mb=1, root_gb=1))

    def is_remembered():
        return placement_client.candidates(smallest, FROM_MEMORY).is_remembered

    wait_until(is_remembered, WAIT, 'answer about all hosts')


def comparable(candidates):
    """Host to resources and providers of the host's candidates."""
    by_host = {}
    for uuid in candidates:
        by_host[uuid] = []
        for candidate in candidates[uuid]:
            by_host[uuid].append(
                (candidate.resources(), candidate.providers_by_group())
            )
    return by_host


def test_a_refused_claim_on_a_removed_provider_drops_old_answers(
    cloud, placement_client
):
    """A claim on a removed provider is refused, and makes the client drop its earlier
    answers."""
    fill(cloud.placement, Random(0), 2)
    [gone] = new_uuids()
    sizes = {
        'VCPU': {'total': 8},
        'MEMORY_MB': {'total': 8192},
        'DISK_GB': {'total': 99},
    }
    cloud.placement.add_provider(gone, 'gone', sizes, [])
    request = a_request(instance_uuid=new_uuids()[0])

    def remembered():
        candidates = placement_client.candidates(request, FROM_MEMORY)
        if candidates.is_remembered:
            return candidates
        return {}

    wait_until(lambda: gone in remembered(), WAIT, 'answer about all hosts')
    [candidate] = remembered()[gone]

    cloud.placement.remove_provider(gone)
    claimed_at = time.monotonic()
    assert placement_client.claim(request, candidate) is None
    candidates = placement_client.candidates(request, FROM_MEMORY)
    # A refresh may have begun since.
    assert not candidates.is_remembered or candidates.asked_at > claimed_at
    assert gone not in candidates

    wait_until(remembered, WAIT, 'answer about all hosts')
    assert gone not in remembered()


def switched_off(cloud):
    """Disable host one, without telling Placement."""
    cloud.cells['cell1'].update('services', {'disabled': True}, host='one')


def fill_up(cloud, name):
    """Let another consumer take Placement's free VCPUs of a host; the consumer's
    UUID."""
    compute = cloud.computes[name]
    [consumer] = new_uuids(1)
    used = 0
    for allocations in cloud.placement.all_allocations().values():
        used += allocations.get(compute.uuid, {}).get('VCPU', 0)
    cloud.placement.allocate(consumer, compute.uuid, {'VCPU': compute.vcpus - used})
    return consumer


def filled(cloud):
    """Let another consumer take all VCPUs of host one in Placement."""
    fill_up(cloud, 'one')


def shrunk(cloud):
    """Shrink the inventory of host one."""
    inventories = cloud.computes['one'].inventories()
    inventories['VCPU'] = {'total': 1}
    cloud.placement.put(cloud.computes['one'].uuid, inventories=inventories)


def removed(cloud):
    """Remove host one from Placement."""
    for consumer, allocations in cloud.placement.all_allocations().items():
        if cloud.computes['one'].uuid in allocations:
            cloud.placement.release(consumer)
    cloud.placement.remove_provider(cloud.computes['one'].uuid)


def grouped(cloud):
    """Add host two to an aggregate."""
    cloud.add_aggregate('new', ['two'])


def joined(cloud):
    """Add a host larger than the existing hosts."""
    cloud.add_host('three', ram_mb=1_000_000)


def emptied(cloud):
    """Delete an instance of host one."""
    cloud.cells['cell1'].update('compute_nodes', {'running_vms': 3}, host='one')


@pytest.fixture(scope='module')
def proxy(cloud):
    """The proxy between the daemon and Placement."""
    with Proxy(cloud.placement_url) as proxy:
        yield proxy


@pytest.fixture
def asks(cloud, client, proxy):
    """Two hosts, of which the weigher prefers host one, and a daemon that keeps answers
    of Placement for very long.

    The fixture is a function. The function requests an instance, and returns the
    instance's host and the number of queries to Placement for the request. Such a query
    has a limit; the query about all hosts has no limit.
    """
    cloud.reset()
    cloud.add_host('one', cpu_ratio=1.0, columns={'running_vms': 4})
    cloud.add_host('two', cpu_ratio=1.0, ram_mb=32768)
    config = {
        'placement': {'endpoint': proxy.url},
        'filter_scheduler': {'weight_classes': 'nova.scheduler.weights.ram.RAMWeigher'},
        'novasched': {'candidates_max_age': LONG},
    }

    def ask():
        proxy.asked.clear()
        hosts = placed(client)
        queries = proxy.count('limit=')
        return hosts, queries

    with Daemon(cloud, config):
        wait_until(lambda: ask() == (['one'], 0), WAIT, 'answer about all hosts')
        yield ask
    cloud.reset()


@pytest.mark.parametrize(
    ('change', 'host', 'asked'),
    [
        (switched_off, ['two'], 0),
        (filled, ['two'], 1),
        (shrunk, ['two'], 1),
        (removed, ['two'], 1),
        (grouped, ['one'], 0),  # the request depends on no aggregate
        (joined, ['three'], 1),
        (emptied, ['one'], 0),
    ],
)
def test_a_request_sees_changes_since_the_remembered_answer(
    cloud, asks, change, host, asked
):
    """After a change since Placement's answer, the next request gets a host by the new
    state, with at most a single query to Placement."""
    change(cloud)
    assert asks() == (host, asked)


def test_the_room_of_a_deleted_instance_is_found_on_full_hosts(cloud, asks):
    """When all hosts are full and an instance is deleted, the next request gets the
    place of the instance."""
    fill_up(cloud, 'one')
    consumer = fill_up(cloud, 'two')
    assert asks()[0] == []
    cloud.placement.release(consumer)
    assert asks()[0] == ['two']
