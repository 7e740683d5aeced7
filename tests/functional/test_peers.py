# SPDX-License-Identifier: Apache-2.0
"""Several schedulers announce their pending claims to their peers."""

import os
from collections import Counter
from contextlib import ExitStack, closing

import os_traits
import pytest

from tests.lab.builders import a_host, a_request, a_uuid
from tests.lab.compute_rows import Compute, Flavor
from tests.lab.daemon import Daemon, Group, NovaClient, Refused, a_call, new_uuids
from tests.lab.processes import START, wait_until
from tests.lab.proxy import Tunnel
from tests.lab.reports import (
    a_numa_cell,
    a_numa_topology,
    reported_devices,
    some_devices,
)
from tests.lab.servers import RabbitMQ
from tests.lab.sharing import sharing

SHARED = os.environ.get('NOVASCHED_TEST_SHARED', 'true')
HOSTS = int(os.environ.get('NOVASCHED_TEST_HOSTS', '16'))
DAEMONS = 3
CLIENTS = 32
OPTIONS = {
    'filter_scheduler': {
        'enabled_filters': 'ComputeFilter,NUMATopologyFilter,PciPassthroughFilter,'
        'ServerGroupAntiAffinityFilter,NumInstancesFilter',
        'max_instances_per_host': '4',
        'pci_in_placement': 'true',
    },
    'novasched': {'in_flight_timeout': 3600, 'share_pending_claims': SHARED},
}
PINNED = {'hw:cpu_policy': 'dedicated', 'hw:numa_nodes': '1'}
TOPOLOGY = a_numa_topology(a_numa_cell(0), a_numa_cell(1))
SPEC = [{'vendor_id': '8086', 'product_id': '10fb'}]
DEVICE = {'count': 1, 'spec': SPEC, 'alias_name': 'nic', 'request_id': new_uuids()[0]}
FIVE = Flavor(vcpus=5, ram_mb=64, disk_gb=1, extra_specs=PINNED)
TWO_GPUS = Flavor(
    extra_specs={
        'resources1:VGPU': '1',
        'resources2:VGPU': '1',
        'group_policy': 'isolate',
    }
)
GPUS = 4
"""Virtual GPUs of each host, each a nested resource provider."""
DEVICE_CLASS = 'CUSTOM_PCI_8086_10FB'
NEAR_DEVICES = {**DEVICE, 'count': 2, 'numa_policy': 'required'}
NEAR_DEVICES_OF_CELL = 4
TWO = Flavor(
    vcpus=2, ram_mb=64, disk_gb=1, extra_specs={**PINNED, 'group_policy': 'isolate'}
)
HARD = Group('anti-affinity')
KINDS = {
    'guests of one NUMA cell': (2, FIVE, {}),
    'devices': (2, Flavor(), {'devices': [DEVICE]}),
    'a hard group': (1, Flavor(), {'group': HARD}),
    'instances of a host': (4, Flavor(), {}),
    'virtual GPUs': (2, TWO_GPUS, {}),
}
"""Instances per host, their flavor and the options of their request. Placement alone
would allow more instances on a host."""


HOST = a_host('host-1')


def add(claims, name):
    """Add a pending claim of an instance on :data:`HOST`."""
    uuid = a_uuid(name)
    request = a_request(instance_uuids=(uuid,), instance_uuid=uuid)
    return claims.choose(HOST, request, None, {})


def has_peers(claims, count):
    """True if the scheduler knows of ``count`` schedulers, the scheduler included."""
    return claims.peers.position[1] == count


def wait_for_claims(schedulers, names):
    """Wait until all schedulers know exactly the claims of the named instances."""
    expected = {a_uuid(name) for name in names}
    for claims in schedulers:

        def knows_them(claims=claims):
            known = {claim.request.instance_uuid for claim in claims.ledger.all()}
            return known == expected

        wait_until(knows_them, START, 'pending claims')


def test_schedulers_know_the_same_claims_after_a_lost_connection(cloud):
    """Three schedulers make and release claims while one has lost the connection to the
    broker, and a fourth scheduler joins. After the reconnection, all schedulers know
    the same claims."""
    with ExitStack() as stack:

        def start(name, url):
            return stack.enter_context(sharing(cloud, name, url))

        tunnel = stack.enter_context(Tunnel(cloud.amqp_url))
        cut_off = start('peer-0', tunnel.url)
        second = start('peer-1', cloud.amqp_url)
        third = start('peer-2', cloud.amqp_url)
        schedulers = [cut_off, second, third]
        wait_until(
            lambda: all(has_peers(claims, 3) for claims in schedulers), START, 'three'
        )

        released = add(second, 'gone')
        cut_off.claimed([add(cut_off, 'kept')])
        wait_for_claims(schedulers, ['gone', 'kept'])

        tunnel.refuse()
        wait_until(lambda: has_peers(cut_off, 1), START, 'loss')
        add(cut_off, 'lonely')
        add(third, 'far')
        second.release(released)
        late = start('late', cloud.amqp_url)
        wait_until(lambda: late.peers.position[1] >= 3, START, 'newcomer')

        tunnel.accept()
        schedulers.append(late)
        wait_for_claims(schedulers, ['kept', 'lonely', 'far'])
        expected = [(place, 4) for place in range(4)]

        def positions_are_settled():
            return sorted(claims.peers.position for claims in schedulers) == expected

        wait_until(positions_are_settled, START, 'all four')


