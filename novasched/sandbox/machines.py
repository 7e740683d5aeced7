# SPDX-License-Identifier: Apache-2.0
"""The machines of a sandbox: what they have, and where they stand."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

import os_resource_classes as classes

ZONES = ('az01', 'az02')
CELLS = ('cell1', 'cell2')
CORES = (8, 12, 16, 24)
MEMORY_MB_PER_CORE = 4096
DISK_GB_PER_CORE = 40


@dataclass(frozen=True, slots=True)
class Machine:
    """A compute host with one node of the same name. ``zone`` None is the default zone."""

    name: str
    vcpus: int = 16
    memory_mb: int = 65536
    disk_gb: int = 640
    zone: str | None = None
    cell: str = CELLS[0]
    cpu_allocation_ratio: float = 4.0
    ram_allocation_ratio: float = 1.0
    disk_allocation_ratio: float = 1.0
    reserved_memory_mb: int = 512

    @property
    def uuid(self) -> str:
        """The compute node's, and so the resource provider's; the same in every run."""
        return stable_uuid('node', self.name)

    @property
    def inventories(self) -> Mapping[str, Mapping[str, float]]:
        """What Placement is told: totals, what is reserved of them, allocation ratios."""
        return {
            classes.VCPU: _inventory(self.vcpus, 0, self.cpu_allocation_ratio),
            classes.MEMORY_MB: _inventory(
                self.memory_mb, self.reserved_memory_mb, self.ram_allocation_ratio
            ),
            classes.DISK_GB: _inventory(self.disk_gb, 0, self.disk_allocation_ratio),
        }

    @property
    def capacity(self) -> Mapping[str, int]:
        """How much of each resource class servers can have in all."""
        return {
            name: int((each['total'] - each['reserved']) * each['allocation_ratio'])
            for name, each in self.inventories.items()
        }


def stable_uuid(kind: str, name: str) -> str:
    """A UUID that depends on nothing but what it names."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f'novasched-sandbox:{kind}/{name}'))


def varied(count: int, random: Random) -> list[Machine]:
    """Machines of differing sizes. One in three is in each of two zones, the third in
    none, and every other one in the second cell, so that zones and cells cross."""
    zones = (*ZONES, None)
    width = len(str(count))
    machines = []
    for number in range(count):
        cores = random.choice(CORES)
        machines.append(
            Machine(
                name=f'host{number + 1:0{width}d}',
                vcpus=cores,
                memory_mb=cores * MEMORY_MB_PER_CORE,
                disk_gb=cores * DISK_GB_PER_CORE,
                zone=zones[number % len(zones)],
                cell=CELLS[number % len(CELLS)],
            )
        )
    return machines


def _inventory(total: int, reserved: int, ratio: float) -> dict[str, float]:
    return {'total': total, 'reserved': reserved, 'allocation_ratio': ratio}
