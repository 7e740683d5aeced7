# SPDX-License-Identifier: Apache-2.0
"""A random cloud: hosts, aggregates and servers, put into databases and Placement.

Sizes are such that two hosts practically never weigh the same: nova's order of equals is
that of a set, another one in each process.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from tests.functional.compute_rows import Compute, Flavor, Row, now
from tests.functional.nova_cloud import COMPUTE_TRAITS, Database, NovaCloud
from tests.parity.dice import Dice
from tests.parity.rankings_words import (
    BANDWIDTH,
    DEVICE,
    DOWN_TIME,
    FLAVORS,
    METRICS,
    PROJECTS,
    PROPERTIES,
    TRAITS,
    ZONES,
)

SMALL = Flavor(vcpus=1, ram_mb=512, disk_gb=5)
OLD_VERSION = 72
"""Of a nova-compute that does not mark its providers as nova's."""
SHARING = 'MISC_SHARES_VIA_AGGREGATE'
CELLS = ('cell1', 'cell2')
SYSTEM_METADATA = 'instance_system_metadata'


@dataclass(frozen=True)
class Machine(Compute):
    """A compute host whose service and inventory need not be the usual ones."""

    service: Row = field(default_factory=dict)
    inventory: dict[str, Any] = field(default_factory=dict)

    def inventories(self) -> dict[str, dict[str, Any]]:
        """What Placement knows of it; an inventory of None is not there."""
        return {k: v for k, v in {**super().inventories(), **self.inventory}.items() if v}

    def service_row(self, version: int) -> Row:
        """The row in services of its nova-compute."""
        return {**super().service_row(version), 'disabled_reason': None, **self.service}


@dataclass(frozen=True)
class Server:
    """A server that runs somewhere, and what it has in Placement."""

    uuid: str
    host: str
    project: str
    image: Mapping[str, Any] = field(default_factory=dict)
    held: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Aggregate:
    """A host aggregate, made or to be made."""

    name: str
    hosts: list[str]
    metadata: dict[str, str]
    zone: str | None = None


@dataclass(frozen=True)
class Child:
    """A resource provider below a machine's."""

    parent: Machine
    inventory: dict[str, Any]
    traits: list[str]


@dataclass
class World:
    """What requests may speak of; servers are added as they are placed."""

    machines: list[Machine]
    nodes: list[Machine]
    """More nodes of the first machine's nova-compute."""
    aggregates: list[Aggregate]
    servers: list[Server]
    children: list[Child]
    on_shared_disk: list[Machine]
    disabled_cell: str | None = None
    cells: dict[str, str] = field(default_factory=dict)
    """UUIDs by name."""
    aggregate_uuids: list[str] = field(default_factory=list)

    @property
    def hosts(self) -> list[str]:
        """The names of all hosts."""
        return [machine.name for machine in self.machines]


def new_uuid(dice: Dice) -> str:
    """The next UUID of these dice."""
    return str(uuid.UUID(int=dice.getrandbits(128), version=4))


