# SPDX-License-Identifier: Apache-2.0
"""What a fit must hold to, said once more and without any cleverness; and the arguments
of our fitter for a case that nova's takes, too."""

from dataclasses import replace

from novasched.scheduler.model.numa import GuestCell, GuestTopology, TopologyLimits
from novasched.scheduler.numa.parse import host_topology


def numa_arguments(case):
    limits = case.get('limits')
    return (
        host_topology(case['host']),
        GuestTopology(
            tuple(map(_guest_cell, case['guest']['cells'])),
            case['guest']['emulator_threads_policy'],
        ),
        limits
        and TopologyLimits(
            limits['cpu'],
            limits['ram'],
            frozenset(limits.get('physnets', ())),
            limits.get('tunneled', False),
        ),
    )


def _guest_cell(cell):
    made = GuestCell(**cell)
    return replace(made, cpuset=frozenset(made.cpuset), pcpuset=frozenset(made.pcpuset))


def violations(host, guest, limits, fit):
    cells = {cell.id: cell for cell in host.cells}
    chosen = [place.host_cell for place in fit.cells]
    wrong = []
    if len(chosen) != len(guest.cells):
        wrong.append('not a place for each cell')
    if len(set(chosen)) < len(chosen):
        wrong.append('a host cell twice')
    if set(chosen) - cells.keys():
        return [*wrong, 'an unknown host cell']
    for i, (cell, place) in enumerate(zip(guest.cells, fit.cells, strict=False)):
        emulator_cpus = int(i == 0 and guest.emulator_threads_policy == 'isolate')
        wrong += cell_violations(
            cells[place.host_cell], cell, emulator_cpus, limits, place
        )
    near = [cells[each] for each in chosen]
    return wrong + list(network_violations(host, near, limits))


def network_violations(host, near, limits):
    """The networks that are near to some host cell, but not to the chosen ones."""
    if limits is None:
        return
    for physnet in limits.physnets:
        if any(physnet in cell.physnets for cell in host.cells) and not any(
            physnet in cell.physnets for cell in near
        ):
            yield f'far from {physnet}'
    tunnels = [cell for cell in host.cells if cell.tunneled]
    if limits.tunneled and tunnels and not any(cell in tunnels for cell in near):
        yield 'far from tunnels'


def cell_violations(host, guest, emulator_cpus, limits, place):
    wrong = list(_memory(host, guest, place))
    pinned = guest.cpu_policy in ('dedicated', 'mixed')
    shared = guest.cpu_policy in (None, 'shared', 'mixed')
    if pinned:
        wrong += _pins(host, guest, emulator_cpus, place)
    elif place.pins or place.emulator_cpus:
        wrong.append('pins what is not to be pinned')
    if shared:
        if len(guest.cpuset) > len(host.cpuset):
            wrong.append('overcommits CPUs against itself')
        if limits is not None:
            if (
                host.cpu_usage + len(guest.cpuset)
                > len(host.cpuset) * limits.cpu_allocation_ratio
            ):
                wrong.append('beyond the CPU ratio')
            if (
                host.memory_usage + guest.memory
                > host.memory * limits.ram_allocation_ratio
            ):
                wrong.append('beyond the memory ratio')
    return wrong


def _memory(host, guest, place):
    kib = guest.memory * 1024
    sizes = sorted(pages.size_kb for pages in host.mempages)
    pinned = guest.cpu_policy in ('dedicated', 'mixed')
    if guest.pagesize:
        allowed = {-1: sizes[:1], -2: sizes[1:], -3: sizes}.get(
            guest.pagesize, [guest.pagesize]
        )
        if place.pagesize not in allowed or place.pagesize not in sizes:
            yield 'a page size that is not wanted or not there'
            return
        free = {
            each.size_kb: each.total - each.used - each.reserved
            for each in host.mempages
        }
        if kib % place.pagesize or kib // place.pagesize > free[place.pagesize]:
            yield 'not so many pages'
        return
    if place.pagesize is not None:
        yield 'a page size that nobody asked for'
    if sizes:
        smallest = next(each for each in host.mempages if each.size_kb == sizes[0])
        taken = smallest.used + smallest.reserved if pinned else 0
        if kib % sizes[0] or kib > (smallest.total - taken) * sizes[0]:
            yield 'not so many of the smallest pages'
    elif guest.memory > host.memory - (host.memory_usage if pinned else 0):
        yield 'not so much memory'


def _pins(host, guest, emulator_cpus, place):
    free = host.pcpuset - host.pinned_cpus
    cores = host.siblings or tuple(frozenset((cpu,)) for cpu in host.pcpuset)
    threads = max((len(core) for core in cores), default=1) or 1
    cpus = [cpu for _, cpu in place.pins]
    if sorted(vcpu for vcpu, _ in place.pins) != sorted(guest.pcpuset):
        yield 'does not pin each dedicated vCPU'
    if len(set(cpus)) < len(cpus) or place.emulator_cpus & set(cpus):
        yield 'a CPU for two'
    taken = place.emulator_cpus | set(cpus)
    if not taken <= free or not all(
        any(cpu in core for core in cores) for cpu in taken
    ):
        yield 'a CPU that is not free'
    if len(place.emulator_cpus) != emulator_cpus:
        yield 'not so many CPUs for emulator threads'
    if emulator_cpus and not cpus:
        yield 'nothing pinned beside emulator threads'
    used = [core for core in cores if core & set(cpus)]
    if guest.cpu_thread_policy == 'isolate':
        if any(len(core & free) < threads for core in cores if core & taken):
            yield 'a core that is not all free'
        if any(len(core & taken) > 1 for core in cores):
            yield 'a core for two'
        if threads > 1 and host.pcpuset != host.cpuset:
            yield 'threads that are counted'
        if not cpus:
            yield 'nothing to isolate'
    if guest.cpu_thread_policy == 'require':
        pairs = [core for core in cores if len(core & free) > 1]
        together = any(_together(used, cpus, free, n) for n in range(2, threads + 1))
        if not (together if cpus else pairs):
            yield 'threads that share no core'


def _together(used, cpus, free, n):
    """n CPUs of each core, and what is left over of one more core with n free ones."""
    counts = sorted(len(core & set(cpus)) for core in used)
    return bool(used) and (
        all(len(core & free) >= n for core in used)
        and counts[-1] <= n
        and all(count == n for count in counts[1:])
    )
