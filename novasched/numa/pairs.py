# SPDX-License-Identifier: Apache-2.0
"""Whether one guest cell fits one host cell, all others left aside."""

from __future__ import annotations

from novasched.model.numa import CellFit, GuestCell, HostCell, TopologyLimits
from novasched.numa import pages, pinning
from novasched.numa.lack import Lack


def lack(
    host: HostCell, guest: GuestCell, reserve: int, limits: TopologyLimits | None
) -> Lack | None:
    """What the host cell lacks for the guest cell; None when it fits.

    ``reserve`` is how many CPUs it needs beside it for emulator threads. These are the
    checks of compute, in its order.
    """
    size = pages.page_size(host, guest)
    if isinstance(size, Lack):
        return size
    if guest.is_shared:
        missing = len(guest.cpuset) - len(host.cpuset)
        if missing > 0:
            return Lack('CPUs', missing)
    if guest.is_pinned:
        lacking = pinning.lack(host, guest, reserve)
        if lacking is not None:
            return lacking
    return _over(host, guest, limits) if limits is not None and guest.is_shared else None


def _over(host: HostCell, guest: GuestCell, limits: TopologyLimits) -> Lack | None:
    """What is missing of a cell that is overcommitted as far as it may be."""
    cpus = host.cpu_usage + len(guest.cpuset) - len(host.cpuset) * limits.cpu_allocation_ratio
    if cpus > 0:
        return Lack('CPUs within the allocation ratio', _up(cpus))
    memory = host.memory_usage + guest.memory - host.memory * limits.ram_allocation_ratio
    return Lack('MiB of memory within the allocation ratio', _up(memory)) if memory > 0 else None


def _up(amount: float) -> int:
    return -int(-amount // 1)


def placed(host: HostCell, guest: GuestCell, reserve: int) -> CellFit:
    """The guest cell on a host cell that it fits."""
    size = pages.page_size(host, guest) if guest.pagesize else None
    assert not isinstance(size, Lack)
    if not guest.is_pinned:
        return CellFit(host.id, pagesize=size)
    pins, reserved = pinning.pin(host, guest, reserve)
    return CellFit(host.id, pins, reserved, size)
