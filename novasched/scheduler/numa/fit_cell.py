# SPDX-License-Identifier: Apache-2.0
"""One guest cell on one host cell, all others left aside: memory pages and host CPUs.

Host CPUs for dedicated vCPUs follow the thread policy: ``prefer`` fills cores as long
as they suffice, ``require`` takes only CPUs that share cores, ``isolate`` takes a whole
core for each.
"""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

from novasched.scheduler.model.numa import (
    ANY_PAGES,
    ISOLATE,
    KIB_PER_MIB,
    LARGE_PAGES,
    REQUIRE,
    SMALL_PAGES,
    CellFit,
    GuestCell,
    HostCell,
    Pages,
    TopologyLimits,
)

Pins = tuple[tuple[int, int], ...]


class Shortfall(NamedTuple):
    """A resource that a host cell lacks, and how much of it; None where no amount would
    help."""

    resource: str
    amount: int | None = None


def describe(shortfalls: Sequence[tuple[int, Shortfall]]) -> str:
    """One line for the shortfalls of host cells, given as (id, shortfall): cells that
    lack the same stand together with the least amount, which is what would have to be
    freed."""
    cells: dict[str, list[int]] = {}
    amounts: dict[str, set[int]] = {}
    for cell, (resource, amount) in shortfalls:
        cells.setdefault(resource, []).append(cell)
        amounts.setdefault(resource, set()).update(() if amount is None else (amount,))
    parts = []
    for resource, ids in cells.items():
        listed = ', '.join(map(str, ids))
        if len(ids) == 1:
            subject = f'host cell {listed} lacks'
        else:
            subject = f'host cells {listed} lack'
        least = 'at least ' if len(amounts[resource]) > 1 else ''
        missing = f'{least}{min(amounts[resource])} ' if amounts[resource] else ''
        parts.append(f'{subject} {missing}{resource}')
    return '; '.join(parts)


def shortfall(
    host: HostCell, guest: GuestCell, emulator_cpus: int, limits: TopologyLimits | None
) -> Shortfall | None:
    """The first thing that the host cell lacks for the guest cell; None when it fits.

    ``emulator_cpus`` is how many CPUs it needs beside it for emulator threads. These
    are nova-compute's checks, in its order.
    """
    size = page_size(host, guest)
    if isinstance(size, Shortfall):
        return size
    if guest.is_shared:
        missing = len(guest.cpuset) - len(host.cpuset)
        if missing > 0:
            return Shortfall('CPUs', missing)
    if guest.is_pinned:
        lack = cpu_shortfall(host, guest, emulator_cpus)
        if lack is not None:
            return lack
    if limits is not None and guest.is_shared:
        return _over_limits(host, guest, limits)
    return None


