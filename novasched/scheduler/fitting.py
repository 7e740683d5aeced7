# SPDX-License-Identifier: Apache-2.0
"""Fit the NUMA cells and the PCI devices of a guest on a host together.

The devices depend on the host cells: PCI NUMA policies want devices near the cells.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from novasched.conf.settings import Settings
from novasched.scheduler.model.candidate import Candidate
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.numa import Fit, HostTopology, TopologyLimits
from novasched.scheduler.model.pci import DeviceChoice, HostDevices, Pool
from novasched.scheduler.model.request import Request
from novasched.scheduler.numa.fit import (
    FitProblem,
    PciCheck,
    consume_cells,
    give_back_cells,
)
from novasched.scheduler.pci.pools import (
    Mappings,
    consume,
    device_choices,
    out_of_reach,
    providers_of,
)

LIMITS = 'numa_topology'
"""The key of :class:`TopologyLimits` in the limits of a selection."""


def mappings_of(request: Request, candidate: Candidate | None) -> Mappings | None:
    """Return the providers by request group, None if no group is for PCI devices."""
    if candidate is None:
        return None
    if all(pci_request.is_for_port for pci_request in request.pci_requests):
        return None
    return candidate.providers_by_group()


def limits_of(host: Host, request: Request) -> TopologyLimits:
    """Return the limits for the cells of a host and the networks of the request."""
    return TopologyLimits(
        host.cpu_allocation_ratio,
        host.ram_allocation_ratio,
        request.physnets,
        request.tunneled,
    )


def fit_on_host(
    host: Host,
    request: Request,
    mappings: Mappings | None,
    limits: TopologyLimits | None,
    settings: Settings,
) -> Fit | str:
    """Fit the guest on the cells of a host, with the PCI devices near the cells.

    A string says in one line why the guest does not fit.
    """
    problem = _fit_problem(host, request, mappings, limits, settings)
    if isinstance(problem, str):
        return problem
    return problem.fit()


def misfit_on_host(
    host: Host,
    request: Request,
    mappings: Mappings | None,
    limits: TopologyLimits | None,
    settings: Settings,
) -> str | None:
    """Return why :func:`fit_on_host` does not fit the guest, None if the guest fits."""
    problem = _fit_problem(host, request, mappings, limits, settings)
    if isinstance(problem, str):
        return problem
    return problem.misfit()


def _fit_problem(
    host: Host,
    request: Request,
    mappings: Mappings | None,
    limits: TopologyLimits | None,
    settings: Settings,
) -> FitProblem | str:
    """Return the fit to be found, or why a fit is impossible."""
    topology = host.numa_topology
    guest = request.numa_topology
    if topology is None:
        return 'it reports no NUMA topology, or none that can be read'
    if guest is None:
        return 'the guest has no NUMA topology'

    pci_check = None
    if request.pci_requests:
        pci_check = _pci_check(host, topology, request, mappings)
    return FitProblem(
        topology,
        guest,
        limits,
        pci_check,
        _devices_by_cell(host),
        settings.packing_host_numa_cells_allocation_strategy,
    )


def _pci_check(
    host: Host, topology: HostTopology, request: Request, mappings: Mappings | None
) -> PciCheck:
    """Make the check of the PCI devices near host cells.

    With more host cells than guest cells, the check tells whether any choice of the
    cells can have the devices.
    """
    guest_size = 0
    if request.numa_topology:
        guest_size = len(request.numa_topology.cells)
    sockets = _sockets(topology)
    pools = host.pci_stats
    pci_requests = request.pci_requests

    def check(cells: Sequence[int]) -> str | None:
        if len(cells) > guest_size:
            return out_of_reach(
                pools, pci_requests, mappings, cells, guest_size, sockets
            )
        remaining = consume(pools, pci_requests, mappings, cells, sockets)
        if isinstance(remaining, str):
            return remaining
        return None

    return check


def claimed_fit(
    host: Host,
    request: Request,
    candidate: Candidate | None,
    limits: Mapping[str, Any],
    settings: Settings,
) -> Fit | None:
    """Fit the current instance on the host of its claim.

    None if guest or host have no NUMA topology. Also None if the guest does not fit,
    which is possible when NUMATopologyFilter is not enabled.
    """
    if request.numa_topology is None:
        return None
    mappings = mappings_of(request, candidate)
    fit = fit_on_host(host, request, mappings, limits.get(LIMITS), settings)
    if isinstance(fit, Fit):
        return fit
    return None


def host_devices(host: Host, request: Request, settings: Settings) -> HostDevices:
    """Return the PCI devices of a host, as far as they restrict the candidates of a
    request."""
    places = device_places(host)
    if not request.pci_requests:
        return HostDevices(places)
    cells: Hashable = None
    if request.numa_topology:
        ratios = host.cpu_allocation_ratio, host.ram_allocation_ratio
        cells = host.numa_topology, *ratios
    return HostDevices(places, cells, partial(choices_on_host, host, request, settings))


def choices_on_host(
    host: Host, request: Request, settings: Settings
) -> Iterable[DeviceChoice]:
    """Return the devices that the guest may get near each choice of host cells that the
    guest fits. Without a choice, the guest does not fit the host with any devices."""
    guest = request.numa_topology
    if guest is None:
        return device_choices(host.pci_stats, request.pci_requests)
    topology = host.numa_topology
    if topology is None:
        return ()
    problem = FitProblem(
        topology,
        guest,
        limits_of(host, request),
        pci_cells=_devices_by_cell(host),
        packing=settings.packing_host_numa_cells_allocation_strategy,
    )
    sockets = _sockets(topology)
    return device_choices(
        host.pci_stats, request.pci_requests, problem.cells(), sockets
    )


def _devices_by_cell(host: Host) -> Mapping[int, int]:
    """Return the number of free PCI devices by host cell."""
    devices_by_cell: dict[int, int] = {}
    for pool in host.pci_stats:
        if pool.numa_node is not None:
            count = devices_by_cell.get(pool.numa_node, 0)
            devices_by_cell[pool.numa_node] = count + pool.count
    return devices_by_cell


def device_places(host: Host) -> Mapping[str, Hashable]:
    """Return the properties of the free PCI devices in Placement, by resource provider.

    Devices with equal properties are interchangeable. A device that Placement counts as
    free, but nova-compute does not, has no properties.
    """
    places: dict[str, tuple[Hashable, ...]] = {}
    for pool in host.pci_stats:
        provider = pool.tags.get('rp_uuid')
        if provider is not None:
            # Each device has its own address, and aliases do not name addresses.
            properties = _properties(pool, 'rp_uuid', 'address')
            places[provider] = (*places.get(provider, ()), properties)
    return places


def device_layout(host: Host) -> tuple[Hashable, Mapping[str, int]]:
    """Return the pools of PCI devices with numbers in place of resource providers, and
    the number of each provider.

    Hosts of one kind have equal layouts, but different providers.
    """
    numbers: dict[str, int] = {}
    layout = []
    for pool in host.pci_stats:
        provider = pool.tags.get('rp_uuid')
        number = None
        if provider is not None:
            number = numbers.setdefault(provider, len(numbers))
        layout.append((number, _properties(pool, 'rp_uuid')))
    return tuple(layout), numbers


def _properties(pool: Pool, *ignored_tags: str) -> Hashable:
    """Return the properties of the devices of a pool."""
    tags = dict(pool.tags)
    for name in ignored_tags:
        tags.pop(name, None)
    own = (pool.vendor_id, pool.product_id, pool.numa_node, pool.count)
    return own, tuple(sorted(tags.items()))


def far_devices(
    host: Host, request: Request, settings: Settings, candidate: Candidate
) -> int:
    """Count the PCI devices of a candidate on other host cells than the guest.

    0 if unknown, for instance if Placement does not allocate the devices.
    """
    mappings = mappings_of(request, candidate)
    if not mappings:
        return 0
    limits = {LIMITS: limits_of(host, request)}
    fit = claimed_fit(host, request, candidate, limits, settings)
    if not fit:
        return 0

    # None: a device of an unknown cell is not far.
    near = {None, *(cell.host_cell for cell in fit.cells)}
    node_of = {pool.tags.get('rp_uuid'): pool.numa_node for pool in host.pci_stats}
    count = 0
    for pci_request in request.pci_requests:
        for provider in providers_of(pci_request, mappings):
            if node_of.get(provider) not in near:
                count += 1
    return count


def with_instance_claimed(
    host: Host, request: Request, candidate: Candidate | None, fit: Fit | None
) -> Host:
    """Return the host after the current instance of the request was claimed.

    Cells and devices that are not available stay as they are: the filter that checks
    the cells or devices may be disabled.

    :param fit: the answer of :func:`claimed_fit`.
    """
    claimed = host.with_instance(request)
    guest = request.numa_topology
    topology = host.numa_topology if guest else None

    cells: Sequence[int] = ()
    sockets: Mapping[int, int | None] = {}
    # Cells first: the PCI NUMA policies look at the cells of the guest.
    if topology and guest:
        sockets = _sockets(topology)
        if fit:
            cells = [cell.host_cell for cell in fit.cells]
            remaining_cells = consume_cells(topology, fit, guest)
            claimed = replace(claimed, numa=lambda: remaining_cells)

    if request.pci_requests:
        mappings = mappings_of(request, candidate)
        pools = consume(host.pci_stats, request.pci_requests, mappings, cells, sockets)
        if not isinstance(pools, str):
            claimed = replace(claimed, pci=partial(tuple, pools))
    return claimed


def without_instance_claimed(host: Host, request: Request, fit: Fit | None) -> Host:
    """Return the host after the current instance of the request has left. The PCI
    devices stay as they are.

    :param fit: the cells and CPUs that the instance had; None without a topology.
    """
    left = host.without_instance(request)
    guest = request.numa_topology
    topology = host.numa_topology
    if fit is None or guest is None or topology is None:
        return left
    remaining_cells = give_back_cells(topology, fit, guest)
    return replace(left, numa=lambda: remaining_cells)


def _sockets(topology: HostTopology) -> Mapping[int, int | None]:
    return {cell.id: cell.socket for cell in topology.cells}
