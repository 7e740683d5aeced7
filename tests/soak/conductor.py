# SPDX-License-Identifier: Apache-2.0
"""Conductors that move instances. Around the call of a scheduler they move the
allocations of the source in Placement, and change the state of the instance in the cell
database.

A conductor without a destination asks again at once, so that another scheduler may get
the request.
"""

import time
from dataclasses import replace

import tenacity

from tests.lab.daemon import new_uuids
from tests.lab.descriptions import Case
from tests.lab.placement_api import Conflict
from tests.soak.allocation_audit import COLLIDED, MISSING, REPEATED, STUCK, UNFIT
from tests.soak.tenants import Tenant
from tests.soak.world import FLAVORS, TURNED_AWAY, retrying_conflicts

CELL_MAPPING = (
    'id',
    'uuid',
    'name',
    'disabled',
    'transport_url',
    'database_connection',
)
"""The fields of a cell mapping in a request; nova-scheduler needs all of them."""
ATTEMPTS = 4  # to move an instance
UNFIT_SHARE = 0.15
"""Share of destinations that fail a check."""
ABORTED_SHARE = 0.15
"""Share of moves that computes give up."""
REQUESTED_SHARE = 0.6
"""Share of moves to a requested host. The last attempt is a move to any host."""
SHARES = {'boot': 80, 'delete': 8, 'rebuild': 3, 'move': 9}
"""Shares of the actions with one scheduler."""
SHARES_BESIDE = {
    'boot': 50,
    'delete': 8,
    'rebuild': 2,
    'live_migrate': 12,
    'resize': 12,
    'shelve_and_unshelve': 10,
    'move': 10,
}
"""Shares of the actions with two schedulers."""
MOVING_S = (0.0, 1.0)
"""Seconds from the answer to the arrival."""


