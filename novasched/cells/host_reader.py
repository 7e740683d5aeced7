# SPDX-License-Identifier: Apache-2.0
"""The hosts of all cells as of the arrival of a request."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent import futures
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Any

from novasched.cells.aggregates import AggregateReader
from novasched.cells.cells_reader import CellCaches, CellsReader
from novasched.cells.cells_snapshot import CellsSnapshot, with_aggregates
from novasched.cells.instances import (
    HostInstances,
    InstanceDetail,
    location_of_instance,
)
from novasched.cells.mappings import Cell, Cells, no_answer, scatter_gather
from novasched.cells.servicegroup import ServiceGroup
from novasched.cells.usual_guests import UsualGuestsReader, UsualGuestsSource
from novasched.concurrency.single_flight import FROM_NOW
from novasched.conf.settings import Settings
from novasched.scheduler.claims.pending_claims import PendingClaims
from novasched.scheduler.errors import NoValidHost, StaleData
from novasched.scheduler.model.basis import FRESH, Basis
from novasched.scheduler.model.claim import PendingClaim
from novasched.scheduler.model.host import NO_HOSTS, Host, HostSnapshot, HostView
from novasched.scheduler.model.request import Request
from novasched.scheduler.model.usual_guests import UsualGuests
from novasched.scheduler.plugin import Data
from novasched.scheduler.ports import NEEDS_NOTHING, Needs

CELL_THREADS = 64


@dataclass(eq=False)
class HostReader:
    """Reads the hosts for requests. Implements
    :class:`novasched.scheduler.ports.Hosts`."""

    settings: Settings
    cells: Cells
    aggregates: AggregateReader
    pending_claims: PendingClaims
    group: ServiceGroup
    utcnow: Callable[[], datetime]

    def __post_init__(self) -> None:
        self._pool = futures.ThreadPoolExecutor(CELL_THREADS, 'cell')
        self._prefetches = futures.ThreadPoolExecutor(1, 'snapshot')
        self._instances = HostInstances(
            self.cells, self.settings.cell_timeout, self._pool
        )
        self._reader = CellsReader(
            self.cells,
            self.aggregates,
            self.pending_claims,
            CellCaches(self.settings, self.group),
            self.utcnow,
            self._pool,
        )

    @property
    def cells_snapshot(self) -> CellsSnapshot:
        """All cells that answered the last reading."""
        return self._reader.last

    @property
    def host_snapshot(self) -> HostSnapshot:
        """All hosts as of the last reading."""
        return self._reader.last.host_snapshot

    @property
    def refreshed(self) -> int:
        """Number of new, changed and deleted rows in all readings."""
        return self._reader.refreshed

    def close(self) -> None:
        """Start no more queries. Running queries may end."""
        self._instances.close()
        for pool in (self._prefetches, self._pool):
            pool.shutdown(wait=False, cancel_futures=True)

    def renew(self) -> None:
        """Read the cell mappings and every cell anew; see :meth:`CellsReader.renew`.

        :raises DatabaseUnavailable: the API database does not answer.
        """
        self._reader.renew()
        self._instances.forget()

    def with_requested_destination(self, request: Request) -> Request:
        """See :class:`novasched.scheduler.ports.Hosts`.

        If the name leads to a single compute node, Placement is asked for the tree of
        the provider only. If the host has several nodes, Placement is asked without a
        limit, since a query cannot name several trees.
        """
        destination = request.requested_destination
        host = None
        name = None
        cell_uuid = None
        if destination is not None:
            host = destination.host
            name = destination.node
            cell_uuid = destination.cell_uuid
        host = host or next(iter(request.force_hosts), None)
        name = name or next(iter(request.force_nodes), None)
        if not host and not name:
            return request

        cell = None
        if cell_uuid:
            cell = self.cells.get(cell_uuid)
        nodes = self._nodes(host, name, cell)
        if not nodes:
            raise NoValidHost(f'No such host - host: {host} node: {name} ')
        if len(nodes) > 1:
            return replace(request, unlimited=True)

        node = nodes[0]
        if destination is not None:
            request = request.with_requested_destination(
                host=node.host, node=node.hypervisor_hostname
            )
        return replace(request, in_tree=node.uuid)

    def is_on_forced_host(self, request: Request) -> bool:
        """See :class:`novasched.scheduler.ports.Hosts`.

        A request that forces no host, as a user's, needs no query.

        :raises DatabaseUnavailable: the API database or the cell does not answer.
        """
        uuids = request.instance_uuids or (request.instance_uuid or '',)
        forced = request.force_hosts or request.force_nodes
        if not forced or len(uuids) != 1:
            return False

        def read(cell: Cell) -> Sequence[Any]:
            return location_of_instance(cell.database, uuids[0])

        host = next(iter(request.force_hosts), None)
        locations = self._first_rows(self._cells_of(host), read)
        # As in nova, host names are compared without regard to case.
        forced_hosts = set(map(str.lower, request.force_hosts))
        for location in locations:
            if forced_hosts and str(location.host).lower() not in forced_hosts:
                continue
            if location.node in request.force_nodes or not request.force_nodes:
                return True
        return False

    def minimum_version(self, since: float) -> int:
        """See :class:`novasched.scheduler.ports.Hosts`."""
        last = self._reader.last
        if last.complete == math.inf:
            # The cells have never been read.
            last = self._reader.at_least(since)
        return last.host_snapshot.minimum_version

    def snapshot(self, moment: float = FROM_NOW) -> CellsSnapshot:
        """All cells that answer, as of a moment or later.

        :param moment: monotonic seconds.
        :raises DatabaseUnavailable: the API database has never answered yet.
        """
        return self._reader.at_least(moment)

    @cached_property
    def _usual_guests(self) -> UsualGuestsReader:
        """Made at the first use: most clouds need no usual guests."""
        source = UsualGuestsSource(
            self.cells,
            self.settings.usual_flavors,
            self.settings.cell_timeout,
            self._pool,
            lambda: self.cells_snapshot.cells,
        )
        return UsualGuestsReader(source)

    def usual_guests(self) -> UsualGuests:
        """See :class:`novasched.scheduler.ports.Hosts`."""
        return self._usual_guests.latest()

    def prefetch(self, moment: float) -> None:
        """See :class:`novasched.scheduler.ports.Hosts`."""
        # An error is not lost: the request itself reads the hosts again, and gets it.
        self._prefetches.submit(self._reader.at_least, moment)

    def read(
        self,
        uuids: Collection[str] | None,
        request: Request,
        needs: Needs = NEEDS_NOTHING,
        basis: Basis = FRESH,
    ) -> HostSnapshot:
        """See :class:`novasched.scheduler.ports.Hosts`.

        :raises DatabaseUnavailable: the API database does not answer, or none of the
            cells with hosts for the request.
        :raises StaleData: the minimum version of nova-compute is no longer the version
            for which the request was narrowed.
        """
        destination = request.requested_destination
        cell_uuid = None
        if destination is not None:
            cell_uuid = destination.cell_uuid
        if cell_uuid:
            # Looks up a new cell, which is then read with all others.
            self.cells.get(cell_uuid)
        snapshot = self._reader.at_least(max(basis.read_since, self.cells.changed))
        whole = snapshot.host_snapshot
        if basis.minimum_version not in (None, whole.minimum_version):
            raise StaleData(
                f'the minimum version of nova-compute is {whole.minimum_version}'
            )

        view = whole.view
        views = snapshot.cells
        cells = self.cells.enabled()
        if destination and cell_uuid and not destination.allow_cross_cell_move:
            cells = [cell for cell in cells if cell.uuid == cell_uuid]
            view = self._view_of_cell(cell_uuid, snapshot)
            views = {**views, cell_uuid: view}
        # Without a host that could serve the request, the request must not be refused:
        # the silent cell may have one.
        failed = [cell for cell in cells if cell.uuid not in snapshot.cells]
        if failed:
            offered: Collection[str] = view.hosts.keys()
            if uuids is not None:
                offered = uuids
            if view.hosts.keys().isdisjoint(offered):
                raise no_answer(failed)

        view = self._without_misplaced(view, request, basis)
        if detail := _detail_of(needs):
            view = self._instances.add_all(view, uuids, detail, snapshot.complete)
        if needs.named and Data.INSTANCES not in needs.data:
            view = self._instances.add_named(view, needs.named)

        hosts_of_instances: Mapping[str, Host] = {}
        if needs.located:
            hosts_of_instances = self._instances.hosts_of(needs.located, views)
        self._note_hidden(needs, view.hosts, hosts_of_instances, whole.read_at)
        return replace(
            whole,
            view=view,
            total=len(whole.hosts),
            located=hosts_of_instances,
            everywhere=whole.hosts,
        )

    def _note_hidden(
        self,
        needs: Needs,
        hosts: Mapping[str, Host],
        located: Mapping[str, Host],
        read_at: float,
    ) -> None:
        """Note the instances that were read for a request, and are missing on the hosts
        on which an earlier reading has shown them."""
        all_were_read = Data.INSTANCES in needs.data
        if not all_were_read and not needs.named and not needs.located:
            return

        def is_missing(claim: PendingClaim) -> bool:
            uuid = claim.request.instance_uuid
            if uuid in needs.located and uuid not in located:
                return True
            host = hosts.get(claim.host.uuid)
            was_read = all_were_read or uuid in needs.named
            return was_read and host is not None and uuid not in host.instances

        self.pending_claims.note_hidden(is_missing, read_at)

    def _without_misplaced(
        self, view: HostView, request: Request, basis: Basis
    ) -> HostView:
        """Leave out hosts that Placement may offer although they have just left an
        aggregate which the request needs, or joined one which it must avoid."""
        misplaced = self._reader.regrouped.misplaced(view.hosts, request, basis.began)
        if not misplaced:
            return view

        hosts = dict(view.hosts)
        for uuid in misplaced:
            del hosts[uuid]
        return HostView(hosts, view.changes.branch(misplaced))

    def _view_of_cell(self, uuid: str, snapshot: CellsSnapshot) -> HostView:
        """The hosts of a cell. A disabled cell is only read for moves within the
        cell."""
        cell = self.cells.get(uuid)
        if cell is None or not cell.disabled:
            view = snapshot.cells.get(uuid, NO_HOSTS)
            return HostView(view.hosts, view.changes.branch(()))

        answers = scatter_gather(
            self._pool, [cell], self._reader.read_alone, self.settings.cell_timeout
        )
        if not answers:
            raise no_answer([cell])

        [(_, refresh)] = answers
        aggregates = self.aggregates.state(snapshot.host_snapshot.read_at)
        hosts = {}
        for node_uuid, host in refresh.view.hosts.items():
            hosts[node_uuid] = with_aggregates(host, aggregates)
        return HostView(hosts)

    def _nodes(
        self, host: str | None, name: str | None, cell: Cell | None
    ) -> Sequence[Any]:
        """The compute nodes with a host and a node name, in the first cell with such
        nodes.

        :param cell: the cell to search; None for the cell of the host, or all.
        """
        if cell is None:
            cells = self._cells_of(host)
        else:
            cells = [cell]
        equal = {}
        if host:
            equal['host'] = host
        if name:
            equal['hypervisor_hostname'] = name

        def read(cell: Cell) -> Sequence[Any]:
            columns = ('uuid', 'host', 'hypervisor_hostname')
            return cell.database.rows('compute_nodes', columns, **equal)

        return self._first_rows(cells, read)

    def _cells_of(self, host: str | None) -> Sequence[Cell]:
        """The cell of a host; without a host or its mapping, all enabled cells."""
        cell = None
        if host:
            cell = self.cells.of_host(host)
        if cell is not None:
            return [cell]
        return self.cells.enabled()

    def _first_rows(
        self, cells: Sequence[Cell], read: Callable[[Cell], Sequence[Any]]
    ) -> Sequence[Any]:
        """The rows of the first cell with any.

        :raises DatabaseUnavailable: no cell has rows, and a cell does not answer.
        """
        answers = scatter_gather(self._pool, cells, read, self.settings.cell_timeout)
        for _, rows in answers:
            if rows:
                return rows

        # A row in a silent cell must not be reported as missing.
        answered = {cell for cell, _ in answers}
        silent = [cell for cell in cells if cell not in answered]
        if silent:
            raise no_answer(silent)
        return []


def _detail_of(needs: Needs) -> InstanceDetail | None:
    """The part of the instances that a request needs on each host."""
    if Data.INSTANCES in needs.data:
        if Data.IMAGES in needs.data:
            return InstanceDetail.ALL_WITH_IMAGES
        return InstanceDetail.ALL
    if Data.FLAVORS in needs.data:
        return InstanceDetail.ONE_OF_EACH_FLAVOR
    return None
