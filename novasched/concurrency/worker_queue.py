# SPDX-License-Identifier: Apache-2.0
"""A bounded queue of work for one thread, which no request waits for."""

import contextlib
import logging
import queue
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

LOG = logging.getLogger(__name__)
CLOSE_TIMEOUT_S = 10.0
"""Seconds that a process that ends gives to the items that wait."""
Item = TypeVar('Item')


class WorkerQueue(Generic[Item]):
    """Items that wait, and the thread that works on them in order.

    :param work: does one item; its errors are logged.
    :param name: of the thread.
    :param describe: an item in words, for the log.
    :param capacity: items that wait at the most; more are dropped.
    """

    def __init__(
        self,
        work: Callable[[Item], None],
        name: str,
        describe: Callable[[Item], str],
        capacity: int,
    ) -> None:
        self._work = work
        self._name = name
        self._describe = describe
        self._waiting: queue.Queue[Item | None] = queue.Queue(capacity)
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self.dropped = 0

    def put(self, item: Item) -> bool:
        """Have it done; False if it is dropped."""
        self._start()
        try:
            self._waiting.put_nowait(item)
        except queue.Full:
            with self._lock:
                self.dropped += 1
            return False
        return True

    def close(self) -> None:
        """Do what waits, for up to :data:`CLOSE_TIMEOUT_S`; a later item starts a new
        thread."""
        if (thread := self._thread) is not None:
            with contextlib.suppress(queue.Full):
                self._waiting.put(None, timeout=CLOSE_TIMEOUT_S)
            thread.join(CLOSE_TIMEOUT_S)
            if thread.is_alive():
                return
            self._thread = None
            if not self._waiting.empty():  # it came behind the end
                self._start()
                self.close()

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                # Not earlier: a thread does not survive a fork.
                self._thread = threading.Thread(
                    target=self._run, name=self._name, daemon=True
                )
                self._thread.start()

    def _run(self) -> None:
        while (item := self._waiting.get()) is not None:
            try:
                self._work(item)
            except (
                Exception
            ):  # One that cannot be done must not keep the others from it.
                LOG.exception('Cannot %s', self._describe(item))
            # Otherwise the thread would keep the last item, such as a large decision,
            # in memory until the next item comes.
            del item
