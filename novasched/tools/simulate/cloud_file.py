# SPDX-License-Identifier: Apache-2.0
"""The file that describes a cloud: kinds of hosts with numbers, flavors, and servers.

The file is JSON::

    {"hosts": [{"name": "gpu", "number": 40, "disk_gb": 2000, "zone": "az1",
                "cells": [{"dedicated_cpus": 32, "memory_mb": 262144},
                          {"dedicated_cpus": 32, "memory_mb": 262144}],
                "devices": [{"resource_class": "CUSTOM_GPU", "number": 8}]},
               {"name": "plain", "number": 200, "vcpus": 64, "memory_mb": 262144,
                "disk_gb": 2000, "aggregates": ["tenants"]}],
     "flavors": {"m1.large": {"vcpus": 4, "memory_mb": 8192, "root_gb": 80}},
     "aggregates": {"tenants": {"filter_tenant_id": "p1"}},
     "groups": {"web": {"policy": "anti-affinity"}},
     "servers": [{"name": "web-1", "flavor": "m1.large", "host": "plain-00000",
                  "group": "web", "project": "p1"}]}

Every field has the name and the unit of nova: MB for MiB of memory, GB for GiB of disk.
A host has the name of its kind with a number of five digits.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from novasched.scheduler.model.flavor import Flavor
from novasched.scheduler.model.values import MAX_CPUS

MAX_INTEGER = 2**31 - 1
"""The maximum of an INTEGER column, such as the sizes of hosts and flavors in nova's
databases."""
MAX_HOSTS = 1_000_000
"""Maximum number of hosts of a kind. The memory for a host is some KiB."""
MAX_DEVICES = 4096
"""Maximum number of equal devices of a host."""

Amount = Annotated[int, msgspec.Meta(ge=0, le=MAX_INTEGER)]
Number = Annotated[int, msgspec.Meta(ge=1, le=MAX_INTEGER)]
Cpus = Annotated[int, msgspec.Meta(ge=0, le=MAX_CPUS)]
Devices = Annotated[int, msgspec.Meta(ge=1, le=MAX_DEVICES)]
Ratio = Annotated[float, msgspec.Meta(gt=0, le=1e6)]


class DescribedCell(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A NUMA cell of a host.

    :ivar cpus: CPUs for floating vCPUs.
    :ivar dedicated_cpus: CPUs for pinned vCPUs.
    :ivar threads: threads of each core.
    :ivar pages: numbers of huge pages by size in KiB.
    """

    memory_mb: Amount
    cpus: Cpus = 0
    dedicated_cpus: Cpus = 0
    threads: Annotated[int, msgspec.Meta(ge=1, le=MAX_CPUS)] = 1
    pages: dict[Number, Amount] = {}


class DescribedDevices(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Equal devices of a host. Each device is a child provider of the compute node.

    :ivar amount: the amount of the resource class on each device.
    """

    resource_class: str
    number: Devices = 1
    amount: Number = 1
    traits: list[str] = []


class DescribedHosts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A kind of hosts. With NUMA cells, the cells have the CPUs and the memory.

    :ivar number: the number of hosts of the kind.
    :ivar zone: the availability zone; the default zone by default.
    :ivar aggregates: the names of the aggregates of the hosts.
    :ivar state: the state of nova-compute.
    """

    name: str
    number: Annotated[int, msgspec.Meta(ge=1, le=MAX_HOSTS)] = 1
    vcpus: Amount = 0
    memory_mb: Amount = 0
    disk_gb: Amount = 0
    cells: list[DescribedCell] = []
    devices: list[DescribedDevices] = []
    traits: list[str] = []
    zone: str | None = None
    cpu_allocation_ratio: Ratio = 4.0
    ram_allocation_ratio: Ratio = 1.0
    disk_allocation_ratio: Ratio = 1.0
    reserved_memory_mb: Amount = 512
    aggregates: list[str] = []
    state: Literal['up', 'disabled', 'down'] = 'up'

    @property
    def shared_cpus(self) -> int:
        """CPUs for floating vCPUs."""
        return self.vcpus + sum(cell.cpus for cell in self.cells)

    @property
    def dedicated_cpus(self) -> int:
        """CPUs for pinned vCPUs."""
        return sum(cell.dedicated_cpus for cell in self.cells)

    @property
    def memory(self) -> int:
        """Memory in MiB, with the reserved memory."""
        return self.memory_mb + sum(cell.memory_mb for cell in self.cells)

    @property
    def capacities(self) -> Mapping[str, int]:
        """The capacity of the compute node in Placement, by resource class."""
        ram_mb = (self.memory - self.reserved_memory_mb) * self.ram_allocation_ratio
        capacities = {
            'VCPU': int(self.shared_cpus * self.cpu_allocation_ratio),
            'PCPU': self.dedicated_cpus,
            'MEMORY_MB': int(ram_mb),
            'DISK_GB': int(self.disk_gb * self.disk_allocation_ratio),
        }
        return {name: amount for name, amount in capacities.items() if amount > 0}


class DescribedFlavor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A flavor, see :class:`novasched.scheduler.model.flavor.Flavor`."""

    vcpus: Number
    memory_mb: Amount
    root_gb: Amount = 0
    ephemeral_gb: Amount = 0
    swap: Amount = 0
    extra_specs: dict[str, str] = {}

    def flavor(self, name: str, number: int) -> Flavor:
        """The flavor with a name and an id."""
        return Flavor(
            name,
            f'{name}-{number}',
            number,
            self.vcpus,
            self.memory_mb,
            self.root_gb,
            self.ephemeral_gb,
            self.swap,
            self.extra_specs,
        )


class DescribedGroup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A server group.

    :ivar max_server_per_host: members of an anti-affinity group on a host.
    """

    policy: Literal[
        'anti-affinity', 'affinity', 'soft-anti-affinity', 'soft-affinity'
    ] = 'anti-affinity'
    max_server_per_host: Number = 1


class DescribedServer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A server on a host.

    :ivar host: the name of the host.
    :ivar group: the name of the server group.
    :ivar state: the ``vm_state``.
    :ivar is_volume_backed: the root disk is a volume.
    """

    name: str
    flavor: str
    host: str
    group: str | None = None
    project: str | None = None
    zone: str | None = None
    state: str = 'active'
    locked: bool = False
    is_volume_backed: bool = False
    image_properties: dict[str, str] = {}
    metadata: dict[str, str] = {}


class Description(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of a file.

    :ivar aggregates: the metadata of aggregates by name.
    """

    hosts: list[DescribedHosts]
    flavors: dict[str, DescribedFlavor] = {}
    aggregates: dict[str, dict[str, str]] = {}
    groups: dict[str, DescribedGroup] = {}
    servers: list[DescribedServer] = []
