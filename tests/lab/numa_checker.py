# SPDX-License-Identifier: Apache-2.0
"""The rules of a NUMA fit, written a second time without optimisations, and the
arguments of the fitter for a case that nova's fitter takes, too."""

from dataclasses import replace

from novasched.scheduler.model.numa import GuestCell, GuestTopology, TopologyLimits
from novasched.scheduler.numa.parse import host_topology


def numa_arguments(case):
    """Host, guest and limits of a case."""
    guest = case['guest']
    cells = tuple(_guest_cell(cell) for cell in guest['cells'])
    limits = case.get('limits')
    if limits:
        limits = TopologyLimits(
            limits['cpu'],
            limits['ram'],
            frozenset(limits.get('physnets', ())),
            limits.get('tunneled', False),
        )
    return (
        host_topology(case['host']),
        GuestTopology(cells, guest['emulator_threads_policy']),
        limits,
    )


def _guest_cell(fields):
    cell = GuestCell(**fields)
    return replace(cell, cpuset=frozenset(cell.cpuset), pcpuset=frozenset(cell.pcpuset))


def violations(host, guest, limits, fit):
    """The rules that a fit of a guest on a host violates, in words."""
    cells = {cell.id: cell for cell in host.cells}
    chosen = [place.host_cell for place in fit.cells]

    problems = []
    if len(chosen) != len(guest.cells):
        problems.append('not a place for each cell')
    if len(set(chosen)) < len(chosen):
        problems.append('a host cell twice')
    if set(chosen) - cells.keys():
        return [*problems, 'an unknown host cell']

    pairs = zip(guest.cells, fit.cells, strict=False)
    for i, (guest_cell, place) in enumerate(pairs):
        emulator_cpus = int(i == 0 and guest.emulator_threads_policy == 'isolate')
        problems += cell_violations(
            cells[place.host_cell], guest_cell, emulator_cpus, limits, place
        )
    near = [cells[number] for number in chosen]
    problems += network_violations(host, near, limits)
    return problems


def network_violations(host, near, limits):
    """The networks that are near to some host cell, and to no chosen host cell.

    :param near: the chosen host cells.
    """
    if limits is None:
        return

    for physnet in limits.physnets:
        is_near_host = physnet in physnets_of(host.cells)
        if is_near_host and physnet not in physnets_of(near):
            yield f'far from {physnet}'

    if limits.tunneled and has_tunnels(host.cells) and not has_tunnels(near):
        yield 'far from tunnels'


def physnets_of(cells):
    """The physical networks near to host cells."""
    physnets = set()
    for cell in cells:
        physnets |= cell.physnets
    return physnets


def has_tunnels(cells):
    """True if tunnelled networks are near to a host cell."""
    return any(cell.tunneled for cell in cells)


def cell_violations(host, guest, emulator_cpus, limits, place):
    """The rules that the place of a guest cell on a host cell violates."""
    problems = list(_memory(host, guest, place))
    is_pinned = guest.cpu_policy in ('dedicated', 'mixed')
    is_shared = guest.cpu_policy in (None, 'shared', 'mixed')
    if is_pinned:
        problems += _pins(host, guest, emulator_cpus, place)
    elif place.pins or place.emulator_cpus:
        problems.append('pins what is not to be pinned')
    if is_shared:
        problems += _overcommit(host, guest, limits)
    return problems


def _overcommit(host, guest, limits):
    vcpus = len(guest.cpuset)
    cpus = len(host.cpuset)
    if vcpus > cpus:
        yield 'overcommits CPUs against itself'
    if limits is None:
        return

    if host.cpu_usage + vcpus > cpus * limits.cpu_allocation_ratio:
        yield 'beyond the CPU ratio'
    memory = host.memory_usage + guest.memory
    if memory > host.memory * limits.ram_allocation_ratio:
        yield 'beyond the memory ratio'


