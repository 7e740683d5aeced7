# SPDX-License-Identifier: Apache-2.0
"""NUMA cells and PCI devices of hosts, and guests that want some of both."""

from __future__ import annotations

from typing import Any

from tests.lab.builders import a_uuid
from tests.lab.descriptions import Case
from tests.parity.dice import Dice, put

DEVICES = [a_uuid(f'device provider{i}') for i in range(3)]
REQUESTS = [a_uuid(f'pci request{i}') for i in range(2)]
NETWORKS = ['physnet0', 'physnet1']


def devices(dice: Dice, case: Case) -> None:
    """PCI devices, and candidates that say which of them were meant."""
    for host in case['hosts']:
        pools = [_pool(dice) for _ in range(dice.one(0, 1, 1, 2, 3))]
        put(host, 'row', pci_stats=dice.one(pools, pools, pools, pools, [], None))
    if dice.maybe(0.1):
        return
    if dice.maybe(0.01):
        _two_providers(case)
        return
    wanted = [_device_request(dice, number) for number in range(dice.one(0, 1, 1, 1, 2))]
    put(case, 'request', pci_requests={'requests': wanted})
    in_placement = dice.maybe(0.4)
    for host in case['hosts']:
        host['candidates'] = [
            {'mappings': _mappings(dice, wanted) if in_placement else {'': [a_uuid('root')]}}
            for _ in range(dice.one(1, 1, 1, 2, 3))
        ]


def _two_providers(case: Case) -> None:
    """A candidate takes a device of each of two providers, and the host has two of one."""
    spec = {'vendor_id': '8086', 'product_id': '1520'}
    pool = {**spec, 'dev_type': 'type-PCI', 'numa_node': 0, 'count': 2, 'rp_uuid': DEVICES[0]}
    wanted = {
        'count': 2, 'spec': [spec], 'alias_name': 'gpu', 'request_id': REQUESTS[0], 'requester_id': None,
        'numa_policy': None,
    }  # fmt: skip
    put(case, 'request', pci_requests={'requests': [wanted]})
    for host in case['hosts']:
        put(host, 'row', pci_stats=[pool])
        mappings = {f'{REQUESTS[0]}-{i}': [DEVICES[i]] for i in range(2)}
        host['candidates'] = [{'mappings': {'': [a_uuid('root')], **mappings}}]


def _pool(dice: Dice) -> dict[str, Any]:
    tags = {'dev_type': dice.one('type-PCI', 'type-PF', 'type-VF')}
    if dice.maybe(0.4):
        tags['physical_network'] = dice.one(*NETWORKS)
    if dice.maybe(0.4):
        tags['rp_uuid'] = dice.one(*DEVICES)
    return {
        'vendor_id': dice.one('8086', '15b3'), 'product_id': dice.one('1520', 'abcd'),
        'numa_node': dice.one(None, 0, 1), 'count': dice.one(0, 1, 1, 2, 60), **tags,
    }  # fmt: skip


def _device_request(dice: Dice, number: int) -> Case:
    spec = {'vendor_id': dice.one('8086', '15b3')}
    if dice.maybe():
        spec['product_id'] = dice.one('1520', 'abcd')
    if dice.maybe(0.3):
        spec['dev_type'] = dice.one('type-PCI', 'type-PF', 'type-VF')
    alias = dice.one('gpu', None)
    return {
        'count': dice.one(1, 1, 1, 2), 'spec': [spec], 'alias_name': alias,
        'request_id': REQUESTS[number], 'requester_id': None if alias else a_uuid('port'),
        'numa_policy': dice.one(None, 'legacy', 'preferred', 'required', 'socket'),
    }  # fmt: skip


def _mappings(dice: Dice, wanted: list[Case]) -> dict[str, list[str]]:
    suffixes = [f'{each["request_id"]}-{i}' for each in wanted for i in range(each['count'])]
    return {'': [a_uuid('root')], **{suffix: [dice.one(*DEVICES)] for suffix in suffixes}}


def cells(dice: Dice, case: Case) -> None:
    for host in case['hosts']:
        topology = _host_topology(dice)
        put(host, 'row', numa_topology=topology if dice.maybe(0.9) else None)
        put(
            host,
            'row',
            cpu_allocation_ratio=dice.one(1.0, 2.0, 16.0),
            ram_allocation_ratio=dice.one(1.0, 1.5),
        )
    properties = {}
    if dice.maybe(0.2):
        put(case, 'request', 'flavor', 'extra_specs', **{
            'hw:cpu_policy': dice.one('dedicated', 'shared'),
            'hw:cpu_thread_policy': dice.one('require', 'isolate', 'prefer'),
        })  # fmt: skip
    if dice.maybe(0.1):
        properties = {
            'hw_cpu_policy': 'dedicated',
            'hw_cpu_thread_policy': dice.one('require', 'prefer'),
        }
    if dice.maybe(0.98):
        put(case, 'request', image={'properties': properties})
    if dice.maybe(0.9):
        put(case, 'request', numa_topology=_guest_topology(dice))
    if dice.maybe(0.3):
        put(
            case,
            'request',
            network_metadata={'physnets': dice.some(NETWORKS, 2), 'tunneled': dice.maybe(0.3)},
        )
    if dice.maybe(0.2):
        strategy = dice.maybe()
        put(case, 'config', 'compute', packing_host_numa_cells_allocation_strategy=strategy)


