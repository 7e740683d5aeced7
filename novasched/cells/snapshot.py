# SPDX-License-Identifier: Apache-2.0
"""The hosts of all cells, as they are when a request arrives."""

from __future__ import annotations

import contextlib
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent import futures
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypeVar

import sqlalchemy as sa

from novasched.cells.aggregates import AggregateReader, State
from novasched.cells.computes import Computes
from novasched.cells.mappings import Cell, Cells
from novasched.cells.servers import servers
from novasched.cells.servicegroup import Group
from novasched.errors import DatabaseUnavailable, NoValidHost
from novasched.inflight import InFlight
from novasched.model.host import Aggregate, Fleet, Host
from novasched.model.request import Request
from novasched.model.settings import Settings
from novasched.turns import NOW, Turns

LOG = logging.getLogger('nova.scheduler.host_manager')
Members = Mapping[str, tuple[Aggregate, ...]]
"""Host name to aggregates."""

Answer = TypeVar('Answer')


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All cells at one moment: hosts by compute node UUID for each, and together."""

    cells: Mapping[str, Mapping[str, Host]]
    fleet: Fleet


@dataclass(frozen=True, slots=True)
class Joined:
    """A cell's hosts, and what they were made of."""

    bare: Mapping[str, Host] = field(default_factory=dict)
    members: Members = field(default_factory=dict)
    hosts: Mapping[str, Host] = field(default_factory=dict)


