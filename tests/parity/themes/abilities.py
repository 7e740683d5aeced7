# SPDX-License-Identifier: Apache-2.0
"""What hosts can do: capabilities, kinds of hypervisors, metrics."""

from __future__ import annotations

import json
from typing import Any

from tests.lab.descriptions import Case
from tests.parity.dice import Dice, put


def capabilities(dice: Dice, case: Case) -> None:
    """Extra specs against what hosts can do."""
    for host in case['hosts']:
        cpu_info = {
            'vendor': dice.one('Intel', 'AMD', ''), 'arch': 'x86_64',
            'features': dice.one(['avx', 'avx2', 'vmx'], ['avx'], [], 'avx'),
            'topology': dice.one({'cores': 4, 'sockets': 2}, {'cores': '8'}, None),
        }  # fmt: skip
        if dice.maybe(0.6):
            cpu_info['maxphysaddr'] = dice.one(
                {'mode': 'emulate', 'bits': dice.one(39, 42, 46)}, {}, 'x', None, {'bits': None}
            )
        stats = {'io_workload': 1, 'arch': dice.one('x86_64', 'arm'), 'free': dice.number_text(0.3),
                 'nested': json.dumps({'a': dice.one(1, '2', None, {'b': 3}, [1, 2])}), 'none': None}  # fmt: skip
        put(
            host, 'row',
            cpu_info=dice.one(cpu_info, cpu_info, cpu_info, '', None, '{}', 'no JSON', '[1]', '5', '"x"'),
            stats=dice.one(stats, stats, stats, {}, {'free_ram_mb': '7', 'arch': 'shadow'}),
            hypervisor_version=dice.one(8002000, 1, 0),
            hypervisor_type=dice.one('QEMU', 'VMware', ''), host_ip=dice.one('192.0.2.1', None),
        )  # fmt: skip
    paths = (
        'free_ram_mb', 'vcpus_total', 'hypervisor_type', 'hypervisor_version', 'host', 'nodename',
        'arch', 'free', 'io_workload', 'nested', 'none', 'unknown', 'num_instances', 'host_ip',
        'disk_mb_used', 'cpu_allocation_ratio', 'stats', 'failed_builds', 'supported_instances',
        'cpu_info:vendor', 'cpu_info:features', 'cpu_info:topology:cores', 'cpu_info:topology',
        'cpu_info:unknown', 'cpu_info', 'nested:a', 'nested:a:b', 'stats:arch', 'stats:nested:a',
        'unknown:x', 'free_ram_mb:x', 'supported_instances:0', '', 'cpu_info:', ':',
    )  # fmt: skip
    internal = (
        'updated', 'limits', 'aggregates', 'instances', 'service', 'metrics', 'numa_topology',
        'pci_stats', 'cell_uuid', 'uuid', 'allocation_candidates', 'update', '__class__', '_lock_name',
    )  # fmt: skip
    for _ in range(dice.one(1, 1, 1, 2, 3)):
        path = dice.one(*internal) if dice.maybe(0.05) else dice.one(*paths)
        scope = dice.one(
            'capabilities:',
            'capabilities:',
            '',
            '',
            'trait:',
            'hw:',
            'aggregate_instance_extra_specs:',
        )
        put(case, 'request', 'flavor', 'extra_specs', **{scope + path: requirement(dice)})
    if dice.maybe(0.02):
        name, wanted = dice.one('metrics', 'service'), dice.one('[]', 's== []', '<in> (', '<in> {')
        put(case, 'request', 'flavor', extra_specs={f'capabilities:{name}': wanted})
    if dice.maybe(0.3):
        bits = dice.one('39', '42', '43', '46', 'x', '', '= 42', ' 42')
        put(case, 'request', 'flavor', 'extra_specs', **{'hw:maxphysaddr_bits': bits})


def requirement(dice: Dice) -> str:
    """What an extra spec asks for: any operator, well or badly used."""
    operators = (
        '=', '==', '!=', '>=', '<=', 's==', 's!=', 's<', 's<=', 's>', 's>=', '<in>', '<all-in>', '<or>',
    )  # fmt: skip
    words = (
        'avx',
        'avx2',
        'Intel',
        'x86_64',
        'QEMU',
        'host1',
        'x',
        '8192',
        '8',
        '4',
        '1',
        '7',
        '0',
        "['avx']",
    )
    word = lambda: dice.one(*words) if dice.maybe(0.75) else dice.number_text(0.4)  # noqa: E731
    operator = dice.one(*operators)
    if dice.maybe(0.15):
        return dice.one(
            word(), '', ' ', '> 5', '< 5', '<>', '=5', '>=5', 'a b', operator, f' {operator} '
        )
    if operator == '<or>':
        parts = ' <or> '.join(word() for _ in range(dice.randint(1, 3)))
        return f'<or> {parts}' + dice.one('', '', ' <or>', ' more')
    if operator == '<all-in>':
        return ' '.join([operator, *(word() for _ in range(dice.randint(0, 3)))])
    return f'{dice.one("", "", " ")}{operator} {word()}{dice.one("", "", "", " more", " ")}'


