# SPDX-License-Identifier: Apache-2.0
"""Themes of existing servers (groups, hints, earlier attempts, cells), and of hints
with a syntax: addresses and JSON queries."""

import json
from typing import Any

from tests.lab.builders import a_uuid, numbered_uuids
from tests.lab.descriptions import Case
from tests.parity.dice import Dice, Draft
from tests.parity.themes.capacity import sizes, workload

SERVERS = numbered_uuids('server', 6)
TENANTS = ['project', 'other', 'third']
POLICIES = ('affinity', 'anti-affinity', 'soft-affinity', 'soft-anti-affinity')


def servers(dice: Dice, draft: Draft) -> None:
    left = list(SERVERS)
    dice.shuffle(left)
    for host in draft.hosts:
        here = [left.pop() for _ in range(min(len(left), dice.one(0, 1, 2, 3)))]
        columns = {'instance_type_id': (1, 1, 2, None), 'project_id': TENANTS}
        host['instances'] = [{'uuid': uuid, **dice.each(columns)} for uuid in here]


def group(dice: Dice, draft: Draft) -> None:
    if dice.maybe(0.1):
        return
    policy = dice.one(*POLICIES) if dice.maybe(0.9) else dice.one(None, 'legacy', '')
    fields: Case = {
        'policy': policy,
        'policies': [policy] if policy else [],
        'members': dice.some(SERVERS, 6, 2),
        'hosts': dice.some(['host1', 'host2', 'host3', 'HOST1'], 2),
    }
    if dice.maybe(0.5):
        usual = ('0', '1', '2', '3', '3', ' 2', '-1')
        odd = ('x', '1.5', '')
        rules = {'max_server_per_host': dice.choice(usual if dice.maybe(0.95) else odd)}
        fields['_rules'] = dice.one(rules, rules, {}, {'x': 'y'})
    fields |= dice.each({name: (None, []) for name in ('members', 'hosts')}, 0.05)
    draft.ask(instance_group=fields, instance_uuid=dice.one(*SERVERS))


IMAGES_OF_SERVERS = {
    'os_distro': ('ubuntu', 'rhel'),
    'hw_architecture': ('x86_64', 'aarch64', 'amd64'),
    'hw_qemu_guest_agent': ('yes', 'True', 'no'),
    'hw_cpu_cores': ('1', '2', '02'),
    'hw_vif_model': ('virtio', 'e1000'),
    'trait:HW_CPU_X86_AVX': ('required',),
    'vm_mode': ('hvm', 'xen'),
    'hw_numa_cpus.0': ('0-1',),
    'os_type': ('linux', 'windows'),
    'base_image_ref': ('x',),
    'owner_id': ('a',),
}
"""Texts, as in the databases."""


def images_of_servers(dice: Dice, draft: Draft) -> None:
    """Images of existing servers, and a similar image."""
    for host in draft.hosts:
        for server in host.get('instances', ()):
            server['image'] = dice.few(IMAGES_OF_SERVERS, 4)
    like = {
        'os_distro': ('ubuntu', 'rhel'),
        'hw_architecture': ('x86_64', 'aarch64'),
        'hw_qemu_guest_agent': (True, False),
        'hw_cpu_cores': (1, 2),
        'hw_vif_model': ('virtio',),
        'traits_required': (['HW_CPU_X86_AVX'],),
        'hw_vm_mode': ('hvm',),
        'hw_numa_cpus': ([[0, 1]],),
        'os_type': ('linux',),
        'img_owner_id': ('a',),
    }
    if dice.maybe(0.95):
        draft.ask(image={'properties': dice.few(like, 5)})
    ratios = ('1.0', '-1.0', '0', '2.5', 'x', '')
    setting = []
    for _ in range(dice.one(0, 0, 2, 4)):
        name = dice.one(*like)
        setting.append(f'{name}={dice.one(*ratios)}')
    multiplier = {'image_props_weight_multiplier': dice.one(0.0, 1.0, 1.0, -1.0, 2.5)}
    draft.set('filter_scheduler', image_props_weight_setting=setting, **multiplier)


