# SPDX-License-Identifier: Apache-2.0
"""Reads the hosts for the page, rarely, however many people look at it."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent import futures
from dataclasses import dataclass, field, replace

from novasched.conf.errors import NovaschedError
from novasched.observe.page.hosts import CellView, HostsView

LOG = logging.getLogger(__name__)
MAX_AGE_S = 3.0
"""Seconds for which hosts are shown without reading again."""
READ_TIMEOUT_S = 2.0
"""Seconds that a request for the page waits for the databases."""
SILENT = 'The databases do not answer; the log says why.'
UNREAD = 'The databases have not answered yet.'

ReadCells = Callable[[], tuple[Mapping[str, CellView], bool]]
"""Reads the cells by UUID as they are now, without hosts where they do not answer; True
if zones and aggregates could not be read.

:raises NovaschedError: nothing can be read.
"""


@dataclass(frozen=True, slots=True)
class _Reading:
    """The cells by UUID as they were ``at`` a moment (monotonic seconds)."""

    cells: Mapping[str, CellView] = field(default_factory=dict)
    at: float = 0.0
    failure: str | None = UNREAD
    stale: bool = False

    def cells_at(self, now: float) -> dict[str, CellView]:
        return {
            uuid: cell
            if cell.age is None
            else replace(cell, age=cell.age + now - self.at)
            for uuid, cell in self.cells.items()
        }


@dataclass
class Watch:
    """Keeps the hosts of the last reading.

    A request for hosts that are too old starts a reading in the one thread for that,
    waits for it for a moment, and otherwise gets the former hosts with their age.

    :param connect: opens the databases; tried again when it fails.
    """

    connect: Callable[[], ReadCells]
    clock: Callable[[], float] = time.monotonic
    max_age: float = MAX_AGE_S
    timeout: float = READ_TIMEOUT_S

    def __post_init__(self) -> None:
        self._thread = futures.ThreadPoolExecutor(1, thread_name_prefix='watch')
        self._lock = threading.Lock()
        self._read_cells: ReadCells | None = None
        self._reading: futures.Future[None] | None = None
        self._began = 0.0
        self._last = _Reading()

    def hosts(self) -> HostsView:
        """The hosts, read anew if they are old and the databases answer soon."""
        with self._lock:
            now = self.clock()
            reading = self._reading
            if reading is None or (
                reading.done() and now - self._began >= self.max_age
            ):
                self._began = now
                self._reading = reading = self._thread.submit(self._read)
            remaining = max(0.0, self._began + self.timeout - now)
        done, _ = futures.wait([reading], timeout=remaining)
        last = self._last
        now = self.clock()
        late = not done and now - self._began >= self.timeout
        failure = last.failure or (UNREAD if late else None)
        return HostsView(tuple(last.cells_at(now).values()), failure, last.stale)

    def _read(self) -> None:
        last = self._last
        try:
            self._read_cells = self._read_cells or self.connect()
            cells, stale = self._read_cells()
            now = self.clock()
            before = last.cells_at(now)
            silent = {
                uuid: replace(before[uuid], name=cell.name, answers=False)
                for uuid, cell in cells.items()
                if not cell.answers and uuid in before
            }
            self._last = _Reading({**cells, **silent}, now, None, stale)
        except Exception as error:  # a bug is shown like a failure
            if last.failure != SILENT:  # logged once until it is over
                bug = not isinstance(error, NovaschedError)
                LOG.warning(
                    'The page cannot show the hosts as they are: %s',
                    error,
                    exc_info=bug,
                )
            self._last = replace(last, failure=SILENT)
