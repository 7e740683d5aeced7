# SPDX-License-Identifier: Apache-2.0
"""What may happen to nova's databases between two requests, and what a request must see."""

from dataclasses import replace
from datetime import timedelta

import sqlalchemy as sa
from hypothesis import strategies as st

from novasched.tools.sandbox import databases as tables
from tests.lab.builders import a_request
from tests.lab.nova_databases import NOW

HOSTS = tuple(f'h{i}' for i in range(5))
CELLS = ('cell1', 'cell2')
AGGREGATES = (1, 2)
CELL_TABLES = (tables.compute_nodes, tables.services)
API_TABLES = (tables.aggregates, tables.aggregate_metadata, tables.aggregate_hosts)

NODE = {
    'free_ram_mb': (1024, 2048, 4096), 'vcpus_used': (0, 1, 2), 'free_disk_gb': (None, 10, 20),
    'stats': ('{}', '{"num_instances": "1"}', '{"num_instances": "2"}', 'broken'),
    'numa_topology': (None, '{"cells": []}', 'broken'), 'cpu_allocation_ratio': (0.0, 4.0),
}  # fmt: skip
SERVICE = {
    'disabled': (True, False), 'forced_down': (True, False), 'version': (70, 73),
    'disabled_reason': (None, 'a', 'b'),
    'last_seen_up': (NOW, NOW - timedelta(seconds=90), NOW + timedelta(seconds=90), None),
}  # fmt: skip
CLOCKS = (NOW, NOW - timedelta(hours=1), NOW + timedelta(seconds=30), None)
"""What writers take for the time; that of a change is as often as not that of the last."""


def _changes(columns):
    return st.fixed_dictionaries(
        {}, optional={name: st.sampled_from(values) for name, values in columns.items()}
    )


_host, _cell = st.sampled_from(HOSTS), st.sampled_from(CELLS)
_hosts = st.lists(_host, min_size=1, unique=True)
_stamp = st.fixed_dictionaries({'updated_at': st.sampled_from(CLOCKS)})
STEP = st.one_of(
    st.tuples(st.just('update'), st.just('compute_nodes'), _hosts, _changes(NODE), _stamp),
    st.tuples(st.just('update'), st.just('services'), _hosts, _changes(SERVICE), _stamp),
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
"""Neighbours that change alike, twice, with nothing that says when."""


class Story:
    """Databases with a few hosts, and a reader that is there all the time."""

    def __init__(self, databases):
        self.databases = databases
        self.where = {name: CELLS[i % 2] for i, name in enumerate(HOSTS)}
        cells = [(each, table) for each in databases.engines.values() for table in CELL_TABLES]
        self.tables = [*cells, *((databases.api, table) for table in API_TABLES)]
        for engine, table in (*self.tables, (databases.api, tables.host_mappings)):
            self._run(engine, sa.delete(table))
        for name, cell in self.where.items():
            databases.add_host(name, cell)
        for number in AGGREGATES:
            databases.add_aggregate(number, HOSTS[:number], zone='a')
        self.reader = databases.reader()
        self.back_up()

    def tell(self, steps):
        """Let it happen; whatever has been read in between, at last all is seen."""
        for name, *arguments in (*steps, ('read',)):
            getattr(self, name)(*arguments)

    def read(self):
        """A request sees what a reader sees that has never read before."""
        seen = self._hosts(self.reader)
        fresh = self.databases.reader()
        assert seen == self._hosts(fresh)
        fresh.close()

    @staticmethod
    def _hosts(reader):
        host_snapshot = reader.read(None, a_request(), instances=False)
        return {
            uuid: (
                replace(host, numa=None, pci=None), host.numa_topology, host.pci_stats
            )
            for uuid, host in host_snapshot.hosts.items()
        }  # fmt: skip

    def update(self, table, hosts, changes, stamp):
        """Several hosts are changed in the same way, in each cell in one statement."""
        table = tables.main.tables[table]
        for engine in self.databases.engines.values():
            self._run(engine, sa.update(table).where(table.c.host.in_(hosts)), changes | stamp)

    def delete(self, table, host):
        """As nova deletes: the row stays."""
        table = tables.main.tables[table]
        statement = sa.update(table).where(table.c.host == host)
        self._run(self._engine(host), statement, {'deleted': table.c.id})

    def erase_node(self, host):
        table = tables.compute_nodes
        self._run(self._engine(host), sa.delete(table).where(table.c.host == host))

    def move(self, host, cell):
        """A host goes from one cell to another, with its UUID."""
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
        """Everything is as it was, times of changes included."""
        for (engine, table), rows in self.saved.items():
            with engine.begin() as connection:
                connection.execute(sa.delete(table))
                if rows:
                    connection.execute(sa.insert(table), rows)

    def rename(self, aggregate, name):
        statement = sa.update(tables.aggregates).where(tables.aggregates.c.id == aggregate)
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
        mine = sa.and_(table.c.host == host, table.c.aggregate_id == aggregate)
        self._run(self.databases.api, sa.delete(table).where(mine))

    def close(self):
        self.reader.close()

    def _engine(self, host):
        return self.databases.engines[self.where[host]]

    @staticmethod
    def _run(engine, statement, values=None):
        if values is None or values:
            with engine.begin() as connection:
                connection.execute(statement if values is None else statement.values(values))
