# SPDX-License-Identifier: Apache-2.0
"""Discovery of hosts: maps new compute hosts to their cells, as ``nova-manage cell_v2
discover_hosts`` does.

Every scheduler may run this; only the leader does anything.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter, itemgetter
from typing import Any

import sqlalchemy as sa
from oslo_db import exception as db_exc

from novasched.cells.database import Database
from novasched.cells.mappings import Cell, Cells
from novasched.cells.servicegroup import SCHEDULER, ServiceGroup
from novasched.scheduler.errors import DatabaseUnavailable

LOG = logging.getLogger('nova.scheduler.manager')
SERVICE_COLUMNS = ('id', 'host', 'forced_down')


@dataclass(frozen=True, slots=True)
class Discovery:
    """Writes ``host_mappings`` and ``compute_nodes.mapped``.

    The cells are read each time: hosts of new cells are mapped before SIGHUP lets
    instances go there. Hosts of disabled cells are mapped, too.
    """

    cells: Cells
    own: Database
    group: ServiceGroup
    host: str
    utcnow: Callable[[], datetime]

    def run(self) -> None:
        """Map new hosts if this scheduler leads; failures are logged, and repeated next
        time."""
        try:
            leader = self._leader()
            if leader != self.host:
                LOG.debug('Hosts are discovered by the scheduler on %s', leader)
                return
            cells = self.cells.read()
        except DatabaseUnavailable as error:
            LOG.error('Unable to discover hosts: %s', error)
            return
        try:
            new = [(cell, host) for cell in cells.values() for host in self._new(cell)]
        finally:
            self.cells.release(cells)
        mapped = [f'{cell.name}:{host}' for cell, host in new]
        if mapped:
            LOG.info('Discovered %d new hosts: %s', len(mapped), ','.join(mapped))

    def _leader(self) -> str | None:
        """The first host, by name, whose scheduler is up and enabled."""

        def look(connection: sa.Connection) -> list[str]:
            select = self.own.select(
                'services', SERVICE_COLUMNS, binary=SCHEDULER, disabled=False
            )
            select = select.add_columns(self.group.late(self.own.table('services')))
            rows = connection.execute(select, self.group.moment(self.utcnow()))
            services: Mapping[int, Any] = {row.id: row for row in rows}
            down = self.group.down(SCHEDULER, services)
            up = (row for row in services.values() if row.id not in down)
            return [row.host for row in up if not row.forced_down]

        return min(self.own.read(look), default=None)

    def _new(self, cell: Cell) -> Iterator[str]:
        """Map the unmapped hosts of a cell; yields the hosts that were mapped.

        A host may have several nodes. As in nova, the first alone is marked.
        """
        api = self.cells.api
        try:
            rows = cell.database.rows(
                'compute_nodes', ('id', 'host'), lambda c: c.mapped < 1
            )
            first = {
                row.host: row.id
                for row in sorted(rows, key=attrgetter('id'), reverse=True)
            }
            if not first:
                return
            mapped = api.rows('host_mappings', ('host',), lambda c: c.host.in_(first))
            known = {row.host for row in mapped}
            for host, node in sorted(first.items(), key=itemgetter(1)):
                if host not in known and self._map(cell, host, node):
                    yield host
        except DatabaseUnavailable as error:
            LOG.error('Unable to discover hosts in cell %s: %s', cell.identity, error)

    def _map(self, cell: Cell, host: str, node: int) -> bool:
        """Map a host, and mark its node; False if another process was faster."""
        api = self.cells.api
        base = cell.database
        now = self.utcnow()
        mapping = {'created_at': now, 'cell_id': cell.id, 'host': host}

        def mark(connection: sa.Connection) -> None:
            nodes = base.table('compute_nodes')
            values = {'mapped': 1, 'updated_at': now}
            connection.execute(
                sa.update(nodes).where(nodes.c.id == node).values(values)
            )

        try:
            api.write(
                lambda c: c.execute(
                    sa.insert(api.table('host_mappings')).values(mapping)
                )
            )
        except db_exc.DBDuplicateEntry:
            LOG.debug('Host %s has been mapped by somebody else', host)
            return False
        base.write(mark)
        return True