def hints_of_servers(dice: Dice, draft: Draft) -> None:
    """same_host and different_host, with existing and unknown servers."""
    for name in ('same_host', 'different_host'):
        if dice.maybe(0.6):
            draft.hint(
                **{name: dice.some([*SERVERS, a_uuid('nowhere'), '', 'no uuid'], 3)}
            )


def retries(dice: Dice, draft: Draft) -> None:
    for host in draft.hosts:
        if dice.maybe(0.3):
            host['node'] = dice.one('node1', 'node2')
    columns = {
        'host': ('host1', 'host2', 'HOST1', 'host3'),
        'hypervisor_hostname': ('host1', 'host2', 'node1', 'node2'),
    }
    nodes = [dice.each(columns) for _ in range(dice.randint(0, 4))]
    if dice.maybe(0.9):
        draft.ask(retry={'num_attempts': dice.one(1, 2), 'hosts': {'objects': nodes}})


def narrowed(dice: Dice, draft: Draft) -> None:
    """Hosts that the request forces, ignores or names; with or without a check type."""
    names = ['host1', 'HOST2', 'host2', 'host3', 'elsewhere']
    for field in ('force_hosts', 'force_nodes', 'ignore_hosts'):
        if dice.maybe(0.3):
            draft.ask(**{field: dice.some(names, 2)})
    if dice.maybe(0.3):
        table = {
            'host': ('host1', 'host2', 'HOST1'),
            'node': ('host1', 'host2', 'node1', None),
        }
        draft.ask(requested_destination=dice.each(table))
    if dice.maybe(0.2):
        draft.hint(_nova_check_type=dice.one(['rebuild'], ['live_migrate'], []))


def cells(dice: Dice, draft: Draft) -> None:
    for host in draft.hosts:
        host['cell'] = dice.one('cell1', 'cell2')
    if dice.maybe(0.9):
        destination: Case = {'allow_cross_cell_move': dice.maybe(0.7)}
        if dice.maybe(0.8):
            destination['cell'] = {'uuid': a_uuid(dice.one('cell1', 'cell2'))}
        draft.ask(requested_destination=destination)


ADDRESSES = (
    '192.0.2.1',
    '192.0.2.130',
    '192.0.3.1',
    '2001:db8::1',
    '2001:db8::ff',
    '10.0.0.1',
    None,
)
NEAR = ('192.0.2.1', '192.0.2.200', '2001:db8::1', '2001:db8::ffff', '192.0.3.77')
ODD_NEAR = (
    ['10.0.0.1', '10.0.0.2'],
    [],
    ['x'],
    ['300.0.0.1'],
    ['10'],
    ['192.0.2.1/25'],
    [''],
    ['192.0.2'],
    ['192.0.2.1 '],
    ['::ffff:192.0.2.1'],
    ['1'],
)
CIDRS = ('/24', '/25', '/32', '/0', '/16', '/64', '/120', '/255.255.255.0')
ODD_CIDRS = (
    ['24'], ['x'], [], ['/24', '/25'], [''], ['/33'], ['/-1'], ['/0.0.0.255'], ['/'],
    ['/ffff:ffff::'], ['/ffff:0:ffff::'], ['/255.0.255.0'], ['/024'],
)  # fmt: skip
ODD_HINTS = (
    'x',
    SERVERS[0],
    '',
    '["="]',
    5,
    None,
    True,
    {},
    {'a': 1},
    [None],
    [5],
    [0],
    [1.5],
    [False],
    [['x']],
    [['=', '$host', 'host1']],
    [{}],
    [{'a': 1}],
    ['', None],
    [SERVERS[0], 5],
    [SERVERS[0], ['x']],
)
ODD_QUERIES = (
    [],
    [''],
    ['no JSON'],
    ['[]'],
    ['{}'],
    ['5'],
    ['"x"'],
    ['null'],
    ['[1]'],
    ['["unknown", 1]'],
    ['["="]'],
    ['[["="]]'],
    ['{"a": 1}'],
    ['[[]]'],
    ['[null]'],
    ['true'],
)
ODD_TERMS: tuple[list[Any], ...] = (
    [], ['bogus', 1], ['not', 0, 1], ['or', '$unknown'], ['and', 'text'], ['='], [5, 5],
)  # fmt: skip
VARIABLES = (
    '$free_ram_mb',
    '$free_disk_mb',
    '$vcpus_total',
    '$vcpus_used',
    '$total_usable_ram_mb',
    '$num_instances',
    '$num_io_ops',
    '$hypervisor_type',
    '$hypervisor_hostname',
    '$host',
    '$stats.num_instances',
    '$stats.unknown',
    '$unknown',
    '$',
    '$stats',
    '$free_ram_mb.x',
    '$service.disabled',
    '$cpu_info',
    '$host_ip',
    '$service.host',
    '$service.version',
    '$service.disabled_reason',
    '$service.unknown',
    '$service',
    '$uuid',
    '$cell_uuid',
    '$aggregates',
    '$instances',
    '$metrics',
    '$supported_instances',
    '$failed_builds',
    '$disk_mb_used',
    '$cpu_allocation_ratio',
    '$nodename',
    '$hypervisor_version',
    '$instances.x',
    '$aggregates.x',
    '$metrics.x',
)
"""The first ten variables are usual."""
INTERNAL_VARIABLES = (
    '$service.up',
    '$service.binary',
    '$service.forced_down',
    '$service.id',
    '$limits',
    '$updated',
    '$update',
    '$numa_topology',
    '$pci_stats',
    '$__class__',
    '$allocation_candidates',
)


