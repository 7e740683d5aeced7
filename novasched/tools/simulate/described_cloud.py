# SPDX-License-Identifier: Apache-2.0
"""The cloud that a file describes: hosts, aggregates and providers."""

import json
import math
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

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
from novasched.tools.sandbox.computes import stable_uuid
from novasched.tools.simulate.cloud_file import (
    DescribedCell,
    DescribedGroup,
    DescribedHosts,
    DescribedServer,
    Description,
)
from novasched.tools.simulate.sources import Unusable, read_json

SMALL_PAGE_KB = 4
COMPUTE_VERSION = 74
"""The version of the nova-compute of every host: that of nova 34.0.0."""


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
    description = read_json(path, Description)
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
