# SPDX-License-Identifier: Apache-2.0
"""The cells, from the cell and host mappings in the API database."""

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
"""Seconds between two readings of the mappings on behalf of requests with an unknown
cell: a wrong cell in every request must not read the mappings every time."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell that runs instances, with its database. The URL may hold a password."""

    id: int
    uuid: str
    name: str | None
    disabled: bool
    database: Database
    url: str = field(default='', repr=False)

    @property
    def identity(self) -> str:
        """The name of the cell in nova's logs."""
        if self.name:
            return f'{self.uuid}({self.name})'
        return self.uuid


class Cells:
    """The cells, read by :meth:`refresh` (SIGHUP) and when a request names an unknown
    cell.

    :param options: the options of ``[database]``, for the databases of the cells.
    :param patience: seconds that an operation in a cell may wait for its answer.
    :ivar changed: since when the cells are as they are, in monotonic seconds.
    """

    def __init__(
        self,
        api: Database,
        options: cfg.ConfigOpts.GroupAttr,
        patience: float = math.inf,
    ) -> None:
        self.api = api
        self._options = options
        self._patience = patience
        self._cells: Mapping[str, Cell] = {}
        self.changed = -math.inf
        self._lookups = SingleFlight(self._refresh_for_request)

    def refresh(self) -> None:
        """Read the mappings and use the cells. Raises the errors of :meth:`read`."""
        self.use(self.read())

    def read(self) -> Mapping[str, Cell]:
        """Read the mappings: the cells by UUID.

        A database with an unchanged URL keeps all connections. A cell with an unusable
        URL is logged and left out.

        :raises DatabaseUnavailable: the API database does not answer.
        """
        databases = {(cell.uuid, cell.url): cell.database for cell in self.all()}
        cells = {}
        columns = ('id', 'uuid', 'name', 'disabled', 'database_connection')
        rows = self.api.rows('cell_mappings', columns)
        for row in sorted(rows, key=attrgetter('id')):
            if row.uuid == CELL0:
                continue

            # nova fills templates with the URL of its own [database] connection.
            name = f'cell {row.name or row.uuid}'
            url = filled(row.database_connection, self._options.connection, name)
            try:
                database = databases.get((row.uuid, url)) or connect(
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
        """Use these cells. Operations on the databases of former cells may end."""
        before = self._cells
        self._cells = cells
        if cells != before:
            self.changed = time.monotonic()
        self.release(before)

        LOG.debug('Found %d cells: %s', len(cells), ', '.join(cells))
        disabled = [cell.identity for cell in self.all() if cell.disabled]
        LOG.debug('Found %d disabled cells: %s', len(disabled), ', '.join(disabled))

    def release(self, cells: Mapping[str, Cell]) -> None:
        """Close the databases of cells, except databases in use."""
        databases = {cell.database for cell in cells.values()}
        databases_in_use = {cell.database for cell in self.all()}
        for database in databases - databases_in_use:
            database.close()

    def all(self) -> Sequence[Cell]:
        """All cells except cell0, which never runs instances."""
        return tuple(self._cells.values())

    def enabled(self) -> Sequence[Cell]:
        """The cells open to new instances."""
        return tuple(cell for cell in self.all() if not cell.disabled)

    def close(self) -> None:
        """Close every connection to the cells."""
        for cell in self.all():
            cell.database.close()

    def get(self, uuid: str) -> Cell | None:
        """The cell with this UUID, disabled or not. An unknown cell is looked up.

        :raises DatabaseUnavailable: the cell is unknown, and the API database does not
            answer.
        """
        if uuid not in self._cells:
            self._look_up()
        return self._cells.get(uuid)

    def of_host(self, host: str) -> Cell | None:
        """The cell of a host, by the host mapping. An unknown cell is looked up.

        :raises DatabaseUnavailable: the API database does not answer.
        """
        mappings = self.api.rows('host_mappings', ('cell_id',), host=host)
        ids = {row.cell_id for row in mappings}
        if ids.difference(cell.id for cell in self.all()):
            self._look_up()

        for cell in self.all():
            if cell.id in ids:
                return cell
        LOG.warning('No host-to-cell mapping found for selected host %s.', host)
        return None

    def _look_up(self) -> None:
        """Read the mappings, unless the last reading is fresh enough."""
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
    """Ask all cells in parallel. Cells that fail or are late are logged and left out.

    The circuit of a late database is opened, so that no other request waits for the
    cell.

    :param timeout: seconds for all cells together.
    """
    began = time.monotonic()
    futures_by_cell = [(cell, pool.submit(ask, cell)) for cell in cells]

    answers = []
    for cell, future in futures_by_cell:
        error: BaseException | None
        try:
            # exception(), not result(): an error raised here would refer to this
            # frame, hence to the futures, and the futures refer to the error.
            error = future.exception(
                timeout=max(0.0, began + timeout - time.monotonic())
            )
        except futures.TimeoutError:
            error = TimeoutError()
            if not (future.cancel() or future.done()):
                cell.database.breaker.failed(f'no answer within {timeout:g} s', began)

        # A TimeoutError of the future itself: an earlier reading of the cell still
        # waits.
        if isinstance(error, TimeoutError):
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