def addresses(dice: Dice, draft: Draft) -> None:
    for host in draft.hosts:
        host['row']['host_ip'] = dice.one(*ADDRESSES)
    near = [dice.one(*NEAR)]
    cidr = [dice.one(*CIDRS)]
    if dice.maybe(0.2):
        near = dice.one(*ODD_NEAR)
    if dice.maybe(0.2):
        cidr = dice.one(*ODD_CIDRS)
    if dice.maybe(0.85):
        draft.hint(build_near_host_ip=near)
    if dice.maybe(0.7):
        draft.hint(cidr=cidr)


def odd_hints(dice: Dice, draft: Draft) -> None:
    """Now and then a hint of a type that the API refuses."""
    if dice.maybe(0.95):
        return
    given = draft.request.get('scheduler_hints')
    name = dice.one(*given) if given else 'unknown'
    draft.hint(**{name: dice.one(*ODD_HINTS)})


def query(dice: Dice, draft: Draft) -> None:
    sizes(dice, draft)
    workload(dice, draft)
    if dice.maybe(0.05):
        hint = dice.one(*ODD_QUERIES)
    elif dice.maybe(0.01):
        hint = [json.dumps([dice.one('=', '<', 'in'), '$host_ip', '192.0.2.1'])]
    else:
        hint = [json.dumps(_term(dice, 3))]
    if dice.maybe(0.95):
        draft.hint(query=hint)


def _term(dice: Dice, depth: int) -> list[Any]:
    if depth and dice.maybe(0.4):
        joined = [_term(dice, depth - 1) for _ in range(dice.one(0, 1, 1, 2, 2, 3))]
        return [dice.one('not', 'or', 'and'), *joined]
    if dice.maybe(0.03):
        return dice.choice(ODD_TERMS)
    operator = dice.one('=', '<', '>', 'in', '<=', '>=')
    return [operator, *(_operand(dice) for _ in range(dice.one(1, 2, 2, 2, 3)))]


def _operand(dice: Dice) -> Any:
    if dice.maybe(0.01):
        return dice.one(*INTERNAL_VARIABLES)
    if dice.maybe(0.55):
        if dice.maybe(0.4):
            return dice.one(*VARIABLES)
        return dice.one(*VARIABLES[:10])
    if dice.maybe(0.8):
        return dice.one(0, 1, 8, 512, 8192, 4.5, 'QEMU', 'host1', -1)
    return dice.one(None, '', True, False, 'x', '8', {'a': 1}, [], [1, 2])
