# SPDX-License-Identifier: Apache-2.0
"""Looks at the hosts for the page: rarely, however many look at the page."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent import futures
from dataclasses import dataclass, field, replace
from typing import Protocol

from novasched.errors import NovaschedError
from novasched.model.host import Host
from novasched.page.sight import Cell, Sight

LOG = logging.getLogger(__name__)
FRESH = 3.0
"""Seconds for which what was read is shown without reading again."""
PATIENCE = 2.0
"""Seconds that a reader of the page waits for the databases."""
SILENT = 'The databases do not answer; the log says why.'
UNREAD = 'The databases have not answered yet.'


class Reader(Protocol):
    """Where the hosts are read."""

    def names(self) -> Mapping[str, str]:
        """The cells that hosts are read of, by UUID."""

    def hosts(self) -> Mapping[str, Collection[Host]]:
        """The hosts as they are now; without the cells that do not answer.

        :raises NovaschedError: nothing can be read.
        """

    def stale(self) -> bool:
        """Whether zones and aggregates could not be read the last time."""

    def renew(self) -> None:
        """Look anew which cells there are.

        :raises NovaschedError: nothing can be read.
        """


@dataclass(frozen=True, slots=True)
class _Seen:
    """The hosts of a cell, and when they were read (monotonic seconds)."""

    hosts: Collection[Host]
    at: float


@dataclass(frozen=True, slots=True)
class _Known:
    """All that has been read: the names of cells, and their hosts."""

    names: Mapping[str, str] = field(default_factory=dict)
    seen: Mapping[str, _Seen] = field(default_factory=dict)
    answering: frozenset[str] = frozenset()
    failure: str | None = UNREAD
    stale: bool = False


class Watch:
    """Keeps the hosts as they were read last.

    One thread reads, when somebody looks and what is known is not fresh. Who looks waits for
    it a moment, and otherwise gets what is known, with its age.

    :param connect: opens the databases; tried again when it fails.
    """

    def __init__(
        self,
        connect: Callable[[], Reader],
        clock: Callable[[], float] = time.monotonic,
        fresh: float = FRESH,
        patience: float = PATIENCE,
    ) -> None:
        self._connect = connect
        self._clock, self._fresh, self._patience = clock, fresh, patience
        self._thread = futures.ThreadPoolExecutor(1, thread_name_prefix='watch')
        self._lock = threading.Lock()
        self._reader: Reader | None = None
        self._reading: futures.Future[None] | None = None
        self._began = 0.0
        self._known = _Known()

    def look(self) -> Sight:
        """The hosts, fresh if the databases answer soon."""
        with self._lock:
            now = self._clock()
            reading = self._reading
            if reading is None or (reading.done() and now - self._began >= self._fresh):
                self._began = now
                self._reading = reading = self._thread.submit(self._read)
            left = max(0.0, self._began + self._patience - now)
        done, _ = futures.wait([reading], timeout=left)
        known, now = self._known, self._clock()
        late = not done and now - self._began >= self._patience
        return Sight(
            tuple(_cell(uuid, known, now) for uuid in known.names),
            known.failure or (UNREAD if late else None),
            known.stale,
        )

    def renew(self) -> None:
        """Look anew which cells there are, before the hosts are read the next time."""
        self._thread.submit(self._renew)

    def _read(self) -> None:
        known = self._known
        try:
            reader = self._reader = self._reader or self._connect()
            found, names = reader.hosts(), reader.names()
            now = self._clock()
            seen = {**known.seen, **{uuid: _Seen(hosts, now) for uuid, hosts in found.items()}}
            kept = {uuid: seen[uuid] for uuid in names if uuid in seen}
            self._known = _Known(names, kept, frozenset(found), None, reader.stale())
        except Exception as error:  # a bug as well, of which the page tells no more
            if known.failure != SILENT:  # told once until it is over
                bug = not isinstance(error, NovaschedError)
                LOG.warning('The page cannot show the hosts as they are: %s', error, exc_info=bug)
            self._known = replace(known, failure=SILENT)

    def _renew(self) -> None:
        try:
            if self._reader is not None:
                self._reader.renew()
        except NovaschedError as error:
            LOG.error('The page shows the cells as they were: %s', error)


def _cell(uuid: str, known: _Known, now: float) -> Cell:
    seen = known.seen.get(uuid)
    if seen is None:
        return Cell(known.names[uuid], answers=False)
    return Cell(known.names[uuid], seen.hosts, now - seen.at, uuid in known.answering)
