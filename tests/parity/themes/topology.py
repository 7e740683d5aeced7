# SPDX-License-Identifier: Apache-2.0
"""Themes of NUMA cells and PCI devices, of hosts and of guests."""

from typing import Any

from tests.lab.builders import a_uuid, numbered_uuids
from tests.lab.descriptions import Case
from tests.parity.dice import Dice, Draft
from tests.parity.numa_cases import (
    PHYSNETS,
    guest_topology,
    host_topology,
    near_networks,
)

DEVICES = numbered_uuids('device provider', 3)
REQUESTS = numbered_uuids('pci request', 2)
KINDS = ('type-PCI', 'type-PF', 'type-VF')
NUMA_POLICIES = (None, 'legacy', 'preferred', 'required', 'socket')


def devices(dice: Dice, draft: Draft) -> None:
    """PCI devices, and candidates that name the providers of devices."""
    for host in draft.hosts:
        pools = [_pool(dice) for _ in range(dice.one(0, 1, 1, 2, 3))]
        host['row']['pci_stats'] = dice.one(*[pools] * 4, [], None)
    if dice.maybe(0.1):
        return
    if dice.maybe(0.01):
        _two_providers(draft)
        return
    wanted = [
        _device_request(dice, number) for number in range(dice.one(0, 1, 1, 1, 2))
    ]
    draft.ask(pci_requests={'requests': wanted})
    in_placement = dice.maybe(0.4)
    for host in draft.hosts:
        host['candidates'] = []
        for _ in range(dice.one(1, 1, 1, 2, 3)):
            mappings = {'': [a_uuid('root')]}
            if in_placement:
                mappings = _mappings(dice, wanted)
            host['candidates'].append({'mappings': mappings})


def _two_providers(draft: Draft) -> None:
    """A candidate with a device of each of two providers, on a host with two devices of
    a single provider."""
    spec = {'vendor_id': '8086', 'product_id': '1520'}
    pool = {
        **spec,
        'dev_type': 'type-PCI',
        'numa_node': 0,
        'count': 2,
        'rp_uuid': DEVICES[0],
    }
    wanted = {
        'count': 2,
        'spec': [spec],
        'alias_name': 'gpu',
        'request_id': REQUESTS[0],
    }
    draft.ask(pci_requests={'requests': [wanted]})
    for host in draft.hosts:
        host['row']['pci_stats'] = [pool]
        mappings = {'': [a_uuid('root')]}
        for i in range(2):
            mappings[f'{REQUESTS[0]}-{i}'] = [DEVICES[i]]
        host['candidates'] = [{'mappings': mappings}]


def _pool(dice: Dice) -> dict[str, Any]:
    kind = {'dev_type': dice.one(*KINDS)}
    tags = dice.each({'physical_network': PHYSNETS, 'rp_uuid': DEVICES}, 0.4)
    return kind | tags | dice.each({
        'vendor_id': ('8086', '15b3'), 'product_id': ('1520', 'abcd'),
        'numa_node': (None, 0, 1), 'count': (0, 1, 1, 2, 60),
    })  # fmt: skip


def _device_request(dice: Dice, number: int) -> Case:
    spec = {'vendor_id': dice.one('8086', '15b3')}
    spec |= dice.each({'product_id': ('1520', 'abcd')}, 0.5) | dice.each(
        {'dev_type': KINDS}, 0.3
    )
    alias = dice.one('gpu', None)
    return {
        'count': dice.one(1, 1, 1, 2),
        'spec': [spec],
        'alias_name': alias,
        'request_id': REQUESTS[number],
        'requester_id': None if alias else a_uuid('port'),
        'numa_policy': dice.one(*NUMA_POLICIES),
    }


def _mappings(dice: Dice, wanted: list[Case]) -> dict[str, list[str]]:
    mappings = {'': [a_uuid('root')]}
    for request in wanted:
        for i in range(request['count']):
            mappings[f'{request["request_id"]}-{i}'] = [dice.one(*DEVICES)]
    return mappings


def cells(dice: Dice, draft: Draft) -> None:
    for host in draft.hosts:
        topology = host_topology(dice, dice.one(1, 2, 2, 4), networks=True, counted=0.9)
        if dice.maybe(0.1):
            for cell in topology['cells']:
                cell['siblings'] = []
        ratios = {
            'cpu_allocation_ratio': (1.0, 2.0, 16.0),
            'ram_allocation_ratio': (1.0, 1.5),
        }
        host['row'] |= dice.each(ratios)
        host['row']['numa_topology'] = topology if dice.maybe(0.9) else None
    if dice.maybe(0.2):
        draft.extra_specs(dice.each({
            'hw:cpu_policy': ('dedicated', 'shared'),
            'hw:cpu_thread_policy': ('require', 'isolate', 'prefer'),
        }))  # fmt: skip
    if dice.maybe(0.98):
        draft.ask(image={'properties': {}})
        if dice.maybe(0.1):
            threads = dice.one('require', 'prefer')
            draft.image(hw_cpu_policy='dedicated', hw_cpu_thread_policy=threads)
    if dice.maybe(0.9):
        guest = guest_topology(dice, dice.one(1, 1, 1, 2, 2, 3), equal=dice.maybe(0.95))
        draft.ask(numa_topology=guest)
    if dice.maybe(0.3):
        draft.ask(network_metadata=near_networks(dice))
    if dice.maybe(0.2):
        draft.set('compute', packing_host_numa_cells_allocation_strategy=dice.maybe())


def hard_guests(dice: Dice, draft: Draft) -> None:
    """Now and then a guest that nova fits in a way of its own: one that takes pages of
    any size, where one host cell has the pages and another one the CPUs, or one that
    isolates cores, where few are free."""
    if dice.maybe(0.95):
        return
    of_any_size = dice.maybe()
    sizes = dice.one((2048, 4), (1048576, 2048), (4, 2048)) if of_any_size else (4, 4)
    pinned = dice.one((3, 0), (0, 3), (0, 0)) if of_any_size else (dice.one(0, 1, 2), 1)
    cells = []
    for i, size in enumerate(sizes):
        cpus = list(range(4 * i, 4 * i + 4))
        pages = {'size_kb': size, 'total': 2**21 // size, 'used': 0, 'reserved': 0}
        cells.append(
            {
                'id': i,
                'cpuset': cpus,
                'pcpuset': [*cpus],
                'siblings': [cpus[:2], cpus[2:]],
                'memory': 2048,
                'pinned_cpus': cpus[: pinned[i]],
                'mempages': [pages],
            }
        )
    for host in draft.hosts:
        host['row']['numa_topology'] = {'cells': cells}
    guest = {
        'id': 0,
        'cpuset': [],
        'pcpuset': list(range(dice.one(1, 2))),
        'memory': 1024,
        'pagesize': dice.one(-1, -2, -3) if of_any_size else None,
        'cpu_policy': 'dedicated',
        'cpu_thread_policy': None if of_any_size else 'isolate',
    }
    emulator = None if of_any_size else 'isolate'
    topology = {'cells': [guest], 'emulator_threads_policy': emulator}
    draft.ask(image={}, numa_topology=topology, pci_requests=None)
    draft.request.pop('network_metadata', None)
