# SPDX-License-Identifier: Apache-2.0
"""Where the cells of a guest go on the cells of a host.

Whether one guest cell fits one host cell does not depend on where the others go, so it is
asked once for each two distinct ones. What is left is to find distinct host cells; the first
choice in the order of preference is the one that is taken.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from types import MappingProxyType

from novasched.model.numa import (
    DEDICATED,
    ISOLATE,
    MIXED,
    PREFER,
    REQUIRE,
    SHARED,
    Fit,
    GuestCell,
    GuestTopology,
    HostCell,
    HostTopology,
    TopologyLimits,
)
from novasched.numa import order, pairs
from novasched.numa.lack import told
from novasched.numa.search import Search, shortage

PciLack = Callable[[Sequence[int]], str | None]
"""Why the PCI devices of a request cannot be had near host cells, given by their ids; None if
they can. The answer depends on which cells there are, not on their order.

It is also asked of more cells than the guest has, and may then say no only if it would of any
of them that are as many as the guest's: of more cells, nova's rules may find less."""

NO_DEVICES: Mapping[int, int] = MappingProxyType({})
NO_KINDS: Mapping[int, Hashable] = MappingProxyType({})


def fit(
    host: HostTopology,
    guest: GuestTopology,
    limits: TopologyLimits | None = None,
    pci_lack: PciLack | None = None,
    pci_cells: Mapping[int, int] = NO_DEVICES,
    packing: bool = False,
    pci_kinds: Mapping[int, Hashable] = NO_KINDS,
) -> Fit | str:
    """How the guest lies on the host; a string says in one line why it does not fit.

    ``pci_cells`` has the number of free PCI devices by the id of the host cell that they are
    near to, and must name every cell that has a pool. ``pci_lack`` is None when the request
    asks for no devices. ``packing`` is the option
    ``[compute] packing_host_numa_cells_allocation_strategy``. ``pci_kinds`` may give host
    cells whose pools are alike, in what the request asks for, the same name: where devices
    are scarce, the search tries only one of them.
    """
    refused = _impossible(host, guest)
    if refused:
        return refused
    cells = order.preferred(host.cells, guest, pci_cells, pci_lack is not None, packing)
    wanted = _wanted(cells, guest, limits)
    if isinstance(wanted, str):
        return wanted
    needs = _needs(cells, limits)
    approve = None if pci_lack is None else _approval(cells, pci_lack)
    alike: Sequence[Hashable] = ()
    if needs or approve:
        kinds = _pci_kinds(cells, pci_cells, pci_kinds) if approve else [None] * len(cells)
        alike = _alike((*wanted, *needs.values()), kinds)
    chosen = Search(wanted, tuple(needs.values()), approve, alike).first((1 << len(cells)) - 1)
    if chosen is None:
        return _no_choice(cells, wanted, needs, pci_lack)
    places = [
        pairs.placed(cells[index], cell, guest.reserves(i))
        for i, (index, cell) in enumerate(zip(chosen, guest.cells, strict=True))
    ]
    return Fit(tuple(places))


def _impossible(host: HostTopology, guest: GuestTopology) -> str | None:
    """Why nothing needs to be tried."""
    if not guest.cells:
        return 'the guest has no cells'
    if len(host.cells) < len(guest.cells):
        return f'the guest has {len(guest.cells)} cells, the host {len(host.cells)}'
    for i, cell in enumerate(guest.cells):
        if cell.cpu_policy not in (None, SHARED, DEDICATED, MIXED):
            return f'guest cell {i} has an unknown CPU policy: {cell.cpu_policy}'
        if cell.cpu_thread_policy not in (None, PREFER, REQUIRE, ISOLATE):
            return f'guest cell {i} has an unknown thread policy: {cell.cpu_thread_policy}'
        if cell.is_pinned and not cell.pcpuset:
            # Compute refuses these as well: it takes CPUs beside those that it pins.
            if guest.reserves(i):
                return f'guest cell {i} has no dedicated CPU to run emulator threads beside'
            if cell.cpu_thread_policy == ISOLATE:
                return f'guest cell {i} has no dedicated CPU to isolate'
    return None


def _wanted(
    cells: Sequence[HostCell], guest: GuestTopology, limits: TopologyLimits | None
) -> list[int] | str:
    """For each guest cell the mask of host cells that it fits, or why one fits none."""
    masks: dict[Hashable, int] = {}
    wanted = []
    for i, cell in enumerate(guest.cells):
        reserve = guest.reserves(i)
        kind = _kind(cell, reserve)
        mask = masks.get(kind)
        if mask is None:
            lacks = [pairs.lack(each, cell, reserve, limits) for each in cells]
            mask = _mask([lack is None for lack in lacks])
            if not mask:
                pairs_ = [(each.id, lack) for each, lack in zip(cells, lacks, strict=True) if lack]
                return f'guest cell {i} fits no host cell: {told(pairs_)}'
            masks[kind] = mask
        wanted.append(mask)
    return wanted


def _kind(cell: GuestCell, reserve: int) -> Hashable:
    """What a guest cell's fitting depends on."""
    return (
        reserve, len(cell.cpuset), len(cell.pcpuset), cell.memory, cell.pagesize,
        cell.cpu_policy, cell.cpu_thread_policy,
    )  # fmt: skip


