# SPDX-License-Identifier: Apache-2.0
"""Events in the cloud beside requests: the work of operators, failures, and reports of
computes."""

import datetime
import math
import os
import signal
import time
import uuid
from collections.abc import Callable

import sqlalchemy as sa

from novasched.placement.cleanup_task import LATE_CLAIM_S
from tests.lab.builders import a_uuid
from tests.lab.compute_rows import now
from tests.lab.large_cloud_hosts import FAST
from tests.lab.placement_api import Conflict
from tests.soak.world import ZONES, a_compute

REPORT_INTERVAL_S = 5.0
"""Seconds between two reports of a compute."""
DURATION_S = (2.0, 8.0)
"""The shortest and the longest duration of an event, in seconds."""
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
"""Weights of the events, by the names of methods."""
CALM = ('fall_silent', 'disable', 'add_host', 'remove_host', 'archive')
EVENT_SHARE = 0.5
"""Share of the steps in which an event happens."""


class Chaos:
    """Lets events happen. A single thread does all events, so that events do not
    interfere.

    :param daemons: the daemons that receive SIGHUP.
    :param hosts: the approximate number of hosts.
    :param is_calm: leave out events at which nova-scheduler fails, events of which
        nova-api alone notifies nova-scheduler, and SIGHUP, after which nova-scheduler
        rests for minutes.
    """

    def __init__(self, tenant, daemons, hosts, is_calm=False):
        self.world = tenant.world
        self.random = tenant.random
        self.daemons = daemons
        self.weights = dict(EVENTS)
        if is_calm:
            self.weights = {name: EVENTS[name] for name in EVENTS if name in CALM}
        self.tenant = tenant
        self.hosts = hosts
        self._later: list[tuple[float, Callable[[], None]]] = []
        self._leaving: set[str] = set()
        self._reported_at: dict[str, float] = {}

    def act(self):
        """Let computes report, end the events that are over, and let an event
        happen."""
        self._report_state()

        moment = time.monotonic()
        due = [undo for when, undo in self._later if when <= moment]
        self._later = [event for event in self._later if event[0] > moment]
        for undo in due:
            undo()

        if self.random.random() > EVENT_SHARE:
            return
        [name] = self.random.choices(list(self.weights), list(self.weights.values()))
        getattr(self, name)()
        self.world.events[name] += 1

    def fall_silent(self):
        """A compute does not report for a while."""
        machine = self._any()
        if machine.silent:
            return

        self._set(machine, {'last_seen_up': now() - LONG_AGO}, silent=True)
        self._after(lambda: self._set(machine, {'last_seen_up': now()}, silent=False))

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
        """A host moves to a zone by chance, and into or out of the fast aggregate."""
        machine = self._any()
        names = {self.random.choice(ZONES)}
        if self.random.random() < 0.6:
            names.add(FAST)
        self.world.change_members(machine, frozenset(names))

    def break_a_row(self):
        """A column of a compute node is unreadable until the next report."""
        machine = self._any()
        columns = (
            'stats',
            'metrics',
            'numa_topology',
            'pci_stats',
            'supported_instances',
        )
        column = self.random.choice(columns)
        machine.report(**{column: self.random.choice(GARBAGE)})
        self._after(machine.report)

    def stray_row(self):
        """For a while there is a compute node without a service or without resources,
        and without a resource provider in Placement."""
        cell = self.random.choice(sorted(self.world.cloud.cells))
        database = self.world.cloud.cells[cell]
        compute = a_compute(f'stray-{self.random.getrandbits(32):08x}', cell)

        row = compute.node_row()
        has_service = self.random.random() < 0.5
        if has_service:
            row['free_disk_gb'] = None
        database.insert('compute_nodes', [row])
        if has_service:
            version = self.world.cloud.nova.service_version
            database.insert('services', [compute.service_row(version)])

        def remove():
            database.delete('compute_nodes', host=compute.name)
            database.delete('services', host=compute.name)

        self._after(remove)

    def another_aggregate(self):
        """For a while there is an aggregate whose metadata has text in place of a
        number."""
        cloud = self.world.cloud
        name = str(uuid.uuid4())
        metadata = {'ram_weight_multiplier': 'much'}
        number = cloud.add_aggregate_rows(name, name, metadata, self._some(3))

        def remove():
            for table in ('aggregate_hosts', 'aggregate_metadata'):
                cloud.api.delete(table, aggregate_id=number)
            cloud.api.delete('aggregates', id=number)

        self._after(remove)

    def add_host(self):
        """A host comes, unless there are many hosts."""
        if len(self.world.machines) < self.hosts * 1.2:
            self.world.add_host()

    def remove_host(self):
        """A host goes after its last server, unless there are few hosts."""
        machine = self._any()
        has_few_hosts = len(self.world.machines) <= self.hosts * 0.8
        if has_few_hosts or machine.name in self._leaving:
            return

        self._leaving.add(machine.name)
        self._disable(machine)
        self._after(lambda: self._remove(machine))

    def _remove(self, machine):
        """Delete the idle servers of a host and the host, or try again later."""

        def is_on_host(server):
            return server.host == machine.name

        while server := self.world.take(self.random, is_on_host):
            self.tenant.delete_server(server)

        try:
            if machine.servers:
                raise Conflict('a tenant works with a server')
            self.world.placement.remove_provider(machine.compute.uuid)
        except Conflict:
            self._after(lambda: self._remove(machine))
            return

        del self.world.machines[machine.name]
        self._leaving.discard(machine.name)
        for name in ('services', 'compute_nodes'):
            table = machine.database.table(name)
            deletion = {'deleted': table.c.id, 'deleted_at': now()}
            machine.database.update(name, deletion, host=machine.name)
        self.world.cloud.api.delete('aggregate_hosts', host=machine.name)
        self.world.cloud.api.delete('host_mappings', host=machine.name)

    def archive(self):
        """Rows that were deleted some time ago leave the tables, with the cell mappings
        of instances."""
        for database in self.world.cloud.cells.values():
            for name in ('compute_nodes', 'services'):
                table = database.table(name)
                self._archive_rows(database, table, _is_deleted_long_ago(table))

            table = database.table('instances')
            has_failed = (table.c.vm_state == 'error') & table.c.host.is_(None)
            condition = _is_deleted_long_ago(table) | has_failed
            for row in self._archive_rows(database, table, condition):
                self.world.cloud.api.delete('instance_mappings', instance_uuid=row.uuid)

    @staticmethod
    def _archive_rows(database, table, condition):
        """Delete rows, and return them."""
        with database.engine.begin() as connection:
            rows = connection.execute(sa.select(table).where(condition)).all()
            # By ids, so that the statement locks no row that other threads write.
            ids = [row.id for row in rows]
            connection.execute(sa.delete(table).where(table.c.id.in_(ids)))
        return rows

    def hang_up(self):
        """An operator lets the daemons reload their configuration."""
        for daemon in self.daemons:
            os.kill(daemon.pid, signal.SIGHUP)

    def lose_a_cell(self):
        """For a while there is a third cell, whose database does not answer."""
        api = self.world.cloud.api
        cell = a_uuid('cell3')
        if api.rows('cell_mappings', uuid=cell):
            return

        row = {
            'created_at': now(),
            'uuid': cell,
            'name': 'cell3',
            'disabled': False,
            'transport_url': 'none:///',
            'database_connection': NOWHERE,
        }
        api.insert('cell_mappings', [row])
        self.hang_up()

        def remove():
            api.delete('cell_mappings', uuid=cell)
            self.hang_up()

        self._after(remove)

    def _report_state(self):
        """Let the computes whose report is due write that they are up, and announce
        their instances."""
        moment = time.monotonic()
        reporting = []
        for machine in self.world.machines.values():
            reported_at = self._reported_at.get(machine.name, -math.inf)
            if not machine.silent and reported_at <= moment - REPORT_INTERVAL_S:
                reporting.append(machine)
                self._reported_at[machine.name] = moment

        for database in self.world.cloud.cells.values():
            services = database.table('services')
            names = [each.name for each in reporting if each.database is database]
            statement = (
                sa.update(services)
                .where(services.c.host.in_(names))
                .values(last_seen_up=now(), report_count=services.c.report_count + 1)
            )
            with database.engine.begin() as connection:
                connection.execute(statement)

        for machine in reporting:
            arguments = {
                'host_name': machine.name,
                'instance_uuids': sorted(machine.servers),
            }
            self.tenant.caller.cast('sync_instance_info', arguments)

    def _disable(self, machine):
        self._set(machine, {'disabled': True, 'disabled_reason': 'soak'}, disabled=True)

    @staticmethod
    def _set(machine, values, **state):
        """Write columns of a service. Until the columns are written, it is unknown
        whether the host is fit.

        :param state: the attributes of the host that change.
        """
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
        """Call a function when the event is over."""
        end = time.monotonic() + self.random.uniform(*DURATION_S)
        self._later.append((end, undo))


def _is_deleted_long_ago(table):
    return (table.c.deleted != 0) & (table.c.deleted_at < now() - ARCHIVED_AFTER)
