# SPDX-License-Identifier: Apache-2.0
"""The state of an instance, which tells whether its allocations may be deleted."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa

from novasched.cells import rows
from novasched.cells.database import Database
from novasched.cells.mappings import CELL0, Cells
from novasched.scheduler.errors import DatabaseUnavailable
from novasched.scheduler.model.instance import InstanceState

FINISHED_MIGRATIONS = (
    'done',
    'completed',
    'confirmed',
    'reverted',
    'failed',
    'error',
    'cancelled',
)
"""Statuses of migrations that are over. An evacuation first resets the instance's task,
then sets its host, and ends its migration last."""
EVACUATION = 'evacuation'
"""The type of a migration whose status is done as long as the source is not back, and
completed afterwards."""


@dataclass(frozen=True, slots=True)
class InstanceStates:
    """Reads the state of an instance before the allocations of the instance are deleted
    in Placement. Implements :class:`novasched.placement.cleanup.Instances`."""

    cells: Cells

    def find(self, uuid: str, providers: Collection[str]) -> InstanceState | None:
        """See :class:`novasched.placement.cleanup.Instances`.

        The hosts of the providers may be in another cell than the instance. Placement
        offers hosts of all cells for a new instance, so that two claims for the
        instance may be for hosts of two cells.

        :raises DatabaseUnavailable: a database does not answer, or the cell to which
            the instance is mapped has no row of the instance.
        """
        if not rows.may_be_uuid(uuid):
            return None

        api = self.cells.api
        mappings = api.rows('instance_mappings', ('cell_id',), instance_uuid=uuid)
        if not mappings:
            return None
        if mappings[0].cell_id is None:
            return InstanceState(building=True)

        cells = api.rows('cell_mappings', ('uuid',), id=mappings[0].cell_id)
        cell = None
        if cells:
            if cells[0].uuid == CELL0:
                return InstanceState(gone=True)
            cell = self.cells.get(cells[0].uuid)
        if cell is None:
            raise DatabaseUnavailable(f'the cell of instance {uuid} is not known')

        state = _instance_state(cell.database, uuid, providers)
        if state.hosts or state.host is None:
            return state

        # No provider is in the cell of the instance.
        for cell in self.cells.all():
            nodes = cell.database.rows(
                'compute_nodes', ('host',), lambda columns: columns.uuid.in_(providers)
            )
            if nodes:
                return replace(state, hosts=frozenset(node.host for node in nodes))
        return state


def _instance_state(
    base: Database, uuid: str, providers: Collection[str]
) -> InstanceState:
    """Read the state of an instance from the database of the cell, in a single
    transaction.

    :param providers: UUIDs of compute nodes, whose hosts the state includes.
    """

    def read(connection: sa.Connection) -> tuple[Any, list[Any], list[Any]]:
        # Not select(): a deleted instance counts, too.
        table = base.table('instances')
        columns: list[sa.ColumnElement[Any]] = []
        for name in ('host', 'task_state', 'vm_state', 'deleted', 'hidden'):
            if name in table.c:
                columns.append(table.c[name])
            else:
                columns.append(sa.null().label(name))
        instance = connection.execute(
            sa.select(*columns).where(table.c.uuid == uuid)
        ).first()

        migrations = base.select(
            'migrations',
            ('status', 'migration_type', 'source_compute'),
            instance_uuid=uuid,
        )
        is_provider = base.table('compute_nodes').c.uuid.in_(providers)
        nodes = base.select('compute_nodes', ('host',)).where(is_provider)
        return (
            instance,
            list(connection.execute(migrations)),
            list(connection.execute(nodes)),
        )

    instance, migrations, nodes = base.read(read)
    if instance is None:
        raise DatabaseUnavailable(f'{base.name} has no instance {uuid}')

    task = instance.task_state or None
    if not task and instance.hidden:
        task = 'cross-cell migration'
    if not task:
        for migration in migrations:
            if migration.status not in FINISHED_MIGRATIONS:
                task = migration.status
                break
    evacuated_from = set()
    for migration in migrations:
        if migration.migration_type == EVACUATION and migration.status == 'done':
            evacuated_from.add(migration.source_compute)
    return InstanceState(
        building=instance.vm_state == 'building',
        gone=bool(instance.deleted),
        host=instance.host,
        task=task,
        evacuated_from=frozenset(evacuated_from),
        hosts=frozenset(node.host for node in nodes),
    )
