# SPDX-License-Identifier: Apache-2.0
"""A nova.conf of Mitaka, and calls of Ocata, Pike and Queens. Calls of Kilo to Mitaka
are like Ocata's: Ocata could still talk to these releases."""

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
    # A newer option. Mitaka's scheduler left availability zones to the filter.
    'scheduler': {'query_placement_for_availability_zone': False, 'workers': 1},
}


def test_options_in_nova_conf_of_mitaka_keep_the_old_meaning(cloud, client):
    """The options keep their meaning: servers are stacked on the smallest host until
    the host has two servers, a selection has an alternate if a second host has room,
    and filters removed from nova still work."""
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
"""Possible hosts of the server in every case."""


def case_name(line):
    """The name of a case: release, version of the call, and case."""
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
@pytest.mark.parametrize(
    'line', [pytest.param(line, id=case_name(line)) for line in LINES]
)
def test_a_call_of_an_old_release_is_answered_in_the_old_form(cloud, client, line):
    """The scheduler understands a call, and answers in the form and with the object
    versions of the call's release. It claims exactly if the release expects a claim."""
    [server] = new_uuids()
    message = json.loads(line.replace(SERVER, server))
    version = message['version']

    answer = client.raw_call(
        'select_destinations', message['arguments'], version=version
    )

    if version == '4.5':
        [host, limits] = of_selections(answer)
    else:
        [host, limits] = of_dicts(answer)
    assert host in HOSTS[message['case']]

    numa = limits.get('numa_topology')
    if message['case'] == 'pinned':
        assert numa['nova_object.version'] == '1.0'
    else:
        assert numa is None

    if version >= '4.4':
        assert list(cloud.allocations(server)) == [host]
    else:
        assert list(cloud.allocations(server)) == []


def of_dicts(answer):
    """The host and the limits of an answer before 4.5."""
    [destination] = answer
    assert destination.keys() == {'host', 'nodename', 'limits'}
    return destination['host'], destination['limits']


def of_selections(answer):
    """The host and the limits of an answer to Queens. Alternates have the same form."""
    [selections] = answer
    for selection in selections:
        assert selection['nova_object.name'] == 'Selection'
        assert selection['nova_object.version'] == '1.0'
        data = selection['nova_object.data']
        assert 'availability_zone' not in data
        assert data['allocation_request_version'] == '1.12'
        assert json.loads(data['allocation_request']).keys() == {'allocations'}

    selected = selections[0]['nova_object.data']
    return selected['service_host'], selected['limits']['nova_object.data']
