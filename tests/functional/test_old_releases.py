# SPDX-License-Identifier: Apache-2.0
"""A nova.conf of Mitaka's time; and calls of releases that are gone, as Ocata, Pike and
Queens sent them. Those of Kilo to Mitaka are Ocata's, which could still talk to
them."""

import json

import pytest

from tests.lab.compute_rows import Flavor
from tests.lab.daemon import Daemon, new_uuids
from tests.lab.reports import a_numa_cell, a_numa_topology, some_devices
from tests.lab.wire import MESSAGES

OLD_FILTERS = (
    'RetryFilter,AvailabilityZoneFilter,RamFilter,ComputeFilter,NumInstancesFilter'
)
MITAKA = {
    'DEFAULT': {
        'scheduler_driver': 'nova.scheduler.filter_scheduler.FilterScheduler',
        'scheduler_default_filters': OLD_FILTERS,
        'scheduler_available_filters': 'nova.scheduler.filters.all_filters',
        'scheduler_weight_classes': 'nova.scheduler.weights.all_weighers',
        'scheduler_host_subset_size': 1,
        'scheduler_max_attempts': 2,
        'scheduler_driver_task_period': 30,
        'ram_weight_multiplier': -1.0,
        'max_instances_per_host': 2,
    },
    # Of a later time: it leaves zones to their filter, as it was then.
    'scheduler': {'query_placement_for_availability_zone': False, 'workers': 1},
}


def test_it_means_what_it_meant(cloud, client):
    """Servers are stacked on the smallest host until it has two, then on the next; one
    alternate stands behind each; filters that upstream removed do their work."""
    cloud.reset()
    for number, ram_mb in enumerate((4096, 8192, 16384), 1):
        cloud.add_host(f'host-{number}', ram_mb=ram_mb)
    cloud.add_aggregate('zone', ['host-2'], zone='az2')
    placed = []
    with Daemon(cloud, MITAKA) as daemon:
        for server, zone in zip(new_uuids(6), ('az2', *[None] * 5), strict=True):
            [[first, *alternates]] = client.select_destinations(
                [server], Flavor(), zone=zone, return_alternates=True
            )
            placed.append((first['service_host'], len(alternates)))
            cloud.boot(server, first['service_host'], Flavor())
        assert 'Filter AvailabilityZoneFilter returned 1 host(s)' in daemon.text()
        assert placed == [
            ('host-2', 0),
            ('host-1', 1),
            ('host-1', 1),
            ('host-2', 1),
            ('host-3', 0),
            ('host-3', 0),
        ]
        client.refusal()
        assert 'Filter NumInstancesFilter returned 0 hosts' in daemon.text()


LINES = (MESSAGES / 'old.jsonl').read_text().splitlines()
SERVER = '0d9ad9f1-7a1c-4bd2-8a2b-4d1a0c6e0b01'
OTHER = '0d9ad9f1-7a1c-4bd2-8a2b-4d1a0c6e0b02'
"""A server of the same group, on the host 'taken'."""
FILTERS = 'ComputeFilter,ServerGroupAntiAffinityFilter,NUMATopologyFilter,PciPassthroughFilter'
HOSTS = {
    'plain': {'taken', 'cells', 'devices'},
    'pinned': {'cells'},
    'device': {'devices'},
    'group': {'cells', 'devices'},
}
"""Where the server of each case may go."""


def named(line):
    """The name of a case: sender and message."""
    message = json.loads(line)
    return f'{message["from"]}-{message["version"]}-{message["case"]}'


@pytest.fixture(scope='module')
def scheduler(cloud):
    """A scheduler for one plain host, one with NUMA cells and one with PCI devices."""
    cloud.reset()
    topology = a_numa_topology(a_numa_cell(0), a_numa_cell(1))
    cloud.add_host('taken')
    cloud.add_host('cells', pcpus=16, columns={'numa_topology': topology})
    cloud.add_host('devices', columns={'pci_stats': some_devices(len(LINES), None)})
    cloud.boot(OTHER, 'taken', Flavor())
    with Daemon(cloud, {'filter_scheduler': {'enabled_filters': FILTERS}}) as running:
        yield running


@pytest.mark.usefixtures('scheduler')
@pytest.mark.parametrize('line', [pytest.param(line, id=named(line)) for line in LINES])
def test_old_message(cloud, client, line):
    """A call is understood, and answered in the form and in the versions of its
    release; what it asks to have claimed is, and nothing else."""
    [server] = new_uuids()
    message = json.loads(line.replace(SERVER, server))
    found = client.raw_call(
        'select_destinations', message['arguments'], version=message['version']
    )
    if message['version'] == '4.5':
        [host, limits] = of_selections(found)
    else:
        [host, limits] = of_dicts(found)
    assert host in HOSTS[message['case']]
    numa = limits.get('numa_topology')
    assert (numa and numa['nova_object.version']) == (
        '1.0' if message['case'] == 'pinned' else None
    )
    claims = message['version'] >= '4.4'
    assert list(cloud.allocations(server)) == ([host] if claims else [])


def of_dicts(found):
    """The host and the limits of an answer before 4.5."""
    [chosen] = found
    assert chosen.keys() == {'host', 'nodename', 'limits'}
    return chosen['host'], chosen['limits']


def of_selections(found):
    """The host and the limits of Queens' answer, whose alternates are of the same
    kind."""
    [selections] = found
    for each in selections:
        assert (each['nova_object.name'], each['nova_object.version']) == (
            'Selection',
            '1.0',
        )
        data = each['nova_object.data']
        assert 'availability_zone' not in data
        assert data['allocation_request_version'] == '1.12'
        assert json.loads(data['allocation_request']).keys() == {'allocations'}
    chosen = selections[0]['nova_object.data']
    return chosen['service_host'], chosen['limits']['nova_object.data']
