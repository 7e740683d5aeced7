# SPDX-License-Identifier: Apache-2.0
"""Random hosts and guests, in the form for both sides.

{'host': text of compute_nodes.numa_topology, 'guest': {'cells': [fields of
 InstanceNUMACell, ...], 'emulator_threads_policy'}, 'packing': bool,
 'limits': {'cpu': ratio, 'ram': ratio, 'physnets': [...], 'tunneled': bool},
 'pci': {'near': {host cell: free devices}, 'count': devices wanted}}
"""

import json
from collections.abc import Iterator
from typing import Any

from tests.lab.descriptions import wire
from tests.parity.dice import Dice

Case = dict[str, Any]
PHYSNETS = ('net0', 'net1')
POLICIES = (None, 'shared', 'dedicated', 'dedicated', 'dedicated', 'mixed')
THREAD_POLICIES = (None, 'prefer', 'require', 'isolate')


def cases(
    seed: int, networks: bool = False, pci: bool = False, equal: bool = True
) -> Iterator[Case]:
    """Endless pairs of a host and a guest of one to four cells."""
    dice = Dice(seed)
    while True:
        cells = dice.randint(1, 5)
        case: Case = {
            'host': as_text(host_topology(dice, cells, networks)),
            'guest': guest_topology(dice, min(4, dice.randint(1, cells)), equal),
            'packing': dice.maybe(),
        }
        if dice.maybe(0.9):
            case['limits'] = {'cpu': dice.one(1.0, 1.5, 4.0), 'ram': dice.one(1.0, 1.5)}
            if networks:
                physnets = dice.some(PHYSNETS, 2)
                case['limits'] |= {'physnets': physnets, 'tunneled': dice.maybe()}
        if pci:
            near = {str(i): dice.randint(0, 3) for i in range(cells) if dice.maybe()}
            case['pci'] = {'near': near, 'count': dice.randint(0, 4)}
        yield case


def as_text(topology: Case) -> str:
    """The text of compute_nodes.numa_topology."""
    return json.dumps(wire('NUMATopology', topology))


def host_topology(
    dice: Dice, count: int, networks: bool = False, counted: float = 0.6
) -> Case:
    """The cells of a compute host.

    :param counted: the probability that the pages of a cell are counted.
    """
    cores = dice.randint(1, 8)
    threads = dice.one(1, 2, 2, 2, 4)
    # The number of cores without pinning; None is the old style, where any core may
    # be pinned.
    shared = dice.one(None, None, 0, 1, cores // 2)
    # Threads of a core are numbered one after the other, or a whole host's cores apart.
    if dice.maybe():
        step = cores * count
        stride = 1
    else:
        step = 1
        stride = threads
    first = cores * stride
    cells = []
    for cell in range(count):
        starts = range(cell * first, (cell + 1) * first, stride)
        siblings = []
        for cpu in starts:
            siblings.append([cpu + step * thread for thread in range(threads)])
        if shared is None:
            cpuset = _flat(siblings)
            pcpuset = cpuset
        else:
            cpuset = _flat(siblings[:shared])
            pcpuset = _flat(siblings[shared:])
        pinned = _pinned(dice, siblings, set(pcpuset))
        memory = dice.one(2048, 4096, 8192)
        cells.append(
            {
                'id': cell,
                'cpuset': cpuset,
                'pcpuset': pcpuset,
                'memory': memory,
                'socket': cell // 2,
                'memory_usage': dice.one(0, 0, 512, 1024),
                'cpu_usage': dice.one(0, 0, 1, 4),
                'pinned_cpus': pinned,
                'siblings': siblings,
                'mempages': _pages(dice, memory) if dice.maybe(counted) else [],
                'network_metadata': near_networks(dice)
                if networks and dice.maybe(0.8)
                else {},
            }
        )
    return {'cells': cells}


def _flat(cores: list[list[int]]) -> list[int]:
    cpus = []
    for core in cores:
        cpus += core
    return cpus


def near_networks(dice: Dice) -> Case:
    return {'physnets': dice.some(PHYSNETS, 2), 'tunneled': dice.maybe(0.3)}


def _pinned(dice: Dice, siblings: list[list[int]], free: set[int]) -> list[int]:
    """CPUs pinned by existing guests: single CPUs, whole cores, or none."""
    by = dice.one('none', 'none', 'cpu', 'core')
    chance = dice.one(0.1, 0.2, 0.5)
    if by == 'cpu':
        return [cpu for cpu in sorted(free) if dice.maybe(chance)]
    if by == 'core':
        cores = [core for core in siblings if dice.maybe(chance)]
        return [cpu for cpu in _flat(cores) if cpu in free]
    return []


def _pages(dice: Dice, memory: int) -> list[Case]:
    """Small pages, and large ones for part of the memory."""
    sizes = []
    remaining_kb = memory * 1024
    for size in (1048576, 2048):
        if dice.maybe(0.6):
            total = dice.randint(0, remaining_kb // size)
            remaining_kb -= total * size
            sizes.append((size, total))
    sizes.append((4, remaining_kb // 4))

    pages = []
    for size, total in dice.sample(sizes, len(sizes)):
        pages.append(
            {
                'size_kb': size,
                'total': total,
                'used': dice.randint(0, total // 2),
                'reserved': dice.randint(0, total // 8),
            }
        )
    return pages


def guest_topology(dice: Dice, count: int, equal: bool = True) -> Case:
    """Guest cells with the same policies; equal cells have the same numbers of CPUs and
    the same memory."""
    policy = dice.one(*POLICIES)
    threads = dice.one(*THREAD_POLICIES) if policy in ('dedicated', 'mixed') else None
    pagesize = dice.one(None, None, None, None, -1, -2, -3, -3, 4, 2048, 1048576)
    if equal:
        sizes = [_size(dice, policy)] * count
    else:
        sizes = [_size(dice, policy) for _ in range(count)]
    cells = []
    first = 0
    for i, (shared, dedicated, memory) in enumerate(sizes):
        vcpus = list(range(first, first + shared + dedicated))
        first += len(vcpus)
        cells.append(
            {
                'id': i,
                'cpuset': vcpus[:shared],
                'pcpuset': vcpus[shared:],
                'memory': memory,
                'pagesize': pagesize,
                'cpu_policy': policy,
                'cpu_thread_policy': threads,
            }
        )
    if policy == 'dedicated':
        emulator = dice.one(None, None, None, 'share', 'isolate')
    else:
        emulator = None
    return {'cells': cells, 'emulator_threads_policy': emulator}


def _size(dice: Dice, policy: str | None) -> tuple[int, int, int]:
    """Shared and dedicated vCPUs, and memory in MiB."""
    dedicated = dice.one(1, 1, 2, 2, 3, 4, 5) if policy in ('dedicated', 'mixed') else 0
    if policy == 'mixed' and dice.maybe(0.1):
        dedicated = 0
    shared = dice.one(1, 2, 4) if policy != 'dedicated' else 0
    return shared, dedicated, dice.one(256, 256, 512, 512, 1024, 1024, 2048, 1001)