class Conductor(Tenant):
    """A tenant whose instances also move."""

    def __init__(self, caller, random, audit, shares):
        super().__init__(caller, random, audit, shares)
        self._cells = {}
        for row in self.world.cloud.api.rows('cell_mappings'):
            self._cells[row['name']] = {name: row[name] for name in CELL_MAPPING}

    def live_migrate(self):
        """Move a running instance. Until its arrival the migration has the allocations
        of the source."""
        if server := self._take(is_alone=True):
            self._migrate(server, server.template, 'migrating')

    def resize(self):
        """Resize an instance with an ordinary flavor, or migrate another instance."""
        if server := self._take(is_alone=True):
            flavor = server.template.flavor
            if flavor in FLAVORS:
                flavor = self.random.choice(FLAVORS)
            template = replace(server.template, flavor=flavor)
            self._migrate(server, template, 'resize_prep')

    def move(self):
        """Evacuate an instance, by preference from a host that is down. The instance
        keeps the allocations of the source while the destination is claimed."""
        machines = self.world.machines

        def is_on_silent_host(server):
            return machines[str(server.host)].silent

        server = self._take(is_on_silent_host, is_alone=True)
        if server is None:
            server = self._take(is_alone=True)
        if server:
            self.world.give(self._evacuate(server))

    def shelve_and_unshelve(self):
        """Shelve and offload an instance, and unshelve it."""
        server = self._take(is_alone=True)
        if server is None:
            return

        source = self._machine(server)
        source.leave(server)
        self._note(server.uuid, 'shelved')
        self._release(server.uuid)
        self._set(source, server, host=None, node=None, vm_state='shelved_offloaded')
        self._announce_departure(source, server)

        shelved = replace(server, host=None, core=None)
        for requested in self._attempts(source):
            self._set(source, server, task_state='unshelving')
            destination = self._schedule(
                shelved, server.template, source, 'unshelve', [], requested
            )
            if destination and self._arrives(shelved, destination):
                self.world.count('moved')
                self.world.give(shelved)
                return
            if destination:
                self._release(server.uuid)
            self._set(source, server, task_state=None)
        self._mark_deleted(source, server)

    def _migrate(self, server, template, task_state):
        """Move an instance by a migration, which has the allocations of the source
        until the instance arrives."""
        source = self._machine(server)
        ignored = [str(server.host)]
        for requested in self._attempts(source):
            self._set(source, server, task_state=task_state)
            [migration] = new_uuids()
            if not self._hand_over(server.uuid, migration):
                break

            destination = self._schedule(
                server, template, source, task_state, ignored, requested
            )
            if destination:
                arriving = replace(server, template=template, core=None)
                if self._arrives(arriving, destination):
                    self._finish(server, arriving, source, migration)
                    return

            self._hand_over(migration, server.uuid)
            self._set(source, server, task_state=None)
        self.world.give(server)

    def _finish(self, server, arriving, source, migration):
        """Confirm a migration, or revert it by a move back to the source."""
        if self.random.random() >= ABORTED_SHARE:
            source.leave(server)
            self._release(migration)
            self._announce_departure(source, server)
            self.world.count('moved')
            self.world.give(arriving)
            return

        self._note(server.uuid, 'reverted')
        self.world.count('reverted')
        destination = self._machine(arriving)
        destination.leave(arriving)
        self._hand_over(migration, server.uuid)
        self._set(source, server, host=source.name, node=source.name, task_state=None)
        self._announce_departure(destination, server)
        self._migrate(server, arriving.template, 'resize_prep')

    def _evacuate(self, server):
        """The instance on its new host, or on the source if no attempt succeeds."""
        world = self.world
        source = self._machine(server)
        ignored = [str(server.host)]
        before = world.expected.get(server.uuid, {})
        for requested in self._attempts(source):
            self._set(source, server, vm_state='active', task_state='rebuilding')
            destination = self._schedule(
                server, server.template, source, 'evacuate', ignored, requested, before
            )
            if destination:
                arriving = replace(server, core=None)
                if self._arrives(arriving, destination):
                    source.leave(server)
                    self._drop(server, source)
                    self._announce_departure(source, server)
                    world.count('moved')
                    return arriving
                self._drop(server, destination)
            self._set(source, server, vm_state='error', task_state=None)

        self._set(source, server, vm_state='active', task_state=None)
        return server

    def _schedule(
        self, server, template, source, kind_of_move, ignored, requested, before=None
    ):
        """A destination that passes the checks of computes; None without a destination.
        Hosts that do not pass are added to ``ignored``.

        :param requested: the name of the requested host, or None for any host.
        :param before: the allocations that the instance keeps.
        """
        world = self.world
        kept = before or {}
        destination: Case = {'cell': self._cells[source.compute.cell]}
        if requested:
            destination |= {'host': requested, 'node': requested}
        template = replace(template, count=1, avoided=())

        while True:
            kind = template.kind(
                ignore_hosts=[*ignored], requested_destination=destination
            )
            asked_at = time.monotonic()
            self._note(
                server.uuid,
                f'moves by {kind_of_move}, to {requested or "any"} but {ignored}',
            )
            placements = self._ask(
                kind, [server.uuid], return_alternates=kind_of_move == 'resize_prep'
            )
            if not placements:
                return None

            [(machine, allocations)] = placements
            due = {**allocations, **kept}
            world.expected[server.uuid] = due
            self.audit.is_right(server.uuid, due)
            self._check([server.uuid], template, kind, [machine], asked_at)
            if self.random.random() >= UNFIT_SHARE:
                return machine

            self.world.count(UNFIT)
            self._drop(server, machine)
            if requested:
                return None
            ignored.append(machine.name)

    def _attempts(self, source):
        """The requested host of each attempt to move, or None for any host."""
        suitable = []
        for machine in list(self.world.machines.values()):
            is_elsewhere = machine is not source
            is_same_cell = machine.compute.cell == source.compute.cell
            is_up = not machine.silent and not machine.disabled
            if is_elsewhere and is_same_cell and is_up:
                suitable.append(machine.name)

        requested = None
        if suitable and self.random.random() < REQUESTED_SHARE:
            requested = self.random.choice(suitable)

        yield requested
        for _ in range(ATTEMPTS - 2):
            self.world.count(REPEATED)
            yield requested
        self.world.count(REPEATED)
        yield None

    def _arrives(self, arriving, machine):
        """Move the instance to its destination; False if the destination fails."""
        time.sleep(self.random.uniform(*MOVING_S))
        if self.random.random() < ABORTED_SHARE:
            self.world.count(UNFIT)
            return False
        if not machine.land(arriving, vm_state='active', task_state=None):
            self.world.count(TURNED_AWAY)
            return False
        self._note(arriving.uuid, f'runs on {machine.name}')
        return True

    def _hand_over(self, consumer, successor):
        """Move the allocations of a consumer to another consumer; False if there are no
        allocations."""
        hand_over = self.placement.hand_over
        try:
            is_done = self._change(hand_over, consumer, successor)
        except tenacity.RetryError as error:
            # Placement does not show the generation of a consumer without allocations.
            reason = str(error.last_attempt.exception())
            self.audit.report_wrong(STUCK, successor, reason)
            is_done = self._change(hand_over, consumer, successor, 0)
        self._note(consumer, f'hands over to {successor}: {is_done}')
        self._note(successor, f'takes over from {consumer}: {is_done}')

        due = self.world.expected.pop(consumer, None)
        if is_done and due:
            self.world.expected[successor] = due
        elif due:
            text = f'holds nothing instead of {due}'
            self.audit.report_wrong(MISSING, consumer, text)
        return bool(is_done)

    def _drop(self, server, machine):
        """Delete the allocations of an instance on a host."""
        provider = machine.compute.uuid
        self._change(self.placement.drop, server.uuid, provider)
        self._note(server.uuid, f'drops {machine.name}')

        remaining = dict(self.world.expected.pop(server.uuid, {}))
        remaining.pop(provider, None)
        if remaining:
            self.world.expected[server.uuid] = remaining

    def _change(self, change, *arguments):
        """Change allocations, and repeat a change that meets another writer. nova would
        give up if the other writer changed the same consumer."""

        def change_once():
            try:
                return change(*arguments)
            except Conflict as error:
                if 'consumer generation conflict' in str(error):
                    self.world.count(COLLIDED)
                    self._note(arguments[0], f'collides: {str(error)[-300:]}')
                raise

        return retrying_conflicts(change_once)
