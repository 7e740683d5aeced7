# SPDX-License-Identifier: Apache-2.0
"""Puts a random cloud into databases and Placement, and keeps it as it has to be."""

import json
from typing import Any

from tests.lab.compute_rows import Flavor, now
from tests.lab.nova_cloud import COMPUTE_TRAITS, Database, NovaCloud
from tests.parity.dice import Dice
from tests.parity.rankings.pair import Seen
from tests.parity.rankings.requests import Call
from tests.parity.rankings.world import CELLS, Machine, Server, World

SMALL = Flavor(vcpus=1, ram_mb=512, disk_gb=5)
SHARING = 'MISC_SHARES_VIA_AGGREGATE'
SYSTEM_METADATA = 'instance_system_metadata'
CELL = ('id', 'uuid', 'name', 'transport_url', 'database_connection', 'disabled')
KEPT = 0.4
"""How often new servers stay."""


class Builder:
    """Puts a world into the databases and Placement, in place of the last one."""

    def __init__(self, cloud: NovaCloud) -> None:
        self.cloud = cloud
        # Of instances, but no table that the cloud itself knows of.
        self._texts = {
            name: Database(each.url, [SYSTEM_METADATA])
            for name, each in cloud.cells.items()
        }

    def build(self, dice: Dice, world: World) -> None:
        """Make it all; what was there before is gone."""
        for database in self._texts.values():
            database.delete(SYSTEM_METADATA)
        self.cloud.reset()
        for cell in CELLS:
            disabled = {'disabled': cell == world.disabled_cell}
            self.cloud.api.update(
                'cell_mappings', disabled, uuid=self.cloud.cell_uuids[cell]
            )
        for row in self.cloud.api.rows('cell_mappings'):
            world.cells[row['name']] = {name: row[name] for name in CELL}
        self.cloud.add_hosts(world.machines)
        for each in world.nodes:
            self._add_node(world.machines[0], each)
        world.aggregate_uuids += [
            self.cloud.add_aggregate(*each) for each in world.aggregates
        ]
        for machine in (*world.machines, *world.nodes):
            for child in machine.children:
                self.cloud.placement.add_provider(
                    child.uuid, child.uuid, child.inventory, child.traits, machine.uuid
                )
        if world.on_shared_disk:
            self._share_disk(dice, world)
        for server in world.servers:
            self._boot(server, SMALL)
            self._hold(server.uuid, server.held)
        self._count(dice)

    def _add_node(self, first: Machine, node: Machine) -> None:
        """Another node of a host that has one, as Ironic has them."""
        row = {**node.node_row(), 'host': first.name}
        self.cloud.cells[first.cell].insert('compute_nodes', [row])
        traits = [*COMPUTE_TRAITS, *node.traits]
        self.cloud.placement.add_provider(
            node.uuid, node.name, node.inventories(), traits
        )

    def _share_disk(self, dice: Dice, world: World) -> None:
        pool = dice.uuid()
        aggregate = dice.uuid()
        inventory = {'DISK_GB': {'total': 5000}}
        self.cloud.placement.add_provider(pool, 'shared-disk', inventory, [SHARING])
        for provider in (pool, *(each.uuid for each in world.on_shared_disk)):
            self.cloud.placement.join_aggregate(provider, aggregate)

    def _boot(self, server: Server, flavor: Flavor) -> None:
        """Let a server run, with what nova keeps of its image."""
        self.cloud.boot(server.uuid, server.host, flavor, server.project)
        texts = [
            {
                'created_at': now(),
                'deleted': 0,
                'instance_uuid': server.uuid,
                'key': f'image_{name}',
                'value': str(value),
            }
            for name, value in server.image.items()
        ]
        self._texts[self.cloud.computes[server.host].cell].insert(
            SYSTEM_METADATA, texts
        )

    def _count(self, dice: Dice) -> None:
        """The statistics of every node, which need not be what the rows amount to."""
        for database in self.cloud.cells.values():
            for row in database.rows('compute_nodes'):
                stats = {
                    **json.loads(row['stats']),
                    'num_instances': str(
                        dice.one(row['running_vms'], 3, dice.randint(0, 9))
                    ),
                    'io_workload': str(dice.one(0, 0, 1, 2, 4, 6)),
                    'failed_builds': str(dice.one(0, 0, 0, 1, 5)),
                    'arch': dice.one('x86_64', 'arm'),
                }
                database.update(
                    'compute_nodes', {'stats': json.dumps(stats)}, id=row['id']
                )

    def keep_or_undo(self, dice: Dice, call: Call, ours: Seen) -> None:
        """Let new servers run at times, so that the world does not stay the same."""
        chosen = _hosts(ours.answer) if call.return_objects and not call.moved else []
        if not chosen or not dice.maybe(KEPT):
            self.undo(call, ours)
            return
        size = call.request['flavor']
        flavor = Flavor(
            size['vcpus'], size['memory_mb'], size['root_gb'], size['ephemeral_gb']
        )
        for uuid, host in zip(call.instance_uuids or (), chosen, strict=True):
            server = Server(
                uuid, host, call.request['project_id'], held=ours.claims[uuid]
            )
            self._boot(server, flavor)
            call.world.servers.append(server)

    def undo(self, call: Call, seen: Seen) -> None:
        """Let every server of the call hold what it held before."""
        before = {call.moved.uuid: call.moved.held} if call.moved else {}
        for uuid, claims in seen.claims.items():
            if claims != before.get(uuid, {}):
                self.cloud.placement.release(uuid)
                self._hold(uuid, before.get(uuid, {}))

    def _hold(self, uuid: str, held: Any) -> None:
        for provider, resources in held.items():
            self.cloud.placement.allocate(uuid, provider, dict(resources))

    def leftovers(self, world: World) -> dict[str, Any]:
        """What is allocated in Placement beside what the servers hold, or is not."""
        wanted = {each.uuid: each.held for each in world.servers if each.held}
        found = self.cloud.placement.all_allocations()
        unequal = {
            uuid for uuid in found | wanted if found.get(uuid) != wanted.get(uuid)
        }
        return {uuid: found.get(uuid) for uuid in unequal}


def _hosts(answer: Any) -> list[str]:
    """The hosts of an answer; none if a node has another name, as those of Ironic
    have."""
    chosen = [selections[0]['nova_object.data'] for selections in answer or ()]
    if any(each['service_host'] != each['nodename'] for each in chosen):
        return []
    return [each['service_host'] for each in chosen]
