# SPDX-License-Identifier: Apache-2.0
"""Conductors that move instances, with what nova does around the call of a scheduler:
in Placement with the allocations of the source, and in the cell database with the state
of the instance.

Whoever gets no destination asks again at once, so that it may be another scheduler's
turn.
"""

import time
from dataclasses import replace

import tenacity

from tests.lab.daemon import new_uuids
from tests.lab.descriptions import Case
from tests.lab.placement_api import Conflict
from tests.soak.books import COLLIDED, MISSING, REPEATED, STUCK, UNFIT
from tests.soak.tenants import Tenant
from tests.soak.world import FLAVORS, TURNED_AWAY, persistently

CELL_MAPPING = (
    'id',
    'uuid',
    'name',
    'disabled',
    'transport_url',
    'database_connection',
)
"""What a conductor tells of a cell, all of which nova-scheduler needs."""
ATTEMPTS = 4  # to move an instance
UNFIT_SHARE = 0.15
ABORTED_SHARE = 0.15
"""The shares of destinations that fail a check, and of moves that computes give up."""
AIMED_SHARE = 0.6
"""The share of moves that are to a host that somebody has named, unless the last
attempt fails."""
SHARES = {'boot': 80, 'delete': 8, 'rebuild': 3, 'move': 9}
SHARES_BESIDE = {
    'boot': 50, 'delete': 8, 'rebuild': 2, 'live_migrate': 12, 'resize': 12,
    'shelve_and_unshelve': 10, 'move': 10,
}  # fmt: skip
"""How often somebody does what, with one scheduler and with another beside it."""
MOVING_S = (0.0, 1.0)
"""Seconds from the answer to the arrival."""


