# SPDX-License-Identifier: Apache-2.0
"""The fitter's dumb twin: try everything."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, permutations

from novasched.scheduler.model.numa import (
    CellFit,
    GuestCell,
    GuestTopology,
    HostCell,
    HostTopology,
    TopologyLimits,
)
from tests.lab.numa_checker import cell_violations, network_violations


def fits(
    host: HostTopology,
    guest: GuestTopology,
    limits: TopologyLimits | None,
    pci_fits: Callable[[Sequence[int]], bool] | None = None,
) -> bool:
    """Whether any choice of host cells, pages and CPUs is without fault."""
    known: dict[tuple[int, int], bool] = {}

    def pair(i: int, cell: HostCell) -> bool:
        emulator_cpus = int(i == 0 and guest.emulator_threads_policy == 'isolate')
        if (i, cell.id) not in known:
            known[i, cell.id] = any(
                not cell_violations(cell, guest.cells[i], emulator_cpus, limits, place)
                for place in places(cell, guest.cells[i], emulator_cpus)
            )
        return known[i, cell.id]

    return bool(guest.cells) and any(
        all(pair(i, cell) for i, cell in enumerate(chosen))
        and not list(network_violations(host, list(chosen), limits))
        and (pci_fits is None or pci_fits([cell.id for cell in chosen]))
        for chosen in permutations(host.cells, len(guest.cells))
    )


def places(host: HostCell, guest: GuestCell, emulator_cpus: int) -> Iterator[CellFit]:
    """Every page size, every set of CPUs."""
    sizes = [pages.size_kb for pages in host.mempages] if guest.pagesize else [None]
    pinned = guest.cpu_policy in ('dedicated', 'mixed')
    count = len(guest.pcpuset) if pinned else 0
    for size in sizes:
        for cpus in combinations(sorted(host.pcpuset), count):
            pins = tuple(zip(sorted(guest.pcpuset), cpus, strict=False)) if pinned else ()
            for emulators in combinations(sorted(host.pcpuset), emulator_cpus if pinned else 0):
                yield CellFit(host.id, pins, frozenset(emulators), size)
