# SPDX-License-Identifier: Apache-2.0
"""Work that nobody waits for, done by one thread, in order."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

LOG = logging.getLogger(__name__)
LAST_WORDS = 10.0
"""Seconds that a process that ends gives to what is left."""

Item = TypeVar('Item')


class Backlog(Generic[Item]):
    """What is to be done, and the thread that does it.

    :param work: does one item; what it raises is logged.
    :param name: of the thread.
    :param words: an item in words, for the log.
    :param room: so many items wait; more are dropped.
    """

    def __init__(
        self, work: Callable[[Item], None], name: str, words: Callable[[Item], str], room: int
    ) -> None:
        self._work, self._name, self._words = work, name, words
        self._waiting: queue.Queue[Item | None] = queue.Queue(room)
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self.dropped = 0

    def add(self, item: Item) -> bool:
        """Have it done; False if it is dropped."""
        self._begin()
        try:
            self._waiting.put_nowait(item)
        except queue.Full:
            with self._lock:
                self.dropped += 1
            return False
        return True

    @property
    def idle(self) -> bool:
        """Whether nobody is at work."""
        return self._thread is None

    def close(self) -> None:
        """Do what is left, for as long as :data:`LAST_WORDS`; what comes later begins anew."""
        if (thread := self._thread) is not None:
            with contextlib.suppress(queue.Full):
                self._waiting.put(None, timeout=LAST_WORDS)
            thread.join(LAST_WORDS)
            if thread.is_alive():
                return
            self._thread = None
            if not self._waiting.empty():  # it came behind the end
                self._begin()
                self.close()

    def _begin(self) -> None:
        with self._lock:
            if self._thread is None:
                # Not earlier: a thread does not survive a fork.
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while (item := self._waiting.get()) is not None:
            try:
                self._work(item)
            except Exception:  # One that cannot be done must not keep the others from it.
                LOG.exception('Cannot %s', self._words(item))
