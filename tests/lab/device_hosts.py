# SPDX-License-Identifier: Apache-2.0
"""Hosts with PCI devices near NUMA cells, guests with such devices, and a comparison
with all choices of devices."""

from dataclasses import dataclass, field
from itertools import combinations, product

from novasched.conf.settings import Settings
from novasched.scheduler.fitting import fit_on_host, limits_of
from novasched.scheduler.model.flavor import RequestGroup
from novasched.scheduler.model.numa import Fit, HostTopology
from novasched.scheduler.model.pci import PciRequest, Pool
from tests.lab.builders import a_flavor, a_host, a_request, a_uuid
from tests.lab.daemon import new_uuids
from tests.lab.provider_trees import Provider
from tests.lab.topologies import a_cell, a_guest, a_pinned

CORES = 2
THREADS = 2
CPUS_OF_GUEST_CELL = 2
"""Pinned CPUs of each guest cell."""


@dataclass(frozen=True)
class DeviceHost:
    """A host with devices near NUMA cells.

    :ivar near: for each cell, the number of providers of free devices by kind.
    :ivar full: cells without free CPUs.
    :ivar unknown: the number of providers near no known cell, by kind.
    :ivar functions: the number of devices of each provider, by kind; 1 for other kinds.
    """

    name: str
    near: tuple[dict[str, int], ...]
    full: frozenset[int] = frozenset()
    unknown: dict[str, int] = field(default_factory=dict)
    functions: dict[str, int] = field(default_factory=dict)

    @property
    def uuid(self):
        return a_uuid(self.name)

    @property
    def devices(self):
        """Triples of provider, kind and cell, the devices of the first cell first."""
        devices = []
        for cell, counts in [*enumerate(self.near), (None, self.unknown)]:
            for kind, count in counts.items():
                for number in range(count):
                    devices.append((f'{self.uuid}-{cell}-{kind}-{number}', kind, cell))
        return devices

    def host(self):
        cells = []
        for number in range(len(self.near)):
            cell = a_cell(number, CORES, THREADS, socket=number // 2)
            if number in self.full:
                cell = a_cell(
                    number, CORES, THREADS, socket=number // 2, pinned_cpus=cell.pcpuset
                )
            cells.append(cell)
        topology = HostTopology(tuple(cells))
        pools = []
        for provider, kind, cell in self.devices:
            count = self.functions.get(kind, 1)
            pools.append(Pool(kind, 'v', count, cell, {'rp_uuid': provider}))
        return a_host(
            self.name, uuid=self.uuid, numa=lambda: topology, pci=lambda: tuple(pools)
        )

    def providers(self):
        """The resource providers of the host."""
        providers = [Provider(self.uuid, {'VCPU': 256, 'MEMORY_MB': 65536})]
        for name, kind, _ in self.devices:
            amounts = {class_of(kind): self.functions.get(kind, 1)}
            providers.append(Provider(name, amounts, self.uuid))
        return providers


def kind_of(alias):
    """The kind of the devices of an alias: the aliases nic and nic-2 ask for the same
    devices."""
    return alias.partition('-')[0]


def class_of(alias):
    """The resource class of the devices of an alias."""
    return f'CUSTOM_{kind_of(alias).upper()}'


def a_device_guest(cells, aliases, policies='required'):
    """A request for a pinned guest with devices.

    :param cells: the number of NUMA cells of the guest.
    :param aliases: the number of devices by alias.
    :param policies: the NUMA policy of all devices, or of each alias.
    """
    pci_requests = []
    groups = []
    for alias, count in aliases.items():
        policy = policies if isinstance(policies, str) else policies[alias]
        spec = ({'product_id': kind_of(alias)},)
        pci_requests.append(
            PciRequest(count, spec, alias, f'{alias}-id', numa_policy=policy)
        )
        for number in range(count):
            name = f'{alias}-id-{number}'
            groups.append(RequestGroup(name, {class_of(alias): 1}))
    topology = []
    for number in range(cells):
        first = number * CPUS_OF_GUEST_CELL
        topology.append(a_pinned(CPUS_OF_GUEST_CELL, first, number))
    [uuid] = new_uuids()
    return a_request(
        flavor=a_flavor(vcpus=cells * CPUS_OF_GUEST_CELL, memory_mb=256 * cells),
        is_bfv=True,
        instance_uuids=(uuid,),
        instance_uuid=uuid,
        numa_topology=a_guest(*topology),
        pci_requests=tuple(pci_requests),
        requested_resources=tuple(groups),
    )


def fitting_choices(device_host, request):
    """The choices of devices with which a guest fits a host, as mappings of request
    groups to providers. Every choice is tried."""
    host = device_host.host()
    limits = limits_of(host, request)
    choices_of_alias = []
    for pci_request in request.pci_requests:
        devices = []
        for provider, kind, _ in device_host.devices:
            if kind == kind_of(pci_request.alias_name):
                devices += [provider] * device_host.functions.get(kind, 1)
        choices_of_alias.append({*combinations(devices, pci_request.count)})

    for chosen in product(*choices_of_alias):
        mappings = {'': [device_host.uuid]}
        for pci_request, providers in zip(request.pci_requests, chosen, strict=True):
            for number, provider in enumerate(providers):
                mappings[f'{pci_request.request_id}-{number}'] = [provider]
        fit = fit_on_host(host, request, mappings, limits, Settings())
        if isinstance(fit, Fit):
            yield mappings


EVERYTHING = {'gpu': 4, 'nic': 4, 'nvme': 4}


@dataclass(frozen=True)
class NearCase:
    """A host whose first cells have no free CPUs, and a guest that fits the host.

    :ivar cells: the number of NUMA cells of the guest.
    :ivar aliases: the number of devices of the guest by alias, all near its cells.
    :ivar guests: the number of such guests that fit the host together.
    """

    host: DeviceHost
    cells: int
    aliases: dict[str, int]
    guests: int


FIRST_CELLS_FULL = {
    'two cells, cell 0 full': NearCase(
        DeviceHost('two', (EVERYTHING,) * 2, frozenset([0])), 1, EVERYTHING, 1
    ),
    'four cells, cell 0 full': NearCase(
        DeviceHost('four', ({'gpu': 2, 'nic': 1},) * 4, frozenset([0])),
        2,
        {'gpu': 4, 'nic': 2},
        1,
    ),
    'eight cells, cell 0 full': NearCase(
        DeviceHost('eight', ({'gpu': 1, 'nic': 1},) * 8, frozenset([0])),
        2,
        {'gpu': 2, 'nic': 2},
        3,
    ),
    'eight cells, cells 0 and 1 full': NearCase(
        DeviceHost('eight', ({'gpu': 2, 'nic': 1},) * 8, frozenset([0, 1])),
        1,
        {'gpu': 2, 'nic': 1},
        6,
    ),
    'eight cells, all but the last two full': NearCase(
        DeviceHost('eight', ({'gpu': 2, 'nic': 2},) * 8, frozenset(range(6))),
        2,
        {'gpu': 4, 'nic': 2},
        1,
    ),
}