def a_world(dice: Dice, size: int) -> World:
    """So many hosts in two cells, in aggregates, with servers on them."""
    shared = dice.maybe(0.5)
    machines = [_machine(dice, number, shared) for number in range(size)]
    nodes = [_machine(dice, number) for number in (90, 91)] if dice.maybe(0.4) else []
    return World(
        machines=machines,
        nodes=nodes,
        aggregates=_aggregates(dice, [each.name for each in machines]),
        servers=[
            _server(dice, dice.choice(machines)) for _ in range(dice.randint(size // 2, size))
        ],
        children=[child for each in machines if dice.maybe(0.5) for child in _children(dice, each)],
        on_shared_disk=[each for each in machines if 'DISK_GB' in each.inventory],
        disabled_cell=dice.choice(CELLS) if dice.maybe(0.15) else None,
    )


def _machine(dice: Dice, number: int, may_lack_disk: bool = False) -> Machine:
    vcpus, disk_gb = dice.randint(6, 40), dice.randint(60, 900)
    used_gb = dice.randint(0, 40)
    inventory: dict[str, Any] = {}
    if dice.maybe(0.5):
        inventory['PCPU'] = {'total': dice.randint(2, 12)}
    if dice.maybe(0.3):
        inventory['MEM_ENCRYPTION_CONTEXT'] = {'total': 3}
    if may_lack_disk and dice.maybe(0.2):
        inventory['DISK_GB'] = None
    traits = tuple(trait for trait in TRAITS if dice.maybe(0.85))
    service = _service(dice)
    if service.get('disabled') and dice.maybe():
        traits += ('COMPUTE_STATUS_DISABLED',)
    return Machine(
        f'host{number:02}',
        dice.one(*CELLS),
        vcpus=vcpus,
        ram_mb=dice.randint(8192, 65536),
        disk_gb=disk_gb,
        cpu_ratio=dice.one(1.0, 2.0, 4.0, 16.0),
        ram_ratio=dice.one(1.0, 1.0, 1.5),
        disk_ratio=dice.one(1.0, 1.0, 2.0),
        traits=traits,
        uuid=new_uuid(dice),
        columns={
            'hypervisor_type': dice.one('QEMU', 'QEMU', 'QEMU', 'VMware'),
            'hypervisor_version': dice.one(6002000, 8002000, 8002000, 9000001),
            'host_ip': f'10.0.{dice.randint(1, 3)}.{number + 1}',
            'local_gb_used': used_gb,
            'free_disk_gb': disk_gb - used_gb,
            'disk_available_least': disk_gb - used_gb - dice.randint(-9, 9),
            'cpu_info': json.dumps(_cpu_info(dice)),
            'supported_instances': json.dumps(_supported(dice)),
            'metrics': dice.one(*[json.dumps(_metrics(dice))] * 12, '[]', None),
        },
        service=service,
        inventory=inventory,
    )


def _service(dice: Dice) -> Row:
    heard = now()
    silent = heard - timedelta(seconds=DOWN_TIME + 100)
    return dice.one(
        *[{}] * 20,
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
    names = [name for name in METRICS if dice.maybe(0.95)]
    values = {
        name: dice.random() if name.endswith('percent') else dice.randint(1, 999) for name in names
    }
    return [
        {'name': name, 'value': value, 'timestamp': '2026-11-21T12:00:00', 'source': 'libvirt'}
        for name, value in values.items()
    ]


def _children(dice: Dice, parent: Machine) -> list[Child]:
    """Devices and network cards, as some machines have them."""
    found = []
    for _ in range(dice.randint(0, 2)):
        traits = [trait for trait in ('CUSTOM_GOLD', 'CUSTOM_SILVER') if dice.maybe()]
        found.append(
            Child(parent, {DEVICE: {'total': dice.randint(1, 4)}}, [*traits, 'OWNER_NOVA'])
        )
    if dice.maybe():
        found.append(Child(parent, {BANDWIDTH: {'total': 10000}}, ['CUSTOM_PHYSNET_A']))
    return found


def _server(dice: Dice, machine: Machine) -> Server:
    image = {name: dice.choice(PROPERTIES[name]) for name in dice.some(list(PROPERTIES), 4)}
    resources = {'VCPU': 1, 'MEMORY_MB': 256}
    held = {machine.uuid: resources} if dice.maybe(0.4) else {}
    return Server(new_uuid(dice), machine.name, dice.choice(PROJECTS), image, held)


def _aggregates(dice: Dice, hosts: list[str]) -> list[Aggregate]:
    in_zones = dice.sample(hosts, len(hosts) * 2 // 3)
    half = len(in_zones) // 2
    found = [
        Aggregate('zone1', in_zones[:half], {}, ZONES[0]),
        Aggregate('zone2', in_zones[half:], {}, ZONES[1]),
        Aggregate('more of zone1', dice.some(in_zones[:half], 3, 1), {'rack': '2'}, ZONES[0]),
        *(
            Aggregate(f'of {each}', dice.some(hosts, 14, 6), {'filter_tenant_id': each})
            for each in PROJECTS[:2]
        ),
        Aggregate(
            'racks', dice.some(hosts, 16, 8), {'ssd': 'true', 'rack': dice.one('1', '4', '9')}
        ),
    ]
    for number in range(dice.randint(4, 8)):
        name, metadata = f'aggregate{number}', dice.choice(METADATA)(dice)
        found.append(Aggregate(name, dice.some(hosts, 8, 2), metadata))
    return found


METADATA = (
    lambda dice: {'filter_tenant_id2': dice.choice(PROJECTS)},
    lambda dice: {'os_distro': dice.joined(('ubuntu', 'rhel')), 'os_type': 'linux'},
    lambda dice: {'rack': dice.one('3', '7'), 'ssd': dice.one('true', 'false,true'), 'cpu': dice.joined(('avx', 'sse'))},
    lambda dice: {'instance_type': dice.joined(FLAVORS)},
    lambda dice: {'max_io_ops_per_host': dice.number_text(), 'max_instances_per_host': dice.number_text()},
    lambda dice: {'trait:CUSTOM_GOLD': 'required'},
    lambda dice: {'trait:CUSTOM_SILVER': dice.one('required', 'forbidden'), 'trait:X': 'no'},
    lambda dice: {
        f'{name}_weight_multiplier': dice.one('2.0', '0.25', '-1.5', '1', 'x', '1e1', '')
        for name in dice.some(MULTIPLIERS, 3, 1)
    },
)  # fmt: skip
MULTIPLIERS = (
    'ram', 'cpu', 'disk', 'io_ops', 'num_instances', 'hypervisor_version', 'build_failure', 'pci',
    'soft_affinity', 'soft_anti_affinity', 'cross_cell_move', 'metrics', 'image_props',
)  # fmt: skip


class Builder:
    """Puts a world into the databases and Placement, in place of the last one."""

    def __init__(self, cloud: NovaCloud) -> None:
        self.cloud = cloud
        # Of instances, but no table that the cloud itself knows of.
        self._texts = {
            name: Database(each.url, [SYSTEM_METADATA]) for name, each in cloud.cells.items()
        }

    def build(self, dice: Dice, world: World) -> None:
        """Make it all; what was there before is gone."""
        for database in self._texts.values():
            database.clear([SYSTEM_METADATA])
        self.cloud.reset()
        for cell in CELLS:
            disabled = {'disabled': cell == world.disabled_cell}
            self.cloud.api.update('cell_mappings', disabled, uuid=self.cloud.cell_uuids[cell])
        self.cloud.add_hosts(world.machines)
        world.cells.update(self.cloud.cell_uuids)
        for each in world.nodes:
            self._add_node(world.machines[0], each)
        for aggregate in world.aggregates:
            world.aggregate_uuids.append(
                self.cloud.add_aggregate(
                    aggregate.name, aggregate.hosts, aggregate.zone, aggregate.metadata
                )
            )
        for number, child in enumerate(world.children):
            self.cloud.placement.add_provider(
                new_uuid(dice), f'child{number}', child.inventory, child.traits, child.parent.uuid
            )
        if world.on_shared_disk:
            self._share_disk(dice, world)
        for server in world.servers:
            self.boot(server, SMALL)
            for provider, resources in server.held.items():
                self.cloud.placement.allocate(server.uuid, provider, dict(resources))
        self._count(dice)

    def _add_node(self, first: Machine, node: Machine) -> None:
        """Another node of a host that has one, as Ironic has them."""
        row = {**node.node_row(), 'host': first.name}
        self.cloud.cells[first.cell].insert('compute_nodes', [row])
        traits = [*COMPUTE_TRAITS, *node.traits]
        self.cloud.placement.add_provider(node.uuid, node.name, node.inventories(), traits)

    def _share_disk(self, dice: Dice, world: World) -> None:
        pool, aggregate = new_uuid(dice), new_uuid(dice)
        inventory = {'DISK_GB': {'total': 5000}}
        self.cloud.placement.add_provider(pool, 'shared-disk', inventory, [SHARING])
        for provider in (pool, *(each.uuid for each in world.on_shared_disk)):
            self.cloud.placement.join_aggregate(provider, aggregate)

    def boot(self, server: Server, flavor: Flavor) -> None:
        """Let a server run, with what nova keeps of its image."""
        self.cloud.boot(server.uuid, server.host, flavor, server.project)
        texts = [
            {'created_at': now(), 'deleted': 0, 'instance_uuid': server.uuid, 'key': f'image_{name}', 'value': str(value)}
            for name, value in server.image.items()
        ]  # fmt: skip
        self._texts[self.cloud.computes[server.host].cell].insert(SYSTEM_METADATA, texts)

    def _count(self, dice: Dice) -> None:
        """The statistics of every node, which need not be what the rows amount to."""
        for database in self.cloud.cells.values():
            for row in database.rows('compute_nodes'):
                stats = {
                    **json.loads(row['stats']),
                    'num_instances': str(dice.one(row['running_vms'], 3, dice.randint(0, 12))),
                    'io_workload': str(dice.one(0, 0, 1, 4, 6)),
                    'failed_builds': str(dice.one(0, 0, 0, 1, 5)),
                    'arch': dice.one('x86_64', 'arm'),
                }
                database.update('compute_nodes', {'stats': json.dumps(stats)}, id=row['id'])
