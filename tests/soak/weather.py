# SPDX-License-Identifier: Apache-2.0
"""What happens to the cloud beside requests: operators, failures, and the passing of
time."""

import datetime
import math
import os
import signal
import time
import uuid
from collections.abc import Callable

import sqlalchemy as sa

from novasched.placement.cleanup import LATE_CLAIM_S
from tests.lab.builders import a_uuid
from tests.lab.compute_rows import now
from tests.lab.large_cloud_hosts import FAST
from tests.lab.placement_api import Conflict
from tests.soak.world import ZONES, a_compute

SHOWS = 5.0
"""Seconds after which a compute shows again that it is up."""
LASTS = (2.0, 8.0)  # seconds: how short and how long something lasts
LONG_AGO = datetime.timedelta(hours=1)
ARCHIVED_AFTER = datetime.timedelta(seconds=LATE_CLAIM_S)
GARBAGE = (
    '{',
    '[]',
    '"text"',
    'null',
    '\x00',
    '[{"nova_object.name": 1}]',
    '{"a": {"b": [{}]}}',
)
NOWHERE = 'mysql+pymysql://nova:nothing-there@127.0.0.1:1/nova_cell3'
EVENTS = {
    'fall_silent': 14,
    'disable': 10,
    'change_aggregates': 14,
    'break_a_row': 14,
    'stray_row': 6,
    'another_aggregate': 6,
    'add_host': 8,
    'remove_host': 8,
    'archive': 10,
    'hang_up': 6,
    'lose_a_cell': 2,
}
"""How often what happens, by the names of methods."""
CALM = ('fall_silent', 'disable', 'add_host', 'remove_host', 'archive')
BY_CHANCE = 0.5
"""The chance that something happens in a step."""


