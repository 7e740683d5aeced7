# SPDX-License-Identifier: Apache-2.0
"""The hosts of all cells, as they are when a request arrives."""

import logging
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent import futures
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, TypeVar

from novasched.cells.aggregates import AggregateReader, AggregatesByHost, AggregateState
from novasched.cells.host_cache import CellHostCache, lowest_version
from novasched.cells.instances import HostInstances, InstanceDetail
from novasched.cells.mappings import Cell, Cells, no_answer, scatter_gather
from novasched.cells.servicegroup import COMPUTE, ServiceGroup
from novasched.concurrency.single_flight import FROM_NOW, SingleFlight
from novasched.conf.settings import Settings
from novasched.scheduler.errors import NoValidHost, StaleData
from novasched.scheduler.model.basis import FRESH, Basis
from novasched.scheduler.model.host import Aggregate, Host, HostSnapshot
from novasched.scheduler.model.request import Destination, Request
from novasched.scheduler.pending_claims import PendingClaims
from novasched.scheduler.ports import NO_INSTANCES, Needs

LOG = logging.getLogger('nova.scheduler.host_manager')

CELL_THREADS = 64
AGGREGATES_LAG_S = 5.0
"""Seconds after which Placement has a change of aggregates, at the latest. nova-api
writes its database first, then the aggregates of the providers in Placement, up to half
a second later."""

Answer = TypeVar('Answer')


@dataclass(frozen=True, slots=True)
class CellsSnapshot:
    """All cells that answer, at one moment.

    :ivar cells: the hosts of each cell by compute node UUID.
    :ivar host_snapshot: the hosts of all cells.
    :ivar complete: the moment (monotonic seconds) when all of it had been read.
        Instances on hosts are read after that: an instance that a host shows is no
        pending claim any more.
    """

    cells: Mapping[str, Mapping[str, Host]]
    host_snapshot: HostSnapshot
    complete: float = math.inf


@dataclass(frozen=True, slots=True)
class _Regrouped:
    """A host whose aggregates have changed.

    :ivar seen: when the change was seen (monotonic seconds).
    :ivar former: UUIDs of the aggregates in which Placement may still have the host.
    """

    seen: float
    former: frozenset[str]

    def may_be_unknown(self, moment: float) -> bool:
        """True if an answer of Placement may lack the change.

        :param moment: when Placement was asked (monotonic seconds).
        """
        return moment < self.seen + AGGREGATES_LAG_S

    def is_misplaced(self, host: Host, destination: Destination) -> bool:
        """True if Placement may offer the host only because it lacks the change."""
        now = _uuids(host.aggregates)
        if not destination.forbidden_aggregates.isdisjoint(now):
            return True
        lacking = [uuids for uuids in destination.aggregates if uuids.isdisjoint(now)]
        return any(not uuids.isdisjoint(self.former) for uuids in lacking)