def hard_guests(dice: Dice, case: Case) -> None:
    """Now and then a guest that nova fits in a way of its own: one that takes pages of any
    size, where one host cell has the pages and another one the CPUs, or one that isolates
    cores, where few are free."""
    if dice.maybe(0.95):
        return
    of_any_size = dice.maybe()
    sizes = dice.one((2048, 4), (1048576, 2048), (4, 2048)) if of_any_size else (4, 4)
    pinned = dice.one((3, 0), (0, 3), (0, 0)) if of_any_size else (dice.one(0, 1, 2), 1)
    cells = [
        {'id': i, 'cpuset': [4 * i + n for n in range(4)], 'pcpuset': [4 * i + n for n in range(4)],
         'siblings': [[4 * i, 4 * i + 1], [4 * i + 2, 4 * i + 3]], 'memory': 2048,
         'pinned_cpus': [4 * i + n for n in range(pinned[i])],
         'mempages': [{'size_kb': size, 'total': 2**21 // size, 'used': 0, 'reserved': 0}]}
        for i, size in enumerate(sizes)
    ]  # fmt: skip
    for host in case['hosts']:
        put(host, 'row', numa_topology={'cells': cells})
    guest = {
        'id': 0, 'cpuset': [], 'pcpuset': list(range(dice.one(1, 2))), 'memory': 1024,
        'pagesize': dice.one(-1, -2, -3) if of_any_size else None,
        'cpu_policy': 'dedicated', 'cpu_thread_policy': None if of_any_size else 'isolate',
    }  # fmt: skip
    emulator = None if of_any_size else 'isolate'
    topology = {'cells': [guest], 'emulator_threads_policy': emulator}
    put(case, 'request', image={}, numa_topology=topology, pci_requests=None)
    case['request'].pop('network_metadata', None)


def _host_topology(dice: Dice) -> Case:
    threads = dice.maybe(0.7)
    return {'cells': [_host_cell(dice, i, threads) for i in range(dice.one(1, 2, 2, 4))]}


def _host_cell(dice: Dice, number: int, threads: bool) -> Case:
    cpus = [8 * number + i for i in range(dice.one(4, 4, 8))]
    size = 2 if threads else 1
    siblings = [cpus[i : i + size] for i in range(0, len(cpus), size)] if dice.maybe(0.9) else []
    dedicated = dice.one(cpus, cpus, cpus, cpus, cpus[:2], [])
    shared = dice.one(cpus, cpus, [x for x in cpus if x not in dedicated])
    pages = [
        {'size_kb': 4, 'total': 256 * 1024, 'used': 0, 'reserved': 0},
        {'size_kb': 2048, 'total': dice.one(0, 256, 512), 'used': dice.one(0, 0, 100, 256), 'reserved': dice.one(0, 0, 1)},
        {'size_kb': 1048576, 'total': dice.one(0, 1, 2), 'used': dice.one(0, 0, 1), 'reserved': 0},
    ]  # fmt: skip
    return {
        'id': number, 'cpuset': shared, 'pcpuset': dedicated, 'siblings': siblings,
        'pinned_cpus': dice.some(dedicated, dice.one(0, 0, 1, 3)), 'cpu_usage': dice.one(0, 0, 0, 2, 8),
        'memory': 2048, 'memory_usage': dice.one(0, 0, 0, 512, 2048),
        'mempages': pages[: dice.one(1, 2, 3, 3)], 'socket': dice.one(0, number // 2, None),
        'network_metadata': {'physnets': dice.some(NETWORKS, 2), 'tunneled': dice.maybe(0.3)},
    }  # fmt: skip


def _guest_topology(dice: Dice) -> Case:
    size = dice.one(1, 1, 1, 2, 2, 3)
    each = dice.one(1, 2, 2, 3, 4)
    policy = dice.one(None, None, 'shared', 'dedicated', 'dedicated', 'mixed')
    threads = (
        dice.one(None, 'prefer', 'isolate', 'require') if policy in ('dedicated', 'mixed') else None
    )
    pagesize = dice.one(None, None, None, 4, 2048, 1048576, -1, -2, -3)
    guest = []
    for number in range(size):
        cpus = [each * number + i for i in range(each)]
        pinned = {'dedicated': each, 'mixed': dice.randint(0, each)}.get(policy or '', 0)
        guest.append({
            'id': number, 'cpuset': cpus[pinned:], 'pcpuset': cpus[:pinned], 'pagesize': pagesize,
            'memory': dice.one(128, 128, 256, 512, 1024, 2048, 4096), 'cpu_policy': policy, 'cpu_thread_policy': threads,
        })  # fmt: skip
    emulator = dice.one(None, None, 'share', 'isolate')
    return {'cells': guest, 'emulator_threads_policy': emulator}
