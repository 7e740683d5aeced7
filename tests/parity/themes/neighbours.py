# SPDX-License-Identifier: Apache-2.0
"""Where other servers are: groups, hints, earlier attempts, cells."""

from __future__ import annotations

from typing import Any

from tests.lab.builders import a_uuid
from tests.lab.descriptions import Case
from tests.parity.dice import Dice, put

SERVERS = [a_uuid(f'server{i}') for i in range(6)]
TENANTS = ['project', 'other', 'third']


def servers(dice: Dice, case: Case) -> None:
    left = list(SERVERS)
    dice.shuffle(left)
    for host in case['hosts']:
        here = [left.pop() for _ in range(min(len(left), dice.one(0, 1, 2, 3)))]
        host['instances'] = [
            {
                'uuid': uuid,
                'instance_type_id': dice.one(1, 1, 2, None),
                'project_id': dice.one(*TENANTS),
            }
            for uuid in here
        ]


def group(dice: Dice, case: Case) -> None:
    if dice.maybe(0.1):
        return
    policies = ('affinity', 'anti-affinity', 'soft-affinity', 'soft-anti-affinity')
    fields: dict[str, Any] = {
        'policy': dice.one(*policies) if dice.maybe(0.9) else dice.one(None, 'legacy', ''),
        'members': dice.some(SERVERS, 6, 2), 'hosts': dice.some(['host1', 'host2', 'host3', 'HOST1'], 2),
    }  # fmt: skip
    fields['policies'] = [fields['policy']] if fields['policy'] else []
    if dice.maybe(0.5):
        limit = (
            dice.one('0', '1', '2', '3', '3', ' 2', '-1')
            if dice.maybe(0.95)
            else dice.one('x', '1.5', '')
        )
        fields['_rules'] = dice.one(
            {'max_server_per_host': limit}, {'max_server_per_host': limit}, {}, {'x': 'y'}
        )
    for name in ('members', 'hosts'):
        if dice.maybe(0.05):
            fields[name] = dice.one(None, [])
    put(case, 'request', instance_group=fields, instance_uuid=dice.one(*SERVERS))


def images_of_servers(dice: Dice, case: Case) -> None:
    """Images that servers were made from, kept as texts, and an image that is like them."""
    kept = {
        'os_distro': ('ubuntu', 'rhel'), 'hw_architecture': ('x86_64', 'aarch64', 'amd64'),
        'hw_qemu_guest_agent': ('yes', 'True', 'no'), 'hw_cpu_cores': ('1', '2', '02'),
        'hw_vif_model': ('virtio', 'e1000'), 'trait:HW_CPU_X86_AVX': ('required',), 'vm_mode': ('hvm', 'xen'),
        'hw_numa_cpus.0': ('0-1',), 'os_type': ('linux', 'windows'), 'base_image_ref': ('x',), 'owner_id': ('a',),
    }  # fmt: skip
    for host in case['hosts']:
        for server in host.get('instances', ()):
            server['image'] = {name: dice.one(*kept[name]) for name in dice.some(list(kept), 4)}
    properties = {
        'os_distro': dice.one('ubuntu', 'rhel'), 'hw_architecture': dice.one('x86_64', 'aarch64'),
        'hw_qemu_guest_agent': dice.maybe(), 'hw_cpu_cores': dice.one(1, 2), 'hw_vif_model': 'virtio',
        'traits_required': ['HW_CPU_X86_AVX'], 'hw_vm_mode': 'hvm', 'hw_numa_cpus': [[0, 1]], 'os_type': 'linux',
        'img_owner_id': 'a',
    }  # fmt: skip
    chosen = {name: properties[name] for name in dice.some(list(properties), 5)}
    if dice.maybe(0.95):
        put(case, 'request', image={'properties': chosen})
    ratios = ('1.0', '-1.0', '0', '2.5', 'x', '')
    setting = [f'{dice.one(*properties)}={dice.one(*ratios)}' for _ in range(dice.one(0, 0, 2, 4))]
    put(case, 'config', 'filter_scheduler', image_props_weight_setting=setting)
    put(
        case,
        'config',
        'filter_scheduler',
        image_props_weight_multiplier=dice.one(0.0, 1.0, 1.0, -1.0, 2.5),
    )


def hints_of_servers(dice: Dice, case: Case) -> None:
    """same_host and different_host, with servers that are somewhere or nowhere."""
    for name in ('same_host', 'different_host'):
        if dice.maybe(0.6):
            uuids = dice.some([*SERVERS, a_uuid('nowhere'), '', 'no uuid'], 3)
            put(case, 'request', 'scheduler_hints', **{name: uuids})


def retries(dice: Dice, case: Case) -> None:
    for host in case['hosts']:
        if dice.maybe(0.3):
            host['node'] = dice.one('node1', 'node2')
    nodes = [
        {'host': dice.one('host1', 'host2', 'HOST1', 'host3'), 'hypervisor_hostname': dice.one('host1', 'host2', 'node1', 'node2')}
        for _ in range(dice.randint(0, 4))
    ]  # fmt: skip
    if dice.maybe(0.9):
        put(case, 'request', retry={'num_attempts': dice.one(1, 2), 'hosts': {'objects': nodes}})


def narrowed(dice: Dice, case: Case) -> None:
    """Hosts that the request forces, ignores or names; with or without a check type."""
    names = ['host1', 'HOST2', 'host2', 'host3', 'elsewhere']
    for field in ('force_hosts', 'force_nodes', 'ignore_hosts'):
        if dice.maybe(0.3):
            put(case, 'request', **{field: dice.some(names, 2)})
    if dice.maybe(0.3):
        destination = {
            'host': dice.one('host1', 'host2', 'HOST1'),
            'node': dice.one('host1', 'host2', 'node1', None),
        }
        put(case, 'request', requested_destination=destination)
    if dice.maybe(0.2):
        put(
            case,
            'request',
            'scheduler_hints',
            _nova_check_type=dice.one(['rebuild'], ['live_migrate'], []),
        )


def cells(dice: Dice, case: Case) -> None:
    for host in case['hosts']:
        host['cell'] = dice.one('cell1', 'cell2')
    if dice.maybe(0.9):
        destination: Case = {'allow_cross_cell_move': dice.maybe(0.7)}
        if dice.maybe(0.8):
            destination['cell'] = {'uuid': a_uuid(dice.one('cell1', 'cell2'))}
        put(case, 'request', requested_destination=destination)
