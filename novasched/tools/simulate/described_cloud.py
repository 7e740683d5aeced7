# SPDX-License-Identifier: Apache-2.0
"""Clouds that a file describes: kinds of hosts with numbers, flavors, and servers.

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

import json
import math
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import msgspec
import os_traits

from novasched.placement.base_answer import BaseAnswer
from novasched.placement.query import LocalQuery
from novasched.scheduler.model.aggregate_list import AggregateList
from novasched.scheduler.model.flavor import Flavor
from novasched.scheduler.model.host import (
    AVAILABILITY_ZONE,
    DISABLED,
    DOWN,
    Aggregate,
    Host,
    Service,
)
from novasched.scheduler.model.numa import (
    KIB_PER_MIB,
    HostCell,
    HostTopology,
    Pages,
)
from novasched.scheduler.model.values import MAX_CPUS
from novasched.tools.sandbox.computes import stable_uuid
from novasched.tools.simulate.sources import Unusable

SMALL_PAGE_KB = 4
COMPUTE_VERSION = 74
"""The version of the nova-compute of every host: that of nova 34.0.0."""

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


_decode = msgspec.json.Decoder(Description).decode


@dataclass(frozen=True, slots=True)
class Provider:
    """A provider of a tree, as Placement summarises it.

    :ivar parent: the UUID of the parent; None for the root, and for children of the
        root.
    """

    uuid: str
    root: str
    capacities: Mapping[str, int]
    traits: Sequence[str]
    parent: str | None = None

    @property
    def summary(self) -> Mapping[str, Any]:
        """The summary in an answer of Placement, without usage."""
        resources = {}
        for name, amount in self.capacities.items():
            resources[name] = {'capacity': amount, 'used': 0}
        parent = self.parent
        if parent is None and self.uuid != self.root:
            parent = self.root
        return {
            'resources': resources,
            'traits': [*self.traits],
            'parent_provider_uuid': parent,
            'root_provider_uuid': self.root,
        }


@dataclass(frozen=True, slots=True)
class DescribedCloud:
    """The empty hosts of a description, with their aggregates and providers.

    :ivar providers: the tree of each host, by compute node UUID; the compute node is
        first.
    :ivar servers: the servers, which the hosts do not have yet.
    :ivar groups: the server groups by name.
    """

    hosts: Sequence[Host]
    aggregates: AggregateList
    flavors: Mapping[str, Flavor]
    providers: Mapping[str, Sequence[Provider]] = field(repr=False)
    servers: Sequence[DescribedServer] = ()
    groups: Mapping[str, DescribedGroup] = field(default_factory=dict)

    def all(self, since: float) -> AggregateList:
        """See :class:`novasched.scheduler.prefilters.Aggregates`."""
        return self.aggregates

    def base_answer(self, local: LocalQuery) -> BaseAnswer:
        """The answer of a Placement with the cloud to a base query."""
        parameters = local.base.parameters
        requests: list[Mapping[str, Any]] = []
        summaries = {}
        for host in self.hosts:
            tree = self.providers[host.uuid]
            if not is_asked_for(host, tree[0], parameters):
                continue
            requests.append({'allocations': {host.uuid: {'resources': {}}}})
            for provider in tree:
                summaries[provider.uuid] = provider.summary
        answer = {'allocation_requests': requests, 'provider_summaries': summaries}
        return BaseAnswer(json.dumps(answer).encode(), time.monotonic())


def is_asked_for(
    host: Host, node: Provider, parameters: Collection[tuple[str, str]]
) -> bool:
    """True if a base query asks for a host."""
    aggregates = {aggregate.uuid for aggregate in host.aggregates}
    for name, value in parameters:
        if name == 'member_of':
            is_forbidden = value.startswith('!')
            uuids = value.removeprefix('!').removeprefix('in:').split(',')
            if aggregates.isdisjoint(uuids) != is_forbidden:
                return False
        elif name == 'in_tree' and value != host.uuid:
            return False
        elif name == 'resources':
            for amount in value.split(','):
                if amount.partition(':')[0] not in node.capacities:
                    return False
    return True


def read_cloud(path: str) -> DescribedCloud:
    """Read the description of a cloud.

    :raises Unusable: the file cannot be read, or describes no cloud.
    """
    try:
        with open(path, 'rb') as file:
            description = _decode(file.read())
    except OSError as error:
        raise Unusable(f'{path}: {error.strerror}') from None
    except ValueError as error:
        raise Unusable(f'{path}: {error}') from None
    try:
        return _cloud(description)
    except Unusable as error:
        raise Unusable(f'{path}: {error}') from None


def cloud_of(content: Mapping[str, Any]) -> DescribedCloud:
    """The cloud of the content of a file.

    :raises Unusable: the content describes no cloud.
    """
    try:
        description = msgspec.convert(content, Description)
    except ValueError as error:
        raise Unusable(str(error)) from None
    return _cloud(description)


def _cloud(description: Description) -> DescribedCloud:
    """The cloud of a description.

    :raises Unusable: names are missing, or used twice.
    """
    if not description.hosts:
        raise Unusable('there are no hosts in the file')
    kinds = [kind.name for kind in description.hosts]
    for name in kinds:
        if kinds.count(name) > 1:
            raise Unusable(f'two kinds of hosts have the name {name}')

    aggregates = _aggregates(description)
    hosts = []
    providers = {}
    for kind in description.hosts:
        groups = tuple(aggregates[key] for key in _aggregates_of(kind))
        topology = _topology(kind)
        for number in range(kind.number):
            host = _host(f'{kind.name}-{number:05}', kind, groups, topology)
            hosts.append(host)
            providers[host.uuid] = [*_tree(host, kind)]

    flavors = {}
    for number, (name, flavor) in enumerate(description.flavors.items(), 1):
        flavors[name] = flavor.flavor(name, number)
    _check_servers(description, {host.host for host in hosts})
    return DescribedCloud(
        hosts,
        AggregateList(aggregates.values()),
        flavors,
        providers,
        description.servers,
        description.groups,
    )


_AggregateKey = tuple[str, str]
"""The kind of an aggregate, and its name: a zone may be called like an aggregate."""


def _aggregates_of(kind: DescribedHosts) -> list[_AggregateKey]:
    """The aggregates of each host of a kind."""
    keys = [('aggregate', name) for name in kind.aggregates]
    if kind.zone is not None:
        keys.append(('zone', kind.zone))
    return keys


def _aggregates(description: Description) -> Mapping[_AggregateKey, Aggregate]:
    """The aggregates of a description, and an aggregate for each zone.

    :raises Unusable: hosts are in an aggregate that the file does not have.
    """
    metadata = {}
    for name, of_aggregate in description.aggregates.items():
        metadata['aggregate', name] = of_aggregate
    for kind in description.hosts:
        if kind.zone is not None:
            metadata['zone', kind.zone] = {AVAILABILITY_ZONE: kind.zone}
        for name in kind.aggregates:
            if name not in description.aggregates:
                raise Unusable(f'{kind.name}: there is no aggregate {name}')

    aggregates = {}
    for number, (key, of_aggregate) in enumerate(metadata.items(), 1):
        uuid = stable_uuid(*key)
        aggregates[key] = Aggregate(number, uuid, key[1], of_aggregate)
    return aggregates


def _check_servers(description: Description, hosts: Collection[str]) -> None:
    """Check that the flavors, hosts and groups of the servers are in the file, and that
    each server has a name of its own.

    :raises Unusable: they are not.
    """
    names = set()
    for server in description.servers:
        if server.name in names:
            raise Unusable(f'two servers have the name {server.name}')
        names.add(server.name)
        if server.flavor not in description.flavors:
            raise Unusable(f'{server.name}: there is no flavor {server.flavor}')
        if server.host not in hosts:
            raise Unusable(f'{server.name}: there is no host {server.host}')
        if server.group is not None and server.group not in description.groups:
            raise Unusable(f'{server.name}: there is no group {server.group}')


def _host(
    name: str,
    kind: DescribedHosts,
    aggregates: tuple[Aggregate, ...],
    topology: HostTopology | None,
) -> Host:
    memory_mb = kind.memory
    return Host(
        host=name,
        nodename=name,
        uuid=stable_uuid('host', name),
        cell_uuid=stable_uuid('cell', 'cell1'),
        service=Service(name, kind.state != DOWN, kind.state == DISABLED),
        total_usable_ram_mb=memory_mb,
        free_ram_mb=memory_mb - kind.reserved_memory_mb,
        total_usable_disk_gb=kind.disk_gb,
        free_disk_mb=kind.disk_gb * 1024,
        vcpus_total=kind.shared_cpus + kind.dedicated_cpus,
        cpu_allocation_ratio=kind.cpu_allocation_ratio,
        ram_allocation_ratio=kind.ram_allocation_ratio,
        disk_allocation_ratio=kind.disk_allocation_ratio,
        hypervisor_type='QEMU',
        hypervisor_hostname=name,
        supported_instances=(('x86_64', 'qemu', 'hvm'),),
        aggregates=aggregates,
        numa=lambda: topology,
    )


def _tree(host: Host, kind: DescribedHosts) -> Iterator[Provider]:
    """The compute node and a provider for each device."""
    # Every nova-compute of this version sets the trait.
    traits = [os_traits.OWNER_NOVA, *kind.traits]
    if kind.state == DISABLED:
        traits.append(os_traits.COMPUTE_STATUS_DISABLED)
    yield Provider(host.uuid, host.uuid, kind.capacities, traits)
    for devices in kind.devices:
        for number in range(devices.number):
            yield Provider(
                stable_uuid(devices.resource_class, f'{host.host}-{number}'),
                host.uuid,
                {devices.resource_class: devices.amount},
                devices.traits,
            )


def _topology(kind: DescribedHosts) -> HostTopology | None:
    """The NUMA cells of each host of a kind. CPUs are numbered through the cells."""
    if not kind.cells:
        return None
    cells = []
    first = 0
    for number, cell in enumerate(kind.cells):
        between = first + cell.cpus
        end = between + cell.dedicated_cpus
        siblings: tuple[frozenset[int], ...] = ()
        if cell.threads > 1:
            cores = range(first, end, cell.threads)
            siblings = tuple(
                frozenset(range(core, min(core + cell.threads, end))) for core in cores
            )
        cells.append(
            HostCell(
                number,
                frozenset(range(first, between)),
                cell.memory_mb,
                frozenset(range(between, end)),
                siblings=siblings,
                mempages=tuple(_pages(cell)),
                socket=number,
            )
        )
        first = end
    return HostTopology(tuple(cells))


def _pages(cell: DescribedCell) -> Iterator[Pages]:
    """The pages of a cell: the huge pages, and the rest of the memory as small
    pages."""
    huge_kb = sum(size_kb * number for size_kb, number in cell.pages.items())
    small_kb = max(0, cell.memory_mb * KIB_PER_MIB - huge_kb)
    yield Pages(SMALL_PAGE_KB, math.floor(small_kb / SMALL_PAGE_KB))
    for size_kb, number in sorted(cell.pages.items()):
        yield Pages(size_kb, number)