def test_schedulers_use_the_login_method_in_transport_url(cloud):
    """The schedulers hear their peers over a broker with a single login method, which
    nova.conf names in the query of ``transport_url``."""
    with ExitStack() as stack:
        broker = stack.enter_context(
            closing(RabbitMQ(options={'auth_mechanisms.1': 'PLAIN'}))
        )
        broker.start()
        url = f'{broker.url}?rabbit_login_method=PLAIN'

        first = stack.enter_context(sharing(cloud, 'one', url))
        second = stack.enter_context(sharing(cloud, 'two', url))

        wait_until(lambda: has_peers(first, 2) and has_peers(second, 2), START, 'two')


@pytest.fixture(scope='module')
def schedulers(cloud):
    cloud.reset()
    with ExitStack() as stack:
        daemons = [stack.enter_context(Daemon(cloud, OPTIONS)) for _ in range(DAEMONS)]
        if SHARED == 'true':

            def see_each_other():
                line = f'with {DAEMONS - 1} other'
                return all(line in daemon.text() for daemon in daemons)

            wait_until(see_each_other, START, 'schedulers')
        yield daemons


def add_gpus(cloud, compute):
    inventory = {'VGPU': {'total': 1, 'max_unit': 1, 'allocation_ratio': 1.0}}
    for uuid in new_uuids(GPUS):
        name = f'{compute.name}-{uuid}'
        cloud.placement.add_provider(uuid, name, inventory, [], compute.uuid)


@pytest.mark.parametrize('kind', KINDS)
def test_several_schedulers_place_as_many_instances_as_fit(
    cloud, client, schedulers, kind
):
    """Concurrent clients request as many instances as the hosts have room for. All
    instances are placed, and no host gets more instances than fit."""
    per_host, flavor, options = KINDS[kind]
    columns = {'numa_topology': TOPOLOGY, 'pci_stats': some_devices(2, None)}
    names = [f'host-{i:02}' for i in range(HOSTS)]
    computes = []
    for i, name in enumerate(names):
        computes.append(Compute(name, f'cell{i % 2 + 1}', pcpus=16, columns=columns))
    cloud.reset()
    cloud.add_hosts(computes)
    if flavor is TWO_GPUS:
        for compute in computes:
            add_gpus(cloud, compute)

    calls = [a_call(new_uuids(), flavor, **options) for _ in range(HOSTS * per_host)]
    answers = client.select_at_once(calls, CLIENTS)

    refused = [answer for answer in answers if isinstance(answer, Refused)]
    instances_on = Counter()
    for answer in answers:
        if not isinstance(answer, Refused):
            [[selection]] = answer
            instances_on[selection['service_host']] += 1
    hosts_by_number = Counter(instances_on.values())
    print(f'refused {len(refused)}, hosts by their number: {hosts_by_number}')
    assert refused == []
    assert instances_on == dict.fromkeys(names, per_host)


@pytest.fixture
def devices_client(nova, cloud):
    """A client that makes a request group for each PCI device."""
    config = cloud.config('devices', {'filter_scheduler': {'pci_in_placement': True}})
    with closing(NovaClient(nova, config)) as client:
        yield client


def add_host_with_devices(cloud, name, cell):
    """Add a host with PCI devices near each of its NUMA cells; the NUMA cell of each
    device, by UUID of its resource provider."""
    cell_of = {}
    for numa_cell in range(2):
        for provider in new_uuids(NEAR_DEVICES_OF_CELL):
            cell_of[provider] = numa_cell
    columns = {'numa_topology': TOPOLOGY, 'pci_stats': reported_devices(cell_of)}
    host = cloud.add_host(name, cell, pcpus=16, columns=columns)
    for provider in cell_of:
        inventory = {DEVICE_CLASS: {'total': 1, 'max_unit': 1}}
        traits = [os_traits.COMPUTE_MANAGED_PCI_DEVICE, os_traits.OWNER_NOVA]
        cloud.placement.add_provider(provider, provider, inventory, traits, host.uuid)
    return cell_of


def test_several_schedulers_allocate_each_device_near_a_cell_once(
    cloud, devices_client, schedulers
):
    """Concurrent clients request guests with two devices near the NUMA cell of the
    guest, until all devices are in use. All guests are placed, and no device is in use
    twice."""
    cloud.reset()
    cells = []
    for number in range(HOSTS):
        name = f'host-{number:02}'
        cells.append(add_host_with_devices(cloud, name, f'cell{number % 2 + 1}'))
    devices = sum(map(len, cells))

    calls = []
    for _ in range(devices // NEAR_DEVICES['count']):
        calls.append(a_call(new_uuids(), TWO, devices=[NEAR_DEVICES]))
    answers = devices_client.select_at_once(calls, CLIENTS)

    refused = [answer for answer in answers if isinstance(answer, Refused)]
    assert refused == []
    allocations = cloud.placement.all_allocations()
    assert len(allocations) == len(calls)
    in_use = Counter()
    for held in allocations.values():
        numa_cells = set()
        for host, cell_of in enumerate(cells):
            for provider in cell_of.keys() & held.keys():
                in_use[provider] += 1
                numa_cells.add((host, cell_of[provider]))
        assert len(numa_cells) == 1
    assert in_use == {provider: 1 for cell_of in cells for provider in cell_of}