def _over_limits(
    host: HostCell, guest: GuestCell, limits: TopologyLimits
) -> Shortfall | None:
    """The shortfall of a cell that is overcommitted as far as it may be."""
    cpus = (
        host.cpu_usage
        + len(guest.cpuset)
        - len(host.cpuset) * limits.cpu_allocation_ratio
    )
    if cpus > 0:
        return Shortfall('CPUs within the allocation ratio', -int(-cpus // 1))
    memory = (
        host.memory_usage + guest.memory - host.memory * limits.ram_allocation_ratio
    )
    if memory > 0:
        return Shortfall(
            'MiB of memory within the allocation ratio', -int(-memory // 1)
        )
    return None


def fit_cell(host: HostCell, guest: GuestCell, emulator_cpus: int) -> CellFit:
    """The guest cell on a host cell that lacks nothing for it."""
    size = page_size(host, guest) if guest.pagesize else None
    assert not isinstance(size, Shortfall)
    if not guest.is_pinned:
        return CellFit(host.id, pagesize=size)
    return CellFit(host.id, *pin(host, guest, emulator_cpus), size)


def page_size(host: HostCell, guest: GuestCell) -> int | Shortfall | None:
    """The page size in KiB that the guest cell gets; None where it asks for none.

    A page size that is asked for is never overcommitted. Without one, memory is taken
    in the smallest pages, and up to all of the cell: guests may not overcommit against
    themselves, and pinned ones not at all.
    """
    if guest.pagesize:
        return _requested_page_size(host, guest, guest.pagesize)
    if host.mempages:
        smallest = min(host.mempages)
        return _page_shortfall(smallest, guest, free=guest.is_pinned)
    room = host.free_memory if guest.is_pinned else host.memory
    if room < guest.memory:
        return Shortfall('MiB of memory', guest.memory - room)
    return None


def _requested_page_size(
    host: HostCell, guest: GuestCell, size: int
) -> int | Shortfall:
    first: Shortfall | None = None
    for pages in _page_choices(host.mempages, size):
        lack = _page_shortfall(pages, guest, free=True)
        if lack is None:
            return pages.size_kb
        first = first or lack
    return first or Shortfall(_PAGE_NAMES.get(size, f'pages of {size} KiB'))


_PAGE_NAMES = {
    SMALL_PAGES: 'counted pages',
    LARGE_PAGES: 'large pages',
    ANY_PAGES: 'counted pages',
}


def _page_choices(mempages: Sequence[Pages], size: int) -> Sequence[Pages]:
    """The kinds of pages to try: ``any`` begins with the largest, ``large`` is any but
    the smallest."""
    if size not in _PAGE_NAMES:
        return [pages for pages in mempages if pages.size_kb == size][:1]
    descending = sorted(mempages, reverse=True)
    if size == SMALL_PAGES:
        return descending[-1:]
    if size == LARGE_PAGES:
        return descending[:-1]
    return descending


def _page_shortfall(pages: Pages, guest: GuestCell, free: bool) -> Shortfall | None:
    count, rest = divmod(guest.memory * KIB_PER_MIB, pages.size_kb)
    if rest:
        return Shortfall(f'pages that divide its memory: {pages.size_kb} KiB do not')
    missing = count - (pages.free if free else pages.total)
    if missing > 0:
        return Shortfall(f'pages of {pages.size_kb} KiB', missing)
    return None


def cpu_shortfall(
    host: HostCell, guest: GuestCell, emulator_cpus: int
) -> Shortfall | None:
    """The free CPUs or cores that are missing for a pinned guest cell and its emulator
    threads."""
    count = len(guest.pcpuset) + emulator_cpus
    missing = count - len(host.free_pcpus)
    if missing > 0:
        return Shortfall('free dedicated CPUs', missing)
    missing = count - host.free_on_cores
    if missing > 0:
        return Shortfall('free dedicated CPUs on known cores', missing)
    if guest.cpu_thread_policy == ISOLATE:
        return _core_shortfall(host, count)
    if guest.cpu_thread_policy == REQUIRE:
        return _thread_shortfall(host, len(guest.pcpuset))
    return None


def _core_shortfall(host: HostCell, count: int) -> Shortfall | None:
    """A whole core is needed for each CPU, those of emulator threads too, for compute
    takes their siblings away like any others. On a host with CPUs for pinning alone,
    Placement counts the siblings of a pinned CPU and gives them away, so that it can
    have no threads."""
    if host.threads > 1 and host.pcpuset != host.cpuset:
        return Shortfall('cores without threads to isolate')
    missing = count - host.cores_with[host.threads]
    if missing > 0:
        return Shortfall('free whole cores to isolate', missing)
    return None


def _thread_shortfall(host: HostCell, count: int) -> Shortfall | None:
    if host.threads <= 1:
        return Shortfall('threads, which are required')
    most = max(n * cores for n, cores in enumerate(host.cores_with) if n > 1)
    missing = max(count, 1) - most
    if missing > 0:
        return Shortfall('free threads that share cores', missing)
    return None


def pin(
    host: HostCell, guest: GuestCell, emulator_cpus: int
) -> tuple[Pins, frozenset[int]]:
    """(vCPU, host CPU) pairs, and the host CPUs for emulator threads, for a guest cell
    that lacks nothing."""
    isolated = guest.cpu_thread_policy == ISOLATE
    cpus = _of_whole_cores(host) if isolated else _filling_cores(host, guest)
    pins = tuple(zip(sorted(guest.pcpuset), cpus, strict=False))
    if not emulator_cpus:
        return pins, frozenset()
    pinned = {cpu for _, cpu in pins}
    free = _of_whole_cores(host) if isolated else chain.from_iterable(host.free_cores)
    spare = [cpu for cpu in free if cpu not in pinned]
    return pins, frozenset(spare[:emulator_cpus])


def _of_whole_cores(host: HostCell) -> Iterable[int]:
    """A CPU of each core that is all free."""
    threads = host.threads
    return (core[0] for core in host.free_cores if len(core) == threads)


def _filling_cores(host: HostCell, guest: GuestCell) -> Iterable[int]:
    """CPUs in an order that takes equally many of each core, as many as suffice; the
    last resort of ``prefer`` is one after the other."""
    count = len(guest.pcpuset)
    fewest = 2 if guest.cpu_thread_policy == REQUIRE else 1
    for n in range(host.threads, fewest - 1, -1):
        if host.cores_with[n] and n * host.cores_with[n] >= count:
            return (
                cpu for core in host.free_cores if len(core) >= n for cpu in core[:n]
            )
    return chain.from_iterable(host.free_cores)