class HostReader:
    """Implements :class:`novasched.ports.Hosts` and :class:`novasched.prefilters.Computes`.

    Requests that come while the cells are being read share the next reading, so that each
    sees them as they are when it arrives, or later.
    """

    def __init__(
        self,
        settings: Settings,
        cells: Cells,
        aggregates: AggregateReader,
        in_flight: InFlight,
        group: Group,
        utcnow: Callable[[], datetime],
    ) -> None:
        self.settings = settings
        self.cells = cells
        self.group = group
        self.aggregates = aggregates
        self.in_flight = in_flight
        self.utcnow = utcnow
        self._pool = futures.ThreadPoolExecutor(64, thread_name_prefix='cell')
        self._ahead = futures.ThreadPoolExecutor(1, thread_name_prefix='snapshot')
        self._computes = {cell: self._unread(cell) for cell in cells.enabled()}
        self._join: dict[str, Joined] = {}
        self._last = Snapshot({}, Fleet({}))
        self.refreshed = 0
        """So many rows were not as they were known when they were read."""
        self._turns = Turns(self._refresh)
        self._versions = Turns(self._least_version)

    @property
    def fleet(self) -> Fleet:
        """All hosts, as they were read the last time."""
        return self._last.fleet

    def close(self) -> None:
        """Let running queries end and start no more."""
        for pool in (self._ahead, self._pool):
            pool.shutdown(wait=False, cancel_futures=True)

    def aimed(self, request: Request) -> Request:
        """See :class:`novasched.ports.Hosts`.

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

    def minimum_version(self, since: float) -> int:
        """See :class:`novasched.prefilters.Computes`."""
        return self._versions.since(since)

    def _least_version(self) -> int:
        """nova's rule: services that are forced down do not count, nor do cells that do not
        answer or in which a service reports 0."""

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

    def snapshot(self, moment: float = NOW) -> Snapshot:
        """All cells that answer, as of that moment (monotonic seconds) or later.

        :raises DatabaseUnavailable: the API database has never answered yet.
        """
        return self._turns.since(moment)

    def prepare(self, moment: float) -> None:
        """See :class:`novasched.ports.Hosts`."""
        self._ahead.submit(self._prepared, moment)

    def _prepared(self, moment: float) -> None:
        # Whoever needs the hosts asks once more, and hears of it.
        with contextlib.suppress(DatabaseUnavailable):
            self._turns.since(moment)

    def read(
        self,
        uuids: Collection[str] | None,
        request: Request,
        instances: bool,
        images: bool = False,
    ) -> Fleet:
        """See :class:`novasched.ports.Hosts`.

        :raises DatabaseUnavailable: the API database does not answer.
        """
        known = self._turns.since(request.arrived)
        wanted = request.requested_destination
        hosts = known.fleet.hosts
        if wanted and wanted.cell_uuid and not wanted.allow_cross_cell_move:
            hosts = self._of_cell(wanted.cell_uuid, known)
        if instances:
            chosen = hosts if uuids is None else {x: hosts[x] for x in uuids if x in hosts}
            hosts = self._with_servers(chosen, images)
        return replace(known.fleet, hosts=hosts, total=len(known.fleet.hosts))

    def _of_cell(self, uuid: str, known: Snapshot) -> Mapping[str, Host]:
        """The hosts of one cell. A server may move within a cell that is disabled, which is
        read for that alone."""
        cell = self.cells.get(uuid)
        if cell is None or not cell.disabled:
            return known.cells.get(uuid, {})
        answers = self._gather([cell], lambda cell: self._unread(cell).refresh(self.utcnow()))
        members = self.aggregates.state(known.fleet.read_at).by_host
        return {
            uuid: replace(host, aggregates=members.get(host.host, ()))
            for _, state in answers
            for uuid, host in state.hosts.items()
        }

    def _with_servers(self, hosts: Mapping[str, Host], images: bool) -> Mapping[str, Host]:
        """The hosts with the servers on them; those of cells that fail are left out."""
        names: dict[str, set[str]] = defaultdict(set)
        for host in hosts.values():
            names[host.cell_uuid].add(host.host)
        cells = [cell for cell in self.cells.all() if cell.uuid in names]
        answers = self._gather(cells, lambda cell: servers(cell.database, names[cell.uuid], images))
        placed = {cell.uuid: found for cell, found in answers}
        return {
            uuid: replace(host, instances=placed[host.cell_uuid].get(host.host, {}))
            for uuid, host in hosts.items()
            if host.cell_uuid in placed
        }

    def renew(self) -> None:
        """Read the cell mappings and every cell anew, and use that from the next request on.

        No request waits for it: until all is read, they go by what is known. Of a cell that
        does not answer that remains.

        :raises DatabaseUnavailable: the API database does not answer.
        """
        found, known = self.cells.read(), self._computes
        fresh = {cell: self._unread(cell) for cell in found.enabled()}
        answers = self._gather(list(fresh), lambda cell: fresh[cell].refresh(self.utcnow()))
        self.cells.use(found)
        answered = {cell for cell, _ in answers}
        self.refreshed += sum(state.changes for _, state in answers)
        self._computes = {
            cell: each if cell in answered else known.get(cell, each)
            for cell, each in fresh.items()
        }

    def _unread(self, cell: Cell) -> Computes:
        return Computes(cell, self.settings, self.group)

    def _refresh(self) -> Snapshot:
        """One turn: every cell and the aggregates at once."""
        began, now = time.monotonic(), self.utcnow()
        computes = self._computes
        cells = list(computes)
        if not cells:
            LOG.warning('No cells were found')
        aggregates = self._pool.submit(self.aggregates.state, began)
        answers = self._gather(
            cells, lambda cell: computes[cell].refresh(now, self.in_flight.awaited(cell.uuid))
        )
        members = self._members(aggregates, began)
        joined = {}
        for cell, state in answers:
            self.in_flight.seen(state.arrived, began)
            self.refreshed += state.changes
            joined[cell.uuid] = self._joined(cell.uuid, state.hosts, members)
        self._last = self._assembled({uuid: each.hosts for uuid, each in joined.items()}, began)
        self._join = joined
        return self._last

    def _members(self, reading: futures.Future[State], began: float) -> Members:
        """The aggregates, or what was known of them if their time is over, too."""
        try:
            left = max(0.0, began + self.settings.cell_timeout - time.monotonic())
            return reading.result(timeout=left).by_host
        except futures.TimeoutError:
            self.aggregates.api.give_up(self._silence)
            return reading.result().by_host  # which ends now, one way or the other

    @property
    def _silence(self) -> str:
        return f'no answer within {self.settings.cell_timeout:g} s'

    def _joined(self, cell: str, bare: Mapping[str, Host], members: Members) -> Joined:
        """A cell's hosts with their aggregates; those of the last turn where nothing of them
        has changed."""
        last = self._join.get(cell, Joined())
        if last.bare is bare and last.members is members:
            return last
        hosts = {}
        for uuid, host in bare.items():
            aggregates = members.get(host.host, ())
            known = last.hosts.get(uuid)
            if known and last.bare[uuid] is host and known.aggregates == aggregates:
                hosts[uuid] = known
            else:
                hosts[uuid] = replace(host, aggregates=aggregates) if aggregates else host
        return Joined(bare, members, hosts)

    def _assembled(self, cells: Mapping[str, Mapping[str, Host]], began: float) -> Snapshot:
        last = self._last
        same = last.cells.keys() == cells.keys() and all(
            last.cells[uuid] is hosts for uuid, hosts in cells.items()
        )
        if same:
            return Snapshot(cells, Fleet(last.fleet.hosts, began))
        together: dict[str, Host] = {}
        for hosts in cells.values():
            together.update(hosts)
        return Snapshot(cells, Fleet(together, began))

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
        """Ask every cell at once; those that fail or are late are logged and left out. Who
        is late is not waited for again, until it has answered somebody."""
        asked = [(cell, self._pool.submit(ask, cell)) for cell in cells]
        deadline = time.monotonic() + self.settings.cell_timeout
        answers = []
        for cell, future in asked:
            try:
                # Raised here, an error would refer to the futures, and they to it.
                error = future.exception(timeout=max(0.0, deadline - time.monotonic()))
            except (futures.TimeoutError, TimeoutError):
                LOG.warning('Timeout getting computes for cell %s', cell.uuid)
                if not (future.cancel() or future.done()):
                    cell.database.give_up(self._silence)
                continue
            if isinstance(error, DatabaseUnavailable):
                LOG.warning('Failed to get computes for cell %s: %s', cell.uuid, error)
            else:
                answers.append((cell, future.result()))
        return answers
