# SPDX-License-Identifier: Apache-2.0
"""Puts a random cloud into databases and Placement."""

from __future__ import annotations

import json

from tests.lab.compute_rows import Flavor, now
from tests.lab.nova_cloud import COMPUTE_TRAITS, Database, NovaCloud
from tests.parity.dice import Dice
from tests.parity.rankings.machines import Machine
from tests.parity.rankings.words import CELLS
from tests.parity.rankings.world import Server, World

SMALL = Flavor(vcpus=1, ram_mb=512, disk_gb=5)
SHARING = 'MISC_SHARES_VIA_AGGREGATE'
SYSTEM_METADATA = 'instance_system_metadata'


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
        for machine in (*world.machines, *world.nodes):
            for child in machine.children:
                self.cloud.placement.add_provider(
                    child.uuid, child.uuid, child.inventory, child.traits, machine.uuid
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
        pool, aggregate = dice.uuid(), dice.uuid()
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
                    'num_instances': str(dice.one(row['running_vms'], 3, dice.randint(0, 9))),
                    'io_workload': str(dice.one(0, 0, 1, 2, 4, 6)),
                    'failed_builds': str(dice.one(0, 0, 0, 1, 5)),
                    'arch': dice.one('x86_64', 'arm'),
                }
                database.update('compute_nodes', {'stats': json.dumps(stats)}, id=row['id'])
