# SPDX-License-Identifier: Apache-2.0
"""Readings of all cells and of the aggregates."""

import logging
import time
from collections.abc import Callable, Collection, Mapping
from concurrent import futures
from dataclasses import dataclass, field
from datetime import datetime

from novasched.cells.aggregates import AggregateReader, AggregateState
from novasched.cells.cell_host_cache import CellHostCache, CellRefresh, lowest_version
from novasched.cells.cells_snapshot import CellsSnapshot, ViewBuilder
from novasched.cells.mappings import Cell, Cells, scatter_gather
from novasched.cells.regrouping import RegroupedHosts
from novasched.cells.servicegroup import COMPUTE, ServiceGroup
from novasched.concurrency.single_flight import SingleFlight
from novasched.conf.settings import Settings
from novasched.scheduler.claims.pending_claims import PendingClaims

LOG = logging.getLogger('nova.scheduler.host_manager')


@dataclass
class CellCaches:
    """The caches of the cells. A reading makes the cache of a new cell; a renewal, in
    another thread, replaces all caches."""

    settings: Settings
    group: ServiceGroup
    _caches: dict[Cell, CellHostCache] = field(default_factory=dict, init=False)

    def new(self, cell: Cell) -> CellHostCache:
        """An empty cache, which is not kept here."""
        return CellHostCache(cell, self.settings, self.group)

    def of(self, cells: Collection[Cell]) -> Mapping[Cell, CellHostCache]:
        """The caches of all these cells. Missing caches are made."""
        # Changed in place: the caches of a renewal in the meantime must stay.
        caches = self._caches
        for cell in cells:
            if cell not in caches:
                caches[cell] = self.new(cell)
        return caches

    def replace(
        self, caches: Mapping[Cell, CellHostCache], cells_read: Collection[Cell]
    ) -> None:
        """Use these caches. A cell that could not be read keeps its former cache."""
        before = self._caches
        after = {}
        for cell, cache in caches.items():
            after[cell] = cache
            if cell not in cells_read:
                after[cell] = before.get(cell, cache)
        self._caches = after


class CellsReader:
    """Reads every cell and the aggregates in parallel.

    Requests arriving during a reading share the next reading, so a request gets the
    cells as of the arrival of the request or later.

    :ivar refreshed: number of new, changed and deleted rows in all readings.
    """

    def __init__(
        self,
        cells: Cells,
        aggregates: AggregateReader,
        pending_claims: PendingClaims,
        caches: CellCaches,
        utcnow: Callable[[], datetime],
        pool: futures.Executor,
    ) -> None:
        self.refreshed = 0
        self.regrouped = RegroupedHosts()
        self._cells = cells
        self._aggregates = aggregates
        self._pending_claims = pending_claims
        self._caches = caches
        self._utcnow = utcnow
        self._pool = pool
        self._builder = ViewBuilder()
        self._flights = SingleFlight(self._read)

    @property
    def last(self) -> CellsSnapshot:
        """The cells as of the last reading."""
        return self._builder.last

    @property
    def timeout(self) -> float:
        """Longest wait of a reading for a cell, in seconds."""
        return self._caches.settings.cell_timeout

    def at_least(self, moment: float) -> CellsSnapshot:
        """The cells as of a moment or later. Cells that do not answer are left out.

        :param moment: monotonic seconds.
        :raises DatabaseUnavailable: the API database has never answered yet.
        """
        return self._flights.at_least(moment)

    def read_alone(self, cell: Cell) -> CellRefresh:
        """Read a cell for a single request. Nothing is kept.

        :raises DatabaseUnavailable: the cell does not answer.
        """
        return self._caches.new(cell).refresh(self._utcnow())

    def renew(self) -> None:
        """Read the cell mappings and every cell anew, and use the result from the next
        request on.

        No request waits: requests use the former values until all is read. Silent cells
        keep the former values.

        :raises DatabaseUnavailable: the API database does not answer.
        """
        mapped = self._cells.read()
        enabled = [cell for cell in mapped.values() if not cell.disabled]
        caches = {cell: self._caches.new(cell) for cell in enabled}

        def refresh(cell: Cell) -> CellRefresh:
            return caches[cell].refresh(self._utcnow())

        answers = dict(scatter_gather(self._pool, enabled, refresh, self.timeout))
        # Only now: requests must not see a cell before it has been read.
        self._cells.use(mapped)
        self._count_rows(answers.values())
        self._caches.replace(caches, answers.keys())

    def _read(self) -> CellsSnapshot:
        began = time.monotonic()
        now = self._utcnow()
        cells = self._cells.enabled()
        if not cells:
            LOG.warning('No cells were found')
        caches = self._caches.of(cells)
        self._builder.forget_other_cells({cell.uuid for cell in cells})
        known_versions = {}
        for cell in cells:
            known_versions[cell] = self._builder.known_version(cell.uuid)
        awaited = self._pending_claims.awaited_instances()

        def refresh(cell: Cell) -> CellRefresh:
            pending = awaited.get(cell.uuid, ())
            return caches[cell].refresh(now, pending, known_versions[cell])

        aggregates_future = self._pool.submit(self._aggregates.state, began)
        answers = scatter_gather(self._pool, cells, refresh, self.timeout)
        aggregates = self._await_aggregates(aggregates_future, began)

        refreshes = {cell.uuid: answer for cell, answer in answers}
        for answer in refreshes.values():
            self._pending_claims.note_shown(answer.instances, began)
        self._count_rows(refreshes.values())
        # A reading of a database that hangs takes long, and shows also the changes from
        # just before its end.
        read_until = time.monotonic()
        self.regrouped.update(aggregates, read_until, not self._aggregates.failing)
        version = self._minimum_version(refreshes.values())
        return self._builder.build(
            refreshes, aggregates, began, self.regrouped.settled_at, version
        )

    def _await_aggregates(
        self, future: futures.Future[AggregateState], began: float
    ) -> AggregateState:
        """The aggregates, or the last state after the timeout of cells."""
        try:
            return future.result(max(0.0, began + self.timeout - time.monotonic()))
        except futures.TimeoutError:
            self._aggregates.api.breaker.failed(
                f'no answer within {self.timeout:g} s', began
            )
            # Ends soon: the probe of the breaker aborts operations without an answer.
            return future.result()

    def _minimum_version(self, refreshes: Collection[CellRefresh]) -> int:
        """The lowest version of nova-compute in all cells, disabled cells included.

        Cells that do not answer, and cells without a version, do not count.
        """

        def lowest(cell: Cell) -> int:
            columns = ('version', 'forced_down')
            return lowest_version(
                cell.database.rows('services', columns, binary=COMPUTE)
            )

        disabled = [cell for cell in self._cells.all() if cell.disabled]
        answers = scatter_gather(self._pool, disabled, lowest, self.timeout)
        versions = [refresh.minimum_version for refresh in refreshes]
        versions += [version for _, version in answers]
        return min(filter(None, versions), default=0)

    def _count_rows(self, refreshes: Collection[CellRefresh]) -> None:
        self.refreshed += sum(refresh.changed_rows for refresh in refreshes)
