# SPDX-License-Identifier: Apache-2.0
"""Themes of sizes, workload and age: numbers near limits."""

from tests.parity.dice import Dice, Draft
from tests.parity.themes.abilities import a_metric


def sizes(dice: Dice, draft: Draft) -> None:
    """Resources of hosts, used resources, and the sizes of a flavor."""
    flavor = dice.each({
        'vcpus': (1, 2, 4, 8), 'memory_mb': (0, 512, 2048, 8192), 'root_gb': (0, 1, 20),
        'ephemeral_gb': (0, 0, 5), 'swap': (0, 0, 1, 1024),
    })  # fmt: skip
    draft.flavor(**flavor)
    vcpus = flavor['vcpus']
    ram = flavor['memory_mb']
    disk = flavor['root_gb'] + flavor['ephemeral_gb']
    for host in draft.hosts:
        cpus = dice.one(0, 2, 4, 8, 64)
        memory = dice.one(512, 8192, 65536)
        local = dice.one(1, 20, 100)
        host['row'] |= {
            'vcpus': cpus,
            'memory_mb': memory,
            'local_gb': local,
            **dice.each(
                {
                    'vcpus_used': (0, cpus, max(0, cpus - vcpus), 2 * cpus, 5),
                    'free_ram_mb': (memory, ram, ram - 1, -512, 0),
                    'local_gb_used': (0, local, 5),
                    'free_disk_gb': (local, disk, disk - 1, -3, 0),
                    'disk_available_least': (None, None, disk, local, -5, 1000),
                    'cpu_allocation_ratio': (None, 0.0, 1.0, 4.0, 16.0, 0.5),
                    'ram_allocation_ratio': (None, 0.0, 1.0, 1.5, 0.9),
                    'disk_allocation_ratio': (None, 0.0, 1.0, 2.0),
                }
            ),
        }
    for name in ('cpu', 'ram', 'disk'):
        ratio = f'{name}_allocation_ratio'
        ratios = {ratio: (1.0, 2.5, 8.0), f'initial_{ratio}': (1.0, 3.0)}
        draft.set('DEFAULT', **dice.each(ratios, 0.2))


def services(dice: Dice, draft: Draft) -> None:
    """Disabled, forced down, silent or new services."""
    down_time = dice.one(60, 60, 60, 5, 10, 30)
    if down_time != 60:
        draft.set('DEFAULT', service_down_time=down_time)
    for host in draft.hosts:
        edges = (-down_time, -down_time - 1, down_time, down_time + 1, 1 - down_time)
        seen = dice.one(-5, *edges, -86400)
        host['service'] |= {
            'disabled': dice.maybe(0.2),
            'forced_down': dice.maybe(0.2),
            'last_seen_up': None if dice.maybe(0.15) else seen,
            'updated_at': dice.one(None, seen, -5, -86400),
            'created_at': dice.one(-5, -86400),
            'disabled_reason': dice.one(None, None, 'AUTO: down', ''),
        }


def workload(dice: Dice, draft: Draft) -> None:
    """Statistics of hosts near limits."""
    io_ops = dice.one(0, 1, 8, 3)
    instances = dice.one(1, 50, 3)
    limits = {'max_io_ops_per_host': [io_ops], 'max_instances_per_host': [instances]}
    draft.set('filter_scheduler', **dice.each(limits, 0.5))
    for host in draft.hosts:
        stats = dice.each(
            {
                'io_workload': [dice.around(io_ops)],
                'num_instances': [dice.around(instances)],
                'failed_builds': (0, 0, 1, 7),
            },
            0.9,
        )
        if dice.maybe(0.3):
            stats = {name: str(number) for name, number in stats.items()}
        host['row']['stats'] = stats if dice.maybe(0.95) else {}


def versions(dice: Dice, draft: Draft) -> None:
    for host in draft.hosts:
        host['row']['hypervisor_version'] = dice.one(
            0, 1, 6000000, 8002000, 10002000000
        )


ODD_COLUMNS = {
    'stats': (
        None,
        '',
        'no JSON',
        '[1]',
        '5',
        {'num_instances': 'x'},
        {'io_workload': '1.5'},
        {'a': {'b': 1}},
        {'num_instances': None},
        {'failed_builds': 2.0},
        {'num_instances': True},
    ),
    'metrics': (
        None,
        '',
        'no JSON',
        '{}',
        '[5]',
        [{}],
        [{'name': 'cpu.percent', 'value': None}],
        [a_metric('cpu.frequency', 'x')],
        [a_metric('bogus', 1)],
    ),
    'supported_instances': (
        None,
        '',
        'no JSON',
        '{}',
        '[5]',
        [[]],
        [['x86_64']],
        [['z80', 'kvm', 'hvm']],
        [['x86_64', 'kvm', 'hvm', 'more']],
        [['x86_64', 'kvm', None]],
    ),
    'pci_stats': (None, '', 'no JSON', '{}', '[]', '[5]', [{'count': 1}]),
    'numa_topology': (None, '', 'no JSON', '{}', '[]'),
    'cpu_info': (None, '', 'no JSON'),
    'host_ip': (None, 'x'),
    'free_disk_gb': (None,),
    'uuid': (None,),
    'disk_available_least': (-1, 10**6),
    'cpu_allocation_ratio': (-1.0,),
}
"""Values of columns that no release of nova-compute writes."""


def odd_columns(dice: Dice, draft: Draft) -> None:
    for host in draft.hosts:
        host['row'] |= dice.few(ODD_COLUMNS, 1)


def odd_metrics(dice: Dice, draft: Draft) -> None:
    for host in draft.hosts:
        found = host['row'].get('metrics')
        if found and dice.maybe(0.03):
            found[0]['value'] = dice.one(None, 'x')