class Conductor(Tenant):
    """One of several who act at the same time on what schedulers answer."""

    def __init__(self, caller, random, books, shares):
        super().__init__(caller, random, books, shares)
        self._cells = {
            row['name']: {name: row[name] for name in CELL_MAPPING}
            for row in self.world.cloud.api.rows('cell_mappings')
        }

    def live_migrate(self):
        """Move an instance that runs; until it has arrived the migration holds the
        source."""
        if server := self._take(is_alone=True):
            self._migrate(server, server.wish, 'migrating')

    def resize(self):
        if server := self._take(is_alone=True):
            is_plain = server.wish.flavor in FLAVORS
            flavor = self.random.choice(FLAVORS) if is_plain else server.wish.flavor
            self._migrate(server, replace(server.wish, flavor=flavor), 'resize_prep')

    def move(self):
        """Evacuate an instance: it is claimed for while it holds the source."""
        machines = self.world.machines
        server = self._take(lambda each: machines[str(each.host)].silent, is_alone=True)
        if server := server or self._take(is_alone=True):
            self.world.give(self._evacuate(server))

    def shelve_and_unshelve(self):
        """Take an instance off its host, and let it run again somewhere."""
        server = self._take(is_alone=True)
        if server is None:
            return
        source = self._machine(server)
        source.leave(server)
        self._note(server, 'shelved')
        self._release(server.uuid)
        self._set(source, server, host=None, node=None, vm_state='shelved_offloaded')
        self._leaves(source, server)
        shelved = replace(server, host=None, core=None)
        for aim in self._attempts(source):
            self._set(source, server, task_state='unshelving')
            found = self._schedule(shelved, server.wish, source, 'unshelve', [], aim)
            if found and self._arrives(shelved, found):
                self.world.count('moved')
                self.world.give(shelved)
                return
            if found:
                self._release(server.uuid)
            self._set(source, server, task_state=None)
        self._gone(source, server)

    def _migrate(self, server, wish, task_state):
        """Move an instance by a migration, which holds the source meanwhile."""
        source = self._machine(server)
        ignored = [str(server.host)]
        for aim in self._attempts(source):
            self._set(source, server, task_state=task_state)
            [migration] = new_uuids()
            if not self._hand_over(server.uuid, migration):
                break
            found = self._schedule(server, wish, source, task_state, ignored, aim)
            if found:
                arriving = replace(server, wish=wish, core=None)
                if self._arrives(arriving, found):
                    self._ends(server, arriving, source, migration)
                    return
            self._hand_over(migration, server.uuid)
            self._set(source, server, task_state=None)
        self.world.give(server)

    def _ends(self, server, arriving, source, migration):
        """A move is confirmed, or an arrived instance goes back to where it was."""
        if self.random.random() >= ABORTED_SHARE:
            source.leave(server)
            self._release(migration)
            self._leaves(source, server)
            self.world.count('moved')
            self.world.give(arriving)
            return
        self._note(server, 'reverted')
        self.world.count('reverted')
        destination = self._machine(arriving)
        destination.leave(arriving)
        self._hand_over(migration, server.uuid)
        self._set(source, server, host=source.name, node=source.name, task_state=None)
        self._leaves(destination, server)
        self._migrate(server, arriving.wish, 'resize_prep')

    def _evacuate(self, server):
        """The instance where it is then."""
        world = self.world
        source = self._machine(server)
        ignored = [str(server.host)]
        before = world.expected.get(server.uuid, {})
        for aim in self._attempts(source):
            self._set(source, server, vm_state='active', task_state='rebuilding')
            found = self._schedule(
                server, server.wish, source, 'evacuate', ignored, aim, before
            )
            if found:
                arriving = replace(server, core=None)
                if self._arrives(arriving, found):
                    source.leave(server)
                    self._drop(server, source)
                    self._leaves(source, server)
                    world.count('moved')
                    return arriving
                self._drop(server, found)
            self._set(source, server, vm_state='error', task_state=None)
        self._set(source, server, vm_state='active', task_state=None)
        return server

    def _schedule(self, server, wish, source, what, ignored, aim, before=None):
        """A destination that passes the checks of computes; None where none is found.
        Those that do not pass are added to ``ignored``.

        :param aim: the only host that will do.
        :param before: what the instance goes on to hold.
        """
        world = self.world
        kept = before or {}
        where: Case = {'cell': self._cells[source.compute.cell]}
        if aim:
            where |= {'host': aim, 'node': aim}
        wish = replace(wish, count=1, avoided=())
        while True:
            kind = wish.kind(ignore_hosts=[*ignored], requested_destination=where)
            asked = time.monotonic()
            self._note(server, f'moves by {what}, to {aim or "any"} but {ignored}')
            found = self._ask(
                kind, [server.uuid], return_alternates=what == 'resize_prep'
            )
            if not found:
                return None
            [(machine, held)] = found
            world.expected[server.uuid] = {**held, **kept}
            self.books.is_right(server.uuid, {**held, **kept})
            self._check([server.uuid], wish, kind, [machine], asked)
            if self.random.random() >= UNFIT_SHARE:
                return machine
            self.world.count(UNFIT)
            self._drop(server, machine)
            if aim:
                return None
            ignored.append(machine.name)

    def _attempts(self, source):
        """The hosts that the attempts of a move are to go to, where somebody has named
        one."""
        suitable = [
            each.name
            for each in list(self.world.machines.values())
            if each is not source and each.compute.cell == source.compute.cell
            if not each.silent and not each.disabled
        ]
        is_aimed = suitable and self.random.random() < AIMED_SHARE
        aim = self.random.choice(suitable) if is_aimed else None
        yield aim
        for each in (*[aim] * (ATTEMPTS - 2), None):
            self.world.count(REPEATED)
            yield each

    def _arrives(self, arriving, machine):
        """Whether the destination can take the instance after a while."""
        time.sleep(self.random.uniform(*MOVING_S))
        if self.random.random() < ABORTED_SHARE:
            self.world.count(UNFIT)
            return False
        if not machine.land(arriving, vm_state='active', task_state=None):
            self.world.count(TURNED_AWAY)
            return False
        self._note(arriving, f'runs on {machine.name}')
        return True

    def _hand_over(self, consumer, other):
        """Let another consumer hold what one holds; False where there is nothing."""
        try:
            is_done = self._change(self.placement.hand_over, consumer, other)
        except tenacity.RetryError as error:
            # A consumer that was left without allocations has a generation that nobody
            # is told.
            self.books.told(STUCK, other, str(error.last_attempt.exception()))
            is_done = self._change(self.placement.hand_over, consumer, other, 0)
        self._note(consumer, f'hands over to {other}: {is_done}')
        self._note(other, f'takes over from {consumer}: {is_done}')
        due = self.world.expected.pop(consumer, None)
        if is_done and due:
            self.world.expected[other] = due
        elif due:
            self.books.told(MISSING, consumer, f'holds nothing instead of {due}')
        return bool(is_done)

    def _drop(self, server, machine):
        """Let an instance hold nothing of a host any more."""
        self._change(self.placement.drop, server.uuid, machine.compute.uuid)
        self._note(server, f'drops {machine.name}')
        due = self.world.expected.get(server.uuid, {})
        left = {p: amounts for p, amounts in due.items() if p != machine.compute.uuid}
        self.world.expected.pop(server.uuid, None)
        if left:
            self.world.expected[server.uuid] = left

    def _change(self, change, *arguments):
        """Change allocations, however often somebody else comes between. nova would
        give up where that is a change of the same consumer."""

        def once():
            try:
                return change(*arguments)
            except Conflict as error:
                if 'consumer generation conflict' in str(error):
                    self.world.count(COLLIDED)
                    self._note(arguments[0], f'collides: {str(error)[-300:]}')
                raise

        return persistently(once)
