# SPDX-License-Identifier: Apache-2.0
"""The cells, from the API database's cell and host mappings."""

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TypeVar

from oslo_config import cfg

from novasched.cells.database import Database
from novasched.cells.engines import connect, filled
from novasched.concurrency.single_flight import SingleFlight
from novasched.conf.errors import ConfigError
from novasched.scheduler.errors import DatabaseUnavailable

LOG = logging.getLogger('nova.scheduler.host_manager')
CELL0 = '00000000-0000-0000-0000-000000000000'

Answer = TypeVar('Answer')

LOOKUP_INTERVAL_S = 5.0
"""Seconds between two readings of the mappings for requests that name a cell which is
not known: one that is wrong, in each request, does not read them each time."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell that runs instances, with its database, whose URL may hold a password."""

    id: int
    uuid: str
    name: str | None
    disabled: bool
    database: Database
    url: str = field(default='', repr=False)

    @property
    def identity(self) -> str:
        """The cell as nova's logs name it."""
        if self.name:
            return f'{self.uuid}({self.name})'
        return self.uuid


class Cells:
    """The cells, read anew by :meth:`refresh` (SIGHUP) and when a request names an
    unknown one."""

    def __init__(
        self,
        api: Database,
        options: cfg.ConfigOpts.GroupAttr,
        patience: float = math.inf,
    ) -> None:
        """The options are those of ``[database]``; a cell's database may be silent for
        ``patience`` seconds while it is asked."""
        self.api = api
        self._options = options
        self._patience = patience
        self._cells: Mapping[str, Cell] = {}
        self.changed = -math.inf
        """The moment (monotonic seconds) since which the cells are what they are."""
        self._lookups = SingleFlight(self._refresh_for_request)

    def refresh(self) -> None:
        """Read the mappings anew, and use them. Raises what :meth:`read` raises."""
        self.use(self.read())

    def read(self) -> Mapping[str, Cell]:
        """The cells by UUID as they are now; databases whose URL stays keep their
        connections. A cell whose URL cannot be used is logged and left out.

        :raises DatabaseUnavailable: the API database does not answer.
        """
        known = {(cell.uuid, cell.url): cell.database for cell in self.all()}
        cells = {}
        columns = ('id', 'uuid', 'name', 'disabled', 'database_connection')
        for row in sorted(
            self.api.rows('cell_mappings', columns), key=attrgetter('id')
        ):
            if row.uuid == CELL0:
                continue
            name = f'cell {row.name or row.uuid}'
            url = filled(row.database_connection, self._options.connection, name)
            try:
                database = known.get((row.uuid, url)) or connect(
                    self._options, url, name, patience=self._patience
                )
            except ConfigError as error:
                LOG.error('A cell is left out: %s', error)
                continue
            cells[row.uuid] = Cell(
                row.id, row.uuid, row.name, bool(row.disabled), database, url
            )
        return cells

    def use(self, cells: Mapping[str, Cell]) -> None:
        """Use these cells. Operations on a database that is gone may go on."""
        before = self._cells
        self._cells = cells
        if cells != before:
            self.changed = time.monotonic()
        self.release(before)
        LOG.debug('Found %d cells: %s', len(cells), ', '.join(cells))
        disabled = [cell.identity for cell in self.all() if cell.disabled]
        LOG.debug('Found %d disabled cells: %s', len(disabled), ', '.join(disabled))

    def release(self, cells: Mapping[str, Cell]) -> None:
        """Close the databases of cells that are not used, but for those that are in
        use."""
        for base in {x.database for x in cells.values()}.difference(
            x.database for x in self.all()
        ):
            base.close()

    def all(self) -> Sequence[Cell]:
        """All cells but cell0, which never runs instances."""
        return tuple(self._cells.values())

    def enabled(self) -> Sequence[Cell]:
        """The cells that instances may go to."""
        return tuple(cell for cell in self.all() if not cell.disabled)

    def close(self) -> None:
        """Close every connection to the cells."""
        for cell in self.all():
            cell.database.close()

    def get(self, uuid: str) -> Cell | None:
        """The cell of that UUID, disabled or not; looked up if it is not known.

        :raises DatabaseUnavailable: it is not known, and the API database does not
            answer.
        """
        if uuid not in self._cells:
            self._look_up()
        return self._cells.get(uuid)

    def of_host(self, host: str) -> Cell | None:
        """The cell that a host is mapped to; looked up if it is not known.

        :raises DatabaseUnavailable: the API database does not answer.
        """
        mapping = self.api.rows('host_mappings', ('cell_id',), host=host)
        ids = {row.cell_id for row in mapping}
        if ids.difference(cell.id for cell in self.all()):
            self._look_up()
        found = next((cell for cell in self.all() if cell.id in ids), None)
        if found is None:
            LOG.warning('No host-to-cell mapping found for selected host %s.', host)
        return found

    def _look_up(self) -> None:
        """Read the mappings anew, unless that was done just now."""
        self._lookups.at_least(time.monotonic() - LOOKUP_INTERVAL_S)

    def _refresh_for_request(self) -> None:
        before = self._cells
        self.refresh()
        for cell in self.all():
            if cell.uuid not in before:
                LOG.info(
                    'Cell %s is used from now on, as a request needs it', cell.identity
                )


def scatter_gather(
    pool: futures.Executor,
    cells: Sequence[Cell],
    ask: Callable[[Cell], Answer],
    timeout: float,
) -> list[tuple[Cell, Answer]]:
    """Ask all cells in parallel; cells that fail or are late are logged and left out.

    The circuit of a database that is late is opened, so that no other request waits for
    it.
    """
    began = time.monotonic()
    asked = [(cell, pool.submit(ask, cell)) for cell in cells]
    answers = []
    for cell, future in asked:
        error: BaseException | None
        try:
            # An error raised here would refer to the futures, and these to the error.
            error = future.exception(
                timeout=max(0.0, began + timeout - time.monotonic())
            )
        except futures.TimeoutError:
            error = TimeoutError()
            if not (future.cancel() or future.done()):
                cell.database.breaker.failed(f'no answer within {timeout:g} s', began)
        if isinstance(
            error, TimeoutError
        ):  # an earlier reading of the cell may still wait
            LOG.warning('Timeout getting computes for cell %s', cell.uuid)
        elif isinstance(error, DatabaseUnavailable):
            LOG.warning('Failed to get computes for cell %s: %s', cell.uuid, error)
        else:
            answers.append((cell, future.result()))
    return answers


def no_answer(cells: Sequence[Cell]) -> DatabaseUnavailable:
    """The error of a request that needs one of these cells, which do not answer."""
    names = ', '.join(cell.identity for cell in cells)
    return DatabaseUnavailable(
        f'no answer of cell {names}', cells[0].database.breaker.wait_closed
    )
