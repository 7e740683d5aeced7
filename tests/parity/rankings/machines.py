# SPDX-License-Identifier: Apache-2.0
"""Random compute hosts, with NUMA cells, PCI devices and other resource providers.

Sizes are such that two hosts practically never weigh the same: nova's order of equals is
that of a set, another one in each process.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from tests.lab.compute_rows import Compute, Row, now
from tests.lab.wire import primitive
from tests.parity import numa_cases
from tests.parity.dice import Dice
from tests.parity.rankings.words import (
    BANDWIDTH,
    CELLS,
    DEVICE,
    DOWN_TIME,
    METRICS,
    PCI_PRODUCTS,
    PCI_VENDOR,
    TRAITS,
    pci_class,
)

OLD_VERSION = 72
"""Of a nova-compute that does not mark its providers as nova's."""


@dataclass(frozen=True)
class Child:
    """A resource provider below a machine's."""

    uuid: str
    inventory: dict[str, Any]
    traits: list[str]


@dataclass(frozen=True)
class Machine(Compute):
    """A compute host whose service and inventory need not be the usual ones."""

    service: Row = field(default_factory=dict)
    inventory: dict[str, Any] = field(default_factory=dict)
    children: list[Child] = field(default_factory=list)

    def inventories(self) -> dict[str, dict[str, Any]]:
        """What Placement knows of it; an inventory of None is not there."""
        return {k: v for k, v in {**super().inventories(), **self.inventory}.items() if v}

    def service_row(self, version: int) -> Row:
        """The row in services of its nova-compute."""
        return {**super().service_row(version), 'disabled_reason': None, **self.service}


def a_machine(dice: Dice, number: int, may_lack_disk: bool = False) -> Machine:
    """One of any size, with a few faults."""
    disk_gb, used_gb = dice.randint(60, 900), dice.randint(0, 40)
    traits = tuple(trait for trait in TRAITS if dice.maybe(0.93))
    service = _service(dice)
    if service.get('disabled') and dice.maybe():
        traits += ('COMPUTE_STATUS_DISABLED',)
    pools, providers = cards(dice, dice.one(0, 1, 2, 3), reported=dice.maybe(0.85))
    return Machine(
        f'host{number:02}',
        dice.one(*CELLS),
        vcpus=dice.randint(6, 40),
        ram_mb=dice.randint(8192, 65536),
        disk_gb=disk_gb,
        cpu_ratio=dice.one(1.0, 2.0, 4.0, 16.0),
        ram_ratio=dice.one(1.0, 1.0, 1.5),
        disk_ratio=dice.one(1.0, 1.0, 2.0),
        traits=traits,
        uuid=dice.uuid(),
        columns={
            'hypervisor_type': dice.one(*['QEMU'] * 5, 'VMware'),
            'hypervisor_version': dice.one(6002000, 8002000, 8002000, 9000001),
            'host_ip': f'10.0.{dice.randint(1, 3)}.{number + 1}',
            'local_gb_used': used_gb,
            'free_disk_gb': disk_gb - used_gb,
            'disk_available_least': disk_gb - used_gb - dice.randint(-9, 9),
            'cpu_info': json.dumps(_cpu_info(dice)),
            'supported_instances': json.dumps(_supported(dice)),
            'metrics': dice.one(*[json.dumps(_metrics(dice))] * 30, '[]', None),
            'numa_topology': _cells(dice) if dice.maybe(0.8) else None,
            'pci_stats': pools,
        },
        service=service,
        inventory=_inventory(dice, may_lack_disk),
        children=[*providers, *_devices(dice)],
    )  # fmt: skip


def _inventory(dice: Dice, may_lack_disk: bool) -> dict[str, Any]:
    """Beside or instead of the usual one."""
    found: dict[str, Any] = {}
    if dice.maybe(0.7):
        found['PCPU'] = {'total': dice.randint(4, 16)}
    if dice.maybe(0.3):
        found['MEM_ENCRYPTION_CONTEXT'] = {'total': 3}
    if may_lack_disk and dice.maybe(0.2):
        found['DISK_GB'] = None
    return found


