# SPDX-License-Identifier: Apache-2.0
"""The ledger of pending claims for the threads of a process.

``ledger.py`` has the claims and their stages, without a lock and a clock. Two objects
use the ledger here: ``PendingClaims`` enters the claims of this process, and
``PeerSchedulers`` (``rpc/peers.py``) the claims of other schedulers.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType

from novasched.scheduler.claims.ledger import ClaimsLedger
from novasched.scheduler.model.claim import PendingClaim


class SharedLedger:
    """A ledger with a lock and a clock, for one thread at a time::

        with shared as ledger:
            ledger.chosen(claim)

    :param timeout: see :class:`novasched.scheduler.claims.ledger.ClaimsLedger`.
    :ivar clock: a monotonic clock in seconds.
    """

    def __init__(
        self, timeout: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.clock = clock
        self.timeout = timeout
        self._ledger = ClaimsLedger(timeout)
        # Notified at the end of each use, for the threads in wait_for().
        self._lock = threading.Lock()
        self._used = threading.Condition(self._lock)

    def __enter__(self) -> ClaimsLedger:
        self._lock.acquire()
        return self._ledger

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._used.notify_all()
        self._lock.release()

    def wait_for(self, is_over: Callable[[], bool], seconds: float) -> None:
        """Wait for changes by other threads, within a block with the ledger.

        :param is_over: called with the ledger at hand, after each change.
        """
        assert self._lock.locked(), 'the ledger is not at hand'
        self._used.wait_for(is_over, seconds)

    @contextmanager
    def keeping(self, read_since: float) -> Iterator[None]:
        """A context for a try to decide a request. While the context lasts, the ledger
        keeps the claims to count beside the hosts of the try.

        :param read_since: the hosts of the try are read at this moment, or later.
        """
        read_since = min(read_since, self.clock())
        with self as ledger:
            ledger.begin_try(read_since)
        try:
            yield
        finally:
            with self as ledger:
                ledger.end_try(read_since)

    def all(self) -> list[PendingClaim]:
        """The claims on all hosts, in the order of arrival."""
        with self as ledger:
            return [*ledger]
