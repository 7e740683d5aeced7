# SPDX-License-Identifier: Apache-2.0
"""nova's databases with the rows of a test: an API database and two cells. A story
changes rows between requests, and compares the hosts that a request sees."""

import json
import math
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta

import sqlalchemy as sa
from hypothesis import strategies as st
from oslo_config import cfg
from oslo_db import options

from novasched.cells.aggregates import AggregateReader
from novasched.cells.database import Database
from novasched.cells.host_reader import HostReader
from novasched.cells.mappings import CELL0, Cells
from novasched.cells.servicegroup import DatabaseServiceGroup
from novasched.conf.settings import Settings
from novasched.scheduler.claims.pending_claims import PendingClaims
from novasched.scheduler.model.basis import FRESH
from novasched.tools.sandbox import databases as tables
from tests.lab.builders import a_needs, a_request, a_uuid

NOW = datetime(2026, 11, 21, 12, 0, 0)


def _engine(url):
    """An engine. SQLite does not wait for the disk, since the rows are worth nothing
    after a crash."""
    engine = sa.create_engine(url)
    if engine.dialect.name == 'sqlite':
        sa.event.listen(
            engine,
            'connect',
            lambda raw, _: raw.execute('pragma synchronous = off') and None,
        )
    return engine


def database_options(**values):
    """The options of ``[database]`` with values."""
    conf = cfg.ConfigOpts()
    conf.register_opts(options.database_opts, group='database')
    conf([])
    for name, value in values.items():
        conf.set_override(name, value, 'database')
    return conf.database


def hosts_of(reader, request=None, uuids=None, basis=FRESH, **needs):
    """The hosts that a request sees, by the names of their nodes."""
    hosts = reader.read(uuids, request or a_request(), a_needs(**needs), basis).hosts
    return {host.nodename: host for host in hosts.values()}


class NovaDatabases:
    """Databases of a test, and readers of the databases.

    :param url_of: a function from a name to the URL of an empty database.
    :param patience: seconds that a reader waits for a cell.
    :ivar now: the time of the readers.
    :ivar group: the service group of the readers, or None for the default.
    """

    def __init__(self, url_of, patience=math.inf):
        self.now = NOW
        self.group = None
        self.urls = {name: url_of(name) for name in ('api', 'cell1', 'cell2')}
        self.api = _engine(self.urls['api'])
        # Before the first connection: the database tracks all of its connections.
        api = Database(self.api, 'API database')
        tables.api.create_all(self.api)
        self.engines = {}
        cell0 = {
            'id': 1,
            'uuid': CELL0,
            'name': 'cell0',
            'database_connection': 'none://',
        }
        self.add(self.api, tables.cell_mappings, **cell0)
        for number, name in enumerate(('cell1', 'cell2'), 2):
            self.engines[name] = _engine(self.urls[name])
            tables.main.create_all(self.engines[name])
            self.add(
                self.api,
                tables.cell_mappings,
                id=number,
                uuid=a_uuid(name),
                name=name,
                database_connection=self.urls[name],
                disabled=False,
            )
        self.options = database_options()
        self.cells = Cells(api, self.options, patience)

    def close(self):
        for engine in (self.api, *self.engines.values()):
            engine.dispose()
        self.cells.close()
        self.cells.api.close()

    def add(self, engine, table, **values):
        with engine.begin() as connection:
            connection.execute(sa.insert(table).values(values))

    def sql(self, where, *statements):
        """Run statements in ``api`` or in a cell; the rows of the last statement, if it
        is a query."""
        with {'api': self.api, **self.engines}[where].begin() as connection:
            for statement in statements:
                result = connection.execute(sa.text(statement))
            if result.returns_rows:
                return result.all()
            return None

    def add_host(self, name, cell='cell1', node=None, service=True, **changes):
        """Add a host with a service and a mapping.

        :param changes: columns of the node that differ.
        """
        engine = self.engines[cell]
        values = {
            'uuid': a_uuid(node or name),
            'host': name,
            'hypervisor_hostname': node or name,
            'vcpus': 8,
            'vcpus_used': 0,
            'memory_mb': 8192,
            'memory_mb_used': 0,
            'free_ram_mb': 8192,
            'local_gb': 100,
            'local_gb_used': 0,
            'free_disk_gb': 100,
            'hypervisor_type': 'fake',
            'hypervisor_version': 1,
            'cpu_info': '',
            'stats': json.dumps({}),
            'deleted': 0,
        }
        self.add(engine, tables.compute_nodes, **{**values, **changes})
        if service:
            self.add_service(name, engine)
        if node is None:
            number = 2 + sorted(self.engines).index(cell)
            self.add(self.api, tables.host_mappings, cell_id=number, host=name)

    def add_service(self, host, engine, **changes):
        values = {
            'host': host,
            'binary': 'nova-compute',
            'last_seen_up': NOW,
            'deleted': 0,
        }
        self.add(engine, tables.services, **{**values, **changes})

    def add_aggregate(self, number, hosts, **metadata):
        self.add(
            self.api,
            tables.aggregates,
            id=number,
            uuid=a_uuid(f'agg{number}'),
            name=f'agg{number}',
        )
        for host in hosts:
            self.add(self.api, tables.aggregate_hosts, aggregate_id=number, host=host)
        for key, value in metadata.items():
            self.add(
                self.api,
                tables.aggregate_metadata,
                aggregate_id=number,
                key=key,
                value=value,
            )

    @contextmanager
    def watched(self):
        """The statements of readers during a block, with their parameters."""
        statements = []

        def note(connection, cursor, statement, parameters, context, many):
            statements.append((' '.join(statement.split()), parameters))

        engines = [self.cells.api.engine]
        engines += [cell.database.engine for cell in self.cells.all()]
        for engine in engines:
            sa.event.listen(engine, 'before_cursor_execute', note)
        try:
            yield statements
        finally:
            for engine in engines:
                sa.event.remove(engine, 'before_cursor_execute', note)

    def reader(self, **settings):
        self.cells.refresh()
        aggregates = AggregateReader(self.cells.api)
        values = Settings(**settings)
        pending_claims = PendingClaims(values)
        group = self.group or DatabaseServiceGroup(values.service_down_time)
        return HostReader(
            values, self.cells, aggregates, pending_claims, group, lambda: self.now
        )