def _service(dice: Dice) -> Row:
    heard = now()
    silent = heard - timedelta(seconds=DOWN_TIME + 100)
    return dice.one(
        *[{}] * 40,
        {'disabled': True, 'disabled_reason': 'maintenance'}, {'disabled': True, 'disabled_reason': 'AUTO: x'},
        {'forced_down': True}, {'last_seen_up': silent}, {'deleted': 1}, {'version': OLD_VERSION},
        {'last_seen_up': None, 'updated_at': heard},
        {'last_seen_up': None, 'updated_at': None, 'created_at': silent},
    )  # fmt: skip


def _cpu_info(dice: Dice) -> Row:
    return {
        'arch': 'x86_64', 'model': 'Broadwell', 'vendor': dice.one('Intel', 'Intel', 'AMD'),
        'topology': {'sockets': 2, 'cores': dice.one(4, 8), 'threads': 1},
        'features': dice.some(('sse', 'avx', 'aes', 'vmx'), 4, 2),
        'maxphysaddr': dice.one({'mode': 'emulate', 'bits': dice.one(39, 42, 46)}, {}),
    }  # fmt: skip


def _supported(dice: Dice) -> list[list[str]]:
    kinds = (['x86_64', 'kvm', 'hvm'], ['i686', 'kvm', 'hvm'], ['x86_64', 'xen', 'xen'])
    return dice.some(kinds, 3, 1) if dice.maybe(0.95) else []


def _metrics(dice: Dice) -> list[Row]:
    names = [name for name in METRICS if dice.maybe(0.97)]
    values = {
        name: dice.random() if name.endswith('percent') else dice.randint(1, 999) for name in names
    }
    return [
        {'name': name, 'value': value, 'timestamp': '2026-11-21T12:00:00', 'source': 'libvirt'}
        for name, value in values.items()
    ]


def _devices(dice: Dice) -> list[Child]:
    """Devices and network cards, as some machines have them."""
    found = []
    for _ in range(dice.one(0, 0, 0, 1, 2)):
        traits = [trait for trait in ('CUSTOM_GOLD', 'CUSTOM_SILVER') if dice.maybe()]
        inventory = {DEVICE: {'total': dice.randint(1, 4)}}
        found.append(Child(dice.uuid(), inventory, [*traits, 'OWNER_NOVA']))
    if dice.maybe(0.25):
        found.append(Child(dice.uuid(), {BANDWIDTH: {'total': 10000}}, ['CUSTOM_PHYSNET_A']))
    return found


def _cells(dice: Dice) -> str:
    """NUMA cells. Where pages are not counted nova cannot keep account of a guest."""
    return numa_cases.host(dice, dice.one(1, 2, 2, 4), networks=dice.maybe(), counted=1.0)


def cards(dice: Dice, number: int, reported: bool) -> tuple[str, list[Child]]:
    """PCI devices of so many cards: what compute_nodes.pci_stats holds, and their providers
    where nova-compute reports them."""
    pools, providers = [], []
    for _ in range(number):
        product, count = dice.choice(PCI_PRODUCTS), dice.one(1, 1, 2, 3)
        tags = {'dev_type': dice.one('type-PCI', 'type-VF')}
        if reported:
            traits = [trait for trait in ('CUSTOM_GOLD', 'CUSTOM_SILVER') if dice.maybe()]
            card = Child(dice.uuid(), {pci_class(product): {'total': count}}, traits)
            providers.append(card)
            tags['rp_uuid'] = card.uuid
        pool = {'vendor_id': PCI_VENDOR, 'product_id': product, 'numa_node': dice.one(None, 0, 1)}
        pools.append(primitive('PciDevicePool', '1.1', **pool, count=count, tags=tags))
    return json.dumps(primitive('PciDevicePoolList', '1.1', objects=pools)), providers
