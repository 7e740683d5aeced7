# SPDX-License-Identifier: Apache-2.0
"""A guest's NUMA cells and PCI devices on a host, which depend on each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from novasched.model.candidate import Candidate
from novasched.model.host import Host
from novasched.model.numa import Fit, HostTopology, TopologyLimits
from novasched.model.request import Request
from novasched.model.settings import Settings
from novasched.numa import usage
from novasched.numa.fit import PciLack, fit
from novasched.pci.consume import consume, out_of_reach
from novasched.pci.match import Mappings

LIMITS = 'numa_topology'
"""The name of :class:`TopologyLimits` among the limits of a chosen host."""


def mappings_of(request: Request, candidate: Candidate | None) -> Mappings | None:
    """Which providers serve which group of the request, if that says anything of devices."""
    if candidate is None or all(each.is_for_port for each in request.pci_requests):
        return None
    return candidate.providers_by_group()


def fitted(
    host: Host,
    request: Request,
    mappings: Mappings | None,
    limits: TopologyLimits | None,
    settings: Settings,
) -> Fit | str:
    """How the guest of a request lies on the cells of a host, with its devices near; or why
    it does not, in one line."""
    topology, guest = host.numa_topology, request.numa_topology
    if topology is None:
        return 'it reports no NUMA topology, or none that can be read'
    if guest is None:
        return 'the guest has no NUMA topology'
    packing = settings.packing_host_numa_cells_allocation_strategy
    near = Counter[int]()
    for pool in host.pci_stats:
        if pool.numa_node is not None:
            near[pool.numa_node] += pool.count
    devices = _lack_of_devices(host, topology, request, mappings) if request.pci_requests else None
    return fit(topology, guest, limits, devices, near, packing)


def _lack_of_devices(
    host: Host, topology: HostTopology, request: Request, mappings: Mappings | None
) -> PciLack:
    """Why the devices cannot be had near the host cells that the guest gets, or near any of
    them where there are more than it needs."""
    size = len(request.numa_topology.cells) if request.numa_topology else 0
    sockets = _sockets(topology)

    def lack(cells: Sequence[int]) -> str | None:
        wanted = host.pci_stats, request.pci_requests, mappings, cells
        if len(cells) > size:
            return out_of_reach(*wanted, size, sockets)
        left = consume(*wanted, sockets)
        return left if isinstance(left, str) else None

    return lack


def after(
    host: Host,
    request: Request,
    candidate: Candidate | None,
    limits: Mapping[str, Any],
    settings: Settings,
) -> Host:
    """The host with the request's server in hand placed on it, as it was claimed.

    Cells and devices that cannot be had, since no filter has seen to it, stay as they are.
    """
    left = host.after(request)
    mappings = mappings_of(request, candidate)
    cells: Sequence[int] = ()
    sockets: Mapping[int, int | None] = {}
    guest = request.numa_topology
    topology = host.numa_topology if guest else None
    if topology and guest:
        sockets = _sockets(topology)
        place = fitted(host, request, mappings, limits.get(LIMITS), settings)
        if isinstance(place, Fit):
            cells = [cell.host_cell for cell in place.cells]
            taken = usage.consume(topology, place, guest)
            left = replace(left, numa=lambda: taken)
    if request.pci_requests:
        pools = consume(host.pci_stats, request.pci_requests, mappings, cells, sockets)
        if not isinstance(pools, str):
            left = replace(left, pci=partial(tuple, pools))
    return left


def _sockets(topology: HostTopology) -> Mapping[int, int | None]:
    return {cell.id: cell.socket for cell in topology.cells}
