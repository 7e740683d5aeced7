# SPDX-License-Identifier: Apache-2.0
"""The users of a simulated cloud, with nova-conductor, which calls schedulers for the
users."""

import uuid
from collections.abc import Sequence
from random import Random
from typing import Any

from novasched.rpc import wire
from novasched.scheduler.errors import NoValidHost
from novasched.scheduler.model.flavor import Flavor
from novasched.scheduler.model.request import ServerGroup
from novasched.tools.sandbox.cloud import request_spec
from novasched.tools.sandbox.computes import stable_uuid
from tests.simulation.world import Call, Server, World

FLAVORS = (
    Flavor('small', 'small', 1, 1, 2048, 10),
    Flavor('medium', 'medium', 2, 4, 8192, 20),
    Flavor('large', 'large', 3, 8, 24576, 40),
)
SHARES = (6, 3, 2)
"""The frequency of each flavor beside the other flavors."""
IN_GROUP = 0.25
"""The share of the boots that are for a group."""
MAX_MEMBERS = 8
"""Members of a group that takes more members."""
MAX_TRIES = 4
"""Calls of schedulers for an evacuation."""
BUILD_FAILS = 0.1
"""The share of the builds that fail."""
LOST_CALL_S = 60.0
"""Seconds after which nova-conductor gives up a scheduler that is gone."""


