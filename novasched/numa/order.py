# SPDX-License-Identifier: Apache-2.0
"""Which host cells are preferred."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from novasched.model.numa import GuestTopology, HostCell


def preferred(
    cells: Sequence[HostCell],
    guest: GuestTopology,
    pci_cells: Mapping[int, int],
    wants_pci: bool,
    packing: bool,
) -> Sequence[HostCell]:
    """The host cells, the most preferred first; as they stand when the guest needs all.

    What counts most is PCI devices, which are kept for guests that want them; then CPUs, then
    memory. ``packing`` prefers cells that are used already
    (``[compute] packing_host_numa_cells_allocation_strategy``).
    """
    if len(cells) <= len(guest.cells):
        return cells
    pinned = guest.cells[0].is_pinned
    devices = -1 if wants_pci else 1
    fuller = -1 if packing else 1

    def rank(cell: HostCell) -> tuple[int, int, int]:
        used = -len(cell.free_pcpus) if pinned else cell.cpu_usage
        return devices * pci_cells.get(cell.id, 0), fuller * used, -fuller * cell.free_memory

    return sorted(cells, key=rank)
