# SPDX-License-Identifier: Apache-2.0
"""A Placement that answers when it is let: whatever a scheduler does, lasts until then."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.parity.rankings.proxy import Exchange, Proxy

WAIT = 30.0


class Gate(Proxy):
    """A Placement whose answers wait until somebody opens the gate."""

    def __init__(self, upstream: str) -> None:
        super().__init__(upstream)
        self.opened = threading.Event()
        self.waiting = threading.Semaphore(0)

    def keep(self, exchange: Exchange) -> None:
        """Hold the answer back."""
        self.waiting.release()
        assert self.opened.wait(WAIT)

    def shut(self) -> None:
        """From now on answers wait, and those are counted that do."""
        self.opened.clear()
        while self.waiting.acquire(blocking=False):
            pass


@contextmanager
def gate_before(placement_url: str) -> Iterator[Gate]:
    """A gate, open."""
    with Gate(placement_url) as server:
        server.opened.set()
        threading.Thread(target=server.serve_forever, kwargs={'poll_interval': 0.05}).start()
        yield server
        server.opened.set()
        server.shutdown()
