# SPDX-License-Identifier: Apache-2.0
"""Themes of capabilities, kinds of hypervisors and metrics of hosts."""

import json
from typing import Any

from tests.parity.dice import Dice, Draft

PATHS = (
    'free_ram_mb',
    'vcpus_total',
    'hypervisor_type',
    'hypervisor_version',
    'host',
    'nodename',
    'arch',
    'free',
    'io_workload',
    'nested',
    'none',
    'unknown',
    'num_instances',
    'host_ip',
    'disk_mb_used',
    'cpu_allocation_ratio',
    'stats',
    'failed_builds',
    'supported_instances',
    'cpu_info:vendor',
    'cpu_info:features',
    'cpu_info:topology:cores',
    'cpu_info:topology',
    'cpu_info:unknown',
    'cpu_info',
    'nested:a',
    'nested:a:b',
    'stats:arch',
    'stats:nested:a',
    'unknown:x',
    'free_ram_mb:x',
    'supported_instances:0',
    '',
    'cpu_info:',
    ':',
)
INTERNAL_PATHS = (
    'updated',
    'limits',
    'aggregates',
    'instances',
    'service',
    'metrics',
    'numa_topology',
    'pci_stats',
    'cell_uuid',
    'uuid',
    'allocation_candidates',
    'update',
    '__class__',
    '_lock_name',
)
SCOPES = (
    'capabilities:',
    'capabilities:',
    '',
    '',
    'trait:',
    'hw:',
    'aggregate_instance_extra_specs:',
)
OPERATORS = (
    '=',
    '==',
    '!=',
    '>=',
    '<=',
    's==',
    's!=',
    's<',
    's<=',
    's>',
    's>=',
    '<in>',
    '<all-in>',
    '<or>',
)
WORDS = (
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
METRICS = (
    'cpu.frequency',
    'cpu.user.percent',
    'cpu.percent',
    'numa.membw.current',
    'cpu.idle.time',
)
KINDS = {
    'hw_architecture': (
        'x86_64',
        'i686',
        'aarch64',
        'i386',
        'amd64',
        'X86_64',
        'x86_32',
    ),
    'img_hv_type': (
        'kvm',
        'qemu',
        'xen',
        'KVM',
        'xapi',
        'vmware',
        'baremetal',
        'ironic',
        'hyperv',
    ),
    'hw_vm_mode': ('hvm', 'xen', 'exe', 'HVM', 'pv', 'hv', 'uml', 'baremetal'),
}
"""Options by name. The first three options of a row are usual."""


def capabilities(dice: Dice, draft: Draft) -> None:
    """Extra specs, and hosts with capabilities."""
    for host in draft.hosts:
        cpu_info = {
            'arch': 'x86_64',
            **dice.each(
                {
                    'vendor': ('Intel', 'AMD', ''),
                    'features': (['avx', 'avx2', 'vmx'], ['avx'], [], 'avx'),
                    'topology': ({'cores': 4, 'sockets': 2}, {'cores': '8'}, None),
                }
            ),
        }
        if dice.maybe(0.6):
            bits = {'mode': 'emulate', 'bits': dice.one(39, 42, 46)}
            cpu_info['maxphysaddr'] = dice.one(bits, {}, 'x', None, {'bits': None})
        stats = {
            'io_workload': 1,
            'arch': dice.one('x86_64', 'arm'),
            'free': dice.number_text(0.3),
            'none': None,
            'nested': json.dumps({'a': dice.one(1, '2', None, {'b': 3}, [1, 2])}),
        }
        host['row'] |= dice.each(
            {
                'cpu_info': (
                    *[cpu_info] * 3,
                    '',
                    None,
                    '{}',
                    'no JSON',
                    '[1]',
                    '5',
                    '"x"',
                ),
                'stats': (*[stats] * 3, {}, {'free_ram_mb': '7', 'arch': 'shadow'}),
                'hypervisor_version': (8002000, 1, 0),
                'hypervisor_type': ('QEMU', 'VMware', ''),
                'host_ip': ('192.0.2.1', None),
            }
        )
    for _ in range(dice.one(1, 1, 1, 2, 3)):
        path = dice.one(*INTERNAL_PATHS) if dice.maybe(0.05) else dice.one(*PATHS)
        draft.extra_specs({dice.one(*SCOPES) + path: requirement(dice)})
    if dice.maybe(0.02):
        name = dice.one('metrics', 'service')
        wanted = dice.one('[]', 's== []', '<in> (', '<in> {')
        draft.flavor(extra_specs={f'capabilities:{name}': wanted})
    if dice.maybe(0.3):
        bits = dice.one('39', '42', '43', '46', 'x', '', '= 42', ' 42')
        draft.extra_specs({'hw:maxphysaddr_bits': bits})


def requirement(dice: Dice) -> str:
    """The value of an extra spec: an operator, used correctly or not."""
    word = lambda: dice.one(*WORDS) if dice.maybe(0.75) else dice.number_text(0.4)  # noqa: E731
    operator = dice.one(*OPERATORS)
    if dice.maybe(0.15):
        odd = (
            '',
            ' ',
            '> 5',
            '< 5',
            '<>',
            '=5',
            '>=5',
            'a b',
            operator,
            f' {operator} ',
        )
        return dice.one(word(), *odd)
    if operator == '<or>':
        parts = ' <or> '.join(word() for _ in range(dice.randint(1, 3)))
        return f'<or> {parts}' + dice.one('', '', ' <or>', ' more')
    if operator == '<all-in>':
        return ' '.join([operator, *(word() for _ in range(dice.randint(0, 3)))])
    return f'{dice.one("", "", " ")}{operator} {word()}{dice.one("", "", "", " more", " ")}'


def image_kind(dice: Dice, draft: Draft) -> None:
    """Images for a kind of hypervisor, and hosts with hypervisors."""
    for host in draft.hosts:
        usual = dice.one(0, 1, 1, 2, 3)
        kinds = []
        for _ in range(usual):
            kinds.append([dice.one(*each[:3]) for each in KINDS.values()])
        if dice.maybe(0.1):
            kinds.append([dice.one(*each) for each in KINDS.values()])
        bits = dice.one(
            {'bits': 39}, {'bits': 46}, {}, {'mode': 'emulate'}, {'bits': 'x'}
        )
        host['row'] |= {'supported_instances': kinds} | dice.each(
            {
                'hypervisor_version': (0, 6000000, 6000001, 8002000, 7000, 10002000000),
                'cpu_info': (
                    '',
                    None,
                    {},
                    {'maxphysaddr': bits},
                    {'maxphysaddr': bits},
                    'x',
                ),
            }
        )
    properties = {}
    for name, values in KINDS.items():
        if not dice.maybe(0.6):
            continue
        if dice.maybe(0.7):
            properties[name] = dice.one(*values[:3])
        else:
            properties[name] = dice.one(*values)
    properties |= dice.each(
        {
            'img_hv_requested_version': (
                '>=6.0',
                '>=6.0,<7',
                '==8.2.0',
                '!=8.2',
                '<7',
                '> 6.0.0 , <= 8.2',
                '<=10',
                '>=6.0.1',
                '>=8.2',
                '<6.0.1,>5',
            )
        },
        0.5,
    )
    properties |= dice.each({'hw_maxphysaddr_bits': (39, 42, 46, 47)}, 0.3)
    if dice.maybe(0.9):
        draft.ask(image={'properties': properties})
    if dice.maybe(0.3):
        arch = dice.one('x86_64', 'aarch64', 'i686')
        draft.set('filter_scheduler', image_properties_default_architecture=arch)


def odd_versions(dice: Dice, draft: Draft) -> None:
    """An image whose hypervisor version is an invalid condition."""
    if dice.maybe(0.05):
        odd = dice.one('>=x', '6.0', '>= 6.0 7', '', '=6.0', '>=6.0,', '>=8.bogus')
        draft.image(img_hv_requested_version=odd)


def metrics(dice: Dice, draft: Draft) -> None:
    """Metrics of hosts, and their weights in the configuration."""
    for host in draft.hosts:
        found = [_metric(dice, name) for name in dice.some(METRICS, 4)]
        host['row']['metrics'] = dice.one(*[found] * 4, None, [], '')
    ratios = ('1.0', '-1.0', '0', '2.5', '0.5', 'x', '', '1=2', ' 3')
    setting = []
    for _ in range(dice.randint(0, 3)):
        metric = dice.one(*METRICS)
        sign = dice.one('=', '=', '=', '')
        setting.append(f'{metric}{sign}{dice.one(*ratios)}')
    if dice.maybe(0.2):
        setting += dice.some(['=1.0', 'x', ''], 1)
    required = dice.maybe(0.3)
    weight = dice.one(-10000.0, 0.0, 5.0)
    draft.set(
        'metrics',
        weight_setting=setting,
        required=required,
        weight_of_unavailable=weight,
    )


def _metric(dice: Dice, name: str) -> dict[str, Any]:
    percent = name.endswith('percent')
    value = dice.one(0.0, 0.5, 0.123, 1.0) if percent else dice.one(0, 1, 1000, -5)
    return a_metric(name, value)


def a_metric(name: str, value: float | str) -> dict[str, Any]:
    """A metric in the form of nova-compute's report."""
    return {
        'name': name,
        'value': value,
        'timestamp': '2026-11-21T12:00:00',
        'source': 'libvirt',
    }