def image_kind(dice: Dice, case: Case) -> None:
    """Images that want a kind of hypervisor, and hosts that have one."""
    archs = ('x86_64', 'i686', 'aarch64', 'i386', 'amd64', 'X86_64', 'x86_32')
    types = ('kvm', 'qemu', 'xen', 'KVM', 'xapi', 'vmware', 'baremetal', 'ironic', 'hyperv')
    modes = ('hvm', 'xen', 'exe', 'HVM', 'pv', 'hv', 'uml', 'baremetal')
    for host in case['hosts']:
        triples = [
            [dice.one(*archs[:3]), dice.one(*types[:3]), dice.one(*modes[:3])]
            for _ in range(dice.one(0, 1, 1, 2, 3))
        ]
        if dice.maybe(0.1):
            triples.append([dice.one(*archs), dice.one(*types), dice.one(*modes)])
        addresses = dice.one({'bits': 39}, {'bits': 46}, {}, {'mode': 'emulate'}, {'bits': 'x'})
        put(
            host, 'row',
            supported_instances=triples,
            hypervisor_version=dice.one(0, 6000000, 6000001, 8002000, 7000, 10002000000),
            cpu_info=dice.one('', None, {}, {'maxphysaddr': addresses}, {'maxphysaddr': addresses}, 'x'),
        )  # fmt: skip
    properties: dict[str, Any] = {}
    if dice.maybe(0.6):
        properties['hw_architecture'] = (
            dice.one(*archs[:3]) if dice.maybe(0.7) else dice.one(*archs)
        )
    if dice.maybe(0.6):
        properties['img_hv_type'] = dice.one(*types[:3]) if dice.maybe(0.7) else dice.one(*types)
    if dice.maybe(0.6):
        properties['hw_vm_mode'] = dice.one(*modes[:3]) if dice.maybe(0.7) else dice.one(*modes)
    if dice.maybe(0.5):
        properties['img_hv_requested_version'] = dice.one(
            '>=6.0', '>=6.0,<7', '==8.2.0', '!=8.2', '<7', '> 6.0.0 , <= 8.2', '<=10', '>=6.0.1', '>=8.2', '<6.0.1,>5',
        )  # fmt: skip
    if dice.maybe(0.3):
        properties['hw_maxphysaddr_bits'] = dice.one(39, 42, 46, 47)
    if dice.maybe(0.9):
        put(case, 'request', image={'properties': properties})
    if dice.maybe(0.3):
        arch = dice.one('x86_64', 'aarch64', 'i686')
        put(case, 'config', 'filter_scheduler', image_properties_default_architecture=arch)


def odd_versions(dice: Dice, case: Case) -> None:
    """An image whose hypervisor version is no condition."""
    if dice.maybe(0.05):
        odd = dice.one('>=x', '6.0', '>= 6.0 7', '', '=6.0', '>=6.0,', '>=8.bogus')
        put(case, 'request', 'image', 'properties', img_hv_requested_version=odd)


def metrics(dice: Dice, case: Case) -> None:
    """Metrics, and what weighs how much."""
    names = (
        'cpu.frequency',
        'cpu.user.percent',
        'cpu.percent',
        'numa.membw.current',
        'cpu.idle.time',
    )
    for host in case['hosts']:
        found = [
            {
                'name': name,
                'value': _metric(dice, name),
                'timestamp': '2026-11-21T12:00:00',
                'source': 'libvirt',
            }
            for name in dice.some(names, 4)
        ]
        put(host, 'row', metrics=dice.one(found, found, found, found, None, [], ''))
    ratios = ('1.0', '-1.0', '0', '2.5', '0.5', 'x', '', '1=2', ' 3')
    setting = [
        f'{dice.one(*names)}{dice.one("=", "=", "=", "")}{dice.one(*ratios)}'
        for _ in range(dice.randint(0, 3))
    ]
    put(
        case, 'config', 'metrics',
        weight_setting=[*setting, *dice.some(['=1.0', 'x', ''], 1)] if dice.maybe(0.2) else setting,
        required=dice.maybe(0.3), weight_of_unavailable=dice.one(-10000.0, 0.0, 5.0),
    )  # fmt: skip


def _metric(dice: Dice, name: str) -> float | int:
    return dice.one(0.0, 0.5, 0.123, 1.0) if name.endswith('percent') else dice.one(0, 1, 1000, -5)
