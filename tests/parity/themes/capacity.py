# SPDX-License-Identifier: Apache-2.0
"""Sizes, workload, age: numbers, with limits near them."""

from __future__ import annotations

from tests.lab.descriptions import Case
from tests.parity.dice import Dice, put


def sizes(dice: Dice, case: Case) -> None:
    """What hosts have, what of it is in use, and what a flavor wants."""
    flavor = {
        'vcpus': dice.one(1, 2, 4, 8), 'memory_mb': dice.one(0, 512, 2048, 8192),
        'root_gb': dice.one(0, 1, 20), 'ephemeral_gb': dice.one(0, 0, 5), 'swap': dice.one(0, 0, 1, 1024),
    }  # fmt: skip
    put(case, 'request', 'flavor', **flavor)
    disk_gb = flavor['root_gb'] + flavor['ephemeral_gb']
    for host in case['hosts']:
        vcpus, ram, disk = (
            dice.one(0, 2, 4, 8, 64),
            dice.one(512, 8192, 65536),
            dice.one(1, 20, 100),
        )
        put(
            host, 'row',
            vcpus=vcpus, vcpus_used=dice.one(0, vcpus, max(0, vcpus - flavor['vcpus']), 2 * vcpus, 5),
            memory_mb=ram, free_ram_mb=dice.one(ram, flavor['memory_mb'], flavor['memory_mb'] - 1, -512, 0),
            local_gb=disk, local_gb_used=dice.one(0, disk, 5),
            free_disk_gb=dice.one(disk, disk_gb, disk_gb - 1, -3, 0),
            disk_available_least=dice.one(None, None, disk_gb, disk, -5, 1000),
            cpu_allocation_ratio=dice.one(None, 0.0, 1.0, 4.0, 16.0, 0.5),
            ram_allocation_ratio=dice.one(None, 0.0, 1.0, 1.5, 0.9),
            disk_allocation_ratio=dice.one(None, 0.0, 1.0, 2.0),
        )  # fmt: skip
    for name in ('cpu', 'ram', 'disk'):
        if dice.maybe(0.2):
            put(case, 'config', 'DEFAULT', **{f'{name}_allocation_ratio': dice.one(1.0, 2.5, 8.0)})
        if dice.maybe(0.2):
            put(
                case,
                'config',
                'DEFAULT',
                **{f'initial_{name}_allocation_ratio': dice.one(1.0, 3.0)},
            )


def services(dice: Dice, case: Case) -> None:
    """Disabled, forced down, silent or new services."""
    down_time = dice.one(60, 60, 60, 5, 10, 30)
    if down_time != 60:
        put(case, 'config', 'DEFAULT', service_down_time=down_time)
    for host in case['hosts']:
        seen = dice.one(
            -5, -down_time, -down_time - 1, down_time, down_time + 1, 1 - down_time, -86400
        )
        put(
            host, 'service',
            disabled=dice.maybe(0.2), forced_down=dice.maybe(0.2),
            last_seen_up=None if dice.maybe(0.15) else seen,
            updated_at=dice.one(None, seen, -5, -86400), created_at=dice.one(-5, -86400),
            disabled_reason=dice.one(None, None, 'AUTO: down', ''),
        )  # fmt: skip


def workload(dice: Dice, case: Case) -> None:
    """What the host's statistics count, with limits near it."""
    io_ops, instances = dice.one(0, 1, 8, 3), dice.one(1, 50, 3)
    if dice.maybe():
        put(case, 'config', 'filter_scheduler', max_io_ops_per_host=io_ops)
    if dice.maybe():
        put(case, 'config', 'filter_scheduler', max_instances_per_host=instances)
    for host in case['hosts']:
        stats = {
            'io_workload': dice.around(io_ops),
            'num_instances': dice.around(instances),
            'failed_builds': dice.one(0, 0, 1, 7),
        }
        as_text = dice.maybe(0.3)
        chosen = {name: str(n) if as_text else n for name, n in stats.items() if dice.maybe(0.9)}
        put(host, 'row', stats=chosen if dice.maybe(0.95) else {})


def versions(dice: Dice, case: Case) -> None:
    for host in case['hosts']:
        put(host, 'row', hypervisor_version=dice.one(0, 1, 6000000, 8002000, 10002000000))


def odd_columns(dice: Dice, case: Case) -> None:
    """Columns that hold what no release of nova-compute writes."""
    odd = {
        'stats': (None, '', 'no JSON', '[1]', '5', {'num_instances': 'x'}, {'io_workload': '1.5'}, {'a': {'b': 1}},
                  {'num_instances': None}, {'failed_builds': 2.0}, {'num_instances': True}),
        'metrics': (None, '', 'no JSON', '{}', '[5]', [{}], [{'name': 'cpu.percent', 'value': None}],
                    [{'name': 'cpu.frequency', 'value': 'x', 'timestamp': '2026-11-21T12:00:00', 'source': 's'}],
                    [{'name': 'bogus', 'value': 1, 'timestamp': '2026-11-21T12:00:00', 'source': 's'}]),
        'supported_instances': (None, '', 'no JSON', '{}', '[5]', [[]], [['x86_64']], [['z80', 'kvm', 'hvm']],
                                [['x86_64', 'kvm', 'hvm', 'more']], [['x86_64', 'kvm', None]]),
        'pci_stats': (None, '', 'no JSON', '{}', '[]', '[5]', [{'count': 1}]),
        'numa_topology': (None, '', 'no JSON', '{}', '[]'),
        'cpu_info': (None, '', 'no JSON'), 'host_ip': (None, 'x'), 'free_disk_gb': (None,), 'uuid': (None,),
        'disk_available_least': (-1, 10**6), 'cpu_allocation_ratio': (-1.0,),
    }  # fmt: skip
    for host in case['hosts']:
        for name in dice.some(list(odd), 1):
            put(host, 'row', **{name: dice.choice(odd[name])})


def odd_metrics(dice: Dice, case: Case) -> None:
    for host in case['hosts']:
        found = host.get('row', {}).get('metrics')
        if found and dice.maybe(0.03):
            found[0]['value'] = dice.one(None, 'x')
