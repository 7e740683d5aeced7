# SPDX-License-Identifier: Apache-2.0
"""What a host has of each resource, and how much of it is used."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from novasched.model.host import Host

LEVELS = 10
UNITS = ('MiB', 'GiB', 'TiB', 'PiB')


@dataclass(frozen=True, slots=True)
class Amount:
    """So much is used of what servers may have, overcommitment included."""

    used: float = 0.0
    limit: float = 0.0

    @property
    def free(self) -> float:
        """What is left; negative where more is used than may be."""
        return self.limit - self.used

    @property
    def share(self) -> float | None:
        """The used part; None of nothing."""
        return self.used / self.limit if self.limit > 0 else None

    @property
    def level(self) -> int | None:
        """The used part in tenths, from 0 to 9; None of nothing."""
        share = self.share
        return None if share is None else int(min(max(share * LEVELS, 0), LEVELS - 1))

    @property
    def percent(self) -> int:
        """The used part for a bar, which has a length from 0 to 100."""
        return int(min(max((self.share or 0.0) * 100, 0), 100))


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource of hosts. ``parts`` are the amounts of a host's NUMA cells where it has
    them, else its one amount; ``told`` says what is free."""

    name: str
    title: str
    parts: Callable[[Host], Sequence[Amount]]
    told: Callable[[Amount], str]

    def of(self, host: Host) -> Amount:
        """What a host has in all."""
        return total(self.parts(host))


def total(amounts: Iterable[Amount]) -> Amount:
    """Amounts taken together."""
    used = limit = 0.0
    for each in amounts:
        used, limit = used + each.used, limit + each.limit
    return Amount(used, limit)


def sized(amount: Amount) -> str:
    """What is free of an amount in MiB."""
    size, power = abs(amount.limit), 0
    while size >= 1024 and power < len(UNITS) - 1:
        size, power = size / 1024, power + 1
    if not amount.limit:
        return 'none'
    free, limit = (each / 1024**power for each in (amount.free, amount.limit))
    digits = 2 if power and size < 10 else 0 if size >= 100 or not power else 1
    return f'{free:,.{digits}f} of {limit:,.{digits}f} {UNITS[power]} free'


def counted(amount: Amount) -> str:
    """What is free of an amount that is counted."""
    return f'{amount.free:,.0f} of {amount.limit:,.0f} free' if amount.limit else 'none'


def _ram(host: Host) -> Sequence[Amount]:
    total = host.total_usable_ram_mb
    return (Amount(total - host.free_ram_mb, total * host.ram_allocation_ratio),)


def _vcpus(host: Host) -> Sequence[Amount]:
    return (Amount(host.vcpus_used, host.vcpus_total * host.cpu_allocation_ratio),)


def _disk(host: Host) -> Sequence[Amount]:
    total = host.total_usable_disk_gb * 1024
    return (Amount(total - host.free_disk_mb, total * host.disk_allocation_ratio),)


def _pinned(host: Host) -> Sequence[Amount]:
    topology = host.numa_topology
    cells = topology.cells if topology else ()
    return tuple(
        [Amount(len(cell.pcpuset) - len(cell.free_pcpus), len(cell.pcpuset)) for cell in cells]
    )


RESOURCES = {
    each.name: each
    for each in (
        Resource('ram', 'Memory', _ram, sized),
        Resource('vcpus', 'vCPUs', _vcpus, counted),
        Resource('disk', 'Disk', _disk, sized),
        Resource('pinned', 'Pinned CPUs', _pinned, counted),
    )
}
