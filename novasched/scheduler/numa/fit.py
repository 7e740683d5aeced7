# SPDX-License-Identifier: Apache-2.0
"""The cells of a guest on the cells of a host.

One guest cell fits one host cell wherever the others go, so that is judged once for
each two distinct ones. What remains is to find distinct host cells; the first choice in
the order of preference is taken.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
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
from novasched.scheduler.numa.fit_cell import describe, fit_cell, shortfall
from novasched.scheduler.numa.search import Acceptance, Search, bottleneck, union

PciCheck = Callable[[Sequence[int]], str | None]
"""The reason that the PCI devices of a request cannot be had near host cells, given by
their ids; None if they can. The answer depends on the set of cells, not on their order.

It is also called with more cells than the guest has, and may then refuse only if it
would refuse every subset of the guest's size: of more cells, nova's rules may find
less."""


class _Choice(NamedTuple):
    """Host cells, the most preferred first, and what is known of a guest on them: for
    each guest cell the mask of host cells that it fits, and by network that of those
    near to it."""

    cells: Sequence[HostCell]
    masks: Sequence[int]
    networks: Mapping[str, int]
    search: Search

    @property
    def everywhere(self) -> int:
        return (1 << len(self.cells)) - 1


def fit(
    host: HostTopology,
    guest: GuestTopology,
    limits: TopologyLimits | None = None,
    pci_check: PciCheck | None = None,
    pci_cells: Mapping[int, int] = MappingProxyType({}),
    packing: bool = False,
) -> Fit | str:
    """Fit the guest on the host; a string says in one line why it does not fit.

    ``pci_cells`` has the number of free PCI devices by the id of the host cell that
    they are near to, and must name every cell that has a pool. ``pci_check`` is None
    when the request asks for no devices. ``packing`` is the option ``[compute]
    packing_host_numa_cells_allocation_strategy``.
    """
    choice = _choice(host, guest, limits, pci_check, pci_cells, packing)
    if isinstance(choice, str):
        return choice
    chosen = choice.search.first(choice.everywhere)
    if chosen is None:
        return _no_choice(choice, pci_check)
    return Fit(
        tuple(
            fit_cell(choice.cells[index], cell, guest.emulator_cpus(i))
            for i, (index, cell) in enumerate(zip(chosen, guest.cells, strict=True))
        )
    )


def misfit(
    host: HostTopology,
    guest: GuestTopology,
    limits: TopologyLimits | None = None,
    pci_check: PciCheck | None = None,
    pci_cells: Mapping[int, int] = MappingProxyType({}),
    packing: bool = False,
) -> str | None:
    """Tell why :func:`fit` would not fit the guest; None where it would. It takes a
    fraction of the time, since the CPUs need not be chosen."""
    choice = _choice(host, guest, limits, pci_check, pci_cells, packing)
    if isinstance(choice, str):
        return choice
    if choice.search.succeeds(choice.everywhere):
        return None
    return _no_choice(choice, pci_check)


def _choice(
    host: HostTopology,
    guest: GuestTopology,
    limits: TopologyLimits | None,
    pci_check: PciCheck | None,
    pci_cells: Mapping[int, int],
    packing: bool,
) -> _Choice | str:
    """The search for host cells, with the arguments of :func:`fit`; or why none is
    needed."""
    refusal = _impossible(host, guest)
    if refusal:
        return refusal
    cells = _preferred(host.cells, guest, pci_cells, pci_check is not None, packing)
    masks = _masks(cells, guest, limits)
    if isinstance(masks, str):
        return masks
    networks = _network_masks(cells, limits)
    accepts: Acceptance | None = pci_check and (
        lambda mask: not pci_check(_ids(cells, mask))
    )
    kinds: Sequence[Hashable] = ()
    if networks or accepts:
        # Cells without devices differ by their socket, which devices may have to be on.
        near = [
            accepts and (cell.id if cell.id in pci_cells else None, cell.socket)
            for cell in cells
        ]
        kinds = _interchangeable((*masks, *networks.values()), near)
    search = Search(masks, tuple(networks.values()), accepts, kinds)
    return _Choice(cells, masks, networks, search)


def _impossible(host: HostTopology, guest: GuestTopology) -> str | None:
    """The reason that nothing needs to be tried."""
    if not guest.cells:
        return 'the guest has no cells'
    if len(host.cells) < len(guest.cells):
        return f'the guest has {len(guest.cells)} cells, the host {len(host.cells)}'
    for i, cell in enumerate(guest.cells):
        if cell.cpu_policy not in (None, SHARED, DEDICATED, MIXED):
            return f'guest cell {i} has an unknown CPU policy: {cell.cpu_policy}'
        if cell.cpu_thread_policy not in (None, PREFER, REQUIRE, ISOLATE):
            return (
                f'guest cell {i} has an unknown thread policy: {cell.cpu_thread_policy}'
            )
        if cell.is_pinned and not cell.pcpuset:
            # Compute refuses these as well: it takes CPUs beside those that it pins.
            if guest.emulator_cpus(i):
                return (
                    f'guest cell {i} has no dedicated CPU to run emulator threads'
                    ' beside'
                )
            if cell.cpu_thread_policy == ISOLATE:
                return f'guest cell {i} has no dedicated CPU to isolate'
    return None


def _preferred(
    cells: Sequence[HostCell],
    guest: GuestTopology,
    pci_cells: Mapping[int, int],
    needs_pci: bool,
    packing: bool,
) -> Sequence[HostCell]:
    """The host cells, the most preferred first; as they stand when the guest needs all.

    PCI devices count most, which are kept for guests that ask for them; then CPUs, then
    memory.
    """
    if len(cells) <= len(guest.cells):
        return cells
    pinned = guest.cells[0].is_pinned
    devices = -1 if needs_pci else 1
    fuller = -1 if packing else 1

    def rank(cell: HostCell) -> tuple[int, int, int]:
        used = -len(cell.free_pcpus) if pinned else cell.cpu_usage
        return (
            devices * pci_cells.get(cell.id, 0),
            fuller * used,
            -fuller * cell.free_memory,
        )

    return sorted(cells, key=rank)


def _masks(
    cells: Sequence[HostCell], guest: GuestTopology, limits: TopologyLimits | None
) -> list[int] | str:
    """For each guest cell the mask of host cells that it fits, or why one fits none."""
    by_kind: dict[Hashable, int] = {}
    masks = []
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
        mask = by_kind.get(kind)
        if mask is None:
            lacks = [
                shortfall(host_cell, cell, emulator_cpus, limits) for host_cell in cells
            ]
            mask = by_kind[kind] = _mask([lack is None for lack in lacks])
            if not mask:
                by_id = [
                    (c.id, lack) for c, lack in zip(cells, lacks, strict=True) if lack
                ]
                return f'guest cell {i} fits no host cell: {describe(by_id)}'
        masks.append(mask)
    return masks


def _network_masks(
    cells: Sequence[HostCell], limits: TopologyLimits | None
) -> dict[str, int]:
    """By network, the mask of host cells that are near to it, of which the guest must
    have one. A network that no cell is near to asks for nothing."""
    if limits is None or not (limits.physnets or limits.tunneled):
        return {}
    masks = {
        f'physical network {name}': _mask(name in cell.physnets for cell in cells)
        for name in sorted(limits.physnets or ())
    }
    if limits.tunneled:
        masks['tunneled networks'] = _mask(cell.tunneled for cell in cells)
    return {name: mask for name, mask in masks.items() if mask}


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
    """A key for each host cell, the same for those that can stand for each other: they
    are in the same masks and of one kind."""
    return [
        (tuple(mask >> i & 1 for mask in masks), kind) for i, kind in enumerate(kinds)
    ]


def _no_choice(choice: _Choice, pci_check: PciCheck | None) -> str:
    """The reason that each guest cell fits some host cell, but not all of them
    together: there are too few, or something is not near to any choice of them."""
    cells, masks, networks, _ = choice
    everywhere = choice.everywhere
    short = bottleneck(masks, everywhere)
    if short is not None:
        guests, hosts = short
        some = _listed(i for i in range(guests.bit_length()) if guests >> i & 1)
        return (
            f'guest cells {some} fit too few host cells: {_listed(_ids(cells, hosts))}'
        )
    for name, mask in networks.items():
        if Search(masks, (mask,)).first(everywhere) is None:
            return (
                f'the guest fits no host cell near {name}: {_listed(_ids(cells, mask))}'
            )
    constraints = tuple(networks.values())
    kinds = _interchangeable((*masks, *constraints), [None] * len(cells))
    if Search(masks, constraints, None, kinds).first(everywhere) is None:
        return f'no choice of host cells is near all of {", ".join(networks)}'
    fitting = _ids(cells, union(masks))
    lack = (pci_check and pci_check(fitting)) or 'the PCI devices cannot be had'
    return f'near the host cells that the guest fits ({_listed(fitting)}), {lack}'


def consume_cells(host: HostTopology, fit: Fit, guest: GuestTopology) -> HostTopology:
    """The host with a guest on it.

    :raises ValueError: the CPUs are pinned already: the fit is that of another host.
    """
    placed = {
        place.host_cell: (place, cell)
        for place, cell in zip(fit.cells, guest.cells, strict=True)
    }
    return HostTopology(
        tuple(
            _consume_cell(cell, *placed[cell.id]) if cell.id in placed else cell
            for cell in host.cells
        )
    )


def _consume_cell(cell: HostCell, place: CellFit, guest: GuestCell) -> HostCell:
    cpus = place.cpus
    if guest.cpu_thread_policy == ISOLATE:
        cpus = cpus.union(*(core for core in cell.siblings if core & cpus))
    if cpus & cell.pinned_cpus:
        pinned = sorted(cpus & cell.pinned_cpus)
        raise ValueError(f'host cell {cell.id}: CPUs {pinned} are pinned already')
    return replace(
        cell,
        memory_usage=cell.memory_usage + guest.memory,
        cpu_usage=cell.cpu_usage + len(guest.cpuset),
        pinned_cpus=cell.pinned_cpus | cpus,
        mempages=_consume_pages(
            cell.mempages, place.pagesize, guest.memory * KIB_PER_MIB
        ),
    )


def _consume_pages(
    mempages: tuple[Pages, ...], size: int | None, kib: int
) -> tuple[Pages, ...]:
    """Take memory without a page size in the smallest pages."""
    if not mempages:
        return ()
    size = size or min(pages.size_kb for pages in mempages)
    return tuple(
        (
            pages._replace(used=pages.used + kib // size)
            if pages.size_kb == size
            else pages
        )
        for pages in mempages
    )
