# SPDX-License-Identifier: Apache-2.0
"""Reads the hosts for the page, at a bounded rate however many people look at it."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent import futures
from dataclasses import dataclass, field, replace

from novasched.conf.errors import NovaschedError
from novasched.observe.page.hosts import CellView, HostsView
from novasched.scheduler.model.usual_guests import NO_USUAL_GUESTS, UsualGuests

LOG = logging.getLogger(__name__)

MAX_AGE_S = 3.0
"""Age of the hosts, in seconds, up to which the page shows the last reading."""

READ_TIMEOUT_S = 2.0
"""Seconds that a request for the page waits for the databases."""

SILENT = 'The databases do not answer; the log says why.'
UNREAD = 'The databases have not answered yet.'

ReadCells = Callable[[], tuple[Mapping[str, CellView], bool, UsualGuests]]
"""Reads the cells by UUID, and the usual guests. A cell that does not answer has no
hosts. The flag is True if zones and aggregates could not be read.

:raises NovaschedError: nothing can be read.
"""


@dataclass(frozen=True, slots=True)
class _Reading:
    """The cells by UUID as of the moment ``at`` (monotonic seconds)."""

    cells: Mapping[str, CellView] = field(default_factory=dict)
    at: float = 0.0
    failure: str | None = UNREAD
    stale: bool = False
    usual: UsualGuests = NO_USUAL_GUESTS

    def cells_at(self, now: float) -> dict[str, CellView]:
        """The cells with their age at a later moment."""
        aged = {}
        for uuid, cell in self.cells.items():
            if cell.age is not None:
                cell = replace(cell, age=cell.age + now - self.at)
            aged[uuid] = cell
        return aged


@dataclass
class Watch:
    """Keeps the hosts of the last reading.

    A request that finds the hosts too old starts a reading in the single reading
    thread and waits for a moment. If the databases take longer, the request gets the
    former hosts with their age.

    :param connect: opens the databases. Called again after a failure.
    """

    connect: Callable[[], ReadCells]
    clock: Callable[[], float] = time.monotonic
    max_age: float = MAX_AGE_S
    timeout: float = READ_TIMEOUT_S

    def __post_init__(self) -> None:
        self._thread = futures.ThreadPoolExecutor(1, thread_name_prefix='watch')
        # Threads of HTTP call hosts(). The lock guards the start of a reading.
        self._lock = threading.Lock()
        self._reading: futures.Future[None] | None = None
        self._began = 0.0
        # Written by the reading thread alone.
        self._read_cells: ReadCells | None = None
        self._last = _Reading()

    def hosts(self) -> HostsView:
        """The hosts, read again if they are old and the databases answer in time."""
        with self._lock:
            now = self.clock()
            reading = self._reading
            is_old = now - self._began >= self.max_age
            if reading is None or (reading.done() and is_old):
                self._began = now
                reading = self._thread.submit(self._read)
                self._reading = reading
            remaining = max(0.0, self._began + self.timeout - now)

        done, _ = futures.wait([reading], timeout=remaining)

        last = self._last
        now = self.clock()
        failure = last.failure
        if failure is None and not done and now - self._began >= self.timeout:
            failure = UNREAD
        cells = tuple(last.cells_at(now).values())
        return HostsView(cells, failure, last.stale, last.usual)

    def _read(self) -> None:
        """Read the cells, in the reading thread."""
        last = self._last
        try:
            if self._read_cells is None:
                self._read_cells = self.connect()
            cells, stale, usual = self._read_cells()
            now = self.clock()

            # A cell that does not answer keeps the hosts of the reading before.
            before = last.cells_at(now)
            merged = dict(cells)
            for uuid, cell in cells.items():
                if not cell.answers and uuid in before:
                    merged[uuid] = replace(before[uuid], name=cell.name, answers=False)
            self._last = _Reading(merged, now, None, stale, usual)
        except Exception as error:
            # A bug is shown like a failure. Either is logged once until it is over.
            if last.failure != SILENT:
                is_bug = not isinstance(error, NovaschedError)
                LOG.warning(
                    'The page cannot show the hosts as they are: %s',
                    error,
                    exc_info=is_bug,
                )
            self._last = replace(last, failure=SILENT)
