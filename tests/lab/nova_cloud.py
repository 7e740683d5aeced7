# SPDX-License-Identifier: Apache-2.0
"""A cloud without nova's services: nova's databases with hosts, aggregates and servers.
The tests write the rows that computes, nova-api and nova-conductor would write.
"""

import secrets
import uuid

import sqlalchemy as sa

from novasched.cells.mappings import CELL0

from .compute_rows import Compute, instance_row, now, used_by
from .nova_release import Schemas, merged, write_config
from .placement_api import TOKEN, PlacementApi
from .servers import create_database, drop_database

PROJECT = 'functional-project'
USER = 'functional-user'

# The tables that reset() empties, children before parents.
API_TABLES = (
    'aggregate_hosts',
    'aggregate_metadata',
    'aggregates',
    'flavor_extra_specs',
    'flavors',
    'host_mappings',
    'instance_mappings',
    'instance_group_policy',
    'instance_group_member',
    'instance_groups',
)
CELL_TABLES = ('compute_nodes', 'services', 'instance_extra', 'migrations', 'instances')

# Traits that every nova-compute of this release puts on its provider.
COMPUTE_TRAITS = ('COMPUTE_NODE', 'OWNER_NOVA')


class Database:
    """A database with reflected tables."""

    def __init__(self, url, tables):
        self.url = url
        self.engine = sa.create_engine(url)
        metadata = sa.MetaData()
        metadata.reflect(self.engine, only=list(tables))
        self._tables = metadata.tables

    def table(self, name):
        return self._tables[name]

    def insert(self, name, rows):
        if rows:
            with self.engine.begin() as connection:
                connection.execute(sa.insert(self.table(name)), list(rows))

    def update(self, name, values, **where):
        table = self.table(name)
        with self.engine.begin() as connection:
            connection.execute(sa.update(table).filter_by(**where).values(**values))

    def delete(self, name, **where):
        with self.engine.begin() as connection:
            connection.execute(sa.delete(self.table(name)).filter_by(**where))

    def rename(self, name, new):
        """Rename a table."""
        with self.engine.begin() as connection:
            connection.execute(sa.text(f'RENAME TABLE {name} TO {new}'))

    def rows(self, name, **where):
        with self.engine.connect() as connection:
            result = connection.execute(sa.select(self.table(name)).filter_by(**where))
            return [dict(row) for row in result.mappings()]


