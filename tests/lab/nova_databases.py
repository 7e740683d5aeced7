# SPDX-License-Identifier: Apache-2.0
"""nova's databases with rows that a test writes: an API database and two cells."""

import json
import math
from contextlib import contextmanager
from datetime import datetime

import sqlalchemy as sa
from oslo_config import cfg
from oslo_db import options

from novasched.cells.aggregates import AggregateReader
from novasched.cells.database import Database
from novasched.cells.mappings import CELL0, Cells
from novasched.cells.servicegroup import DatabaseServiceGroup
from novasched.cells.snapshot import HostReader
from novasched.conf.settings import Settings
from novasched.scheduler.pending_claims import PendingClaims
from novasched.tools.sandbox import databases as tables
from tests.lab.builders import a_request, a_uuid

NOW = datetime(2026, 11, 21, 12, 0, 0)


def _engine(url):
    """Nobody needs these rows after a crash: SQLite does not wait for the disk."""
    engine = sa.create_engine(url)
    if engine.dialect.name == 'sqlite':
        sa.event.listen(
            engine, 'connect', lambda raw, _: raw.execute('pragma synchronous = off') and None
        )
    return engine


def database_options(**values):
    """The options of ``[database]``, of which these are set."""
    conf = cfg.ConfigOpts()
    conf.register_opts(options.database_opts, group='database')
    conf([])
    for name, value in values.items():
        conf.set_override(name, value, 'database')
    return conf.database


def hosts_of(reader, request=None, uuids=None, instances=False, **how):
    """The hosts that a request finds, by the names of their nodes."""
    hosts = reader.read(uuids, request or a_request(), instances, **how).hosts
    return {host.nodename: host for host in hosts.values()}


class NovaDatabases:
    """Rows to read, and what reads them; ``now`` is the clock, ``group`` tells who is up."""

    def __init__(self, url_of, patience=math.inf):
        """``url_of`` gives the URL of an empty database of that name; cells may be silent for
        ``patience`` seconds."""
        self.now = NOW
        self.group = None
        self.urls = {name: url_of(name) for name in ('api', 'cell1', 'cell2')}
        self.api = _engine(self.urls['api'])
        # Before the first connection, so that it is one of those that can be cut.
        api = Database(self.api, 'API database')
        tables.api.create_all(self.api)
        self.engines = {}
        cell0 = {'id': 1, 'uuid': CELL0, 'name': 'cell0', 'database_connection': 'none://'}
        self.add(self.api, tables.cell_mappings, **cell0)
        for number, name in enumerate(('cell1', 'cell2'), 2):
            self.engines[name] = _engine(self.urls[name])
            tables.main.create_all(self.engines[name])
            self.add(
                self.api, tables.cell_mappings, id=number, uuid=a_uuid(name), name=name,
                database_connection=self.urls[name], disabled=False,
            )  # fmt: skip
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
        """Run statements in ``api`` or a cell; the rows of the last one, if it is a question."""
        with {'api': self.api, **self.engines}[where].begin() as connection:
            for statement in statements:
                result = connection.execute(sa.text(statement))
            return result.all() if result.returns_rows else None

    def add_host(self, name, cell='cell1', node=None, service=True, **changes):
        """A host with its service and mapping; ``changes`` are columns of its node."""
        engine = self.engines[cell]
        values = {
            'uuid': a_uuid(node or name), 'host': name, 'hypervisor_hostname': node or name,
            'vcpus': 8, 'vcpus_used': 0, 'memory_mb': 8192, 'memory_mb_used': 0, 'free_ram_mb': 8192,
            'local_gb': 100, 'local_gb_used': 0, 'free_disk_gb': 100, 'hypervisor_type': 'fake',
            'hypervisor_version': 1, 'cpu_info': '', 'stats': json.dumps({}), 'deleted': 0,
        }  # fmt: skip
        self.add(engine, tables.compute_nodes, **{**values, **changes})
        if service:
            self.add_service(name, engine)
        if node is None:
            number = 2 + sorted(self.engines).index(cell)
            self.add(self.api, tables.host_mappings, cell_id=number, host=name)

    def add_service(self, host, engine, **changes):
        values = {'host': host, 'binary': 'nova-compute', 'last_seen_up': NOW, 'deleted': 0}
        self.add(engine, tables.services, **{**values, **changes})

    def add_aggregate(self, number, hosts, **metadata):
        self.add(
            self.api, tables.aggregates, id=number, uuid=a_uuid(f'agg{number}'), name=f'agg{number}'
        )
        for host in hosts:
            self.add(self.api, tables.aggregate_hosts, aggregate_id=number, host=host)
        for key, value in metadata.items():
            self.add(self.api, tables.aggregate_metadata, aggregate_id=number, key=key, value=value)

    @contextmanager
    def watched(self):
        """A list of the statements that databases get from readers, with their parameters."""
        asked = []

        def note(connection, cursor, statement, parameters, context, many):
            asked.append((' '.join(statement.split()), parameters))

        cells = (cell.database.engine for cell in self.cells.enabled())
        engines = [self.cells.api.engine, *cells]
        for engine in engines:
            sa.event.listen(engine, 'before_cursor_execute', note)
        try:
            yield asked
        finally:
            for engine in engines:
                sa.event.remove(engine, 'before_cursor_execute', note)

    def reader(self, **settings):
        self.cells.refresh()
        aggregates = AggregateReader(self.cells.api)
        values = Settings(**settings)
        pending_claims = PendingClaims(values)
        group = self.group or DatabaseServiceGroup(values.service_down_time)
        return HostReader(values, self.cells, aggregates, pending_claims, group, lambda: self.now)
