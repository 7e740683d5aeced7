# SPDX-License-Identifier: Apache-2.0
"""PCI devices in Placement: the configuration of the services, and the devices that
servers hold, as the computes and as Placement know them."""

import json

from tests.lab.nova_cloud import Database
from tests.lab.processes import Failed

from .compute_api import eventually

GPU = 'CUSTOM_GPU'
FUNCTION = 'CUSTOM_FUNCTION'
SSD = 'CUSTOM_SSD'

HOSTS = ('devices-1', 'devices-2', 'devices-3')
"""Further computes, with PCI devices. They are disabled outside the scenarios about
devices."""
PROVIDERS = 5 * len(HOSTS)
"""Resource providers of devices: two GPUs, two cards and an SSD on each host."""
PREFERRED = 'devices-1'
"""The weighers prefer this host to the other hosts with devices."""

CLASSES = {'20b0': GPU, '154c': FUNCTION, 'a824': SSD}
"""Resource classes by product IDs."""
SPECS = (
    {'product_id': '20b0', 'resource_class': GPU},
    {'product_id': '154c', 'resource_class': FUNCTION},
    {'product_id': 'a824', 'resource_class': SSD, 'live_migratable': 'true'},
)
ALIASES = (
    {'name': 'gpu', 'resource_class': GPU},
    {'name': 'function', 'resource_class': FUNCTION, 'device_type': 'type-VF'},
    {'name': 'ssd', 'resource_class': SSD, 'live_migratable': 'true'},
)
FLAVORS = {
    'gpu': {GPU: 1},
    'gpus': {GPU: 2},
    'gpu-functions': {GPU: 1, FUNCTION: 2},
    'ssd': {SSD: 1},
}
"""The devices of each flavor, by resource class."""


def config():
    """Options of all services that belong to PCI devices in Placement."""
    return {
        'filter_scheduler': {'pci_in_placement': True},
        'pci': {'alias': [json.dumps(alias) for alias in ALIASES]},
    }


def computes():
    """The computes with devices, with their options."""
    common = {
        'compute_driver': 'devices.DriverWithDevices',
        # nova-compute frees some devices of a server that has moved only now and then.
        'update_resources_interval': 15,
    }
    preference = {
        'initial_ram_allocation_ratio': 8,
        'initial_cpu_allocation_ratio': 32,
        'initial_disk_allocation_ratio': 8,
    }
    specs = [json.dumps(spec) for spec in SPECS]

    computes = {}
    for host in HOSTS:
        options = dict(common)
        if host == PREFERRED:
            options.update(preference)
        computes[host] = {
            'DEFAULT': options,
            'pci': {'report_in_placement': True, 'device_spec': specs},
        }
    return computes


def extra_spec(flavor):
    """The extra spec that requests the devices of a flavor."""
    names = {alias['resource_class']: alias['name'] for alias in ALIASES}
    requests = []
    for resource_class, amount in FLAVORS[flavor].items():
        requests.append(f'{names[resource_class]}:{amount}')
    return {'pci_passthrough:alias': ','.join(requests)}


class Devices:
    """The devices that servers hold: {server: {provider: {resource class: amount}}}.

    nova-compute names a provider after the node and the address of the device. The
    virtual functions of a card have one provider, with the address of the card.
    """

    def __init__(self, cell, placement):
        """:param cell: the database of the cell with the computes."""
        self._cell = cell
        self._placement = placement
        self._table = Database(cell.url, ['pci_devices'])

    def close(self):
        self._table.engine.dispose()

    def check(self, expected):
        """Wait until servers hold the expected devices and no other devices are in use,
        and Placement has allocated the devices that the computes have claimed.

        :param expected: {server: {host: {resource class: amount}}}
        """

        def is_so():
            claimed = self.claimed()
            return by_host(claimed) == expected and self.allocated() == claimed

        try:
            eventually(is_so, 'equal devices')
        except Failed as error:
            raise Failed(
                f'{error}: {expected} expected, {self.claimed()} claimed,'
                f' {self.allocated()} allocated'
            ) from None

    def claimed(self):
        """The devices that the computes have claimed for servers.

        :raises AssertionError: a device is free and has a server, or has no server and
            is not free.
        """
        nodes = {}
        for node in self._cell.rows('compute_nodes', deleted=0):
            nodes[node['id']] = node['hypervisor_hostname']

        held = _Held()
        for device in self._table.rows('pci_devices', deleted=0):
            server = device['instance_uuid']
            is_free = device['status'] == 'available'
            assert is_free == (server is None), device
            if not is_free:
                address = device['parent_addr'] or device['address']
                provider = f'{nodes[device["compute_node_id"]]}_{address.upper()}'
                held.add(server, provider, CLASSES[device['product_id']], 1)
        return held.amounts

    def allocated(self):
        """The devices that Placement has allocated to servers and to their moves.

        During a move, Placement has the allocations of the old host under the UUID of
        the migration.
        """
        servers = {}
        for migration in self._cell.rows('migrations', deleted=0):
            servers[migration['uuid']] = migration['instance_uuid']

        names = {}
        answer = self._placement.call('GET', '/resource_providers')
        for provider in answer['resource_providers']:
            if provider['parent_provider_uuid'] is not None:
                names[provider['uuid']] = provider['name']

        held = _Held()
        for consumer, allocations in self._placement.allocations_on(names).items():
            server = servers.get(consumer, consumer)
            for provider, amounts in allocations.items():
                for resource_class, amount in amounts.items():
                    held.add(server, names[provider], resource_class, amount)
        return held.amounts


class _Held:
    """A sum of devices by server, provider and resource class."""

    def __init__(self):
        self.amounts = {}

    def add(self, server, provider, resource_class, amount):
        of_provider = self.amounts.setdefault(server, {}).setdefault(provider, {})
        of_provider[resource_class] = of_provider.get(resource_class, 0) + amount


def by_host(held):
    """The devices of servers by host: {server: {host: {resource class: amount}}}."""
    sums = _Held()
    for server, by_provider in held.items():
        for provider, amounts in by_provider.items():
            host = provider.rpartition('_')[0]
            for resource_class, amount in amounts.items():
                sums.add(server, host, resource_class, amount)
    return sums.amounts
