# SPDX-License-Identifier: Apache-2.0
"""What a guest leaves of a host."""

from __future__ import annotations

from dataclasses import replace

from novasched.model.numa import (
    ISOLATE,
    CellFit,
    Fit,
    GuestCell,
    GuestTopology,
    HostCell,
    HostTopology,
    Pages,
)
from novasched.numa.pages import KIB


def consume(host: HostTopology, fit: Fit, guest: GuestTopology) -> HostTopology:
    """The host with a guest on it.

    :raises ValueError: somebody has the CPUs already: the fit is that of another host.
    """
    return _changed(host, fit, guest, 1)


def release(host: HostTopology, fit: Fit, guest: GuestTopology) -> HostTopology:
    """The host without a guest that was consumed.

    :raises ValueError: nobody has the CPUs: the guest is not on this host.
    """
    return _changed(host, fit, guest, -1)


def _changed(host: HostTopology, fit: Fit, guest: GuestTopology, sign: int) -> HostTopology:
    places = {place.host_cell: i for i, place in enumerate(fit.cells)}
    return HostTopology(
        tuple(
            _cell(cell, fit.cells[places[cell.id]], guest.cells[places[cell.id]], sign)
            if cell.id in places
            else cell
            for cell in host.cells
        )
    )


def _cell(cell: HostCell, place: CellFit, guest: GuestCell, sign: int) -> HostCell:
    return replace(
        cell,
        memory_usage=max(0, cell.memory_usage + sign * guest.memory),
        cpu_usage=max(0, cell.cpu_usage + sign * len(guest.cpuset)),
        pinned_cpus=_pinned(cell, _taken(cell, place, guest), sign),
        mempages=_pages(cell.mempages, place.pagesize, guest.memory * KIB, sign),
    )


def _taken(cell: HostCell, place: CellFit, guest: GuestCell) -> frozenset[int]:
    """The CPUs that the guest keeps from others: those that it has, and, if it wants to be
    alone on its cores, their siblings."""
    if guest.cpu_thread_policy != ISOLATE:
        return place.cpus
    return place.cpus.union(*(core for core in cell.siblings if core & place.cpus))


def _pinned(cell: HostCell, cpus: frozenset[int], sign: int) -> frozenset[int]:
    wrong = cpus & cell.pinned_cpus if sign > 0 else cpus - cell.pinned_cpus
    if wrong:
        state = 'pinned already' if sign > 0 else 'not pinned'
        raise ValueError(f'host cell {cell.id}: CPUs {sorted(wrong)} are {state}')
    return cell.pinned_cpus | cpus if sign > 0 else cell.pinned_cpus - cpus


def _pages(mempages: tuple[Pages, ...], size: int | None, kib: int, sign: int) -> tuple[Pages, ...]:
    """Memory without a page size is taken in the smallest pages."""
    if not mempages:
        return ()
    size = size or min(pages.size_kb for pages in mempages)
    return tuple(
        pages._replace(used=max(0, pages.used + sign * (kib // size)))
        if pages.size_kb == size
        else pages
        for pages in mempages
    )
