# SPDX-License-Identifier: Apache-2.0
"""Those who ask: API and conductor, for tenants who boot, rebuild and delete
servers."""

import json
import time
from dataclasses import replace

import oslo_messaging

from tests.lab.compute_rows import now
from tests.lab.daemon import new_uuids
from tests.lab.nova_cloud import PROJECT, USER
from tests.lab.placement_api import PlacementApi
from tests.soak.books import BY_NOVA, CHANGED_MEANWHILE, LOST, MISSING
from tests.soak.twins import CONDUCTOR
from tests.soak.world import FAILED, TURNED_AWAY, WRONG, Server, draw

PATIENCE = 120
HEARTBEAT = 30  # seconds
EBBING = {'delete': 9, 'boot': 1}
"""Shares of what everybody does while there are too many servers."""
FAILS = 0.02
"""The share of servers that their computes cannot start."""


class Tenant:
    """One of several who act at the same time."""

    def __init__(self, caller, random, books, shares):
        """:param shares: how often it does what, by the names of its methods."""
        self.caller = caller
        self.random = random
        self.books = books
        self.shares = shares
        self.world = books.world
        self.journal = books.journal
        self.placement = PlacementApi(self.world.cloud.placement_url)

    def act(self):
        shares = EBBING if self.world.ebbing else self.shares
        [name] = self.random.choices(list(shares), list(shares.values()))
        getattr(self, name)()

    def boot(self):
        world = self.world
        group = world.take_group()
        wish = draw(self.random, group, world.some(self.random, 2))
        try:
            self._boot(wish)
        finally:
            if group:
                world.give_group(group)

    def _boot(self, wish):
        uuids = new_uuids(wish.count)
        kind = wish.kind()
        asked = time.monotonic()
        found = self._ask(kind, uuids)
        if found is None:
            if wish.name == 'plain':
                self.world.full()
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
                self.world.cloud.map_server(server.uuid, machine.compute.cell)
                self.world.joined(server)
                self.world.give(server)
            else:
                self.world.count(TURNED_AWAY)
                self._release(uuid)

    def rebuild(self):
        """Have it said that a server can be built anew where it is: nothing is
        claimed."""
        server = self.world.take(self.random)
        if server is None:
            return
        wish = replace(server.wish, count=1, group=None, avoided=())
        forced = [server.host]
        hints = {'_nova_check_type': ['rebuild']}
        kind = wish.kind(scheduler_hints=hints, force_hosts=forced, force_nodes=forced)
        found = self._ask(kind, [server.uuid])
        if found and found[0][0].name != server.host:
            self.world.wrong(WRONG, f'{server.uuid} is rebuilt on {found[0][0].name}')
        self.world.give(server)

    def delete(self):
        if server := self._take():
            self.delete_it(server)

    def delete_it(self, server):
        machine = self._machine(server)
        machine.leave(server)
        self._release(server.uuid)
        # Before its row: a scheduler that reads the row afterwards may choose the host.
        self.world.left(server)
        self._gone(machine, server)
        self._leaves(machine, server)

    def _take(self, suits=lambda _: True, is_alone=False):
        """A server that nobody works at, and whose allocations are right."""
        server = self.world.take(
            self.random, lambda each: suits(each) and not (is_alone and each.wish.group)
        )
        due = server and self.world.expected.get(server.uuid, {})
        if server is None or self.books.is_right(server.uuid, due):
            return server
        self.world.give(server)
        return None

    def _ask(self, kind, uuids, **more):
        """The host of each server with what it holds there; None if there is none.

        :param more: arguments that are not as they are for a build.
        """
        world = self.world
        world.count('requests')
        for uuid in uuids:
            self._note(uuid, 'asks')
        try:
            arguments = {**kind.arguments(uuids), **more}
            waits = {'timeout': PATIENCE, 'call_monitor_timeout': HEARTBEAT}
            found = self.caller.call('select_destinations', arguments, **waits)
        except oslo_messaging.MessagingException as error:
            if getattr(error, 'exc_type', None) == 'NoValidHost':
                world.count('refused')
            else:
                self._failed(uuids, error)
            for uuid in uuids:
                self._note(uuid, 'gets no host')
            return None
        world.count('answered')
        world.count('placed', len(found))
        chosen = [selections[0]['nova_object.data'] for selections in found]
        for uuid, each in zip(uuids, chosen, strict=False):
            self._note(uuid, f'gets {each["service_host"]}')
        return [
            (world.machines[each['service_host']], _held(each['allocation_request']))
            for each in chosen
        ]

    def _failed(self, uuids, error):
        """Note that there is neither a host nor the refusal that a conductor
        understands."""
        for uuid in uuids:
            self._note(uuid, f'is told {error!r:.300}')
        if isinstance(error, oslo_messaging.MessagingTimeout):
            self.books.told(LOST, uuids[0], repr(error))
        elif getattr(error, 'exc_type', None) == 'AllocationUpdateFailed':
            self.world.count(CHANGED_MEANWHILE)
        else:
            is_beside_nova = any(each.is_novas for each in self.books.schedulers)
            is_novas = is_beside_nova and 'novasched' not in str(
                getattr(error, 'traceback', '')
            )
            self.world.wrong(FAILED + BY_NOVA if is_novas else FAILED, repr(error))

    def _check(self, uuids, wish, kind, hosts, asked):
        """See that no host was unfit all the time since it was asked for."""
        for host in hosts:
            if host.unfit_since < asked:
                self.books.told(
                    WRONG, uuids[0], f'{host.name} was down, disabled or gone'
                )
            elif host.name in kind.more.get('ignore_hosts', ()):
                self.books.told(WRONG, uuids[0], f'{host.name} was to be ignored')
            elif (
                wish.aggregate not in (None, *host.aggregates)
                and host.aggregates_since < asked
            ):
                self.books.told(
                    WRONG, uuids[0], f'{host.name} was not in {wish.aggregate}'
                )
        if kind.group is None:
            return
        names = [host.name for host in hosts]
        before = kind.group['hosts']
        # Members that were deleted while a host was chosen may be seen or not.
        staying = self.world.hosts_of_members(wish.group, kind.group['members'])
        apart = len({*names}) == len(names) and not {*names} & {*staying.values()}
        together = len({*names, *before}) == 1
        policy = kind.group['policy']
        if (policy == 'anti-affinity' and not apart) or (
            policy == 'affinity' and len(before) < 2 and not together
        ):
            text = f'{policy} of {names} with {before}, where {staying} are left'
            self.books.told(WRONG, uuids[0], text)

    def _fail(self, server, machine):
        """A compute cannot start a server: it remains without a host, until it is
        deleted."""
        self.world.count('failed builds')
        row = {
            'created_at': now(), 'updated_at': now(), 'deleted': 0, 'uuid': server.uuid,
            'project_id': PROJECT, 'user_id': USER, 'vm_state': 'error', 'host': None,
        }  # fmt: skip
        machine.database.insert('instances', [row])
        self._release(server.uuid)

    def _release(self, uuid):
        self._note(uuid, 'releases everything')
        if self.world.expected.pop(uuid, None):
            try:
                self.placement.release(uuid)
            except AssertionError as error:
                self.books.told(MISSING, uuid, f'has nothing to release: {error}')

    def _gone(self, machine, server):
        """Let a server without a host be deleted."""
        self._note(server, 'deleted')
        instances = machine.database.table('instances')
        self._set(
            machine,
            server,
            deleted=instances.c.id,
            deleted_at=now(),
            vm_state='deleted',
        )
        self.world.count('deleted')

    def _set(self, machine, server, **columns):
        machine.database.update(
            'instances', {'updated_at': now(), **columns}, uuid=server.uuid
        )

    def _leaves(self, machine, server):
        """A compute tells schedulers that a server is no longer there."""
        told = {'host_name': machine.name, 'instance_uuid': server.uuid}
        self.caller.cast('delete_instance_info', told)

    def _machine(self, server):
        return self.world.machines[str(server.host)]

    def _note(self, server, what):
        consumer = server if isinstance(server, str) else server.uuid
        self.journal.note(consumer, CONDUCTOR, what)


def _held(allocation_request):
    """What a server holds that was placed; nothing where nothing was claimed."""
    request = json.loads(allocation_request)
    allocations = request['allocations'] if request else {}
    return {provider: each['resources'] for provider, each in allocations.items()}