class NovaCloud:
    """Databases as nova-manage makes them, with the hosts of a test."""

    def __init__(
        self,
        nova,
        directory,
        *,
        amqp_url,
        database_url,
        placement_url,
        cells=('cell1', 'cell2'),
        elsewhere=None,
    ):
        """:param elsewhere: the URLs of other database servers, by the names of their
        cells.
        """
        self.nova = nova
        self.directory = directory
        self.amqp_url = amqp_url
        self.placement_url = placement_url
        self.placement = PlacementApi(placement_url)
        self.computes: dict[str, Compute] = {}
        self._server = database_url
        self._elsewhere = elsewhere or {}
        self._prefix = f'novasched_{secrets.token_hex(4)}'
        self._databases: list[tuple[str, str]] = []
        self._opened: list[Database] = []
        self._servers = 0
        try:
            self._make(Schemas(nova, directory), cells)
        except BaseException:
            self.close()
            raise

    def _make(self, schemas, cells):
        api = self._database('api')
        cell0 = self._database('cell0')
        urls = {cell: self._database(cell) for cell in cells}
        schemas.make('api', self._manage_config('api', api, cell0), api)
        for name, url in {'cell0': cell0, **urls}.items():
            schemas.make('cell', self._manage_config(name, api, url), url)
        self.api = self._open(api, (*API_TABLES, 'cell_mappings'))
        self.cell0 = self._open(cell0, CELL_TABLES)
        self.cells = {cell: self._open(url, CELL_TABLES) for cell, url in urls.items()}
        # The rows of nova-manage cell_v2 map_cell0 and create_cell, which would take
        # seconds each.
        self._map('cell0', CELL0, 'none:///', cell0)
        for name, url in urls.items():
            self._map(name, str(uuid.uuid4()), self.amqp_url, url)
        self._mappings = self.api.rows('cell_mappings')
        self.cell_uuids = {row['name']: row['uuid'] for row in self._mappings}
        self._cell_ids = {row['name']: row['id'] for row in self._mappings}

    def _map(self, name, uuid, transport, database):
        row = {
            'created_at': now(),
            'uuid': uuid,
            'name': name,
            'transport_url': transport,
            'database_connection': database,
        }
        # Cells cannot be disabled in old releases.
        if 'disabled' in self.api.table('cell_mappings').columns:
            row['disabled'] = False
        self.api.insert('cell_mappings', [row])

    def _database(self, suffix):
        server = self._elsewhere.get(suffix, self._server)
        name = f'{self._prefix}_{suffix}'
        self._databases.append((server, name))
        return create_database(server, name)

    def _open(self, url, tables):
        self._opened.append(Database(url, tables))
        return self._opened[-1]

    def _manage_config(self, name, api, main):
        config = {
            'DEFAULT': {'transport_url': self.amqp_url},
            'api_database': {'connection': api},
            'database': {'connection': main},
        }
        return write_config(self.directory / f'{self._prefix}-{name}.conf', config)

    def close(self):
        self.disconnect()
        for server, name in self._databases:
            drop_database(server, name)

    def disconnect(self):
        """Close pooled connections, which may be cut."""
        for database in self._opened:
            database.engine.dispose()

    def config(self, host, overrides=None):
        """A nova.conf for a scheduler or a client.

        :param host: the name of the scheduler or client.
        :param overrides: options that differ.
        """
        base = {
            'DEFAULT': {
                'host': host,
                'debug': True,
                'transport_url': self.amqp_url,
                'state_path': self.directory / f'{self._prefix}-{host}-state',
                'report_interval': 1,
                # Hosts report once, and are up even in a slow test.
                'service_down_time': 3600,
                'long_rpc_timeout': 120,
            },
            'api_database': {'connection': self.api.url, 'max_retries': 1},
            'database': {'connection': self.cell0.url, 'max_retries': 1},
            'scheduler': {'workers': 1},
            # No process for health, unless a test asks for one.
            'novasched': {'health_bind': ''},
            'placement': {
                'auth_type': 'admin_token',
                'endpoint': self.placement_url,
                'token': TOKEN,
            },
        }
        base['DEFAULT']['state_path'].mkdir(exist_ok=True)
        path = self.directory / f'{self._prefix}-{host}-nova.conf'
        return write_config(path, merged(base, overrides or {}))

    def reset(self):
        """Remove all hosts, services, aggregates, servers and allocations; restore the
        cells."""
        self.restore_cells()
        for name in API_TABLES:
            self.api.delete(name)
        for database in self._opened[1:]:
            for name in CELL_TABLES:
                database.delete(name)
        self.placement.clear()
        self.computes.clear()

    def map_cell(self, cell, **values):
        """Change the mapping of a cell, as nova-manage cell_v2 update_cell does."""
        self.api.update('cell_mappings', values, uuid=self.cell_uuids[cell])

    def restore_cells(self):
        """Restore the mappings of all cells."""
        present = {row['id'] for row in self.api.rows('cell_mappings')}
        for row in self._mappings:
            self.api.update('cell_mappings', row, id=row['id'])
        missing = [row for row in self._mappings if row['id'] not in present]
        self.api.insert('cell_mappings', missing)

    def add_host(self, name, cell='cell1', **sizes):
        """Add a host that is up and mapped.

        :param sizes: fields of :class:`tests.lab.compute_rows.Compute`.
        """
        compute = Compute(name, cell, **sizes)
        self.add_hosts([compute])
        return compute

    def add_hosts(self, computes):
        """Add hosts as nova-compute, nova-manage discover_hosts and Placement know
        hosts."""
        self.add_rows(computes)
        for compute in computes:
            traits = [*COMPUTE_TRAITS, *compute.traits]
            self.placement.add_provider(
                compute.uuid, compute.name, compute.inventories(), traits
            )

    def add_rows(self, computes):
        """Add hosts that Placement does not know."""
        version = self.nova.service_version
        for cell, database in self.cells.items():
            services = []
            nodes = []
            for compute in computes:
                if compute.cell == cell:
                    services.append(compute.service_row(version))
                    nodes.append(compute.node_row())
            database.insert('services', services)
            database.insert('compute_nodes', nodes)

        mappings = []
        for compute in computes:
            cell_id = self._cell_ids[compute.cell]
            row = {'created_at': now(), 'cell_id': cell_id, 'host': compute.name}
            mappings.append(row)
            self.computes[compute.name] = compute
        self.api.insert('host_mappings', mappings)

    def add_aggregate(self, name, hosts, zone=None, metadata=None):
        """Add a host aggregate to nova and to Placement; its UUID."""
        aggregate = str(uuid.uuid4())
        pairs = {}
        if zone:
            pairs['availability_zone'] = zone
        pairs |= metadata or {}
        self.add_aggregate_rows(name, aggregate, pairs, hosts)
        for host in hosts:
            self.placement.join_aggregate(self.computes[host].uuid, aggregate)
        return aggregate

    def add_aggregate_rows(self, name, aggregate, metadata, hosts=()):
        """Add an aggregate that Placement does not know; its number."""
        row = {'created_at': now(), 'uuid': aggregate, 'name': name}
        self.api.insert('aggregates', [row])
        [aggregate_row] = self.api.rows('aggregates', uuid=aggregate)
        number = aggregate_row['id']

        columns = {'created_at': now(), 'aggregate_id': number}
        pairs = [{**columns, 'key': k, 'value': v} for k, v in metadata.items()]
        self.api.insert('aggregate_metadata', pairs)
        self.join_aggregate(number, hosts)
        return int(number)

    def join_aggregate(self, number, hosts):
        """Add members that Placement does not know to an aggregate."""
        columns = {'created_at': now(), 'aggregate_id': number}
        rows = [{**columns, 'host': host} for host in hosts]
        self.api.insert('aggregate_hosts', rows)

    def refresh_services(self):
        """Let all services of computes report now."""
        for database in self.cells.values():
            database.update('services', {'last_seen_up': now()}, binary='nova-compute')

    def boot(self, server, host, flavor, project=PROJECT):
        """Let a placed server run: write its row and its mapping, and the usage of the
        host."""
        compute = self.computes[host]
        database = self.cells[compute.cell]
        self._servers += 1
        row = instance_row(server, compute, flavor, project, USER, self._servers)
        database.insert('instances', [row])
        self.map_server(server, compute.cell, project)
        node = database.rows('compute_nodes', uuid=compute.uuid)[0]
        database.update('compute_nodes', used_by(flavor, node), uuid=compute.uuid)

    def map_server(self, server, cell, project=PROJECT):
        """Map a server to its cell in the API database."""
        mapping = {
            'created_at': now(),
            'instance_uuid': server,
            'cell_id': self._cell_ids[cell],
            'project_id': project,
            'user_id': USER,
            'queued_for_delete': False,
        }
        self.api.insert('instance_mappings', [mapping])

    def allocations(self, consumer):
        """The allocations of a server: host name to resource class to amount."""
        return self._by_host(self.placement.allocations(consumer))

    def all_allocations(self):
        """The allocations of all consumers, by the names of hosts."""
        allocations = {}
        for consumer, by_provider in self.placement.all_allocations().items():
            allocations[consumer] = self._by_host(by_provider)
        return allocations

    def _by_host(self, by_provider):
        return {self.host_of(uuid): amounts for uuid, amounts in by_provider.items()}

    def host_of(self, node):
        """The name of the host with a node, or the UUID of an unknown node."""
        for compute in self.computes.values():
            if compute.uuid == node:
                return compute.name
        return node

    def service_rows(self, binary):
        """The rows of a binary in the services tables of all cells."""
        rows = []
        for database in self._opened[1:]:
            rows += database.rows('services', binary=binary)
        return rows
