# SPDX-License-Identifier: Apache-2.0
"""Those who ask: API and conductor, for tenants who boot, move and delete servers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import oslo_messaging

from tests.lab.client import new_uuids
from tests.lab.compute_rows import now
from tests.lab.large_cloud_requests import Kind
from tests.lab.nova_cloud import PROJECT, USER
from tests.lab.placement_api import PlacementApi
from tests.lab.steady import Caller
from tests.soak.machines import Machine, Server
from tests.soak.wishes import Wish, draw
from tests.soak.world import FAILED, MISMATCHES, TURNED_AWAY, WRONG, World, persistently

PATIENCE, HEARTBEAT = 120, 30  # seconds
FAILS = 0.02
"""The share of servers that their computes cannot start."""

Held = dict[str, dict[str, int]]
"""Provider to resource class to amount."""


class Tenant:
    """One of several who act at the same time."""

    def __init__(self, world: World, caller: Caller, random: Random) -> None:
        self.world = world
        self.caller = caller
        self.random = random
        self.placement = PlacementApi(world.cloud.placement_url)

    def act(self) -> None:
        if self.world.ebbing:
            self.random.choices([self.delete, self.boot], [9, 1])[0]()
        else:
            acts = self.acts()
            self.random.choices(list(acts), list(acts.values()))[0]()

    def acts(self) -> dict[Callable[[], None], int]:
        return {self.boot: 80, self.delete: 8, self.move: 9, self.rebuild: 3}

    def boot(self) -> None:
        world = self.world
        group = world.take_group()
        wish = draw(self.random, group, world.some(self.random, 2))
        try:
            self._boot(wish)
        finally:
            if group:
                world.give_group(group)

    def _boot(self, wish: Wish) -> None:
        uuids, kind, asked = new_uuids(wish.count), wish.kind(), time.monotonic()
        found = self._ask(kind, uuids)
        if found is None:
            if wish.name == 'plain':
                self._full()
            return
        for uuid, (_, held) in zip(uuids, found, strict=True):
            self.world.expected[uuid] = held
        machines = [machine for machine, _ in found]
        self._check(uuids, wish, kind, machines, asked)
        for uuid, machine in zip(uuids, machines, strict=True):
            server = Server(uuid, wish)
            if self.random.random() < FAILS:
                self._fail(server, machine)
            elif machine.land(server):
                self._map(server, machine)
                self.world.joined(server)
                self.world.give(server)
            else:
                self.world.count(TURNED_AWAY)
                self._release(uuid)

    def move(self) -> None:
        """Evacuate a server: it is claimed for while it holds something."""
        world, machines = self.world, self.world.machines

        def alone(server: Server) -> bool:
            return server.wish.group is None

        server = world.take(
            self.random, lambda each: alone(each) and machines[str(each.host)].silent
        )
        server = server or world.take(self.random, alone)
        if server is None:
            return
        source = machines[str(server.host)]
        cell = {'uuid': world.cloud.cell_uuids[source.compute.cell]}
        wish = replace(server.wish, count=1, avoided=())
        kind = wish.kind(ignore_hosts=[source.name], requested_destination={'cell': cell})
        asked, before = time.monotonic(), world.expected[server.uuid]
        if found := self._ask(kind, [server.uuid]):
            [(machine, new)] = found
            both = {**new, **before}
            if (held := self.placement.allocations(server.uuid)) != both:
                world.wrong(MISMATCHES, f'{server.uuid} moves with {held} instead of {both}')
            self._check([server.uuid], wish, kind, [machine], asked)
            stays = not machine.land(server)
            if stays:
                world.count(TURNED_AWAY)
            else:
                source.leave(server)
                world.count('moved')
            world.expected[server.uuid] = before if stays else new
            persistently(self.placement.keep, server.uuid, before if stays else new)
        world.give(server)

    def rebuild(self) -> None:
        """Have it said that a server can be built anew where it is: nothing is claimed."""
        server = self.world.take(self.random)
        if server is None:
            return
        wish = replace(server.wish, count=1, group=None, avoided=())
        kind = wish.kind(
            scheduler_hints={'_nova_check_type': ['rebuild']},
            force_hosts=[server.host],
            force_nodes=[server.host],
        )
        found = self._ask(kind, [server.uuid])
        if found and found[0][0].name != server.host:
            self.world.wrong(WRONG, f'{server.uuid} is rebuilt on {found[0][0].name}')
        self.world.give(server)

    def delete(self) -> None:
        if server := self.world.take(self.random):
            self.delete_it(server)

    def delete_it(self, server: Server) -> None:
        """Delete a server that was taken."""
        machine = self.world.machines[str(server.host)]
        self.world.left(server)
        machine.leave(server)
        self._release(server.uuid)
        instances = machine.database.table('instances')
        gone = {'deleted': instances.c.id, 'deleted_at': now(), 'vm_state': 'deleted'}
        machine.database.update('instances', gone, uuid=server.uuid)
        self.world.cloud.api.delete('instance_mappings', instance_uuid=server.uuid)
        told = {'host_name': machine.name, 'instance_uuid': server.uuid}
        self.caller.cast('delete_instance_info', told)
        self.world.count('deleted')

    def _ask(
        self, kind: Kind, uuids: Sequence[str], **more: Any
    ) -> list[tuple[Machine, Held]] | None:
        """The host of each server with what it holds there; None if there is none.

        :param more: arguments that are not as they are for a build.
        """
        world = self.world
        world.count('requests')
        try:
            found = self.caller.call(
                'select_destinations',
                {**kind.arguments(uuids), **more},
                timeout=PATIENCE,
                call_monitor_timeout=HEARTBEAT,
            )
        except oslo_messaging.MessagingException as error:
            if getattr(error, 'exc_type', None) == 'NoValidHost':
                world.count('refused')
            else:
                self._failed(uuids, error)
            return None
        world.count('answered')
        world.count('placed', len(found))
        chosen = [selections[0]['nova_object.data'] for selections in found]
        return [
            (world.machines[each['service_host']], _held(each['allocation_request']))
            for each in chosen
        ]

    def _full(self) -> None:
        """Note that there was no room for what fits almost anywhere."""
        self.world.full()

    def _failed(self, uuids: Sequence[str], error: Exception) -> None:
        """Note that there is neither a host nor the refusal that a conductor understands."""
        self.world.wrong(FAILED, repr(error))

    def _check(
        self,
        uuids: Sequence[str],
        wish: Wish,
        kind: Kind,
        hosts: Sequence[Machine],
        asked: float,
    ) -> None:
        """See that no host was unfit all the time since it was asked for."""
        for host in hosts:
            if host.unfit_since < asked:
                self._unfit(uuids, f'{host.name} was down, disabled or gone')
            elif host.name in kind.more.get('ignore_hosts', ()):
                self._unfit(uuids, f'{host.name} was to be ignored')
            elif (
                wish.aggregate
                and wish.aggregate not in host.aggregates
                and host.aggregates_since < asked
            ):
                self._unfit(uuids, f'{host.name} was not in {wish.aggregate}')
        if kind.group is None:
            return
        names, before = [host.name for host in hosts], kind.group['hosts']
        apart = len({*names, *before}) == len(names) + len(before)
        together = len({*names, *before}) == 1
        policy = kind.group['policy']
        if (policy == 'anti-affinity' and not apart) or (
            policy == 'affinity' and len(before) < 2 and not together
        ):
            self._unfit(uuids, f'{policy} of {names} with {before}')

    def _unfit(self, uuids: Sequence[str], why: str) -> None:
        """Note that servers were given a host that must not have been chosen."""
        self.world.wrong(WRONG, why)

    def _fail(self, server: Server, machine: Machine) -> None:
        """A compute cannot start a server: it remains without a host, until it is deleted."""
        self.world.count('failed builds')
        row = {
            'created_at': now(), 'updated_at': now(), 'deleted': 0, 'uuid': server.uuid,
            'project_id': PROJECT, 'user_id': USER, 'vm_state': 'error', 'host': None,
        }  # fmt: skip
        machine.database.insert('instances', [row])
        self._release(server.uuid)

    def _map(self, server: Server, machine: Machine) -> None:
        mapping = {
            'created_at': now(), 'instance_uuid': server.uuid, 'project_id': PROJECT,
            'user_id': USER, 'queued_for_delete': False,
            'cell_id': self.world.cell_ids[machine.compute.cell],
        }  # fmt: skip
        self.world.cloud.api.insert('instance_mappings', [mapping])

    def _release(self, uuid: str) -> None:
        self.placement.release(uuid)
        del self.world.expected[uuid]


def _held(allocation_request: str) -> Held:
    """What a server holds that was placed; nothing where nothing was claimed."""
    request = json.loads(allocation_request)
    allocations = request['allocations'] if request else {}
    return {provider: each['resources'] for provider, each in allocations.items()}
