# SPDX-License-Identifier: Apache-2.0
"""The hosts that a guest fits beyond doubt, found for many hosts at once.

A guest without wishes fits a host of which as many cells as it has could each take any
of its own. The others need a closer look (``fit.py``), as do guests that ask for a page
size, a thread policy, networks or devices.
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
    GuestCell,
    GuestTopology,
    HostTopology,
    Room,
)
from novasched.scheduler.model.values import MAX_AMOUNT

Ratios = NDArray[np.float64]
"""Allocation ratios: one for each host, in their order."""

ROOM = np.dtype([(name, np.float64) for name in Room._fields])


def has_no_wishes(guest: GuestTopology) -> bool:
    """True for a guest that :func:`fits_plainly` may be asked about."""
    cells = guest.cells
    return (
        bool(cells)
        and not guest.emulator_threads_policy
        and all(map(_has_no_wishes, cells))
    )


def _has_no_wishes(cell: GuestCell) -> bool:
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
    """For each host True if the guest fits beyond doubt; False says nothing.

    :param guest: one that :func:`has_no_wishes`.
    """
    numbers = [len(host.cells) if host else 0 for host in hosts]
    rooms = np.frombuffer(b''.join([host.rooms for host in hosts if host]), ROOM)
    host_of = np.repeat(np.arange(len(hosts)), numbers)
    most_cpus = rooms['cpus'] * cpu_ratios[host_of]
    most_memory = rooms['memory'] * ram_ratios[host_of]
    roomy = np.ones(len(rooms), bool)
    sizes = {
        (x.memory, len(x.cpuset), len(x.pcpuset), x.is_shared, x.is_pinned)
        for x in guest.cells
    }
    for memory, cpus, pcpus, is_shared, is_pinned in sizes:
        pages, rest = np.divmod(memory * KIB_PER_MIB, rooms['page_kb'])
        roomy &= (rest == 0) & (pages <= rooms['free_pages' if is_pinned else 'pages'])
        if is_pinned:
            roomy &= pcpus <= rooms['pinnable']
        if is_shared:
            roomy &= cpus <= rooms['cpus']
            roomy &= rooms['cpu_usage'] + cpus <= most_cpus
            roomy &= rooms['memory_usage'] + memory <= most_memory
    return np.bincount(host_of, roomy, len(hosts)) >= len(guest.cells)
