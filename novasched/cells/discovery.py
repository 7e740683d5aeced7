# SPDX-License-Identifier: Apache-2.0
"""Maps the hosts of new computes to their cells, so that the API finds them.

Every scheduler may run this; one leads, and the others leave it alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from oslo_db import exception as db_exc

from novasched.cells.mappings import Cell, Cells
from novasched.cells.schema import Database
from novasched.cells.servicegroup import SCHEDULER, Group
from novasched.errors import DatabaseUnavailable

LOG = logging.getLogger('nova.scheduler.manager')
SERVICE = ('id', 'host', 'forced_down')


class Discovery:
    """Writes ``host_mappings`` and ``compute_nodes.mapped``.

    The cells are looked up each time: a new cell's hosts are mapped before SIGHUP lets
    servers go there. Those of disabled cells are too.
    """

    def __init__(
        self,
        cells: Cells,
        own: Database,
        group: Group,
        host: str,
        utcnow: Callable[[], datetime],
    ) -> None:
        self.cells = cells
        self.own = own
        self.group = group
        self.host = host
        self.utcnow = utcnow

    def run(self) -> None:
        """Map what is new, if we lead; what fails is logged, and tried again next time."""
        try:
            leader = self._leader()
            if leader != self.host:
                LOG.debug('Hosts are discovered by the scheduler on %s', leader)
                return
            self.cells.refresh()
        except DatabaseUnavailable as error:
            LOG.error('Unable to discover hosts: %s', error)
            return
        mapped = [f'{cell.name}:{host}' for cell in self.cells.all() for host in self._new(cell)]
        if mapped:
            LOG.info('Discovered %d new hosts: %s', len(mapped), ','.join(mapped))

    def close(self) -> None:
        """Close the connections to the cells."""
        self.cells.close()

    def _leader(self) -> str | None:
        """The first host, by name, whose scheduler is up and enabled."""
        select = self.own.select('services', SERVICE, binary=SCHEDULER.binary, disabled=False)

        def look(connection: sa.Connection) -> list[str]:
            services: Mapping[int, Any] = {row.id: row for row in connection.execute(select)}
            now = self.utcnow()
            silent = self.group.silent(self.own, connection, SCHEDULER, services, now)
            up = (row for row in services.values() if row.id not in silent)
            return [row.host for row in up if not row.forced_down]

        return min(self.own.read(look), default=None)

    def _new(self, cell: Cell) -> Iterator[str]:
        """Map the hosts of a cell that nobody has mapped; those that were."""
        try:
            nodes = self._unmapped(cell.database)
            known = self._mapped(nodes)
            for host, node in nodes.items():
                if host not in known and self._map(cell, host):
                    self._mark(cell.database, node)
                    yield host
        except DatabaseUnavailable as error:
            LOG.error('Unable to discover hosts in cell %s: %s', cell.identity, error)

    def _unmapped(self, base: Database) -> dict[str, int]:
        """Hosts with nodes that are not marked as mapped, and the first such node of each.

        A host may have several nodes. As in nova, the first alone is marked.
        """
        table = base.table('compute_nodes')
        select = base.select('compute_nodes', ('id', 'host')).where(table.c.mapped < 1)
        first: dict[str, int] = {}
        for row in base.rows(select.order_by(table.c.id)):
            first.setdefault(row.host, row.id)
        return first

    def _mapped(self, hosts: Mapping[str, int]) -> set[str]:
        """Those of the hosts that are mapped already, to whatever cell."""
        api = self.cells.api
        table = api.table('host_mappings')
        select = api.select('host_mappings', ('host',)).where(table.c.host.in_(hosts))
        return {row.host for row in api.rows(select)} if hosts else set()

    def _map(self, cell: Cell, host: str) -> bool:
        """Map a host; False if somebody else was faster."""
        table = self.cells.api.table('host_mappings')
        values = {'created_at': self.utcnow(), 'cell_id': cell.id, 'host': host}
        try:
            self.cells.api.write(
                lambda connection: connection.execute(sa.insert(table).values(values))
            )
        except db_exc.DBDuplicateEntry:
            LOG.debug('Host %s has been mapped by somebody else', host)
            return False
        return True

    def _mark(self, base: Database, node: int) -> None:
        table = base.table('compute_nodes')
        values = {'mapped': 1, 'updated_at': self.utcnow()}
        statement = sa.update(table).where(table.c.id == node).values(values)
        base.write(lambda connection: connection.execute(statement))
