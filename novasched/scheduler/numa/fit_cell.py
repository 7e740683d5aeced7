# SPDX-License-Identifier: Apache-2.0
"""Fit one guest cell on one host cell: memory pages and host CPUs.

The thread policy (``hw:cpu_thread_policy``) selects the host CPUs for dedicated vCPUs:
``prefer`` fills cores as long as full cores suffice, ``require`` takes only CPUs on
shared cores, ``isolate`` takes a whole core for each vCPU.
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
    """A resource missing on a host cell; ``amount`` is None if no amount would help."""

    resource: str
    amount: int | None = None


def describe(shortfalls: Sequence[tuple[int, Shortfall]]) -> str:
    """Describe the shortfalls of host cells, given as (id, shortfall), in one line.

    Cells that lack the same resource are listed together with the least amount: freeing
    the least amount makes room.
    """
    cells: dict[str, list[int]] = {}
    amounts: dict[str, set[int]] = {}
    for cell, (resource, amount) in shortfalls:
        cells.setdefault(resource, []).append(cell)
        amounts_of_resource = amounts.setdefault(resource, set())
        if amount is not None:
            amounts_of_resource.add(amount)

    parts = []
    for resource, ids in cells.items():
        listed = ', '.join(map(str, ids))
        if len(ids) == 1:
            part = f'host cell {listed} lacks '
        else:
            part = f'host cells {listed} lack '
        if len(amounts[resource]) > 1:
            part += 'at least '
        if amounts[resource]:
            part += f'{min(amounts[resource])} '
        parts.append(part + resource)
    return '; '.join(parts)


def shortfall(
    host: HostCell, guest: GuestCell, emulator_cpus: int, limits: TopologyLimits | None
) -> Shortfall | None:
    """Return the first resource missing for the guest cell, None if the cell fits.

    :param emulator_cpus: number of further CPUs for emulator threads.
    """
    # nova-compute repeats the checks when the instance arrives; the order is the order
    # of nova-compute.
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
    """Return the CPUs or memory missing within the allocation ratios."""
    allowed_cpus = len(host.cpuset) * limits.cpu_allocation_ratio
    cpus = host.cpu_usage + len(guest.cpuset) - allowed_cpus
    if cpus > 0:
        return Shortfall('CPUs within the allocation ratio', _rounded_up(cpus))

    allowed_memory = host.memory * limits.ram_allocation_ratio
    memory = host.memory_usage + guest.memory - allowed_memory
    if memory > 0:
        return Shortfall(
            'MiB of memory within the allocation ratio', _rounded_up(memory)
        )
    return None


def _rounded_up(amount: float) -> int:
    return -int(-amount // 1)


def fit_cell(host: HostCell, guest: GuestCell, emulator_cpus: int) -> CellFit:
    """Fit the guest cell on a host cell without a shortfall."""
    size = None
    if guest.pagesize:
        requested_size = page_size(host, guest)
        assert not isinstance(requested_size, Shortfall)
        size = requested_size
    if not guest.is_pinned:
        return CellFit(host.id, pagesize=size)
    return CellFit(host.id, *pin(host, guest, emulator_cpus), size)


def page_size(host: HostCell, guest: GuestCell) -> int | Shortfall | None:
    """Return the page size in KiB of the guest cell, None without a requested size.

    Pages of a requested size are never overcommitted. Without a page size, the guest
    cell takes memory in the smallest pages: a pinned cell only free memory, a shared
    cell up to the whole memory of the host cell. A guest never overcommits against
    itself.
    """
    if guest.pagesize:
        return _requested_page_size(host, guest, guest.pagesize)
    if host.mempages:
        smallest = min(host.mempages)
        return _page_shortfall(smallest, guest, free=guest.is_pinned)

    if guest.is_pinned:
        available = host.free_memory
    else:
        available = host.memory
    if available < guest.memory:
        return Shortfall('MiB of memory', guest.memory - available)
    return None


def _requested_page_size(
    host: HostCell, guest: GuestCell, size: int
) -> int | Shortfall:
    first_shortfall: Shortfall | None = None
    for pages in _page_choices(host.mempages, size):
        lack = _page_shortfall(pages, guest, free=True)
        if lack is None:
            return pages.size_kb
        first_shortfall = first_shortfall or lack
    return first_shortfall or Shortfall(_PAGE_NAMES.get(size, f'pages of {size} KiB'))


_PAGE_NAMES = {
    SMALL_PAGES: 'counted pages',
    LARGE_PAGES: 'large pages',
    ANY_PAGES: 'counted pages',
}


def _page_choices(mempages: Sequence[Pages], size: int) -> Sequence[Pages]:
    """Return the pages to try, in order, for a ``hw:mem_page_size``.

    ``any`` begins with the largest pages; ``large`` means all but the smallest pages.
    """
    if size not in _PAGE_NAMES:
        for pages in mempages:
            if pages.size_kb == size:
                return [pages]
        return []

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
    if free:
        missing = count - pages.free
    else:
        missing = count - pages.total
    if missing > 0:
        return Shortfall(f'pages of {pages.size_kb} KiB', missing)
    return None


def cpu_shortfall(
    host: HostCell, guest: GuestCell, emulator_cpus: int
) -> Shortfall | None:
    """Return the free CPUs or cores missing for a pinned guest cell, None if there are
    enough.

    :param emulator_cpus: number of further CPUs for emulator threads.
    """
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
    """Return the whole cores missing for ``isolate``.

    CPUs for emulator threads count as well: nova-compute also takes the siblings of
    these CPUs.
    """
    # On a host with cpu_dedicated_set, Placement counts the siblings of a pinned CPU in
    # the inventory of PCPU and gives them to other instances. So isolate works only on
    # hosts without threads.
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
    """Choose host CPUs for a guest cell without a shortfall.

    :returns: (vCPU, host CPU) pairs, and the host CPUs for emulator threads.
    """
    cpus: Iterable[int]
    all_cpus: Iterable[int]
    if guest.cpu_thread_policy == ISOLATE:
        all_cpus = _first_cpus_of_free_cores(host)
        cpus = all_cpus
    else:
        cpus = _cpus_filling_cores(host, guest)
        all_cpus = chain.from_iterable(host.free_cores)
    pins = tuple(zip(sorted(guest.pcpuset), cpus, strict=False))
    if not emulator_cpus:
        return pins, frozenset()

    pinned = {cpu for _, cpu in pins}
    spare = [cpu for cpu in all_cpus if cpu not in pinned]
    return pins, frozenset(spare[:emulator_cpus])


def _first_cpus_of_free_cores(host: HostCell) -> Sequence[int]:
    """Return the first CPU of each core whose threads are all free."""
    threads = host.threads
    return [core[0] for core in host.free_cores if len(core) == threads]


def _cpus_filling_cores(host: HostCell, guest: GuestCell) -> Iterable[int]:
    """Order the free CPUs so that equally many CPUs of each core are taken.

    As many CPUs of each core are taken as possible. If no number of CPUs per core
    suffices, ``prefer`` takes the free CPUs core by core.
    """
    count = len(guest.pcpuset)
    fewest = 1
    if guest.cpu_thread_policy == REQUIRE:
        fewest = 2
    for n in range(host.threads, fewest - 1, -1):
        if host.cores_with[n] and n * host.cores_with[n] >= count:
            wide_cores = (core[:n] for core in host.free_cores if len(core) >= n)
            return chain.from_iterable(wide_cores)
    return chain.from_iterable(host.free_cores)
