# SPDX-License-Identifier: Apache-2.0
"""A cloud without computes: nova's databases with hosts, aggregates and servers in
them.

What computes, the API and the conductor would write is written here, in their place.
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

# What reset() empties, children before parents.
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
    """One database, its tables known by reflection."""

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
        """Let a table have another name for a while."""
        with self.engine.begin() as connection:
            connection.execute(sa.text(f'RENAME TABLE {name} TO {new}'))

    def rows(self, name, **where):
        with self.engine.connect() as connection:
            found = connection.execute(sa.select(self.table(name)).filter_by(**where))
            return [dict(row) for row in found.mappings()]


class NovaCloud:
    """Databases made by nova-manage, and the hosts that a test puts there."""

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
        """:param elsewhere: cells whose databases are on servers of their own, with the
        URLs of these.
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
        # As nova-manage cell_v2 map_cell0 and create_cell do it, which take seconds
        # each.
        self._map('cell0', CELL0, 'none:///', cell0)
        for name, url in urls.items():
            self._map(name, str(uuid.uuid4()), self.amqp_url, url)
        self._mappings = self.api.rows('cell_mappings')
        self.cell_uuids = {row['name']: row['uuid'] for row in self._mappings}
        self._cell_ids = {row['name']: row['id'] for row in self._mappings}

    def _map(self, name, uuid, transport, database):
        row = {
            'created_at': now(), 'uuid': uuid, 'name': name, 'transport_url': transport,
            'database_connection': database, 'disabled': False,
        }  # fmt: skip
        known = self.api.table('cell_mappings').columns  # old releases disable no cell
        self.api.insert('cell_mappings', [{k: v for k, v in row.items() if k in known}])

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
        """Let go of pooled connections, which may have been cut."""
        for database in self._opened:
            database.engine.dispose()

    def config(self, host, overrides=None):
        """A nova.conf for a scheduler (or a client) of this name; overrides win."""
        base = {
            'DEFAULT': {
                'host': host,
                'debug': True,
                'transport_url': self.amqp_url,
                'state_path': self.directory / f'{self._prefix}-{host}-state',
                'report_interval': 1,
                # Hosts report once, and a slow test shall not find them down.
                'service_down_time': 3600,
                'long_rpc_timeout': 120,
            },
            'api_database': {'connection': self.api.url, 'max_retries': 1},
            'database': {'connection': self.cell0.url, 'max_retries': 1},
            'scheduler': {'workers': 1},
            # One process less; who asks for health sets it.
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
        """Remove every host, service, aggregate, server and allocation; restore the
        cells."""
        self.restore_cells()
        emptied = [
            (self.api, API_TABLES),
            *((each, CELL_TABLES) for each in self._opened[1:]),
        ]
        for database, tables in emptied:
            for name in tables:
                database.delete(name)
        self.placement.clear()
        self.computes.clear()

    def map_cell(self, cell, **values):
        """What nova-manage cell_v2 update_cell does, until the cells are restored."""
        self.api.update('cell_mappings', values, uuid=self.cell_uuids[cell])

    def restore_cells(self):
        """Map every cell as in the beginning."""
        there = {row['id'] for row in self.api.rows('cell_mappings')}
        for row in self._mappings:
            self.api.update('cell_mappings', row, id=row['id'])
        self.api.insert(
            'cell_mappings', [row for row in self._mappings if row['id'] not in there]
        )

    def add_host(self, name, cell='cell1', **sizes):
        """One host, up and mapped; the keywords are Compute's."""
        compute = Compute(name, cell, **sizes)
        self.add_hosts([compute])
        return compute

    def add_hosts(self, computes):
        """Hosts as their computes, nova-manage discover_hosts and Placement have
        them."""
        self.add_rows(computes)
        for compute in computes:
            traits = [*COMPUTE_TRAITS, *compute.traits]
            self.placement.add_provider(
                compute.uuid, compute.name, compute.inventories(), traits
            )

    def add_rows(self, computes):
        """Hosts that Placement does not know."""
        for cell, database in self.cells.items():
            ours = [compute for compute in computes if compute.cell == cell]
            version = self.nova.service_version
            database.insert(
                'services', [compute.service_row(version) for compute in ours]
            )
            database.insert('compute_nodes', [compute.node_row() for compute in ours])
        mappings = [
            {'cell_id': self._cell_ids[c.cell], 'host': c.name} for c in computes
        ]
        self.api.insert(
            'host_mappings', [{'created_at': now(), **each} for each in mappings]
        )
        self.computes.update({compute.name: compute for compute in computes})

    def add_aggregate(self, name, hosts, zone=None, metadata=None):
        """A host aggregate, in nova and in Placement; its UUID."""
        aggregate = str(uuid.uuid4())
        pairs = {**({'availability_zone': zone} if zone else {}), **(metadata or {})}
        self.add_aggregate_rows(name, aggregate, pairs, hosts)
        for host in hosts:
            self.placement.join_aggregate(self.computes[host].uuid, aggregate)
        return aggregate

    def add_aggregate_rows(self, name, aggregate, metadata, hosts=()):
        """An aggregate that Placement does not know; its number."""
        self.api.insert(
            'aggregates', [{'created_at': now(), 'uuid': aggregate, 'name': name}]
        )
        [row] = self.api.rows('aggregates', uuid=aggregate)
        own = {'created_at': now(), 'aggregate_id': row['id']}
        pairs = [{**own, 'key': key, 'value': value} for key, value in metadata.items()]
        self.api.insert('aggregate_metadata', pairs)
        self.join_aggregate(row['id'], hosts)
        return int(row['id'])

    def join_aggregate(self, number, hosts):
        """Members that Placement does not know."""
        own = {'created_at': now(), 'aggregate_id': number}
        self.api.insert('aggregate_hosts', [{**own, 'host': host} for host in hosts])

    def refresh_services(self):
        """Let every compute's service be seen up right now."""
        for database in self.cells.values():
            database.update('services', {'last_seen_up': now()}, binary='nova-compute')

    def boot(self, server, host, flavor, project=PROJECT):
        """Let a placed server run: its row, its mapping, and the host's own account."""
        compute = self.computes[host]
        database = self.cells[compute.cell]
        self._servers += 1
        row = instance_row(server, compute, flavor, project, USER, self._servers)
        database.insert('instances', [row])
        self.map_server(server, compute.cell, project)
        node = database.rows('compute_nodes', uuid=compute.uuid)[0]
        database.update('compute_nodes', used_by(flavor, node), uuid=compute.uuid)

    def map_server(self, server, cell, project=PROJECT):
        """Tell the API database in which cell a server is."""
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
        """What a server holds in Placement: {host name: {resource class: amount}}."""
        held = self.placement.allocations(consumer)
        return {self.host_of(provider): amounts for provider, amounts in held.items()}

    def all_allocations(self):
        """What every consumer holds, by the hosts' names."""
        return {
            consumer: {
                self.host_of(provider): amounts for provider, amounts in held.items()
            }
            for consumer, held in self.placement.all_allocations().items()
        }

    def host_of(self, node):
        return next((c.name for c in self.computes.values() if c.uuid == node), node)

    def service_rows(self, binary):
        """The services rows of one binary, of all databases."""
        return [
            row
            for each in self._opened[1:]
            for row in each.rows('services', binary=binary)
        ]
