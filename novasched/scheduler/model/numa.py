# SPDX-License-Identifier: Apache-2.0
"""NUMA topologies of guests and hosts, and the fit of a guest on a host.

Memory is in MiB, page sizes are in KiB.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate, chain
from typing import NamedTuple

KIB_PER_MIB = 1024

SHARED = 'shared'
DEDICATED = 'dedicated'
MIXED = 'mixed'
"""CPU policies. None means shared."""

PREFER = 'prefer'
REQUIRE = 'require'
ISOLATE = 'isolate'
"""Thread policies. None means prefer."""

SMALL_PAGES = -1
LARGE_PAGES = -2
ANY_PAGES = -3
"""Page sizes that leave the choice to the host; the numbers are nova's."""


@dataclass(frozen=True, slots=True)
class GuestCell:
    """A guest NUMA cell: memory in MiB, page size in KiB, sets of guest vCPU numbers.

    ``cpuset`` are the floating vCPUs, ``pcpuset`` the pinned vCPUs. ``pagesize`` may be
    :data:`SMALL_PAGES`, :data:`LARGE_PAGES` or :data:`ANY_PAGES`.
    """

    id: int
    cpuset: frozenset[int]
    memory: int
    pcpuset: frozenset[int] = frozenset()
    pagesize: int | None = None
    cpu_policy: str | None = None
    cpu_thread_policy: str | None = None

    @property
    def is_pinned(self) -> bool:
        """True if vCPUs of the cell are pinned to dedicated host CPUs."""
        return self.cpu_policy in (DEDICATED, MIXED)

    @property
    def is_shared(self) -> bool:
        """True if vCPUs of the cell float, so that allocation ratios apply."""
        return self.cpu_policy in (None, SHARED, MIXED)


@dataclass(frozen=True, slots=True)
class GuestTopology:
    """The cells of a guest, and the policy for emulator threads."""

    cells: tuple[GuestCell, ...]
    emulator_threads_policy: str | None = None

    def emulator_cpus(self, index: int) -> int:
        """Return the number of further host CPUs of a cell for emulator threads.

        Isolated emulator threads need one CPU beside the first cell.
        """
        return int(index == 0 and self.emulator_threads_policy == ISOLATE)


class Pages(NamedTuple):
    """Numbers of memory pages of one size in a host cell; sorts by size."""

    size_kb: int
    total: int
    used: int = 0
    reserved: int = 0

    @property
    def free(self) -> int:
        """Number of pages available to a guest."""
        return self.total - self.used - self.reserved


# No slots: a cached_property is stored in __dict__.
@dataclass(frozen=True)
class HostCell:
    """A host NUMA cell. Memory is in MiB.

    Derived attributes are computed on demand, since most requests read few.

    :ivar cpuset: CPUs for floating vCPUs.
    :ivar pcpuset: CPUs for pinned vCPUs; equal to ``cpuset`` on a host without a
        separate ``[compute] cpu_dedicated_set``.
    :ivar siblings: the threads of each core, in both sets; empty without threads.
    """

    id: int
    cpuset: frozenset[int]
    memory: int
    pcpuset: frozenset[int] = frozenset()
    cpu_usage: int = 0
    memory_usage: int = 0
    pinned_cpus: frozenset[int] = frozenset()
    siblings: tuple[frozenset[int], ...] = ()
    mempages: tuple[Pages, ...] = ()
    socket: int | None = None
    physnets: frozenset[str] = frozenset()
    tunneled: bool = False

    @property
    def threads(self) -> int:
        """Number of threads of the widest core."""
        return _cores(self.siblings)[0]

    @property
    def free_pcpus(self) -> frozenset[int]:
        """The CPUs that can be pinned."""
        return self.pcpuset - self.pinned_cpus

    @property
    def free_on_cores(self) -> int:
        """Number of free CPUs on reported cores; all free CPUs without cores."""
        free = self.free_pcpus
        if self.siblings:
            free &= _cores(self.siblings)[1]
        return len(free)

    @cached_property
    def free_cores(self) -> Sequence[Sequence[int]]:
        """The free CPUs of each core with free CPUs.

        nova takes the CPUs of a core in the order in which a set iterates, so the CPUs
        of a core are not sorted.
        """
        free = self.free_pcpus
        if not self.siblings:
            # A list: tuple() of a generator is slower, and this runs for every cell of
            # every host.
            return tuple([(cpu,) for cpu in sorted(free)])

        cores = []
        for core in self.siblings:
            free_cpus = core & free
            if free_cpus:
                cores.append(tuple(free_cpus))
        return tuple(cores)

    @cached_property
    def cores_with(self) -> Sequence[int]:
        """At index n, the number of cores with at least n free CPUs."""
        sizes = list(map(len, self.free_cores))
        # From the widest cores down, so that the sums count the wider cores as well.
        exactly = [sizes.count(n) for n in range(self.threads, -1, -1)]
        return tuple(accumulate(exactly))[::-1]

    @property
    def free_memory(self) -> int:
        """Memory not promised to any guest, in MiB; negative when overcommitted."""
        return self.memory - self.memory_usage