def _memory(host, guest, place):
    pages = {pages.size_kb: pages for pages in host.mempages}
    is_pinned = guest.cpu_policy in ('dedicated', 'mixed')
    if guest.pagesize:
        yield from _pages(pages, guest, place)
        return

    if place.pagesize is not None:
        yield 'a page size that nobody asked for'
    if pages:
        kib = guest.memory * 1024
        smallest = pages[min(pages)]
        available = smallest.total
        if is_pinned:
            available -= smallest.used + smallest.reserved
        if kib % smallest.size_kb or kib > available * smallest.size_kb:
            yield 'not so many of the smallest pages'
    else:
        available = host.memory
        if is_pinned:
            available -= host.memory_usage
        if guest.memory > available:
            yield 'not so much memory'


def _pages(pages, guest, place):
    """The violations of a guest that asks for a page size.

    :param pages: the pages of the host cell by size.
    """
    sizes = sorted(pages)
    # The numbers of nova for small, large and any pages.
    symbolic = {-1: sizes[:1], -2: sizes[1:], -3: sizes}
    allowed = symbolic.get(guest.pagesize, [guest.pagesize])
    if place.pagesize not in allowed or place.pagesize not in sizes:
        yield 'a page size that is not wanted or not there'
        return

    chosen = pages[place.pagesize]
    free = chosen.total - chosen.used - chosen.reserved
    kib = guest.memory * 1024
    if kib % place.pagesize or kib // place.pagesize > free:
        yield 'not so many pages'


def _pins(host, guest, emulator_cpus, place):
    free = host.pcpuset - host.pinned_cpus
    cores = host.siblings or tuple(frozenset((cpu,)) for cpu in host.pcpuset)
    vcpus = []
    cpus = []
    for vcpu, cpu in place.pins:
        vcpus.append(vcpu)
        cpus.append(cpu)
    taken = place.emulator_cpus | set(cpus)

    if sorted(vcpus) != sorted(guest.pcpuset):
        yield 'does not pin each dedicated vCPU'
    if len(set(cpus)) < len(cpus) or place.emulator_cpus & set(cpus):
        yield 'a CPU for two'
    if not taken <= free or not taken <= frozenset().union(*cores):
        yield 'a CPU that is not free'
    if len(place.emulator_cpus) != emulator_cpus:
        yield 'not so many CPUs for emulator threads'
    if emulator_cpus and not cpus:
        yield 'nothing pinned beside emulator threads'

    if guest.cpu_thread_policy == 'isolate':
        yield from _isolation(host, cores, free, cpus, taken)
    if guest.cpu_thread_policy == 'require':
        yield from _thread_sharing(cores, free, cpus)


def _isolation(host, cores, free, cpus, taken):
    threads = _threads_of(cores)
    used = [core for core in cores if core & taken]
    if min(_sizes_within(used, free), default=threads) < threads:
        yield 'a core that is not all free'
    if max(_sizes_within(used, taken), default=0) > 1:
        yield 'a core for two'
    if threads > 1 and host.pcpuset != host.cpuset:
        yield 'threads that are counted'
    if not cpus:
        yield 'nothing to isolate'


def _thread_sharing(cores, free, cpus):
    if cpus:
        used = [core for core in cores if core & set(cpus)]
        counts = range(2, _threads_of(cores) + 1)
        is_possible = any(_fills_cores(used, cpus, free, n) for n in counts)
    else:
        is_possible = max(_sizes_within(cores, free), default=0) > 1
    if not is_possible:
        yield 'threads that share no core'


def _threads_of(cores):
    """The number of threads of a core, at least 1."""
    return max(map(len, cores), default=1) or 1


def _sizes_within(cores, cpus):
    """The number of CPUs that each core shares with a set of CPUs."""
    return [len(core & cpus) for core in cores]


def _fills_cores(used, cpus, free, n):
    """True if a guest takes n CPUs of each used core, or fewer CPUs of a single core,
    and each used core has n free CPUs."""
    if not used or min(_sizes_within(used, free)) < n:
        return False
    counts = sorted(_sizes_within(used, set(cpus)))
    return counts[-1] <= n and counts[1:] == [n] * (len(counts) - 1)
