# SPDX-License-Identifier: Apache-2.0
"""Discovery of hosts: maps new compute hosts to their cells, as ``nova-manage cell_v2
discover_hosts`` does.

Every scheduler may run the discovery; only the leader writes.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
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

    Every run reads the cell mappings anew: hosts of a new cell are mapped before SIGHUP
    makes the scheduler use the cell. Hosts of disabled cells are mapped, too.

    :param own: the database of ``[database] connection``, with the service records of
        schedulers.
    """

    cells: Cells
    own: Database
    group: ServiceGroup
    host: str
    utcnow: Callable[[], datetime]

    def run(self) -> None:
        """Map new hosts if this scheduler leads. Failures are logged; the next run
        tries again."""
        try:
            leader = self._leader()
            if leader != self.host:
                LOG.debug('Hosts are discovered by the scheduler on %s', leader)
                return
            cells = self.cells.read()
        except DatabaseUnavailable as error:
            LOG.error('Unable to discover hosts: %s', error)
            return

        discovered = []
        try:
            for cell in cells.values():
                for host in self._map_new_hosts(cell):
                    discovered.append(f'{cell.name}:{host}')
        finally:
            self.cells.release(cells)
        if discovered:
            LOG.info(
                'Discovered %d new hosts: %s', len(discovered), ','.join(discovered)
            )

    def _leader(self) -> str | None:
        """The first host, by name, whose scheduler is up and enabled."""

        def schedulers_up(connection: sa.Connection) -> list[str]:
            select = self.own.select(
                'services', SERVICE_COLUMNS, binary=SCHEDULER, disabled=False
            )
            select = select.add_columns(self.group.late(self.own.table('services')))
            rows = connection.execute(select, self.group.moment(self.utcnow()))
            services: Mapping[int, Any] = {row.id: row for row in rows}

            down = self.group.down(SCHEDULER, services)
            hosts = []
            for id, row in services.items():
                if id not in down and not row.forced_down:
                    hosts.append(row.host)
            return hosts

        return min(self.own.read(schedulers_up), default=None)

    def _map_new_hosts(self, cell: Cell) -> Iterator[str]:
        """Map the unmapped hosts of a cell, and yield every mapped host.

        A host may have several nodes. As in nova, only the first node is marked.
        """
        api = self.cells.api
        try:
            nodes = cell.database.rows(
                'compute_nodes', ('id', 'host'), lambda c: c.mapped < 1
            )
            first_nodes: dict[str, int] = {}
            for node in sorted(nodes, key=attrgetter('id')):
                first_nodes.setdefault(node.host, node.id)
            if not first_nodes:
                return

            rows = api.rows(
                'host_mappings', ('host',), lambda c: c.host.in_(first_nodes)
            )
            mapped_hosts = {row.host for row in rows}
            for host, node_id in first_nodes.items():
                if host not in mapped_hosts and self._map(cell, host, node_id):
                    yield host
        except DatabaseUnavailable as error:
            LOG.error('Unable to discover hosts in cell %s: %s', cell.identity, error)

    def _map(self, cell: Cell, host: str, node: int) -> bool:
        """Map a host and mark its node; False if another process has mapped the host.

        :param node: the id of the compute node.
        """
        api = self.cells.api
        base = cell.database
        now = self.utcnow()
        mapping = {'created_at': now, 'cell_id': cell.id, 'host': host}

        def insert_mapping(connection: sa.Connection) -> None:
            statement = sa.insert(api.table('host_mappings'))
            connection.execute(statement.values(mapping))

        def mark_node(connection: sa.Connection) -> None:
            nodes = base.table('compute_nodes')
            statement = sa.update(nodes).where(nodes.c.id == node)
            connection.execute(statement.values({'mapped': 1, 'updated_at': now}))

        try:
            api.write(insert_mapping)
        except db_exc.DBDuplicateEntry:
            LOG.debug('Host %s has been mapped by somebody else', host)
            return False
        # After the mapping: a node that is marked without a mapping would never be
        # looked at again.
        base.write(mark_node)
        return True
