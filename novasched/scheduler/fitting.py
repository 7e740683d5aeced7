# SPDX-License-Identifier: Apache-2.0
"""A guest's NUMA cells and PCI devices on a host, which depend on each other."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from novasched.conf.settings import Settings
from novasched.scheduler.model.candidate import Candidate
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.numa import (
    Fit,
    GuestTopology,
    HostTopology,
    TopologyLimits,
)
from novasched.scheduler.model.request import Request
from novasched.scheduler.numa.fit import PciCheck, consume_cells, fit, misfit
from novasched.scheduler.pci.pools import Mappings, consume, out_of_reach, providers_of

Near = Mapping[int, int]
"""The number of free PCI devices by the id of the host cell that they are near to."""

LIMITS = 'numa_topology'
"""The name of :class:`TopologyLimits` among the limits of a chosen host."""


def mappings_of(request: Request, candidate: Candidate | None) -> Mappings | None:
    """Which providers serve which group of the request, if that says anything of
    devices."""
    if candidate is None or all(each.is_for_port for each in request.pci_requests):
        return None
    return candidate.providers_by_group()


def limits_of(host: Host, request: Request) -> TopologyLimits:
    """The overcommit that cells of a host allow, and the networks that a guest is to be
    near."""
    return TopologyLimits(
        host.cpu_allocation_ratio,
        host.ram_allocation_ratio,
        request.physnets,
        request.tunneled,
    )


def fitted(
    host: Host,
    request: Request,
    mappings: Mappings | None,
    limits: TopologyLimits | None,
    settings: Settings,
) -> Fit | str:
    """Place of a request's guest on the cells of a host, with its devices near; or why
    it does not, in one line."""
    asked = _asked(host, request, mappings, limits, settings)
    if isinstance(asked, str):
        return asked
    return fit(*asked)


def unfitted(
    host: Host,
    request: Request,
    mappings: Mappings | None,
    limits: TopologyLimits | None,
    settings: Settings,
) -> str | None:
    """Tell why :func:`fitted` has no place for the guest; None where it has one."""
    asked = _asked(host, request, mappings, limits, settings)
    if isinstance(asked, str):
        return asked
    return misfit(*asked)


def _asked(
    host: Host,
    request: Request,
    mappings: Mappings | None,
    limits: TopologyLimits | None,
    settings: Settings,
) -> (
    tuple[
        HostTopology, GuestTopology, TopologyLimits | None, PciCheck | None, Near, bool
    ]
    | str
):
    """The arguments of :func:`~novasched.scheduler.numa.fit.fit`; or why it is not
    asked."""
    topology = host.numa_topology
    guest = request.numa_topology
    if topology is None:
        return 'it reports no NUMA topology, or none that can be read'
    if guest is None:
        return 'the guest has no NUMA topology'
    packing = settings.packing_host_numa_cells_allocation_strategy
    near: dict[int, int] = {}
    for pool in host.pci_stats:
        if pool.numa_node is not None:
            near[pool.numa_node] = near.get(pool.numa_node, 0) + pool.count
    if request.pci_requests:
        devices = _lack_of_devices(host, topology, request, mappings)
    else:
        devices = None
    return topology, guest, limits, devices, near, packing


def _lack_of_devices(
    host: Host, topology: HostTopology, request: Request, mappings: Mappings | None
) -> PciCheck:
    """Why the devices cannot be had near the host cells that the guest gets, or near
    any of them where there are more than it needs."""
    size = len(request.numa_topology.cells) if request.numa_topology else 0
    sockets = _sockets(topology)

    def lack(cells: Sequence[int]) -> str | None:
        wanted = host.pci_stats, request.pci_requests, mappings, cells
        if len(cells) > size:
            return out_of_reach(*wanted, size, sockets)
        left = consume(*wanted, sockets)
        if isinstance(left, str):
            return left
        return None

    return lack


def claimed_fit(
    host: Host,
    request: Request,
    candidate: Candidate | None,
    limits: Mapping[str, Any],
    settings: Settings,
) -> Fit | None:
    """Place of the current instance on the cells of the host for which it is claimed;
    None where either has no NUMA topology, or the guest does not fit, since no filter
    has seen to it."""
    if request.numa_topology is None:
        return None
    mappings = mappings_of(request, candidate)
    place = fitted(host, request, mappings, limits.get(LIMITS), settings)
    if isinstance(place, Fit):
        return place
    return None


def far_devices(
    host: Host, request: Request, settings: Settings, candidate: Candidate
) -> int:
    """The number of PCI devices of a candidate that are on other host cells than the
    guest; 0 where that cannot be told, as where Placement does not give the devices."""
    mappings = mappings_of(request, candidate)
    limits = {LIMITS: limits_of(host, request)}
    place = mappings and claimed_fit(host, request, candidate, limits, settings)
    if not place:
        return 0
    near = {None, *(cell.host_cell for cell in place.cells)}
    node_of = {pool.tags.get('rp_uuid'): pool.numa_node for pool in host.pci_stats}
    given = [rp for each in request.pci_requests for rp in providers_of(each, mappings)]
    return sum(node_of.get(rp) not in near for rp in given)


def after(
    host: Host, request: Request, candidate: Candidate | None, place: Fit | None
) -> Host:
    """The host with the request's current instance placed on it, as it was claimed.

    Cells and devices that cannot be had, since no filter has seen to it, stay as they
    are.

    :param place: the answer of :func:`claimed_fit`.
    """
    left = host.after(request)
    mappings = mappings_of(request, candidate)
    cells: Sequence[int] = ()
    sockets: Mapping[int, int | None] = {}
    guest = request.numa_topology
    topology = host.numa_topology if guest else None
    if topology and guest:
        sockets = _sockets(topology)
        if place:
            cells = [cell.host_cell for cell in place.cells]
            taken = consume_cells(topology, place, guest)
            left = replace(left, numa=lambda: taken)
    if request.pci_requests:
        pools = consume(host.pci_stats, request.pci_requests, mappings, cells, sockets)
        if not isinstance(pools, str):
            left = replace(left, pci=partial(tuple, pools))
    return left


def _sockets(topology: HostTopology) -> Mapping[int, int | None]:
    return {cell.id: cell.socket for cell in topology.cells}
