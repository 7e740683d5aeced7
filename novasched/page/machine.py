# SPDX-License-Identifier: Apache-2.0
"""One host: what it has, cell by cell, and whether servers may go there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from novasched.model.host import Host
from novasched.model.numa import HostCell
from novasched.page.resources import RESOURCES, Amount, sized
from novasched.page.sight import NO_ZONE, Sight, state
from novasched.secrets import hide

NODES, NUMA_CELLS, SIZES = 50, 64, 8
"""So many nodes of a host are shown, NUMA cells of a node, and sizes of pages of a cell."""


@dataclass(frozen=True, slots=True)
class Stock:
    """What a node has of a resource; ``factor`` is by how much it is overcommitted, empty
    where it cannot be."""

    title: str
    amount: Amount
    told: str
    factor: str


@dataclass(frozen=True, slots=True)
class NumaCell:
    """A NUMA cell: CPUs that can be pinned, those that float, memory and its pages."""

    id: int
    pinned: Amount
    pinned_told: str
    shared: str
    memory: Amount
    memory_told: str
    pages: str


@dataclass(frozen=True, slots=True)
class Node:
    """A compute node of the host."""

    name: str
    uuid: str
    hypervisor: str
    stocks: tuple[Stock, ...]
    servers: int
    operations: int
    failed_builds: int
    numa: tuple[NumaCell, ...]


@dataclass(frozen=True, slots=True)
class Machine:
    """A host with its service and its nodes, of which there may be ``more``."""

    name: str
    cell: str
    zone: str
    aggregates: tuple[str, ...]
    state: str
    disabled: bool
    why: str
    version: int
    nodes: tuple[Node, ...]
    more: int


def view(sight: Sight, name: str, zone: str | None) -> Machine | None:
    """The host of a name, if there is one; ``zone`` is that of hosts in none."""
    found = [(cell.name, x) for cell in sight.cells for x in cell.hosts if x.host == name]
    if not found:
        return None
    cell, first = found[0]
    service = first.service
    return Machine(
        name,
        cell,
        first.zone(zone) or NO_ZONE,
        tuple(each.name for each in first.aggregates),
        state(first),
        service.disabled,
        hide(service.disabled_reason or ''),
        service.version,
        tuple(_node(host) for _, host in found[:NODES]),
        max(0, len(found) - NODES),
    )


def _node(host: Host) -> Node:
    topology = host.numa_topology
    kind = (host.hypervisor_type or '', str(host.hypervisor_version or ''))
    return Node(
        host.nodename,
        host.uuid,
        ' '.join(filter(None, kind)),
        _stocks(host),
        host.num_instances,
        host.num_io_ops,
        host.failed_builds,
        tuple(_numa(each) for each in topology.cells[:NUMA_CELLS]) if topology else (),
    )


def _stocks(host: Host) -> tuple[Stock, ...]:
    ratios = {
        'ram': host.ram_allocation_ratio,
        'vcpus': host.cpu_allocation_ratio,
        'disk': host.disk_allocation_ratio,
    }
    stocks = []
    for key, resource in RESOURCES.items():
        amount = resource.of(host)
        factor = f'{ratios[key]:g}' if key in ratios else ''
        stocks.append(Stock(resource.title, amount, resource.told(amount), factor))
    return tuple(stocks)


def _numa(cell: HostCell) -> NumaCell:
    pinned = Amount(len(cell.pcpuset) - len(cell.free_pcpus), len(cell.pcpuset))
    memory = Amount(cell.memory_usage, cell.memory)
    floating = len(cell.cpuset)
    return NumaCell(
        cell.id,
        pinned,
        RESOURCES['pinned'].told(pinned),
        f'{cell.cpu_usage:,} used on {floating:,}' if floating else 'none',
        memory,
        sized(memory),
        ', '.join(_pages(cell)),
    )


def _pages(cell: HostCell) -> Sequence[str]:
    kinds = cell.mempages[:SIZES]
    return [f'{each.free:,} of {each.total:,} x {_size(each.size_kb)}' for each in kinds]


def _size(kib: int) -> str:
    for size, unit in ((1024**2, 'GiB'), (1024, 'MiB')):
        if kib >= size and kib % size == 0:
            return f'{kib // size:,} {unit}'
    return f'{kib:,} KiB'