HOSTS = tuple(f'h{i}' for i in range(5))
CELLS = ('cell1', 'cell2')
AGGREGATES = (1, 2)
CELL_TABLES = (tables.compute_nodes, tables.services)
API_TABLES = (tables.aggregates, tables.aggregate_metadata, tables.aggregate_hosts)

NODE = {
    'free_ram_mb': (1024, 2048, 4096),
    'vcpus_used': (0, 1, 2),
    'free_disk_gb': (None, 10, 20),
    'stats': ('{}', '{"num_instances": "1"}', '{"num_instances": "2"}', 'broken'),
    'numa_topology': (None, '{"cells": []}', 'broken'),
    'cpu_allocation_ratio': (0.0, 4.0),
}
SERVICE = {
    'disabled': (True, False),
    'forced_down': (True, False),
    'version': (70, 73),
    'disabled_reason': (None, 'a', 'b'),
    'last_seen_up': (
        NOW,
        NOW - timedelta(seconds=90),
        NOW + timedelta(seconds=90),
        None,
    ),
}
CLOCKS = (NOW, NOW - timedelta(hours=1), NOW + timedelta(seconds=30), None)
"""The clocks of writers. Two changes often have the same time."""


def _changes(columns):
    values = {name: st.sampled_from(column) for name, column in columns.items()}
    return st.fixed_dictionaries({}, optional=values)


_host = st.sampled_from(HOSTS)
_cell = st.sampled_from(CELLS)
_hosts = st.lists(_host, min_size=1, unique=True)
_stamp = st.fixed_dictionaries({'updated_at': st.sampled_from(CLOCKS)})
STEP = st.one_of(
    st.tuples(
        st.just('update'), st.just('compute_nodes'), _hosts, _changes(NODE), _stamp
    ),
    st.tuples(
        st.just('update'), st.just('services'), _hosts, _changes(SERVICE), _stamp
    ),
    st.tuples(st.just('delete'), st.just('compute_nodes'), _host),
    st.tuples(st.just('delete'), st.just('services'), _host),
    st.tuples(st.just('erase_node'), _host),
    st.tuples(st.just('move'), _host, _cell),
    st.tuples(st.just('back_up')),
    st.tuples(st.just('restore')),
    st.tuples(st.just('rename'), st.sampled_from(AGGREGATES), st.sampled_from('abc')),
    st.tuples(st.just('label'), st.sampled_from(AGGREGATES), st.sampled_from('abc')),
    st.tuples(st.just('join'), _host, st.sampled_from(AGGREGATES)),
    st.tuples(st.just('leave'), _host, st.sampled_from(AGGREGATES)),
    st.tuples(st.just('read')),
)
STORY = st.lists(STEP, min_size=1, max_size=25)
EXAMPLE = [
    ('update', 'compute_nodes', HOSTS, {'free_ram_mb': 1024}, {'updated_at': None}),
    ('read',),
    ('update', 'compute_nodes', HOSTS, {'free_ram_mb': 2048}, {'updated_at': None}),
]
"""Two equal changes of all hosts, without a time of the change."""


