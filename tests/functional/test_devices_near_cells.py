# SPDX-License-Identifier: Apache-2.0
"""Guests with PCI devices near their NUMA cells, on hosts whose first cells have no free
CPUs. The daemon, nova's request groups and Placement are real."""

from contextlib import closing

import os_traits
import pytest

from tests.lab.compute_rows import Flavor
from tests.lab.daemon import Daemon, NovaClient, new_uuids
from tests.lab.device_hosts import CPUS_OF_GUEST_CELL, FIRST_CELLS_FULL
from tests.lab.reports import a_numa_cell, a_numa_topology, reported_devices

CONFIG = {
    'filter_scheduler': {
        'enabled_filters': 'ComputeFilter,NUMATopologyFilter,PciPassthroughFilter',
        'pci_in_placement': True,
    },
    'novasched': {'in_flight_timeout': 3600},  # no claim expires
}
PRODUCTS = {'gpu': '1db4', 'nic': '10fb', 'nvme': '0a54'}


@pytest.fixture(scope='module')
def running(cloud):
    cloud.reset()
    with Daemon(cloud, CONFIG) as daemon:
        yield daemon


@pytest.fixture(scope='module')
def devices_client(nova, cloud):
    """A client that makes a request group for each PCI device."""
    config = cloud.config('devices', {'filter_scheduler': {'pci_in_placement': True}})
    with closing(NovaClient(nova, config)) as client:
        yield client


def add_host(cloud, host):
    """Add the host of a case; the NUMA cell of each device, by UUID of its provider."""
    cells = []
    taken = 0
    for number in range(len(host.near)):
        cell = a_numa_cell(number)
        if number in host.full:
            cell = a_numa_cell(number, pinned=cell['nova_object.data']['pcpuset'])
            taken += len(cell['nova_object.data']['pcpuset'])
        cells.append(cell)
    cell_of = {}
    kind_of = {}
    for _, kind, cell in host.devices:
        [provider] = new_uuids()
        cell_of[provider] = cell
        kind_of[provider] = kind
    products = {provider: PRODUCTS[kind] for provider, kind in kind_of.items()}

    columns = {
        'numa_topology': a_numa_topology(*cells),
        'pci_stats': reported_devices(cell_of, products),
    }
    compute = cloud.add_host(
        host.name, pcpus=8 * len(cells), ram_mb=16384 * len(cells), columns=columns
    )
    cloud.placement.allocate(new_uuids()[0], compute.uuid, {'PCPU': taken})
    for provider, product in products.items():
        name = f'CUSTOM_PCI_8086_{product.upper()}'
        inventory = {name: {'total': 1, 'max_unit': 1}}
        traits = [os_traits.COMPUTE_MANAGED_PCI_DEVICE, os_traits.OWNER_NOVA]
        cloud.placement.add_provider(
            provider, provider, inventory, traits, compute.uuid
        )
    return cell_of


def guest_of(case):
    """Flavor and devices of the guests of a case."""
    flavor = Flavor(
        vcpus=CPUS_OF_GUEST_CELL * case.cells,
        ram_mb=64 * case.cells,
        disk_gb=1,
        extra_specs={
            'hw:cpu_policy': 'dedicated',
            'hw:numa_nodes': str(case.cells),
            'group_policy': 'none',
        },
    )
    devices = []
    for alias, count in case.aliases.items():
        devices.append(
            {
                'count': count,
                'spec': [{'vendor_id': '8086', 'product_id': PRODUCTS[alias]}],
                'alias_name': alias,
                'request_id': new_uuids()[0],
                'numa_policy': 'required',
            }
        )
    return flavor, devices


@pytest.mark.parametrize('name', FIRST_CELLS_FULL)
def test_instances_get_devices_near_the_free_numa_cells(
    cloud, devices_client, running, name
):
    """Guests get devices near the free cells, until these cells have too few devices."""
    cloud.reset()
    case = FIRST_CELLS_FULL[name]
    cell_of = add_host(cloud, case.host)
    for _ in range(case.guests):
        flavor, devices = guest_of(case)
        [uuid] = new_uuids()
        chosen = devices_client.chosen(uuid, flavor=flavor, devices=devices)
        assert chosen == [case.host.name]
        providers = cloud.placement.allocations(uuid).keys() & cell_of.keys()
        assert len(providers) == sum(case.aliases.values())
        assert case.host.full.isdisjoint(cell_of[provider] for provider in providers)

    flavor, devices = guest_of(case)
    devices_client.refusal(flavor=flavor, devices=devices)
