# SPDX-License-Identifier: Apache-2.0
"""Writes a random cloud into databases and Placement, and keeps it consistent."""

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
"""The probability that new servers stay."""


class Builder:
    """Writes a world into the databases and Placement, in place of the last world."""

    def __init__(self, cloud: NovaCloud) -> None:
        self.cloud = cloud
        # The cloud does not know this table of instances.
        self._texts = {}
        for name, database in cloud.cells.items():
            self._texts[name] = Database(database.url, [SYSTEM_METADATA])

    def build(self, dice: Dice, world: World) -> None:
        """Write a world, after the removal of the last world."""
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
        for node in world.nodes:
            self._add_node(world.machines[0], node)
        for aggregate in world.aggregates:
            world.aggregate_uuids.append(self.cloud.add_aggregate(*aggregate))
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
        self._write_statistics(dice)

    def _add_node(self, first: Machine, node: Machine) -> None:
        """Add another node to a host with a node, as Ironic's hosts have nodes."""
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
        providers = [pool, *(machine.uuid for machine in world.on_shared_disk)]
        for provider in providers:
            self.cloud.placement.join_aggregate(provider, aggregate)

    def _boot(self, server: Server, flavor: Flavor) -> None:
        """Let a server run, with the image properties that nova keeps."""
        self.cloud.boot(server.uuid, server.host, flavor, server.project)
        texts = []
        for name, value in server.image.items():
            texts.append(
                {
                    'created_at': now(),
                    'deleted': 0,
                    'instance_uuid': server.uuid,
                    'key': f'image_{name}',
                    'value': str(value),
                }
            )
        cell = self.cloud.computes[server.host].cell
        self._texts[cell].insert(SYSTEM_METADATA, texts)

    def _write_statistics(self, dice: Dice) -> None:
        """Write random statistics of all nodes, which need not match the rows."""
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
        """Keep new servers running in some cases, so that the world changes."""
        chosen = []
        if call.return_objects and not call.moved:
            chosen = _hosts(ours.answer)
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
        """Restore the allocations of every server of the call."""
        before = {call.moved.uuid: call.moved.held} if call.moved else {}
        for uuid, claims in seen.claims.items():
            held_before = before.get(uuid, {})
            if claims != held_before:
                self.cloud.placement.release(uuid)
                self._hold(uuid, held_before)

    def _hold(self, uuid: str, held: Any) -> None:
        for provider, resources in held.items():
            self.cloud.placement.allocate(uuid, provider, dict(resources))

    def leftovers(self, world: World) -> dict[str, Any]:
        """Allocations in Placement that differ from the allocations of the servers."""
        expected = {server.uuid: server.held for server in world.servers if server.held}
        allocations = self.cloud.placement.all_allocations()
        different = {}
        for uuid in allocations | expected:
            if allocations.get(uuid) != expected.get(uuid):
                different[uuid] = allocations.get(uuid)
        return different


def _hosts(answer: Any) -> list[str]:
    """The hosts of an answer; none if the name of a node is not its host's name, as for
    Ironic's nodes."""
    hosts = []
    for selections in answer or ():
        selected = selections[0]['nova_object.data']
        if selected['service_host'] != selected['nodename']:
            return []
        hosts.append(selected['service_host'])
    return hosts
