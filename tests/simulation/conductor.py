# SPDX-License-Identifier: Apache-2.0
"""The nova-conductor of a simulated cloud, which calls schedulers."""

import json
from collections.abc import Sequence
from random import Random
from typing import Any

from novasched.rpc import wire
from novasched.scheduler.model.flavor import Flavor
from novasched.scheduler.model.request import ServerGroup
from novasched.tools.sandbox.cloud import request_spec
from novasched.tools.sandbox.computes import stable_uuid
from tests.simulation.devices import request_fields
from tests.simulation.flavors import topology_of
from tests.simulation.process import SchedulerProcess
from tests.simulation.world import Call, Server, World

LOST_CALL_S = 60.0
"""Seconds after which nova-conductor gives up a scheduler that is gone."""
NO_SCHEDULER_S = 5.0
"""Seconds before nova-conductor looks for a scheduler again."""


def request_for(
    uuids: Sequence[str],
    flavor: Flavor,
    group: ServerGroup | None,
    zone: str | None,
    **fields: Any,
) -> wire.RequestSpec:
    """The request for servers of a flavor.

    :param zone: the availability zone that the servers need.
    :param fields: further fields of the RequestSpec.
    """
    topology = topology_of(flavor)
    if topology is not None:
        fields['numa_topology'] = topology
    fields.update(request_fields(flavor, uuids[0]))
    return request_spec(uuids, flavor, zone, group, **fields)


class Conductor:
    """Calls schedulers for servers, and waits for the replies."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._loop = world.loop

    def call(self, call: Call, spec: wire.RequestSpec) -> None:
        """Call a scheduler. nova-conductor waits as long as the scheduler is there."""
        loop = self._loop
        names = ' '.join(call.uuids)
        self._world.calls.append(call)
        self._world.tell(
            f'{call.process.name} is asked for a {call.flavor.name}: {names}'
        )
        for server_uuid in call.uuids:
            self._world.servers[server_uuid].call = call

        def reply(answer: Any) -> None:
            call.answer = answer
            call.answered_at = loop.now
            call.replies += 1
            if call.is_placed:
                self._note_hosts(call)
            self._note_end(call)

        call.process.call(spec, call.uuids, reply)
        gone_at = None
        while call.answered_at is None:
            if gone_at is None and loop.is_dead(call.process.name):
                gone_at = loop.now
            if gone_at is not None and loop.now > gone_at + LOST_CALL_S:
                call.given_up = True
                self._note_end(call)
                break
            loop.sleep(0.5)

    def _note_hosts(self, call: Call) -> None:
        """Note the call that gives its servers their hosts, and the devices there."""
        for server_uuid, [first, *_] in zip(call.uuids, call.answer, strict=True):
            chosen = json.loads(first.value('allocation_request'))['allocations']
            devices = chosen.keys() - {first.value('compute_node_uuid')}
            host = first.value('service_host')
            server = self._world.servers[server_uuid]
            server.placed_by = call
            server.devices[host] = frozenset(devices)

    def _note_end(self, call: Call) -> None:
        """Note a call whose scheduler may have to delete allocations of the servers
        yet, and tell why a call gets no host."""
        if not call.has_failed and not call.process.pending_deletions:
            return
        for server_uuid in call.uuids:
            server = self._world.servers[server_uuid]
            server.unsettled.append(call)
            server.settled_at = self._loop.now
        if not call.has_failed:
            return
        why = 'nova-conductor gives up' if call.given_up else repr(call.answer)
        self._world.tell(f'no host for {" ".join(call.uuids)}: {why}')

    def ready_process(self, random: Random) -> SchedulerProcess:
        """A scheduler that takes requests, as soon as there is one."""
        process = self._world.ready_process(random)
        while process is None:
            self._loop.sleep(NO_SCHEDULER_S)
            process = self._world.ready_process(random)
        return process

    def host_for(
        self,
        server: Server,
        random: Random,
        near: str,
        flavor: Flavor | None = None,
        ignored: Sequence[str] = (),
    ) -> str | None:
        """Ask a scheduler for a host, as soon as there is a scheduler; None without a
        host.

        :param near: the name of a host of the same cell.
        :param flavor: the present flavor of the server by default.
        """
        process = self.ready_process(random)
        flavor = flavor or server.flavor
        uuids = [server.uuid]
        cell = self._world.cell_of(near)
        group = None
        if server.group is not None:
            group = self.group(server.group, uuids)
        spec = request_for(
            uuids,
            flavor,
            group,
            server.zone,
            requested_destination=wire.Destination(
                cell=wire.CellMapping(uuid=stable_uuid('cell', cell))
            ),
            ignore_hosts=[*ignored],
        )
        call = Call(
            uuids, flavor, process, self._loop.now, is_move=True, zone=server.zone
        )
        self.call(call, spec)
        if not call.is_placed:
            return None
        [[first, *_]] = call.answer
        return str(first.value('service_host'))

    def group(self, name: str, asked: Sequence[str]) -> ServerGroup:
        """A hard group as nova-conductor finds the group in the databases.

        :param asked: the servers for which a scheduler is asked. Their own hosts do not
            count.
        """
        hosts = set()
        for member in self._world.groups[name]:
            server = self._world.servers.get(member)
            if server is None or member in asked:
                continue
            if server.is_built and server.host is not None:
                hosts.add(server.host)
        return ServerGroup(
            name,
            name,
            policy='anti-affinity',
            members=frozenset(self._world.groups[name]),
            hosts=frozenset(hosts),
        )