class CellCapacity(NamedTuple):
    """The capacity of a host cell as numbers, for the vectorised plain fit.

    The numbers suffice for guests without a page size and a thread policy. Memory is in
    MiB. A host that reports no pages counts as having pages of 1 MiB.

    :ivar page_kb: size of the smallest pages in KiB.
    :ivar pages: number of the smallest pages.
    :ivar pinnable: number of free CPUs on reported cores; all free CPUs without
        reported cores.
    """

    page_kb: int
    pages: int
    free_pages: int
    pinnable: int
    cpus: int
    cpu_usage: int
    memory: int
    memory_usage: int


def _capacity_of(cell: HostCell) -> CellCapacity:
    pages = min(
        cell.mempages, default=Pages(KIB_PER_MIB, cell.memory, cell.memory_usage)
    )
    return CellCapacity(
        page_kb=pages.size_kb,
        pages=pages.total,
        free_pages=pages.free,
        pinnable=cell.free_on_cores,
        cpus=len(cell.cpuset),
        cpu_usage=cell.cpu_usage,
        memory=cell.memory,
        memory_usage=cell.memory_usage,
    )


@lru_cache(4096)
def _cores(siblings: tuple[frozenset[int], ...]) -> tuple[int, frozenset[int]]:
    """Return the number of threads of the widest core, and the CPUs of all cores.

    All cells with the same cores share the result.
    """
    threads = max(map(len, siblings), default=1) or 1
    return threads, frozenset().union(*siblings)


# No slots: a cached_property is stored in __dict__.
@dataclass(frozen=True)
class HostTopology:
    """The cells of a host, in the reported order."""

    cells: tuple[HostCell, ...]

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Hash of the usage; verdicts of filters are looked up by topology.

        Hosts of one model differ in usage only, and hashing the CPUs as well takes ten
        times as long.
        """
        usage = []
        for cell in self.cells:
            usage.append(
                (cell.cpu_usage, cell.memory_usage, cell.pinned_cpus, cell.mempages)
            )
        return hash(tuple(usage))

    @cached_property
    def packed_capacities(self) -> bytes:
        """The :class:`CellCapacity` of each cell, packed as 64-bit floats.

        Integers could overflow: the numbers that a host reports are unbounded.
        """
        numbers = [*chain(*map(_capacity_of, self.cells))]
        return struct.pack(f'={len(numbers)}d', *numbers)

    @cached_property
    def free_pages(self) -> Mapping[int, tuple[int, ...]]:
        """The number of free pages on each cell, by the size of the pages in KiB."""
        by_size: dict[int, list[int]] = {}
        for position, cell in enumerate(self.cells):
            for pages in cell.mempages:
                on_cells = by_size.setdefault(pages.size_kb, [0] * len(self.cells))
                on_cells[position] += pages.free
        return {size_kb: tuple(on_cells) for size_kb, on_cells in by_size.items()}

    @cached_property
    def dedicated_cpus(self) -> tuple[int, int]:
        """The CPUs that no floating vCPU uses (``[compute] cpu_dedicated_set``): their
        number, and the number of these that are pinned."""
        number = 0
        pinned = 0
        for cell in self.cells:
            dedicated = cell.pcpuset - cell.cpuset
            number += len(dedicated)
            pinned += len(dedicated & cell.pinned_cpus)
        return number, pinned

    @property
    def has_threads(self) -> bool:
        """True if any core has more than one thread."""
        return any(cell.threads > 1 for cell in self.cells)


class CellFit(NamedTuple):
    """The host cell of a guest cell.

    :ivar host_cell: id of the host cell.
    :ivar pins: (vCPU, host CPU) pairs in the order of the vCPUs.
    :ivar emulator_cpus: host CPUs for emulator threads.
    :ivar pagesize: page size in KiB; None if the guest requests no page size.
    """

    host_cell: int
    pins: tuple[tuple[int, int], ...] = ()
    emulator_cpus: frozenset[int] = frozenset()
    pagesize: int | None = None

    @property
    def cpus(self) -> frozenset[int]:
        """The host CPUs that the guest cell has to itself."""
        return self.emulator_cpus.union(cpu for _, cpu in self.pins)


@dataclass(frozen=True, slots=True)
class Fit:
    """The fit of a guest on a host: an entry for each guest cell, in order."""

    cells: tuple[CellFit, ...]


@dataclass(frozen=True, slots=True)
class TopologyLimits:
    """The limits that nova-compute applies (``Selection.limits['numa_topology']``).

    Allocation ratios apply to each cell of the chosen host. ``physnets`` are physical
    networks that the cells must reach, None if the caller names no networks.
    """

    cpu_allocation_ratio: float
    ram_allocation_ratio: float
    physnets: frozenset[str] | None = None
    tunneled: bool = False