class Users:
    """The actions of users. Each method takes the random numbers of its action."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._loop = world.loop

    def boot(self, random: Random) -> None:
        """Boot one server, or several at once."""
        flavor = random.choices(FLAVORS, SHARES)[0]
        count = random.choices((1, 3), (8, 1))[0]
        is_in_group = random.random() < IN_GROUP
        uuids = [_new_uuid(random) for _ in range(count)]
        process = self._world.ready_process(random)
        if process is None:
            return
        group = None
        if is_in_group:
            group = self._group_with(uuids, random)
        call = Call(uuids, flavor, process, self._loop.now)
        for server_uuid in uuids:
            server = Server(server_uuid, flavor, call)
            if group is not None:
                server.group = group.uuid
            self._world.servers[server_uuid] = server
        self._world.computes.ask_for(uuids)
        self._ask(call, request_spec(uuids, flavor, group=group))
        if not call.is_placed:
            self._world.computes.bury(uuids)
            return
        for server_uuid, [first, *_] in zip(uuids, call.answer, strict=True):
            host = first.value('service_host')
            server = self._world.servers[server_uuid]
            seed = random.getrandbits(32)
            self._loop.spawn(
                lambda s=server, h=host, r=seed: self._build(s, h, Random(r))
            )

    def _ask(self, call: Call, spec: wire.RequestSpec) -> None:
        """Call a scheduler, and wait for the reply. nova-conductor waits as long as the
        scheduler is there."""
        loop = self._loop
        self._world.calls.append(call)
        names = ' '.join(call.uuids)
        self._world.tell(
            f'{call.process.name} is asked for a {call.flavor.name}: {names}'
        )

        def reply(answer: Any) -> None:
            call.answer = answer
            call.answered_at = loop.now
            call.replies += 1

        call.process.call(spec, call.uuids, reply)
        gone_at = None
        while call.answered_at is None:
            if gone_at is None and loop.is_dead(call.process.name):
                gone_at = loop.now
            if gone_at is not None and loop.now > gone_at + LOST_CALL_S:
                call.given_up = True
                break
            loop.sleep(0.5)
        if not call.is_placed:
            for server_uuid in call.uuids:
                self._world.servers[server_uuid].failed.append(call)
            why = 'nova-conductor gives up' if call.given_up else repr(call.answer)
            self._world.tell(f'no host for {names}: {why}')

    def _group_with(self, uuids: Sequence[str], random: Random) -> ServerGroup:
        """A hard group that new servers join."""
        name = _new_uuid(random)
        growing = []
        for group_uuid, members in self._world.groups.items():
            if len(members) < MAX_MEMBERS:
                growing.append(group_uuid)
        if growing:
            name = random.choice(growing)
        self._world.groups.setdefault(name, []).extend(uuids)
        return self._present_group(name, uuids)

    def _present_group(self, name: str, asked: Sequence[str]) -> ServerGroup:
        """A hard group as nova-conductor finds it in the databases.

        :param asked: the servers for which a scheduler is asked. Their own hosts do not
            count.
        """
        hosts = set()
        for member in self._world.groups[name]:
            server = self._world.servers.get(member)
            if server is not None and server.is_built and member not in asked:
                hosts.add(str(server.host))
        return ServerGroup(
            name,
            name,
            policy='anti-affinity',
            members=frozenset(self._world.groups[name]),
            hosts=frozenset(hosts),
        )

    def _build(self, server: Server, host: str, random: Random) -> None:
        """Build a server on the selected host. After a failed build, nova-conductor
        deletes the allocations and asks for another host."""
        uuids = [server.uuid]
        self._world.computes.create(server.uuid, server.flavor, host)
        while True:
            self._world.tell(f'{server.uuid} gets {host}')
            server.host = host
            self._loop.sleep(random.uniform(2, 20))
            if random.random() > BUILD_FAILS:
                self._world.computes.build(server.uuid, host)
                server.is_built = True
                return

            self._world.tell(f'the build of {server.uuid} fails')
            server.host = None
            self._world.model.handle('DELETE', f'/allocations/{server.uuid}', None)
            process = self._world.ready_process(random)
            while process is None:
                self._loop.sleep(5.0)
                process = self._world.ready_process(random)
            moment = self._loop.now
            server.call = Call(uuids, server.flavor, process, moment, is_move=True)
            self._ask(server.call, self._another_host(server, host))
            if not server.call.is_placed:
                self._world.computes.fail(server.uuid, host)
                return
            [[first, *_]] = server.call.answer
            host = first.value('service_host')

    def delete(self, random: Random) -> None:
        """Delete a server from its host and from Placement."""
        server = self._world.resting_server(random)
        if server is None:
            return
        host = str(server.host)
        server.is_wanted = False
        self._loop.sleep(random.uniform(0.1, 5))
        self._world.computes.delete(server.uuid, host)
        self._loop.sleep(random.uniform(0.01, 1))
        self._world.model.handle('DELETE', f'/allocations/{server.uuid}', None)
        server.is_deleted = True
        self._world.tell(f'{server.uuid} is deleted')

    def evacuate(self, random: Random) -> None:
        """Evacuate a server, as if its host were lost. After an error of a service, and
        after a call without an answer, the user tries again."""
        loop = self._loop
        server = self._world.resting_server(random)
        if server is None:
            return
        server.is_moving = True
        source = str(server.host)
        tries = 0
        while True:
            process = self._world.ready_process(random)
            if process is None:
                loop.sleep(5.0)
                continue
            self._world.computes.set_task(server.uuid, source, 'rebuilding')
            uuids = [server.uuid]
            server.call = Call(uuids, server.flavor, process, loop.now, is_move=True)
            self._ask(server.call, self._another_host(server, source))
            tries += 1
            is_refused = isinstance(server.call.answer, NoValidHost)
            if server.call.is_placed or is_refused or tries == MAX_TRIES:
                break
            server.settled_at = loop.now
            loop.sleep(random.uniform(0, 30))

        if server.call.is_placed:
            [[first, *_]] = server.call.answer
            self._rebuild(server, source, first.value('service_host'), random)
        else:
            self._world.computes.set_task(server.uuid, source, None)
        server.is_moving = False
        server.settled_at = loop.now

    def _another_host(self, server: Server, host: str) -> wire.RequestSpec:
        """The request for another host of the same cell."""
        cell = self._world.computes.machines[host].cell
        group = None
        if server.group is not None:
            group = self._present_group(server.group, [server.uuid])
        return request_spec(
            [server.uuid],
            server.flavor,
            group=group,
            requested_destination=wire.Destination(
                cell=wire.CellMapping(uuid=stable_uuid('cell', cell))
            ),
            ignore_hosts=[host],
        )

    def _rebuild(self, server: Server, source: str, host: str, random: Random) -> None:
        """Rebuild a server on another host. Then the source comes back, and gives up
        the server."""
        server.destination = host
        self._world.tell(f'{server.uuid} is evacuated to {host}')
        self._loop.sleep(random.uniform(1, 20))
        self._world.computes.move(server.uuid, source, host)
        self._loop.sleep(random.uniform(0.1, 20))
        server.host = host
        server.destination = None
        self._world.model.remove(
            server.uuid, self._world.computes.machines[source].uuid
        )


def _new_uuid(random: Random) -> str:
    return str(uuid.UUID(int=random.getrandbits(128), version=4))