@dataclass(eq=False)
class HostReader:
    """Implements :class:`novasched.scheduler.ports.Hosts`.

    Requests that arrive while the cells are being read share the next reading, so each
    of them sees the cells as they are when it arrives, or later.

    :ivar refreshed: the number of rows that were new, changed or gone when they were
        read.
    """

    settings: Settings
    cells: Cells
    aggregates: AggregateReader
    pending_claims: PendingClaims
    group: ServiceGroup
    utcnow: Callable[[], datetime]
    refreshed: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._pool = futures.ThreadPoolExecutor(CELL_THREADS, 'cell')
        self._prefetches = futures.ThreadPoolExecutor(1, 'snapshot')
        self._instances = HostInstances(
            self.cells, self.settings.cell_timeout, self._pool
        )
        self._caches: dict[Cell, CellHostCache] = {}
        self._last = CellsSnapshot({}, HostSnapshot({}))
        self._freed: Mapping[str, float] = {}
        self._aggregates: AggregatesByHost = {}
        self._aggregates_settled = -math.inf
        self._regrouped: Mapping[str, _Regrouped] = {}  # by host name
        self._flights = SingleFlight(self._refresh)

    @property
    def cells_snapshot(self) -> CellsSnapshot:
        """All cells that answered, as they were read the last time."""
        return self._last

    @property
    def host_snapshot(self) -> HostSnapshot:
        """All hosts, as they were read the last time."""
        return self._last.host_snapshot

    def close(self) -> None:
        """Start no more queries; running ones may end."""
        self._instances.close()
        for pool in (self._prefetches, self._pool):
            pool.shutdown(wait=False, cancel_futures=True)

    def with_requested_destination(self, request: Request) -> Request:
        """If there is one such node, Placement is asked for that provider's tree alone.
        If a host has several, it is asked without a limit, as a query cannot name them
        all."""
        destination = request.requested_destination
        host = (destination and destination.host) or next(
            iter(request.force_hosts), None
        )
        name = (destination and destination.node) or next(
            iter(request.force_nodes), None
        )
        if not host and not name:
            return request
        cell_uuid = destination.cell_uuid if destination else None
        cell = self.cells.get(cell_uuid) if cell_uuid else None
        nodes = self._nodes(host, name, cell)
        if not nodes:
            raise NoValidHost(f'No such host - host: {host} node: {name} ')
        if len(nodes) > 1:
            return replace(request, unlimited=True)
        node = nodes[0]
        if destination is not None:
            request = request.wanting(host=node.host, node=node.hypervisor_hostname)
        return replace(request, in_tree=node.uuid)

    def minimum_version(self, since: float) -> int:
        """See :class:`novasched.scheduler.prefilters.Sources`."""
        was_read = self._last.complete < math.inf
        last = self._last if was_read else self._flights.at_least(since)
        return last.host_snapshot.minimum_version

    def _minimum_version(self, versions: Sequence[int]) -> int:
        """The lowest version of nova-compute: of those of the enabled cells, and of the
        disabled ones. Cells that do not answer, or in which a service reports 0, do not
        count."""

        def lowest(cell: Cell) -> int:
            return lowest_version(
                cell.database.rows(
                    'services', ('version', 'forced_down'), binary=COMPUTE
                )
            )

        disabled = [cell for cell in self.cells.all() if cell.disabled]
        others = [version for _, version in self._scatter_gather(disabled, lowest)]
        return min(filter(None, (*versions, *others)), default=0)

    def snapshot(self, moment: float = FROM_NOW) -> CellsSnapshot:
        """All cells that answer, as of that moment (monotonic seconds) or later.

        :raises DatabaseUnavailable: the API database has never answered yet.
        """
        return self._flights.at_least(moment)

    def prefetch(self, moment: float) -> None:
        # The request that needs the hosts asks once more, and gets the error.
        self._prefetches.submit(self._flights.at_least, moment)

    def read(
        self,
        uuids: Collection[str] | None,
        request: Request,
        needs: Needs = NO_INSTANCES,
        basis: Basis = FRESH,
    ) -> HostSnapshot:
        """See :class:`novasched.scheduler.ports.Hosts`.

        :raises DatabaseUnavailable: the API database does not answer, or no cell does
            that may have a host for the request.
        :raises StaleData: the request was narrowed for another minimum version of
            nova-compute than the services report.
        """
        destination = request.requested_destination
        cell_uuid = destination.cell_uuid if destination else None
        if cell_uuid:
            self.cells.get(
                cell_uuid
            )  # a new cell is looked up, and read with the others
        snapshot = self._flights.at_least(max(basis.read_since, self.cells.changed))
        cells = self.cells.enabled()
        whole = snapshot.host_snapshot
        by_cell = snapshot.cells
        if basis.minimum_version not in (None, whole.minimum_version):
            raise StaleData(
                f'the minimum version of nova-compute is {whole.minimum_version}'
            )
        hosts = whole.hosts
        if destination and cell_uuid and not destination.allow_cross_cell_move:
            cells = [cell for cell in cells if cell.uuid == cell_uuid]
            hosts = self._hosts_of_cell(cell_uuid, snapshot)
            by_cell = {**by_cell, cell_uuid: hosts}
        failed = [cell for cell in cells if cell.uuid not in snapshot.cells]
        if failed and hosts.keys().isdisjoint(hosts if uuids is None else uuids):
            raise no_answer(failed)
        hosts = self._without_misplaced(hosts, request, basis)
        if needs.instances or needs.flavors:
            detail = InstanceDetail.ONE_OF_EACH_FLAVOR
            if needs.instances:
                detail = InstanceDetail.ALL
            if needs.instances and needs.images:
                detail = InstanceDetail.ALL_WITH_IMAGES
            hosts = self._instances.add_all(hosts, uuids, detail, snapshot.complete)
        if needs.named and not needs.instances:
            hosts = self._instances.add_named(hosts, needs.named)
        on: Mapping[str, Host] = {}
        if needs.located:
            on = self._instances.hosts_of(needs.located, by_cell)
        total = len(whole.hosts)
        return replace(
            whole, hosts=hosts, total=total, located=on, everywhere=whole.hosts
        )

    def _without_misplaced(
        self,
        hosts: Mapping[str, Host],
        request: Request,
        basis: Basis,
    ) -> Mapping[str, Host]:
        """Leave out hosts that have just left an aggregate which the request needs, or
        have just joined an aggregate which the request must avoid. Placement may still
        offer these hosts."""
        destination = request.requested_destination
        if destination is None or basis.began >= self._aggregates_settled:
            return hosts

        misplaced = set()
        for uuid, host in hosts.items():
            change = self._regrouped.get(host.host)
            if change is None or not change.may_be_unknown(basis.began):
                continue
            if change.is_misplaced(host, destination):
                misplaced.add(uuid)

        if not misplaced:
            return hosts
        return {uuid: host for uuid, host in hosts.items() if uuid not in misplaced}

    def _hosts_of_cell(self, uuid: str, snapshot: CellsSnapshot) -> Mapping[str, Host]:
        """The hosts of one cell. A disabled one is read only for moves within it."""
        cell = self.cells.get(uuid)
        if cell is None or not cell.disabled:
            return snapshot.cells.get(uuid, {})
        cache = CellHostCache(cell, self.settings, self.group)
        answers = self._scatter_gather([cell], lambda _: cache.refresh(self.utcnow()))
        if not answers:
            raise no_answer([cell])
        return cache.hosts(
            self.aggregates.state(snapshot.host_snapshot.read_at).by_host
        )

    def renew(self) -> None:
        """Read the cell mappings and every cell anew, and use them from the next
        request on.

        No request waits: until all is read, the former values are used. Those of cells
        that do not answer stay.

        :raises DatabaseUnavailable: the API database does not answer.
        """
        mapped = self.cells.read()
        before = self._caches
        enabled = [cell for cell in mapped.values() if not cell.disabled]
        caches = {
            cell: CellHostCache(cell, self.settings, self.group) for cell in enabled
        }
        answers = self._scatter_gather(
            enabled, lambda cell: caches[cell].refresh(self.utcnow())
        )
        self.cells.use(mapped)
        answered = {cell for cell, _ in answers}
        self.refreshed += sum(changes for _, (_, changes) in answers)
        self._caches = {
            cell: cache if cell in answered else before.get(cell, cache)
            for cell, cache in caches.items()
        }
        self._instances.forget()

    def _refresh(self) -> CellsSnapshot:
        """Read every cell and the aggregates in parallel."""
        began = time.monotonic()
        now = self.utcnow()
        caches = self._caches
        cells = self.cells.enabled()
        for cell in cells:
            if cell not in caches:
                caches[cell] = CellHostCache(cell, self.settings, self.group)
        if not cells:
            LOG.warning('No cells were found')
        reading = self._pool.submit(self.aggregates.state, began)
        answers = self._scatter_gather(
            cells,
            lambda cell: caches[cell].refresh(
                now, self.pending_claims.instances_awaited_in(cell.uuid)
            ),
        )
        aggregates = self._await_aggregates(reading, began)
        hosts = {}
        for cell, (instances, changes) in answers:
            self.pending_claims.note_shown(instances, began)
            self.refreshed += changes
            hosts[cell.uuid] = caches[cell].hosts(aggregates)
            if freed := caches[cell].freed():
                self._freed = {**self._freed, **dict.fromkeys(freed, began)}
        if aggregates is not self._aggregates:
            self._regroup(aggregates, began)
        version = self._minimum_version(
            [caches[cell].minimum_version for cell, _ in answers]
        )
        self._last = self._merged(hosts, began, version)
        return self._last

    def _await_aggregates(
        self, reading: futures.Future[AggregateState], began: float
    ) -> AggregatesByHost:
        """The aggregates, or their last values after the timeout of cells."""
        timeout = self.settings.cell_timeout
        try:
            return reading.result(max(0.0, began + timeout - time.monotonic())).by_host
        except futures.TimeoutError:
            self.aggregates.api.breaker.failed(f'no answer within {timeout:g} s', began)
            return reading.result().by_host  # ends now, with an answer or an error

    def _regroup(self, aggregates: AggregatesByHost, began: float) -> None:
        """Use new aggregates, and note the hosts that Placement may still have in their
        former aggregates."""
        former = self._aggregates
        self._aggregates = aggregates
        if self._last.complete == math.inf:  # nothing was read before
            self._aggregates_settled = began
            return

        self._aggregates_settled = began + AGGREGATES_LAG_S
        regrouped = {}
        for name, change in self._regrouped.items():
            if change.may_be_unknown(began):
                regrouped[name] = change
        for name in former.keys() | aggregates.keys():
            uuids = _uuids(former.get(name, ()))
            if uuids == _uuids(aggregates.get(name, ())):
                continue
            if name in regrouped:
                uuids |= regrouped[name].former
            regrouped[name] = _Regrouped(began, uuids)
        self._regrouped = regrouped

    def _merged(
        self, cells: Mapping[str, Mapping[str, Host]], began: float, version: int
    ) -> CellsSnapshot:
        """The snapshot of these cells; its hosts are the same mapping if nothing has
        changed."""
        last = self._last
        all_hosts = last.host_snapshot.hosts
        if last.cells.keys() != cells.keys() or any(
            last.cells[uuid] is not hosts for uuid, hosts in cells.items()
        ):
            all_hosts = {
                uuid: host for hosts in cells.values() for uuid, host in hosts.items()
            }
        if len(self._freed) > len(all_hosts):  # some are gone
            self._freed = {
                x: moment for x, moment in self._freed.items() if x in all_hosts
            }
        snapshot = HostSnapshot(
            all_hosts,
            began,
            freed=self._freed,
            aggregates_settled=self._aggregates_settled,
            minimum_version=version,
        )
        return CellsSnapshot(cells, snapshot, time.monotonic())

    def _nodes(
        self, host: str | None, name: str | None, cell: Cell | None
    ) -> Sequence[Any]:
        """The compute nodes of that host and name, in the first cell that has any."""
        if host and cell is None:
            cell = self.cells.of_host(host)
        cells = [cell] if cell else self.cells.enabled()
        names = {'host': host, 'hypervisor_hostname': name}
        equal = {column: value for column, value in names.items() if value}

        def read(cell: Cell) -> Sequence[Any]:
            return cell.database.rows('compute_nodes', ('uuid', *names), **equal)

        answers = self._scatter_gather(cells, read)
        nodes = next((rows for _, rows in answers if rows), [])
        if not nodes and len(answers) < len(cells):
            answered = {cell for cell, _ in answers}
            raise no_answer([cell for cell in cells if cell not in answered])
        return nodes

    def _scatter_gather(
        self, cells: Sequence[Cell], ask: Callable[[Cell], Answer]
    ) -> list[tuple[Cell, Answer]]:
        return scatter_gather(self._pool, cells, ask, self.settings.cell_timeout)


def _uuids(aggregates: Sequence[Aggregate]) -> frozenset[str]:
    """UUIDs of aggregates. In the schema of nova's database a UUID may be null."""
    return frozenset(aggregate.uuid for aggregate in aggregates if aggregate.uuid)
