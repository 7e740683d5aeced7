# SPDX-License-Identifier: Apache-2.0
"""NUMA topologies of guests and hosts, and the place of the one on the other.

Memory is in MiB, page sizes are in KiB.
"""

import struct
from collections.abc import Sequence
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
"""Page sizes that leave the choice to the host, as nova stores them."""


@dataclass(frozen=True, slots=True)
class GuestCell:
    """A guest NUMA cell: memory in MiB, page size in KiB (negative: small -1, large -2,
    any -3, as nova stores them), CPU sets of guest vCPU numbers."""

    id: int
    cpuset: frozenset[int]
    memory: int
    pcpuset: frozenset[int] = frozenset()
    pagesize: int | None = None
    cpu_policy: str | None = None
    cpu_thread_policy: str | None = None

    @property
    def is_pinned(self) -> bool:
        """True if some of its vCPUs get host CPUs of their own."""
        return self.cpu_policy in (DEDICATED, MIXED)

    @property
    def is_shared(self) -> bool:
        """True if some of its vCPUs float, so that allocation ratios apply."""
        return self.cpu_policy in (None, SHARED, MIXED)


@dataclass(frozen=True, slots=True)
class GuestTopology:
    """The cells of a guest, and where its emulator threads run."""

    cells: tuple[GuestCell, ...]
    emulator_threads_policy: str | None = None

    def emulator_cpus(self, index: int) -> int:
        """Host CPUs that a cell needs for emulator threads: one, if they are isolated,
        beside the first cell."""
        return int(index == 0 and self.emulator_threads_policy == ISOLATE)


class Pages(NamedTuple):
    """Memory pages of one size in a host cell, as numbers of pages; the smaller size is
    the lesser value."""

    size_kb: int
    total: int
    used: int = 0
    reserved: int = 0

    @property
    def free(self) -> int:
        """Pages that a guest may have."""
        return self.total - self.used - self.reserved


@dataclass(frozen=True)
class HostCell:
    """A host NUMA cell. ``cpuset`` floats, ``pcpuset`` can be pinned; a host that does
    not tell them apart has the same in both. ``siblings`` are the threads of each core,
    of both kinds; a host that names none has no threads. What follows from these is
    computed on demand: most requests look at less than all of it.
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
        """Threads of the widest core."""
        return _cores(self.siblings)[0]

    @property
    def free_pcpus(self) -> frozenset[int]:
        """The CPUs that can be pinned."""
        return self.pcpuset - self.pinned_cpus

    @property
    def free_on_cores(self) -> int:
        """Free CPUs on a core that the host names, if it names any."""
        free = self.free_pcpus
        return len(free & _cores(self.siblings)[1] if self.siblings else free)

    @cached_property
    def free_cores(self) -> Sequence[Sequence[int]]:
        """The free CPUs of each core that has any. Their order within a core is that in
        which a set gives them, for nova takes them in it."""
        free = self.free_pcpus
        if not self.siblings:
            return tuple([(cpu,) for cpu in sorted(free)])
        return tuple([tuple(left) for core in self.siblings if (left := core & free)])

    @cached_property
    def cores_with(self) -> Sequence[int]:
        """At index n, the number of cores with at least n free CPUs."""
        sizes = list(map(len, self.free_cores))
        exactly = [sizes.count(n) for n in range(self.threads, -1, -1)]
        return tuple(accumulate(exactly))[::-1]

    @property
    def free_memory(self) -> int:
        """Memory that no guest has been promised, in MiB; negative when
        overcommitted."""
        return self.memory - self.memory_usage


class Room(NamedTuple):
    """A host cell in numbers: all that a guest looks at which asks for no page size and
    no thread policy. Memory is in MiB; where the host counts no pages, one of a MiB
    stands for each.

    :ivar page_kb: the size in KiB of the smallest pages, of which ``pages`` are there.
    :ivar pinnable: free CPUs on cores that the host names, if it names any.
    """

    page_kb: int
    pages: int
    free_pages: int
    pinnable: int
    cpus: int
    cpu_usage: int
    memory: int
    memory_usage: int


def _room(cell: HostCell) -> Room:
    pages = min(
        cell.mempages, default=Pages(KIB_PER_MIB, cell.memory, cell.memory_usage)
    )
    cpus = (len(cell.cpuset), cell.cpu_usage)
    memory = (cell.memory, cell.memory_usage)
    return Room(
        pages.size_kb, pages.total, pages.free, cell.free_on_cores, *cpus, *memory
    )


@lru_cache(4096)
def _cores(siblings: tuple[frozenset[int], ...]) -> tuple[int, frozenset[int]]:
    """Threads of the widest core, and all CPUs; computed once for all the cells that
    have the same cores."""
    return max(map(len, siblings), default=1) or 1, frozenset().union(*siblings)


@dataclass(frozen=True)
class HostTopology:
    """The cells of a host, in the order in which it reports them."""

    cells: tuple[HostCell, ...]

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Of what is in use, since verdicts on hosts are looked up by it. Hosts of one
        make differ in nothing else, and their CPUs take ten times as long."""
        used = [
            (x.cpu_usage, x.memory_usage, x.pinned_cpus, x.mempages) for x in self.cells
        ]
        return hash(tuple(used))

    @cached_property
    def rooms(self) -> bytes:
        """The :class:`Room` of each cell, as floating point numbers of 64 bits: what a
        host reports in error may be larger than any other."""
        numbers = [*chain(*map(_room, self.cells))]
        return struct.pack(f'={len(numbers)}d', *numbers)

    @property
    def has_threads(self) -> bool:
        """True if any core has more than one thread."""
        return any(cell.threads > 1 for cell in self.cells)


class CellFit(NamedTuple):
    """The place of a guest cell: the host cell's id, (vCPU, host CPU) pairs in the
    order of the vCPUs, the host CPUs for emulator threads, and the page size in KiB,
    which is None where the guest leaves it to the host."""

    host_cell: int
    pins: tuple[tuple[int, int], ...] = ()
    emulator_cpus: frozenset[int] = frozenset()
    pagesize: int | None = None

    @property
    def cpus(self) -> frozenset[int]:
        """The host CPUs that no other guest may have."""
        return self.emulator_cpus.union(cpu for _, cpu in self.pins)


@dataclass(frozen=True, slots=True)
class Fit:
    """A guest on a host: one entry for each guest cell, in their order."""

    cells: tuple[CellFit, ...]


@dataclass(frozen=True, slots=True)
class TopologyLimits:
    """Allocation ratios of the cells of the host that was chosen, and the networks that
    those cells must reach, None if the caller said nothing of networks.
    ``Selection.limits['numa_topology']``."""

    cpu_allocation_ratio: float
    ram_allocation_ratio: float
    physnets: frozenset[str] | None = None
    tunneled: bool = False
