# SPDX-License-Identifier: Apache-2.0
"""The NUMA topology that a guest asks for."""

from __future__ import annotations

from dataclasses import dataclass


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


@dataclass(frozen=True, slots=True)
class GuestTopology:
    """The cells of a guest, and where its emulator threads run."""

    cells: tuple[GuestCell, ...]
    emulator_threads_policy: str | None = None


@dataclass(frozen=True, slots=True)
class TopologyLimits:
    """How far compute may overcommit the cells of the host that was chosen, and the
    networks that those cells must reach. ``Selection.limits['numa_topology']``."""

    cpu_allocation_ratio: float
    ram_allocation_ratio: float
    physnets: frozenset[str] = frozenset()
    tunneled: bool = False
