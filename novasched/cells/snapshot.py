# SPDX-License-Identifier: Apache-2.0
"""The hosts as they are now, read from every cell at once for each request."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent import futures
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

import sqlalchemy as sa

from novasched.cells import rows
from novasched.cells.aggregates import AggregateReader
from novasched.cells.mappings import Cell, Cells
from novasched.cells.schema import Database
from novasched.errors import DatabaseUnavailable, NoValidHost
from novasched.model.host import Host, Instance
from novasched.model.image_properties import from_system_metadata
from novasched.model.request import Request
from novasched.model.settings import Settings

LOG = logging.getLogger('nova.scheduler.host_manager')
FEW = 1000
"""Up to so many rows are asked for by name; beyond, reading all is cheaper."""

Answer = TypeVar('Answer')


class HostReader:
    """Implements :class:`novasched.cycle.Hosts` and :class:`novasched.prefilters.Computes`
    by reading what each request needs."""

    def __init__(
        self,
        settings: Settings,
        cells: Cells,
        aggregates: AggregateReader,
        utcnow: Callable[[], datetime],
    ) -> None:
        self.settings = settings
        self.cells = cells
        self.aggregates = aggregates
        self.utcnow = utcnow
        self._pool = futures.ThreadPoolExecutor(64, thread_name_prefix='cell')

    def close(self) -> None:
        """Let running queries end and start no more."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def aimed(self, request: Request) -> Request:
        """See :class:`novasched.cycle.Hosts`.

        With one node found, Placement is asked for that provider's tree alone; where
        a host has several, it is asked without a limit, as it cannot name them all.
        """
        wanted = request.requested_destination
        host = (wanted and wanted.host) or next(iter(request.force_hosts), None)
        node = (wanted and wanted.node) or next(iter(request.force_nodes), None)
        if not host and not node:
            return request
        cell = self.cells.get(wanted.cell_uuid) if wanted and wanted.cell_uuid else None
        found = self._nodes(host, node, cell)
        if not found:
            raise NoValidHost(f'No such host - host: {host} node: {node} ')
        if len(found) > 1:
            return replace(request, unlimited=True)
        only = found[0]
        if wanted is not None:
            request = request.wanting(host=only.host, node=only.hypervisor_hostname)
        return replace(request, in_tree=only.uuid)

    def minimum_version(self) -> int:
        """See :class:`novasched.prefilters.Computes`.

        nova's rule: services that are forced down do not count, nor do cells that do not
        answer or in which a service reports 0.
        """

        def least(cell: Cell) -> int:
            table = cell.database.table('services')
            if 'version' not in table.c:
                return 0
            select = sa.select(sa.func.min(table.c.version).label('least')).where(
                table.c.binary == 'nova-compute',
                table.c.deleted == 0,
                table.c.forced_down == sa.false(),
            )
            return max(row.least or 0 for row in cell.database.rows(select))

        versions = (version for _, version in self._gather(self.cells.all(), least))
        return min(filter(None, versions), default=0)

    def read(
        self,
        uuids: Collection[str] | None,
        request: Request,
        instances: bool,
        images: bool = False,
    ) -> Mapping[str, Host]:
        """See :class:`novasched.cycle.Hosts`."""
        wanted = request.requested_destination
        cells: Sequence[Cell] = self.cells.enabled()
        if wanted and wanted.cell_uuid and not wanted.allow_cross_cell_move:
            only = self.cells.get(wanted.cell_uuid)
            cells = [only] if only else []
        if not cells:
            LOG.warning('No cells were found')
        members = self._pool.submit(self.aggregates.by_host)
        answers = self._gather(cells, lambda cell: self._computes(cell, uuids, instances, images))
        aggregates = members.result()
        hosts = {}
        for cell, (services, computes, placed) in answers:
            for row in computes:
                service = services.get(row.host)
                if service is None:
                    LOG.warning('No compute service record found for host %s', row.host)
                    continue
                host = rows.host(
                    row,
                    cell.uuid,
                    service,
                    aggregates.get(row.host, ()),
                    placed.get(row.host, {}),
                    self.settings,
                )
                if host is not None:
                    hosts[host.uuid] = host
        return hosts

    def _computes(
        self, cell: Cell, uuids: Collection[str] | None, instances: bool, images: bool
    ) -> Any:
        """One cell's services by host, compute node rows, and servers by host."""
        base = cell.database
        select = base.select('services', rows.SERVICE)
        select = select.where(base.table('services').c.binary == 'nova-compute')
        now, down_time = self.utcnow(), self.settings.service_down_time
        services = {row.host: rows.service(row, now, down_time) for row in base.rows(select)}

        select = base.select('compute_nodes', rows.COMPUTE_NODE)
        if uuids is not None and len(uuids) <= FEW:
            select = select.where(base.table('compute_nodes').c.uuid.in_(list(uuids)))
        computes = [row for row in base.rows(select) if uuids is None or row.uuid in uuids]

        hosts = {row.host for row in computes}
        placed = self._servers(base, hosts, images) if instances else {}
        return services, computes, placed

    def _servers(
        self, base: Database, hosts: Collection[str], images: bool
    ) -> dict[str, dict[str, Instance]]:
        """The servers on each host by UUID, if wanted with what is kept of their images."""
        table = base.table('instances')
        on_them = table.c.host.in_(hosts) if len(hosts) <= FEW else table.c.host.is_not(None)
        stored: dict[str, dict[str, str]] = defaultdict(dict)
        if images:
            kept = base.table('instance_system_metadata')
            select = base.select('instance_system_metadata', rows.SYSTEM_METADATA)
            select = select.join(table, table.c.uuid == kept.c.instance_uuid).where(
                table.c.deleted == 0, on_them, kept.c.key.startswith('image_', autoescape=True)
            )
            for row in base.rows(select):
                stored[row.instance_uuid][row.key] = row.value
        placed: dict[str, dict[str, Instance]] = defaultdict(dict)
        for row in base.rows(base.select('instances', rows.INSTANCE).where(on_them)):
            properties = from_system_metadata(stored[row.uuid]) if row.uuid in stored else {}
            placed[row.host][row.uuid] = Instance(
                row.uuid, row.project_id, row.instance_type_id, properties
            )
        return placed

    def _nodes(self, host: str | None, node: str | None, cell: Cell | None) -> Sequence[Any]:
        """The compute nodes of that host or name, in the cell that has any."""
        if host and cell is None:
            cell = self.cells.of_host(host)
        cells = [cell] if cell else self.cells.enabled()

        def find(where: Cell) -> Sequence[Any]:
            base = where.database
            table = base.table('compute_nodes')
            select = base.select('compute_nodes', ('uuid', 'host', 'hypervisor_hostname'))
            if host:
                select = select.where(table.c.host == host)
            if node:
                select = select.where(table.c.hypervisor_hostname == node)
            return base.rows(select)

        return next((found for _, found in self._gather(cells, find) if found), [])

    def _gather(
        self, cells: Sequence[Cell], ask: Callable[[Cell], Answer]
    ) -> list[tuple[Cell, Answer]]:
        """Ask every cell at once; those that fail or are late are logged and left out."""
        asked = [(cell, self._pool.submit(ask, cell)) for cell in cells]
        deadline = time.monotonic() + self.settings.cell_timeout
        answers = []
        for cell, future in asked:
            try:
                left = max(0.0, deadline - time.monotonic())
                answers.append((cell, future.result(timeout=left)))
            except futures.TimeoutError:
                LOG.warning('Timeout getting computes for cell %s', cell.uuid)
            except DatabaseUnavailable as error:
                LOG.warning('Failed to get computes for cell %s: %s', cell.uuid, error)
        return answers
