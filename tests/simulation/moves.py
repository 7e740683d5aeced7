# SPDX-License-Identifier: Apache-2.0
"""The moves of servers in a simulated cloud, with the allocations and rows of nova.

An evacuated server has allocations on both hosts until the source is back. A migration
has the allocations on the source, while the server has those on the destination. A
shelved server has none.
"""

from random import Random

from tests.simulation.conductor import Conductor
from tests.simulation.flavors import FLAVORS
from tests.simulation.world import Server, World, new_uuid

MAX_TRIES = 4
"""Calls of schedulers for a move that the user wants."""
PAUSES_S = (2.0, 30.0)
"""The longest pauses of users before they try again, in seconds."""
FAILS = 0.15
"""The share of the migrations that fail on the destination."""


class Moves:
    """The moves. Each method takes the random numbers of its action."""

    def __init__(self, world: World, conductor: Conductor) -> None:
        self._world = world
        self._conductor = conductor
        self._loop = world.loop

    def evacuate(self, random: Random) -> None:
        """Evacuate a server, as if its host were lost. After a call without a host the
        user tries again."""
        server = self._world.begin_move(random)
        if server is None:
            return
        computes = self._world.computes
        source = str(server.host)
        host = None
        for _ in range(MAX_TRIES):
            computes.set_task(server.uuid, source, 'rebuilding')
            computes.begin_migration(server.uuid, source, 'evacuation')
            host = self._conductor.host_for(server, random, source, ignored=[source])
            if host is not None:
                break
            computes.end_migration(server.uuid, source, 'error')
            self._loop.sleep(random.uniform(0, random.choice(PAUSES_S)))

        if host is None:
            computes.set_task(server.uuid, source, None)
        else:
            server.destination = host
            self._world.tell(f'{server.uuid} is evacuated to {host}')
            self._loop.sleep(random.uniform(1, 20))
            computes.move(server.uuid, source, host)
            computes.end_migration(server.uuid, source, 'done')
            # Then the source comes back, and gives up the server.
            self._loop.sleep(random.uniform(0.1, 20))
            server.host = host
            server.destination = None
            machine = computes.machines[source]
            self._world.model.remove(server.uuid, machine.uuid)
            computes.end_migration(server.uuid, source, 'completed')
        server.is_moving = False

    def resize(self, random: Random) -> None:
        """Resize a server to another flavor, on another host of its cell."""
        self._migrate(random, is_live=False)

    def migrate_live(self, random: Random) -> None:
        """Move a running server to another host of its cell."""
        self._migrate(random, is_live=True)

    def _migrate(self, random: Random, is_live: bool) -> None:
        server = self._world.begin_move(random)
        if server is None:
            return
        computes = self._world.computes
        source = str(server.host)
        flavor = server.flavor
        if not is_live:
            flavor = random.choice(FLAVORS)
        task = 'migrating' if is_live else 'resize_prep'
        computes.set_task(server.uuid, source, task)
        migration = new_uuid(random)
        kind = 'live-migration' if is_live else 'resize'
        computes.begin_migration(server.uuid, source, kind)
        self._give(server, server.uuid, migration)
        server.migration = migration

        host = self._conductor.host_for(server, random, source, flavor, [source])
        if host is None:
            self._give_back(server, source)
            return
        server.destination = host
        server.next_flavor = flavor
        self._world.tell(f'{server.uuid} migrates to {host}')
        self._loop.sleep(random.uniform(1, 20))
        if random.random() < FAILS:
            self._world.tell(f'the migration of {server.uuid} fails')
            # A row without a task may be from before the migration.
            self._world.note_pending(host)
            self._give_back(server, source)
            return

        computes.move(server.uuid, source, host, flavor)
        self._loop.sleep(random.uniform(0.1, 5))
        computes.end_migration(server.uuid, source, 'confirmed')
        self._world.model.handle('DELETE', f'/allocations/{migration}', None)
        server.host = host
        server.flavor = flavor
        server.next_flavor = None
        server.destination = None
        server.migration = None
        server.is_moving = False

    def _give(self, server: Server, giver: str, taker: str) -> None:
        """Give the allocations of a consumer to another one, in place of its own."""
        model = self._world.model
        given = {}
        for provider, amounts in model.held_by(giver).items():
            given[provider] = {'resources': amounts}
        bodies = {}
        for consumer, allocations in ((giver, {}), (taker, given)):
            bodies[consumer] = {
                'allocations': allocations,
                'consumer_generation': model.generation_of(consumer),
                'project_id': 'project',
                'user_id': 'user',
            }
        status, answer = model.handle('POST', '/allocations', bodies)
        assert status == 204, f'{server.uuid}: {answer}'

    def _give_back(self, server: Server, source: str) -> None:
        """End a migration that has failed. The server stays on its source, and loses
        the allocations on the destination."""
        migration = str(server.migration)
        self._give(server, migration, server.uuid)
        server.migration = None
        server.next_flavor = None
        server.destination = None
        self._world.computes.end_migration(server.uuid, source, 'error')
        self._world.computes.set_task(server.uuid, source, None)
        server.is_moving = False
        server.settled_at = self._loop.now

    def shelve(self, random: Random) -> None:
        """Shelve a server, and unshelve the server after a while. After a call without
        a host the user tries again."""
        server = self._world.begin_move(random)
        if server is None:
            return
        computes = self._world.computes
        source = str(server.host)
        computes.offload(server.uuid, source)
        server.host = None
        self._world.model.handle('DELETE', f'/allocations/{server.uuid}', None)
        self._world.tell(f'{server.uuid} is shelved')
        self._loop.sleep(random.uniform(1, 60))

        for _ in range(MAX_TRIES):
            computes.set_task(server.uuid, source, 'unshelving')
            host = self._conductor.host_for(server, random, source)
            if host is not None:
                self._unshelve(server, host, random)
                return
            computes.set_task(server.uuid, source, None)
            self._loop.sleep(random.uniform(0, random.choice(PAUSES_S)))
        server.is_moving = False

    def _unshelve(self, server: Server, host: str, random: Random) -> None:
        self._world.tell(f'{server.uuid} is unshelved on {host}')
        server.host = host
        computes = self._world.computes
        computes.set_task(server.uuid, host, 'spawning')
        # The task ends long after the host reports the server.
        self._world.note_pending(host)
        self._loop.sleep(random.uniform(0.5, 5))
        self._world.arrive(server, host, random)
        self._loop.sleep(random.uniform(1, 60))
        computes.build(server.uuid, host)
        server.is_moving = False
