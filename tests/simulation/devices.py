# SPDX-License-Identifier: Apache-2.0
"""The PCI devices of a simulated cloud, as nova reports them to Placement: each device
is a resource provider below its host."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import os_traits

from novasched.rpc import wire
from novasched.scheduler.model.flavor import Flavor
from novasched.tools.sandbox.computes import SandboxHost, stable_uuid
from tests.lab.reports import reported_devices
from tests.simulation.flavors import CELLS, DEVICES_OF

DEVICES = 'CUSTOM_DEVICES'
"""The trait of hosts with devices."""
PRODUCTS = {'gpu': '1db4', 'nic': '10fb', 'nvme': '0a54', 'fpga': '09c4'}
"""The product id of each kind of devices."""
NEAR_CELL = 3
"""Devices of each kind near each NUMA cell. A guest with as many devices of each kind has
more kinds of candidates on a host than a scheduler works out."""
TRAITS = (os_traits.COMPUTE_MANAGED_PCI_DEVICE, os_traits.OWNER_NOVA)


@dataclass(frozen=True)
class Device:
    """A device.

    :ivar uuid: the UUID of its provider.
    :ivar cell: the NUMA cell of the host.
    """

    uuid: str
    kind: str
    cell: int

    @property
    def resource_class(self) -> str:
        return class_of(self.kind)


def class_of(kind: str) -> str:
    """The resource class of a kind of devices."""
    return f'CUSTOM_PCI_8086_{PRODUCTS[kind].upper()}'


def devices_of(machine: SandboxHost) -> Sequence[Device]:
    """The devices of a host, the devices of the first cell first."""
    devices = []
    for cell in range(CELLS):
        for kind in PRODUCTS:
            for number in range(NEAR_CELL):
                name = f'{machine.name} {cell} {kind} {number}'
                devices.append(Device(stable_uuid('device', name), kind, cell))
    return devices


@lru_cache(maxsize=1000)
def report_of(free: Sequence[Device]) -> str:
    """The text of ``pci_stats`` with the free devices of a host."""
    cell_of = {device.uuid: device.cell for device in free}
    product_of = {device.uuid: PRODUCTS[device.kind] for device in free}
    return reported_devices(cell_of, product_of)


def request_fields(flavor: Flavor, name: str) -> Mapping[str, Any]:
    """The fields of a RequestSpec for the devices of a flavor, all near the NUMA cell of
    the guest, with a request group for each device.

    :param name: unique among all requests.
    """
    requests = []
    groups = []
    for kind, count in DEVICES_OF.get(flavor.name, {}).items():
        request_id = stable_uuid('PCI request', f'{name} {kind}')
        requests.append(
            wire.InstancePCIRequest(
                count=count,
                spec=[{'vendor_id': '8086', 'product_id': PRODUCTS[kind]}],
                alias_name=kind,
                request_id=request_id,
                numa_policy='required',
            )
        )
        for number in range(count):
            groups.append(
                wire.RequestGroup(
                    requester_id=f'{request_id}-{number}',
                    resources={class_of(kind): 1},
                    use_same_provider=True,
                )
            )
    if not requests:
        return {}
    return {
        'pci_requests': wire.InstancePCIRequests(requests=requests),
        'requested_resources': groups,
    }


def cells_of(devices: Iterable[Device], providers: Iterable[str]) -> set[int]:
    """The NUMA cells of some devices of a host.

    :param providers: the UUIDs of providers; other providers do not matter.
    """
    uuids = {*providers}
    return {device.cell for device in devices if device.uuid in uuids}