class Weather:
    """One who acts, so that nothing of all that crosses something else of it."""

    def __init__(self, tenant, daemons, hosts, is_calm=False):
        """:param daemons: those that SIGHUP is sent to.
        :param hosts: about how many there are.
        :param is_calm: nothing happens that nova-scheduler fails at, or that it is told of by
            nova-api alone, nor SIGHUP, after which nova-scheduler rests for minutes.
        """
        self.world = tenant.world
        self.random = tenant.random
        self.daemons = daemons
        self.events = {
            name: n for name, n in EVENTS.items() if name in CALM or not is_calm
        }
        self.tenant = tenant
        self.hosts = hosts
        self._later: list[tuple[float, Callable[[], None]]] = []
        self._leaving: set[str] = set()
        self._heard: dict[str, float] = {}

    def act(self):
        """Let time pass, undo what has lasted long enough, and let something happen."""
        self._show_up()
        moment = time.monotonic()
        due = [undo for when, undo in self._later if when <= moment]
        self._later = [each for each in self._later if each[0] > moment]
        for undo in due:
            undo()
        if self.random.random() > BY_CHANCE:
            return
        [name] = self.random.choices(list(self.events), list(self.events.values()))
        getattr(self, name)()
        self.world.events[name] += 1

    def fall_silent(self):
        """A compute is heard of no more for a while."""
        machine = self._any()
        if not machine.silent:
            self._set(machine, {'last_seen_up': now() - LONG_AGO}, silent=True)
            self._after(
                lambda: self._set(machine, {'last_seen_up': now()}, silent=False)
            )

    def disable(self):
        """An operator disables a compute for a while."""
        machine = self._any()
        if machine.disabled:
            return
        self._disable(machine)

        def enable():
            if machine.name not in self._leaving:
                values = {'disabled': False, 'disabled_reason': None}
                self._set(machine, values, disabled=False)

        self._after(enable)

    def change_aggregates(self):
        """A host comes into another zone, or into the fast aggregate, or out of it."""
        machine = self._any()
        zone = self.random.choice(ZONES)
        fast = {FAST} if self.random.random() < 0.6 else set()
        self.world.change_members(machine, frozenset({zone, *fast}))

    def break_a_row(self):
        """A column of a compute node cannot be read, until its next report."""
        machine = self._any()
        columns = (
            'stats',
            'metrics',
            'numa_topology',
            'pci_stats',
            'supported_instances',
        )
        machine.report(**{self.random.choice(columns): self.random.choice(GARBAGE)})
        self._after(machine.report)

    def stray_row(self):
        """A compute node is there without its service, or without its resources, for a
        while; nor does Placement know of it."""
        cell = self.random.choice(sorted(self.world.cloud.cells))
        database = self.world.cloud.cells[cell]
        compute = a_compute(f'stray-{self.random.getrandbits(32):08x}', cell)
        unknown = {'free_disk_gb': None} if self.random.random() < 0.5 else {}
        database.insert('compute_nodes', [{**compute.node_row(), **unknown}])
        if unknown:
            version = self.world.cloud.nova.service_version
            database.insert('services', [compute.service_row(version)])

        def gone():
            database.delete('compute_nodes', host=compute.name)
            database.delete('services', host=compute.name)

        self._after(gone)

    def another_aggregate(self):
        """There is one aggregate more for a while, whose metadata no number can be read
        from."""
        cloud = self.world.cloud
        name = str(uuid.uuid4())
        metadata = {'ram_weight_multiplier': 'much'}
        number = cloud.add_aggregate_rows(name, name, metadata, self._some(3))

        def gone():
            for table in ('aggregate_hosts', 'aggregate_metadata'):
                cloud.api.delete(table, aggregate_id=number)
            cloud.api.delete('aggregates', id=number)

        self._after(gone)

    def add_host(self):
        if len(self.world.machines) < self.hosts * 1.2:
            self.world.add_host()

    def remove_host(self):
        """A compute goes, as soon as no server is there any more."""
        machine = self._any()
        if (
            len(self.world.machines) > self.hosts * 0.8
            and machine.name not in self._leaving
        ):
            self._leaving.add(machine.name)
            self._disable(machine)
            self._after(lambda: self._remove(machine))

    def _remove(self, machine):
        while server := self.world.take(
            self.random, lambda each: each.host == machine.name
        ):
            self.tenant.delete_it(server)
        try:
            if machine.servers:
                raise Conflict('somebody works at a server')
            self.world.placement.remove_provider(machine.compute.uuid)
        except Conflict:
            self._after(lambda: self._remove(machine))
            return
        del self.world.machines[machine.name]
        self._leaving.discard(machine.name)
        for name in ('services', 'compute_nodes'):
            gone = {'deleted': machine.database.table(name).c.id, 'deleted_at': now()}
            machine.database.update(name, gone, host=machine.name)
        self.world.cloud.api.delete('aggregate_hosts', host=machine.name)
        self.world.cloud.api.delete('host_mappings', host=machine.name)

    def archive(self):
        """What was deleted some time ago leaves the tables, with its mapping to a
        cell."""
        for database in self.world.cloud.cells.values():
            for name in ('instances', 'compute_nodes', 'services'):
                table = database.table(name)
                done = (table.c.deleted != 0) & (
                    table.c.deleted_at < now() - ARCHIVED_AFTER
                )
                if name == 'instances':
                    done |= (table.c.vm_state == 'error') & table.c.host.is_(None)
                # By their ids, so that no row is locked that others write.
                with database.engine.begin() as connection:
                    rows = connection.execute(sa.select(table).where(done)).all()
                    connection.execute(
                        sa.delete(table).where(table.c.id.in_([x.id for x in rows]))
                    )
                for row in rows if name == 'instances' else ():
                    self.world.cloud.api.delete(
                        'instance_mappings', instance_uuid=row.uuid
                    )

    def hang_up(self):
        for daemon in self.daemons:
            os.kill(daemon.pid, signal.SIGHUP)

    def lose_a_cell(self):
        """There is a third cell for a while, where nobody answers."""
        api = self.world.cloud.api
        cell = a_uuid('cell3')
        if api.rows('cell_mappings', uuid=cell):
            return
        row = {
            'created_at': now(), 'uuid': cell, 'name': 'cell3', 'disabled': False,
            'transport_url': 'none:///', 'database_connection': NOWHERE,
        }  # fmt: skip
        api.insert('cell_mappings', [row])
        self.hang_up()

        def gone():
            api.delete('cell_mappings', uuid=cell)
            self.hang_up()

        self._after(gone)

    def _show_up(self):
        """A part of the computes write that they are up, and tell which servers they
        have."""
        moment = time.monotonic()
        up = [
            each
            for each in self.world.machines.values()
            if not each.silent
            and self._heard.get(each.name, -math.inf) <= moment - SHOWS
        ]
        self._heard.update((each.name, moment) for each in up)
        for database in self.world.cloud.cells.values():
            services = database.table('services')
            count = services.c.report_count + 1
            here = services.c.host.in_(
                [each.name for each in up if each.database is database]
            )
            with database.engine.begin() as connection:
                statement = sa.update(services).where(here)
                connection.execute(
                    statement.values(last_seen_up=now(), report_count=count)
                )
        for each in up:
            told = {'host_name': each.name, 'instance_uuids': sorted(each.servers)}
            self.tenant.caller.cast('sync_instance_info', told)

    def _disable(self, machine):
        self._set(machine, {'disabled': True, 'disabled_reason': 'soak'}, disabled=True)

    @staticmethod
    def _set(machine, values, **state):
        """Write a service's columns; while that is done nobody knows what it is fit
        for."""
        since = machine.unfit_since
        machine.unfit_since = math.inf
        vars(machine).update(state)
        machine.database.update('services', values, host=machine.name)
        if machine.silent or machine.disabled:
            machine.unfit_since = since if since < math.inf else time.monotonic()

    def _any(self):
        return self.world.machines[self._some(1)[0]]

    def _some(self, count):
        return self.random.sample(sorted(self.world.machines), count)

    def _after(self, undo):
        self._later.append((time.monotonic() + self.random.uniform(*LASTS), undo))
