# SPDX-License-Identifier: Apache-2.0
"""A bounded queue of work for a background thread."""

import contextlib
import logging
import queue
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

LOG = logging.getLogger(__name__)
CLOSE_TIMEOUT_S = 10.0
"""Seconds that an ending process gives to the waiting items."""
Item = TypeVar('Item')


class WorkerQueue(Generic[Item]):
    """A queue of items, and a thread that works on the items in order.

    :param work: does one item. Errors are logged.
    :param name: name of the thread.
    :param describe: an item in words, for the log.
    :param capacity: how many items may wait; further items are dropped.
    :ivar dropped: number of dropped items.
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
        # None ends the thread.
        self._waiting: queue.Queue[Item | None] = queue.Queue(capacity)
        self._thread: threading.Thread | None = None
        # Guards the start of the thread, and the counter.
        self._lock = threading.Lock()
        self.dropped = 0

    def put(self, item: Item) -> bool:
        """Queue an item; False if the item is dropped."""
        self._start()
        try:
            self._waiting.put_nowait(item)
        except queue.Full:
            with self._lock:
                self.dropped += 1
            return False
        return True

    def close(self) -> None:
        """Work on the waiting items for up to :data:`CLOSE_TIMEOUT_S`, and end the
        thread. A later item starts a new thread."""
        if (thread := self._thread) is None:
            return

        with contextlib.suppress(queue.Full):
            self._waiting.put(None, timeout=CLOSE_TIMEOUT_S)
        thread.join(CLOSE_TIMEOUT_S)
        if thread.is_alive():
            return
        self._thread = None

        # An item that was queued behind the end needs another thread.
        if not self._waiting.empty():
            self._start()
            self.close()

    def _start(self) -> None:
        with self._lock:
            if self._thread is None:
                # Not in the constructor: a thread does not survive a fork.
                self._thread = threading.Thread(
                    target=self._run, name=self._name, daemon=True
                )
                self._thread.start()

    def _run(self) -> None:
        while (item := self._waiting.get()) is not None:
            try:
                self._work(item)
            except Exception:
                # The thread must survive an item that fails.
                LOG.exception('Cannot %s', self._describe(item))
            # Otherwise the thread would keep the last item, such as a large decision,
            # in memory until the next item comes.
            del item