def _needs(cells: Sequence[HostCell], limits: TopologyLimits | None) -> dict[str, int]:
    """By network, the mask of host cells that are near to it, of which the guest must have
    one. A network that no cell is near to asks for nothing."""
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


def _approval(cells: Sequence[HostCell], pci_lack: PciLack) -> Callable[[int], bool]:
    return lambda mask: pci_lack(_ids(cells, mask)) is None


def _ids(cells: Sequence[HostCell], mask: int) -> list[int]:
    return [cell.id for i, cell in enumerate(cells) if mask >> i & 1]


def _listed(numbers: Iterable[int]) -> str:
    return ', '.join(map(str, numbers))


def _alike(masks: Sequence[int], kinds: Sequence[Hashable]) -> list[Hashable]:
    """A name for each host cell, the same for those that can stand for each other: they are
    in the same masks and of one kind."""
    return [(tuple(mask >> i & 1 for mask in masks), kind) for i, kind in enumerate(kinds)]


def _pci_kinds(
    cells: Sequence[HostCell], pci_cells: Mapping[int, int], pci_kinds: Mapping[int, Hashable]
) -> list[Hashable]:
    """What PCI devices make of each host cell. Cells without devices differ by their socket,
    which devices may be wanted on."""
    alone = [cell.id if cell.id in pci_cells else None for cell in cells]
    return [
        (pci_kinds.get(cell.id, number), cell.id in pci_kinds, cell.socket)
        for cell, number in zip(cells, alone, strict=True)
    ]


def _no_choice(
    cells: Sequence[HostCell],
    wanted: Sequence[int],
    needs: Mapping[str, int],
    pci_lack: PciLack | None,
) -> str:
    """Why each guest cell fits some host cell, but not all of them do together: there are too
    few, or something is not near to any choice of them."""
    everywhere = (1 << len(cells)) - 1
    short = shortage(wanted, everywhere)
    if short is not None:
        guests, hosts = short
        some = _listed(i for i in range(guests.bit_length()) if guests >> i & 1)
        return f'guest cells {some} fit too few host cells: {_listed(_ids(cells, hosts))}'
    for name, mask in needs.items():
        if Search(wanted, (mask,)).first(everywhere) is None:
            return f'the guest fits no host cell near {name}: {_listed(_ids(cells, mask))}'
    kinds: list[Hashable] = [None] * len(cells)
    alike = _alike((*wanted, *needs.values()), kinds)
    if Search(wanted, tuple(needs.values()), None, alike).first(everywhere) is None:
        return f'no choice of host cells is near all of {", ".join(needs)}'
    fitting = _ids(cells, functools.reduce(operator.or_, wanted))
    lack = (pci_lack and pci_lack(fitting)) or 'the PCI devices cannot be had'
    return f'near the host cells that the guest fits ({_listed(fitting)}), {lack}'
