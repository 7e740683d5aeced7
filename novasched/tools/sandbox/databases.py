# SPDX-License-Identifier: Apache-2.0
"""nova's databases as SQLite files, with the tables and columns of a scheduler.

Names and types of columns follow nova 34.0.0. The API database has no soft deletion. In
all further databases, ``deleted`` is 0 for an existing row.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa

LOCK_TIMEOUT = 30
"""Seconds for which a writer waits for the commit of another writer."""

api = sa.MetaData()
main = sa.MetaData()


def _of(kind: Any) -> Callable[..., sa.Column[Any]]:
    """A function that creates columns of a type."""
    return lambda name, **options: sa.Column(name, kind, **options)


_name = _of(sa.String(255))
_text = _of(sa.Text)
_number = _of(sa.Integer)
_ratio = _of(sa.Float)
_flag = _of(sa.Boolean)
_time = _of(sa.DateTime)
_uuid = _of(sa.String(36))


def _common() -> list[sa.Column[Any]]:
    """Columns of every table."""
    return [_time('created_at'), _time('updated_at'), _number('id', primary_key=True)]


def _soft_deleted() -> list[sa.Column[Any]]:
    return [_time('deleted_at'), _number('deleted', default=0)]


cell_mappings = sa.Table(
    'cell_mappings',
    api,
    *_common(),
    _uuid('uuid', unique=True),
    _name('name'),
    _text('transport_url'),
    _text('database_connection'),
    _flag('disabled'),
)
host_mappings = sa.Table(
    'host_mappings',
    api,
    *_common(),
    _number('cell_id', nullable=False),
    _name('host', nullable=False, unique=True),
)
instance_mappings = sa.Table(
    'instance_mappings',
    api,
    *_common(),
    _uuid('instance_uuid', unique=True),
    _number('cell_id'),
    _name('project_id', nullable=False),
)
aggregates = sa.Table(
    'aggregates',
    api,
    *_common(),
    _uuid('uuid', unique=True),
    _name('name', unique=True),
)
aggregate_hosts = sa.Table(
    'aggregate_hosts',
    api,
    *_common(),
    _number('aggregate_id', nullable=False),
    _name('host'),
    sa.UniqueConstraint('host', 'aggregate_id'),
)
aggregate_metadata = sa.Table(
    'aggregate_metadata',
    api,
    *_common(),
    _number('aggregate_id', nullable=False),
    _name('key', nullable=False),
    _name('value', nullable=False),
    sa.UniqueConstraint('aggregate_id', 'key'),
)
request_specs = sa.Table(
    'request_specs',
    api,
    *_common(),
    _uuid('instance_uuid', unique=True),
    _text('spec', nullable=False),
)
instance_groups = sa.Table(
    'instance_groups',
    api,
    *_common(),
    _name('user_id'),
    _name('project_id'),
    _uuid('uuid', unique=True),
    _name('name'),
)
instance_group_member = sa.Table(
    'instance_group_member',
    api,
    *_common(),
    _name('instance_uuid', index=True),
    _number('group_id', nullable=False),
)
flavors = sa.Table(
    'flavors',
    api,
    *_common(),
    _name('name', nullable=False, unique=True),
    _name('flavorid', nullable=False, unique=True),
    _number('memory_mb', nullable=False),
    _number('vcpus', nullable=False),
    _number('root_gb'),
    _number('ephemeral_gb'),
    _number('swap', nullable=False, default=0),
    _flag('disabled'),
    _flag('is_public'),
)
flavor_extra_specs = sa.Table(
    'flavor_extra_specs',
    api,
    *_common(),
    _number('flavor_id', nullable=False),
    _name('key', nullable=False),
    _name('value'),
    sa.UniqueConstraint('flavor_id', 'key'),
)

services = sa.Table(
    'services',
    main,
    *_common(),
    *_soft_deleted(),
    _uuid('uuid', unique=True),
    _name('host'),
    _name('binary'),
    _name('topic'),
    _number('report_count', nullable=False, default=0),
    _time('last_seen_up'),
    _flag('disabled'),
    _name('disabled_reason'),
    _flag('forced_down'),
    _number('version'),
    sa.UniqueConstraint('host', 'binary', 'deleted'),
)
compute_nodes = sa.Table(
    'compute_nodes',
    main,
    *_common(),
    *_soft_deleted(),
    _uuid('uuid', unique=True),
    _name('host'),
    _name('hypervisor_hostname'),
    _number('service_id'),
    _number('vcpus', nullable=False),
    _number('vcpus_used', nullable=False),
    _number('memory_mb', nullable=False),
    _number('memory_mb_used', nullable=False),
    _number('local_gb', nullable=False),
    _number('local_gb_used', nullable=False),
    _number('free_ram_mb'),
    _number('free_disk_gb'),
    _number('disk_available_least'),
    _number('running_vms'),
    _number('current_workload'),
    _ratio('cpu_allocation_ratio'),
    _ratio('ram_allocation_ratio'),
    _ratio('disk_allocation_ratio'),
    _text('hypervisor_type', nullable=False),
    _number('hypervisor_version', nullable=False),
    _text('cpu_info', nullable=False),
    sa.Column('host_ip', sa.String(39)),
    _text('supported_instances'),
    _text('numa_topology'),
    _text('pci_stats'),
    _text('metrics'),
    _text('stats'),
    _number('mapped', default=0),
    sa.UniqueConstraint('host', 'hypervisor_hostname', 'deleted'),
)
instances = sa.Table(
    'instances',
    main,
    *_common(),
    *_soft_deleted(),
    _uuid('uuid', unique=True),
    _name('host'),
    _name('node'),
    _name('user_id'),
    _name('project_id'),
    _name('image_ref'),
    _name('display_name'),
    _name('availability_zone'),
    _number('vcpus'),
    _number('memory_mb'),
    _number('root_gb'),
    _number('ephemeral_gb'),
    _number('instance_type_id'),
    _name('vm_state'),
    _name('task_state'),
    _number('power_state'),
    _name('os_type'),
    _time('launched_at'),
)
migrations = sa.Table(
    'migrations',
    main,
    *_common(),
    *_soft_deleted(),
    _name('instance_uuid', index=True),
    _name('source_compute'),
    _name('dest_compute'),
    _name('status'),
    _name('migration_type'),
)

instance_system_metadata = sa.Table(
    'instance_system_metadata',
    main,
    *_common(),
    *_soft_deleted(),
    _name('instance_uuid', nullable=False, index=True),
    _name('key', nullable=False),
    _name('value'),
)


class Databases:
    """SQLite files in a folder: ``api``, ``main`` (nova's cell0), and the cells.

    :ivar cells: engines by name of the cell.
    """

    def __init__(self, folder: Path, cells: Sequence[str]) -> None:
        self.folder = folder
        self.api = self._engine('api', api)
        self.main = self._engine('main', main)
        self.cells: Mapping[str, sa.Engine] = {
            name: self._engine(name, main) for name in cells
        }

    def url(self, name: str) -> str:
        """The connection URL of a file, for nova.conf and for the cell mappings."""
        # With the timeout in the URL, every process waits for a lock instead of
        # failing.
        query = {'timeout': str(LOCK_TIMEOUT)}
        path = str(self.folder / f'{name}.sqlite')
        return sa.URL.create('sqlite', database=path, query=query).render_as_string()

    def close(self) -> None:
        """Close all connections; the files stay."""
        for engine in (self.api, self.main, *self.cells.values()):
            engine.dispose()

    def _engine(self, name: str, tables: sa.MetaData) -> sa.Engine:
        engine = sa.create_engine(self.url(name))
        sa.event.listen(engine, 'connect', _prepare)
        tables.create_all(engine)
        return engine


def _prepare(connection: Any, _record: object) -> None:
    """Set the journal mode of a file, and the synchronisation of a connection."""
    # With write-ahead logging, readers see the last commit during a write; otherwise
    # the file would be locked. The files need not survive a loss of power, so no write
    # waits for the disk.
    for pragma in ('journal_mode = WAL', 'synchronous = OFF'):
        connection.execute(f'PRAGMA {pragma}').close()
