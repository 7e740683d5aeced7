# SPDX-License-Identifier: Apache-2.0
"""Find the hosts that a guest certainly fits, for many hosts at once.

A plain guest asks for no page size and no thread policy. The guest fits a host with at
least as many cells as the guest, if each of these host cells could take every guest
cell. All remaining hosts, and guests with networks or PCI devices, need the search in
:mod:`novasched.scheduler.numa.fit`.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from novasched.scheduler.model.numa import (
    DEDICATED,
    KIB_PER_MIB,
    MIXED,
    PREFER,
    SHARED,
    CellCapacity,
    GuestCell,
    GuestTopology,
    HostTopology,
)
from novasched.scheduler.model.values import MAX_AMOUNT

Ratios = NDArray[np.float64]
"""Allocation ratios, one for each host in the order of the hosts."""

CELL_CAPACITY = np.dtype([(name, np.float64) for name in CellCapacity._fields])


def is_plain(guest: GuestTopology) -> bool:
    """Return True for a plain guest, as :func:`fits_plainly` needs."""
    cells = guest.cells
    return (
        bool(cells)
        and not guest.emulator_threads_policy
        and all(map(_is_plain_cell, cells))
    )


def _is_plain_cell(cell: GuestCell) -> bool:
    return (
        not cell.pagesize
        and cell.memory <= MAX_AMOUNT
        and cell.cpu_policy in (None, SHARED, DEDICATED, MIXED)
        and cell.cpu_thread_policy in (None, PREFER)
    )


def fits_plainly(
    hosts: Sequence[HostTopology | None],
    guest: GuestTopology,
    cpu_ratios: Ratios,
    ram_ratios: Ratios,
) -> NDArray[np.bool_]:
    """Return for each host True if the guest certainly fits; False decides nothing.

    :param guest: a guest for which :func:`is_plain` is True.
    """
    # One row for each cell of each host; host_of has the index of the row's host.
    cell_counts = [len(host.cells) if host else 0 for host in hosts]
    cells = np.frombuffer(
        b''.join([host.packed_capacities for host in hosts if host]), CELL_CAPACITY
    )
    host_of = np.repeat(np.arange(len(hosts)), cell_counts)
    allowed_cpus = cells['cpus'] * cpu_ratios[host_of]
    allowed_memory = cells['memory'] * ram_ratios[host_of]

    sizes = set()
    for cell in guest.cells:
        cpu_counts = (len(cell.cpuset), len(cell.pcpuset))
        sizes.add((cell.memory, *cpu_counts, cell.is_shared, cell.is_pinned))

    fits_all = np.ones(len(cells), bool)
    for memory, cpus, pcpus, is_shared, is_pinned in sizes:
        pages, rest = np.divmod(memory * KIB_PER_MIB, cells['page_kb'])
        fits_all &= rest == 0
        if is_pinned:
            fits_all &= pages <= cells['free_pages']
            fits_all &= pcpus <= cells['pinnable']
        else:
            fits_all &= pages <= cells['pages']
        if is_shared:
            fits_all &= cpus <= cells['cpus']
            fits_all &= cells['cpu_usage'] + cpus <= allowed_cpus
            fits_all &= cells['memory_usage'] + memory <= allowed_memory

    return np.bincount(host_of, fits_all, len(hosts)) >= len(guest.cells)