class Story:
    """Changes of databases with a few hosts, and a reader that keeps its cache.

    :ivar where: the cell of each host.
    :ivar tables: all tables that change, with their engines.
    :ivar saved: the rows of the last :meth:`back_up`.
    """

    def __init__(self, databases):
        self.databases = databases
        self.where = {name: CELLS[i % 2] for i, name in enumerate(HOSTS)}
        self.tables = []
        for engine in databases.engines.values():
            self.tables += [(engine, table) for table in CELL_TABLES]
        self.tables += [(databases.api, table) for table in API_TABLES]

        for engine, table in self.tables:
            self._run(engine, sa.delete(table))
        self._run(databases.api, sa.delete(tables.host_mappings))
        for name, cell in self.where.items():
            databases.add_host(name, cell)
        for number in AGGREGATES:
            databases.add_aggregate(number, HOSTS[:number], zone='a')
        self.reader = databases.reader()
        self.back_up()

    def tell(self, steps):
        """Do all steps, and read at the end.

        :param steps: names of methods with their arguments.
        """
        for name, *arguments in (*steps, ('read',)):
            getattr(self, name)(*arguments)

    def read(self):
        """Compare the hosts of the reader with the hosts of a new reader."""
        hosts = self._hosts(self.reader)
        new_reader = self.databases.reader()
        assert hosts == self._hosts(new_reader)
        new_reader.close()

    @staticmethod
    def _hosts(reader):
        """The hosts of a reader, with values in place of functions."""
        hosts = {}
        for uuid, host in reader.read(None, a_request()).hosts.items():
            plain = replace(host, numa=None, pci=None)
            hosts[uuid] = (plain, host.numa_topology, host.pci_stats)
        return hosts

    def update(self, table, hosts, changes, stamp):
        """Change several hosts in the same way, with a statement for each cell."""
        table = tables.main.tables[table]
        statement = sa.update(table).where(table.c.host.in_(hosts))
        for engine in self.databases.engines.values():
            self._run(engine, statement, changes | stamp)

    def delete(self, table, host):
        """Mark a row as deleted, as nova does."""
        table = tables.main.tables[table]
        statement = sa.update(table).where(table.c.host == host)
        self._run(self._engine(host), statement, {'deleted': table.c.id})

    def erase_node(self, host):
        table = tables.compute_nodes
        self._run(self._engine(host), sa.delete(table).where(table.c.host == host))

    def move(self, host, cell):
        """Move a host with its UUID to another cell."""
        for engine in (self._engine(host), self.databases.engines[cell]):
            for table in CELL_TABLES:
                self._run(engine, sa.delete(table).where(table.c.host == host))
        self.where[host] = cell
        self.databases.add_host(host, cell, node=host)

    def back_up(self):
        self.saved = {}
        for engine, table in self.tables:
            with engine.connect() as connection:
                rows = connection.execute(sa.select(table)).mappings()
                self.saved[engine, table] = [dict(row) for row in rows]

    def restore(self):
        """Restore all rows with the times of their changes."""
        for (engine, table), rows in self.saved.items():
            with engine.begin() as connection:
                connection.execute(sa.delete(table))
                if rows:
                    connection.execute(sa.insert(table), rows)

    def rename(self, aggregate, name):
        statement = sa.update(tables.aggregates).where(
            tables.aggregates.c.id == aggregate
        )
        self._run(self.databases.api, statement, {'name': f'{name}{aggregate}'})

    def label(self, aggregate, value):
        table = tables.aggregate_metadata
        statement = sa.update(table).where(table.c.aggregate_id == aggregate)
        self._run(self.databases.api, statement, {'value': value})

    def join(self, host, aggregate):
        self.leave(host, aggregate)
        values = {'host': host, 'aggregate_id': aggregate}
        self.databases.add(self.databases.api, tables.aggregate_hosts, **values)

    def leave(self, host, aggregate):
        table = tables.aggregate_hosts
        statement = sa.delete(table).where(
            table.c.host == host, table.c.aggregate_id == aggregate
        )
        self._run(self.databases.api, statement)

    def close(self):
        self.reader.close()

    def _engine(self, host):
        return self.databases.engines[self.where[host]]

    @staticmethod
    def _run(engine, statement, values=None):
        if values is not None:
            if not values:
                return
            statement = statement.values(values)
        with engine.begin() as connection:
            connection.execute(statement)
