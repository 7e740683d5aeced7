# SPDX-License-Identifier: Apache-2.0
"""Fit the NUMA cells of a guest on the NUMA cells of a host.

Whether a guest cell fits a host cell does not depend on the other guest cells, so each
distinct pair is judged once. The remaining problem is to assign distinct host cells to
the guest cells (:mod:`novasched.scheduler.numa.search`). The first assignment in the
order of preference wins.
"""

from collections.abc import (
    Callable,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import NamedTuple

from novasched.scheduler.model.numa import (
    DEDICATED,
    ISOLATE,
    KIB_PER_MIB,
    MIXED,
    PREFER,
    REQUIRE,
    SHARED,
    CellFit,
    Fit,
    GuestCell,
    GuestTopology,
    HostCell,
    HostTopology,
    Pages,
    TopologyLimits,
)
from novasched.scheduler.numa.fit_cell import (
    Shortfall,
    describe,
    fit_cell,
    shortfall,
)
from novasched.scheduler.numa.search import Acceptance, Search, bottleneck, union

PciCheck = Callable[[Sequence[int]], str | None]
"""Check of a request's PCI devices against host cells, given by their ids.

Returns the reason why the devices are not available near the cells, None if they are
available. The answer depends on the set of cells, not on their order.

The check is also called with more cells than the guest has. Then the check may refuse
only if every subset of the guest's size would be refused: nova's rules may find fewer
devices on more cells.
"""


class _CellChoice(NamedTuple):
    """The search for the host cells of a guest.

    ``cells`` are the host cells, the most preferred first. ``masks`` has for each guest
    cell the mask of host cells that the guest cell fits. ``networks`` has for each
    network the mask of host cells near the network.
    """

    cells: Sequence[HostCell]
    masks: Sequence[int]
    networks: Mapping[str, int]
    search: Search

    @property
    def all_cells(self) -> int:
        """The mask of all host cells."""
        return (1 << len(self.cells)) - 1


@dataclass(frozen=True, slots=True)
class FitProblem:
    """A guest, and a host on whose NUMA cells the guest may fit.

    :ivar pci_check: None when the request asks for no devices.
    :ivar pci_cells: number of free PCI devices by the id of the nearest host cell; has
        every cell with a PCI device pool.
    :ivar packing: the option ``[compute]
        packing_host_numa_cells_allocation_strategy``.
    """

    host: HostTopology
    guest: GuestTopology
    limits: TopologyLimits | None = None
    pci_check: PciCheck | None = None
    pci_cells: Mapping[int, int] = field(default_factory=dict)
    packing: bool = False

    def fit(self) -> Fit | str:
        """The cells and CPUs of the guest on the host, or the reason in one line why
        the guest does not fit."""
        choice = self._cell_choice()
        if isinstance(choice, str):
            return choice

        chosen = choice.search.first(choice.all_cells)
        if chosen is None:
            return _no_choice(choice, self.pci_check)

        fits = []
        for i, cell in enumerate(self.guest.cells):
            host_cell = choice.cells[chosen[i]]
            fits.append(fit_cell(host_cell, cell, self.guest.emulator_cpus(i)))
        return Fit(tuple(fits))

    def misfit(self) -> str | None:
        """The reason why :meth:`fit` does not fit the guest; None if the guest fits.

        ``misfit`` takes a fraction of the time of :meth:`fit`, since no CPUs are
        chosen.
        """
        choice = self._cell_choice()
        if isinstance(choice, str):
            return choice
        if choice.search.succeeds(choice.all_cells):
            return None
        return _no_choice(choice, self.pci_check)

    def cells(self) -> Iterator[Sequence[int]]:
        """Yield each set of host cells that the guest fits without a look at the
        devices, by the ids of the cells, roughly the most preferred first."""
        if _refusal(self.host, self.guest):
            return
        cells = self._cells_in_order(has_devices=True)
        masks = _masks(cells, self.guest, self.limits)
        if isinstance(masks, str):
            return

        networks = _network_masks(cells, self.limits).values()
        fitting = [i for i in range(len(cells)) if union(masks) >> i & 1]
        for indexes in combinations(fitting, len(self.guest.cells)):
            chosen = sum(1 << i for i in indexes)
            is_near = all(chosen & mask for mask in networks)
            if is_near and bottleneck(masks, chosen) is None:
                yield _ids(cells, chosen)

    def _cells_in_order(self, has_devices: bool) -> Sequence[HostCell]:
        """The host cells, the most preferred first."""
        return _in_preferred_order(
            self.host.cells, self.guest, self.pci_cells, has_devices, self.packing
        )

    def _cell_choice(self) -> _CellChoice | str:
        """The search for host cells, or the reason why no search is needed."""
        refusal = _refusal(self.host, self.guest)
        if refusal:
            return refusal

        cells = self._cells_in_order(self.pci_check is not None)
        masks = _masks(cells, self.guest, self.limits)
        if isinstance(masks, str):
            return masks

        networks = _network_masks(cells, self.limits)
        accepts: Acceptance | None = None
        if self.pci_check:
            accepts = _acceptance(self.pci_check, cells)

        keys: Sequence[Hashable] = ()
        if networks or accepts:
            kinds: list[Hashable] = [None] * len(cells)
            if accepts:
                kinds = [_pci_kind(cell, self.pci_cells) for cell in cells]
            keys = _interchangeable((*masks, *networks.values()), kinds)
        search = Search(masks, tuple(networks.values()), accepts, keys)
        return _CellChoice(cells, masks, networks, search)


def _acceptance(pci_check: PciCheck, cells: Sequence[HostCell]) -> Acceptance:
    def accepts(mask: int) -> bool:
        return not pci_check(_ids(cells, mask))

    return accepts


def _pci_kind(cell: HostCell, pci_cells: Mapping[int, int]) -> Hashable:
    """Return the same key for host cells that are equal for PCI devices.

    Cells without devices differ by their socket: the PCI NUMA policy ``socket`` wants
    devices on the sockets of the guest's cells.
    """
    if cell.id in pci_cells:
        return cell.id, cell.socket
    return None, cell.socket


def _refusal(host: HostTopology, guest: GuestTopology) -> str | None:
    """Return why the guest fits no host cells, as far as a glance tells."""
    if not guest.cells:
        return 'the guest has no cells'
    if len(host.cells) < len(guest.cells):
        return f'the guest has {len(guest.cells)} cells, the host {len(host.cells)}'

    for i, cell in enumerate(guest.cells):
        policy = cell.cpu_policy
        thread_policy = cell.cpu_thread_policy
        if policy not in (None, SHARED, DEDICATED, MIXED):
            return f'guest cell {i} has an unknown CPU policy: {policy}'
        if thread_policy not in (None, PREFER, REQUIRE, ISOLATE):
            return f'guest cell {i} has an unknown thread policy: {thread_policy}'

        # nova-compute takes the CPUs of emulator threads, and the siblings of isolated
        # CPUs, beside the CPUs that the cell pins: it fails on a cell that pins none.
        if cell.is_pinned and not cell.pcpuset:
            if guest.emulator_cpus(i):
                return (
                    f'guest cell {i} has no dedicated CPU to run emulator threads '
                    'beside'
                )
            if thread_policy == ISOLATE:
                return f'guest cell {i} has no dedicated CPU to isolate'
    return None


def _in_preferred_order(
    cells: Sequence[HostCell],
    guest: GuestTopology,
    pci_cells: Mapping[int, int],
    needs_pci: bool,
    packing: bool,
) -> Sequence[HostCell]:
    """Sort the host cells, the most preferred first.

    PCI devices count most (spec reserve-numa-with-pci): guests without devices avoid
    the cells with devices. Then CPUs count, then memory; ``packing`` prefers the fuller
    cells.
    """
    # A guest that needs all host cells gets them in the order of the host, like nova.
    if len(cells) <= len(guest.cells):
        return cells

    is_pinned = guest.cells[0].is_pinned
    devices_sign = -1 if needs_pci else 1
    usage_sign = -1 if packing else 1

    def rank(cell: HostCell) -> tuple[int, int, int]:
        devices = pci_cells.get(cell.id, 0)
        if is_pinned:
            cpus = -len(cell.free_pcpus)
        else:
            cpus = cell.cpu_usage
        return (
            devices_sign * devices,
            usage_sign * cpus,
            -usage_sign * cell.free_memory,
        )

    return sorted(cells, key=rank)


def _masks(
    cells: Sequence[HostCell], guest: GuestTopology, limits: TopologyLimits | None
) -> list[int] | str:
    """Return for each guest cell the mask of host cells that the guest cell fits.

    A string says why a guest cell fits no host cell.
    """
    masks = []
    masks_by_kind: dict[Hashable, int] = {}
    for i, cell in enumerate(guest.cells):
        emulator_cpus = guest.emulator_cpus(i)
        kind = (
            emulator_cpus,
            len(cell.cpuset),
            len(cell.pcpuset),
            cell.memory,
            cell.pagesize,
            cell.cpu_policy,
            cell.cpu_thread_policy,
        )
        mask = masks_by_kind.get(kind)

        if mask is None:
            mask = 0
            shortfalls: list[tuple[int, Shortfall]] = []
            for index, host_cell in enumerate(cells):
                lack = shortfall(host_cell, cell, emulator_cpus, limits)
                if lack is None:
                    mask |= 1 << index
                else:
                    shortfalls.append((host_cell.id, lack))
            if not mask:
                return f'guest cell {i} fits no host cell: {describe(shortfalls)}'
            masks_by_kind[kind] = mask

        masks.append(mask)
    return masks


def _network_masks(
    cells: Sequence[HostCell], limits: TopologyLimits | None
) -> dict[str, int]:
    """Return by network the mask of host cells near the network.

    The guest needs one of the cells of each mask (spec numa-aware-vswitches). A network
    that is near no host cell constrains nothing.
    """
    if limits is None or not (limits.physnets or limits.tunneled):
        return {}

    masks = {}
    for name in sorted(limits.physnets or ()):
        mask = _mask(name in cell.physnets for cell in cells)
        if mask:
            masks[f'physical network {name}'] = mask
    if limits.tunneled:
        mask = _mask(cell.tunneled for cell in cells)
        if mask:
            masks['tunneled networks'] = mask
    return masks


def _mask(bits: Iterable[bool]) -> int:
    mask = 0
    for index, bit in enumerate(bits):
        mask |= bit << index
    return mask


def _ids(cells: Sequence[HostCell], mask: int) -> list[int]:
    return [cell.id for i, cell in enumerate(cells) if mask >> i & 1]


def _listed(numbers: Iterable[int]) -> str:
    return ', '.join(map(str, numbers))


def _interchangeable(masks: Sequence[int], kinds: Sequence[Hashable]) -> list[Hashable]:
    """Return a key for each host cell, equal for interchangeable cells.

    Cells are interchangeable if they are of one kind and in the same masks.
    """
    keys: list[Hashable] = []
    for i, kind in enumerate(kinds):
        bits = tuple(mask >> i & 1 for mask in masks)
        keys.append((bits, kind))
    return keys


def _no_choice(choice: _CellChoice, pci_check: PciCheck | None) -> str:
    """Return why the guest cells do not fit the host cells together.

    Each guest cell fits some host cell. Either there are too few host cells, or no
    choice of host cells is near the networks and the PCI devices.
    """
    cells, masks, networks, _ = choice
    all_cells = choice.all_cells

    short = bottleneck(masks, all_cells)
    if short is not None:
        guests, hosts = short
        guest_cells = _listed(i for i in range(guests.bit_length()) if guests >> i & 1)
        host_cells = _listed(_ids(cells, hosts))
        return f'guest cells {guest_cells} fit too few host cells: {host_cells}'

    for name, mask in networks.items():
        if Search(masks, (mask,)).first(all_cells) is None:
            host_cells = _listed(_ids(cells, mask))
            return f'the guest fits no host cell near {name}: {host_cells}'

    constraints = tuple(networks.values())
    kinds = _interchangeable((*masks, *constraints), [None] * len(cells))
    if Search(masks, constraints, None, kinds).first(all_cells) is None:
        return f'no choice of host cells is near all of {", ".join(networks)}'

    fitting = _ids(cells, union(masks))
    lack = None
    if pci_check:
        lack = pci_check(fitting)
    if not lack:
        lack = 'the PCI devices cannot be had'
    return f'near the host cells that the guest fits ({_listed(fitting)}), {lack}'


def consume_cells(host: HostTopology, fit: Fit, guest: GuestTopology) -> HostTopology:
    """Return the host topology after the guest took its cells.

    :raises ValueError: the CPUs are pinned already: the fit is for another host.
    """
    return _with_changed_cells(host, fit, guest, _consume_cell)


def give_back_cells(host: HostTopology, fit: Fit, guest: GuestTopology) -> HostTopology:
    """Return the host topology after the guest left its cells: the inverse of
    :func:`consume_cells`."""
    return _with_changed_cells(host, fit, guest, _give_back_cell)


def _with_changed_cells(
    host: HostTopology,
    fit: Fit,
    guest: GuestTopology,
    change: Callable[[HostCell, CellFit, GuestCell], HostCell],
) -> HostTopology:
    placed = {}
    for cell_fit, guest_cell in zip(fit.cells, guest.cells, strict=True):
        placed[cell_fit.host_cell] = (cell_fit, guest_cell)

    cells = []
    for cell in host.cells:
        if cell.id in placed:
            cell = change(cell, *placed[cell.id])
        cells.append(cell)
    return HostTopology(tuple(cells))


def _consume_cell(cell: HostCell, cell_fit: CellFit, guest: GuestCell) -> HostCell:
    cpus = _cpus_of(cell, cell_fit, guest)
    if cpus & cell.pinned_cpus:
        pinned = sorted(cpus & cell.pinned_cpus)
        raise ValueError(f'host cell {cell.id}: CPUs {pinned} are pinned already')

    kib = guest.memory * KIB_PER_MIB
    return replace(
        cell,
        memory_usage=cell.memory_usage + guest.memory,
        cpu_usage=cell.cpu_usage + len(guest.cpuset),
        pinned_cpus=cell.pinned_cpus | cpus,
        mempages=_with_used_pages(cell.mempages, cell_fit.pagesize, kib),
    )


def _give_back_cell(cell: HostCell, cell_fit: CellFit, guest: GuestCell) -> HostCell:
    kib = guest.memory * KIB_PER_MIB
    return replace(
        cell,
        memory_usage=cell.memory_usage - guest.memory,
        cpu_usage=cell.cpu_usage - len(guest.cpuset),
        pinned_cpus=cell.pinned_cpus - _cpus_of(cell, cell_fit, guest),
        mempages=_with_used_pages(cell.mempages, cell_fit.pagesize, -kib),
    )


def _cpus_of(cell: HostCell, cell_fit: CellFit, guest: GuestCell) -> frozenset[int]:
    """Return the host CPUs that a guest cell keeps from other guests."""
    cpus = cell_fit.cpus
    # An isolated guest keeps the whole core: nova-compute also takes the siblings.
    if guest.cpu_thread_policy == ISOLATE:
        cpus = cpus.union(*(core for core in cell.siblings if core & cpus))
    return cpus


def _with_used_pages(
    mempages: tuple[Pages, ...], size: int | None, kib: int
) -> tuple[Pages, ...]:
    """Take memory from the pages of one size, the smallest size if none is given.

    :param kib: negative to give memory back.
    """
    if not mempages:
        return ()
    if not size:
        size = min(pages.size_kb for pages in mempages)

    # Towards zero, so that as many pages are given back as were taken.
    number = abs(kib) // size
    if kib < 0:
        number = -number
    changed = []
    for pages in mempages:
        if pages.size_kb == size:
            pages = pages._replace(used=pages.used + number)
        changed.append(pages)
    return tuple(changed)
