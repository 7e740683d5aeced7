# SPDX-License-Identifier: Apache-2.0
"""What is to be undone in Placement and could not be yet."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

import tenacity

from novasched.errors import PlacementUnavailable

# Operators search for what this logger of nova's writes.
LOG = logging.getLogger('nova.scheduler.client.report')

FIRST, LAST = 1.0, 10.0
"""Seconds between tries, at first and in the end."""
LATE = 120.0
"""Seconds after which Placement no longer does what it was asked to: longer than its database
waits for a lock, and its web server for it."""
LONGEST = 3600.0
"""Seconds in which it is tried."""
MOST = 1000
"""Servers that are remembered."""

Undo = Callable[[], object]
"""Sees to it that nothing is left now; raises PlacementUnavailable if that cannot be told, or
be done."""


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """``final``: from when on (monotonic seconds) nothing comes any more."""

    server: str
    undo: Undo
    final: float
    until: float


class Undoing:
    """Tries in a thread of its own, which is there only while there is something to undo."""

    def __init__(
        self,
        first: float = FIRST,
        most: int = MOST,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wait = tenacity.wait_exponential(first, LAST) + tenacity.wait_random(0, first / 2)
        self._most = most
        self._clock = clock
        self._tasks: deque[Task] = deque()
        self._lock = threading.Lock()  # of the tasks
        self._trying = threading.Lock()  # held while Placement is asked
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def pending(self) -> int:
        """How many there are."""
        return len(self._tasks)

    def add(self, server: str, undo: Undo, may_come: bool) -> None:
        """Undo what a server holds, now or as soon as it goes.

        :param may_come: what is to be undone may yet be done, or be done once more.
        """
        now = self._clock()
        self.restore([Task(server, undo, now + LATE if may_come else now, now + LONGEST)])

    def settle(self, servers: Collection[str]) -> Sequence[Task]:
        """Undo what servers hold before they get something else. What may come later is left
        to the caller, to be restored once the server does not hold that: nothing else can come
        meanwhile.

        :raises PlacementUnavailable: that cannot be told, or be done; all stays to be undone.
        """
        if not self._tasks:
            return []
        with self._trying:
            with self._lock:
                tasks = [task for task in self._tasks if task.server in servers]
            left = [task for task in tasks if not self._ends(task)]
            with self._lock:
                for task in tasks:
                    self._tasks.remove(task)
        return left

    def restore(self, tasks: Iterable[Task]) -> None:
        """Go on with them."""
        with self._lock:
            for task in tasks:
                if self._over.is_set() or len(self._tasks) >= self._most:
                    _give_up(task)
                else:
                    self._tasks.append(task)
            if self._tasks and self._thread is None:
                self._thread = threading.Thread(target=self._run, name='undoing', daemon=True)
                self._thread.start()

    def close(self, seconds: float) -> None:
        """Try once more, and again for so many seconds; what is left then is given up."""
        until = self._clock() + seconds
        self._over.set()
        if self._thread is not None:
            self._thread.join(seconds)
        if self._tasks and self._trying.acquire(timeout=max(0.0, until - self._clock())):
            retrying = tenacity.Retrying(
                retry=tenacity.retry_if_result(bool),
                stop=tenacity.stop_after_delay(until - self._clock()),
                wait=self._wait,
                retry_error_callback=lambda _: None,
            )
            retrying(self._all, final=True)
            self._trying.release()
        with self._lock:
            for task in self._tasks:
                _give_up(task)
            self._tasks.clear()

    def _run(self) -> None:
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_result(bool),
            stop=tenacity.stop_when_event_set(self._over),
            sleep=tenacity.sleep_using_event(self._over),
            wait=self._wait,
            retry_error_callback=lambda _: None,
        )
        retrying(self._round)

    def _round(self) -> bool:
        """Try each; whether there is something left to try."""
        with self._trying:
            self._all(final=False)
        with self._lock:
            if not self._tasks:
                self._thread = None
            return bool(self._tasks)

    def _all(self, final: bool) -> bool:
        """Try each, unless Placement does not answer; whether there is something left."""
        try:
            for task in [*self._tasks]:
                if final or not self._over.is_set():
                    self._try(task, final)
        except PlacementUnavailable as error:
            LOG.debug('Allocations are still to be deleted: %s', error)
        return bool(self._tasks)

    def _try(self, task: Task, final: bool) -> None:
        """:raises PlacementUnavailable: nothing can be told, or done."""
        ended = False
        try:
            ended = self._ends(task) or final
        finally:
            with self._lock:
                if task in self._tasks:  # and not given up meanwhile
                    self._tasks.remove(task)
                    if ended:
                        pass
                    elif self._clock() >= task.until:
                        _give_up(task)
                    else:
                        self._tasks.append(task)  # behind the others, which may fare better

    def _ends(self, task: Task) -> bool:
        task.undo()
        return self._clock() >= task.final


def _give_up(task: Task) -> None:
    LOG.error(
        'Unable to delete allocation for instance %s: given up. Compare it with the server by '
        '"nova-manage placement audit".',
        task.server,
    )
