# SPDX-License-Identifier: Apache-2.0
"""What Placement answered earlier, against what the real one answers now."""

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
def remembering(cloud):
    """What remembers for very long."""
    cloud.reset()
    own = session.Session(auth=token_endpoint.Token(cloud.placement_url, TOKEN))
    http = adapter.Adapter(
        own, service_type='placement', endpoint_override=cloud.placement_url
    )
    made = PlacementClient(Settings(candidates_max_age=LONG), http)
    yield made
    made.close()
    cloud.reset()


def fill(api, random, number):
    """Make hosts of all sizes, with traits, in zones, some of them nearly full; the
    first has room for whatever is asked for, everywhere."""
    for index in range(number):
        [uuid], [consumer] = new_uuids(1), new_uuids(1)
        totals = {'VCPU': 64, 'MEMORY_MB': 8192, 'DISK_GB': 500}
        if index:
            totals = {
                'VCPU': random.randrange(1, 9),
                'MEMORY_MB': 512 * random.randrange(1, 9),
                'DISK_GB': random.randrange(5, 60),
            }
        inventories = {
            name: {
                'total': total,
                'reserved': random.randrange(2) if index else 0,
                'allocation_ratio': random.choice([1.0, 1.5, 4.0]),
            }
            for name, total in totals.items()
        }
        if index and random.random() < 0.2:
            del inventories['DISK_GB']
        traits = [name for name in TRAITS if random.random() < 0.5] if index else []
        api.add_provider(uuid, f'host-{index}', inventories, traits)
        for zone in ZONES:
            if not index or random.random() < 0.5:
                api.join_aggregate(uuid, zone)
        if index and random.random() < 0.7:
            used = {
                name: random.randrange(1, max(2, totals[name] - 1))
                for name in inventories
                if totals[name] > 2
            }
            if used:
                api.allocate(consumer, uuid, used)


def asked(random):
    """A request for a little or for much, with or without disk, traits and aggregates:
    any of several, as zones are, or two, as a zone and a tenant's are."""
    traits = {
        f'trait:{name}': random.choice(['required', 'forbidden'])
        for name in TRAITS
        if random.random() < 0.3
    }
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
    return a_request(
        flavor=flavor, is_bfv=random.random() < 0.3, requested_destination=destination
    )


@pytest.mark.parametrize('seed', range(2))
def test_it_offers_what_placement_offers(cloud, remembering, seed):
    """For random hosts and requests: the same hosts for the same amounts, wherever it
    offers any, and all that nobody took since."""
    random = Random(seed)
    fill(cloud.placement, random, 14)
    compared = 0
    for _ in range(40):
        now = asked(random)
        smallest = replace(now, flavor=a_flavor(vcpus=1, memory_mb=1, root_gb=1))
        if now.requested_destination.forbidden_aggregates != frozenset(ZONES[1:]):
            wait_until(
                lambda small=smallest: (
                    remembering.candidates(small, FROM_MEMORY).is_remembered
                ),
                WAIT,
                'answer about all hosts',
            )
        offered = remembering.candidates(now, FROM_MEMORY)
        real = remembering.candidates(now)
        if not offered.is_remembered:
            continue
        compared += 1
        assert {uuid: [x.resources() for x in offered[uuid]] for uuid in offered} == {
            uuid: [x.resources() for x in real[uuid]] for uuid in real
        }
        assert {
            uuid: [x.providers_by_group() for x in offered[uuid]] for uuid in offered
        } == {uuid: [x.providers_by_group() for x in real[uuid]] for uuid in real}
    assert compared > 12


def test_a_provider_that_is_gone(cloud, remembering):
    """A claim there is refused, and no answer from before is used any more."""
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
        found = remembering.candidates(request, FROM_MEMORY)
        if found.is_remembered:
            return found
        return {}

    wait_until(lambda: gone in remembered(), WAIT, 'answer about all hosts')
    [candidate] = remembered()[gone]
    cloud.placement.remove_provider(gone)
    assert remembering.claim(request, candidate) is None
    assert remembered() == {}
    wait_until(remembered, WAIT, 'answer about all hosts')
    assert gone not in remembered()


def switched_off(cloud):
    """Host one takes no more instances; Placement is not told."""
    cloud.cells['cell1'].update('services', {'disabled': True}, host='one')


def fill_up(cloud, name):
    """Let somebody else take what Placement has left of a host; the consumer's UUID."""
    compute = cloud.computes[name]
    [consumer] = new_uuids(1)
    held = cloud.placement.all_allocations().values()
    used = sum(each.get(compute.uuid, {}).get('VCPU', 0) for each in held)
    cloud.placement.allocate(consumer, compute.uuid, {'VCPU': compute.vcpus - used})
    return consumer


def filled(cloud):
    """Somebody else takes all of host one, as far as Placement knows."""
    fill_up(cloud, 'one')


def shrunk(cloud):
    """Host one has less than it had."""
    inventories = cloud.computes['one'].inventories()
    inventories['VCPU'] = {'total': 1}
    cloud.placement.put(cloud.computes['one'].uuid, inventories=inventories)


def removed(cloud):
    """Placement knows host one no more."""
    for consumer, held in cloud.placement.all_allocations().items():
        if cloud.computes['one'].uuid in held:
            cloud.placement.release(consumer)
    cloud.placement.remove_provider(cloud.computes['one'].uuid)


def grouped(cloud):
    """Host two is in an aggregate now."""
    cloud.add_aggregate('new', ['two'])


def joined(cloud):
    """There is a host that is larger than the others."""
    cloud.add_host('three', ram_mb=1_000_000)


def emptied(cloud):
    """An instance of host one is deleted."""
    cloud.cells['cell1'].update('compute_nodes', {'running_vms': 3}, host='one')


@pytest.fixture(scope='module')
def proxy(cloud):
    """What stands between the daemon and Placement."""
    with Proxy(cloud.placement_url) as proxy:
        yield proxy


@pytest.fixture
def asks(cloud, client, proxy):
    """Two hosts, of which one is preferred, and a daemon that remembers for very long;
    says where an instance goes, and how often Placement was asked for that: the query
    has a limit, which that about all hosts has not."""
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
        return hosts, sum('limit=' in each for each in proxy.asked)

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
        (grouped, ['one'], 1),
        (joined, ['three'], 1),
        (emptied, ['one'], 0),
    ],
)
def test_what_has_changed_since(cloud, asks, change, host, asked):
    """Whatever has changed since Placement was asked, the next request gets a host that
    is right now; it costs a question at the most."""
    change(cloud)
    assert asks() == (host, asked)


def test_the_last_place(cloud, asks):
    """It is found by the request that comes after its instance was deleted."""
    fill_up(cloud, 'one')
    consumer = fill_up(cloud, 'two')
    assert asks()[0] == []
    cloud.placement.release(consumer)
    assert asks()[0] == ['two']
