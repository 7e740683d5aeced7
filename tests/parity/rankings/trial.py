# SPDX-License-Identifier: Apache-2.0
"""The same call to both schedulers in one world, which is left as if it had come once."""

from __future__ import annotations

from typing import Any

from tests.lab.compute_rows import Flavor
from tests.lab.nova_cloud import NovaCloud
from tests.parity.dice import Dice
from tests.parity.rankings.builder import Builder
from tests.parity.rankings.call import Call
from tests.parity.rankings.pair import Pair, Seen
from tests.parity.rankings.world import Server, World

CELL = ('id', 'uuid', 'name', 'transport_url', 'database_connection', 'disabled')
KEPT = 0.4
"""How often new servers stay."""


class Trial:
    def __init__(self, builder: Builder, pair: Pair, world: World) -> None:
        self._builder, self._pair, self._world = builder, pair, world
        self._cloud: NovaCloud = builder.cloud
        rows = self._cloud.api.rows('cell_mappings')
        self._cells = {row['uuid']: {name: row[name] for name in CELL} for row in rows}

    def run(self, call: Call) -> tuple[Seen, Seen]:
        """What nova does with a call, and what we do; nothing of nova's stays."""
        nova = self._pair.nova.ask(call, self._cells)
        self.undo(call, nova)
        return nova, self._pair.ours.ask(call, self._cells)

    def keep_or_undo(self, dice: Dice, call: Call, ours: Seen) -> None:
        """Let new servers run at times, so that the world does not stay the same."""
        chosen = _hosts(ours.answer) if call.return_objects and not call.moved else []
        if not chosen or not dice.maybe(KEPT):
            self.undo(call, ours)
            return
        size = call.request['flavor']
        flavor = Flavor(size['vcpus'], size['memory_mb'], size['root_gb'], size['ephemeral_gb'])
        for uuid, host in zip(call.instance_uuids or (), chosen, strict=True):
            server = Server(uuid, host, call.request['project_id'], held=ours.claims[uuid])
            self._builder.boot(server, flavor)
            self._world.servers.append(server)

    def leftovers(self) -> dict[str, Any]:
        """What is allocated in Placement beside what the servers hold, or is not."""
        wanted = {each.uuid: each.held for each in self._world.servers if each.held}
        found = self._cloud.placement.all_allocations()
        unequal = {uuid for uuid in found | wanted if found.get(uuid) != wanted.get(uuid)}
        return {uuid: found.get(uuid) for uuid in unequal}

    def undo(self, call: Call, seen: Seen) -> None:
        """Let every server of the call hold what it held before."""
        before = {call.moved.uuid: call.moved.held} if call.moved else {}
        for uuid, claims in seen.claims.items():
            if claims != before.get(uuid, {}):
                self._cloud.placement.release(uuid)
                for provider, resources in before.get(uuid, {}).items():
                    self._cloud.placement.allocate(uuid, provider, dict(resources))


def _hosts(answer: Any) -> list[str]:
    """The hosts of an answer; none if a node has another name, as those of Ironic have."""
    chosen = [selections[0]['nova_object.data'] for selections in answer or ()]
    if any(each['service_host'] != each['nodename'] for each in chosen):
        return []
    return [each['service_host'] for each in chosen]
