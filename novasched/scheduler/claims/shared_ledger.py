# SPDX-License-Identifier: Apache-2.0
"""The ledger of pending claims for the threads of a process.

``ledger.py`` has the claims and their stages, without a lock and a clock. Two objects
use the ledger here: ``PendingClaims`` enters the claims of this process, and
``PeerSchedulers`` (``rpc/peers.py``) the claims of other schedulers.
"""

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from novasched.scheduler.claims.ledger import ClaimsLedger
from novasched.scheduler.model.claim import PendingClaim


class SharedLedger:
    """A ledger with a lock and a clock. Every method may be called by any thread.

    :param timeout: seconds after the answer to a request, from which on a snapshot need
        not show the instance.
    :param clock: a monotonic clock in seconds.
    :ivar changed: the lock of the ledger, notified when a claim is claimed or released.
    """

    def __init__(
        self, timeout: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.clock = clock
        self._claims = ClaimsLedger(timeout)
        self._lock = threading.Lock()
        self.changed = threading.Condition(self._lock)

    @property
    def claims(self) -> ClaimsLedger:
        """The ledger; only for a holder of ``changed``."""
        assert self._lock.locked(), 'the ledger is used without its lock'
        return self._claims

    @property
    def timeout(self) -> float:
        """Seconds after the answer to a request, from which on a snapshot need not show
        the instance."""
        return self._claims.timeout

    @property
    def chosen_limit(self) -> float:
        """Seconds after which a choice is over that is neither claimed nor
        released."""
        return self._claims.chosen_limit

    @contextmanager
    def keeping(self, read_since: float) -> Iterator[None]:
        """A context for a try to decide a request. The claims that the hosts of the try
        do not show are kept while the context lasts.

        :param read_since: the hosts of the try are read at this moment, or later.
        """
        read_since = min(read_since, self.clock())
        with self.changed:
            self.claims.begin_try(read_since)
        try:
            yield
        finally:
            with self.changed:
                self.claims.end_try(read_since)

    def put(self, claim: PendingClaim, order: float = math.inf) -> None:
        """Enter a claim.

        :param order: the place of the claim among the announcements of all schedulers.
        """
        with self.changed:
            self.claims.add(claim, order)

    def drop(self, claim: PendingClaim) -> bool:
        """Release a claim that was not made after all, or was undone.

        :returns: False if the ledger does not have the claim any more.
        """
        with self.changed:
            was_there = self.claims.released(claim, self.clock())
            self.changed.notify_all()
        return was_there

    def settle(self, claims: Sequence[PendingClaim], age: float = 0.0) -> None:
        """Note that a request is answered with claims.

        :param age: seconds since the answer.
        """
        with self.changed:
            self.claims.claimed(claims, self.clock() - age)
            self.changed.notify_all()

    def announced(self, claim: PendingClaim, order: float) -> None:
        """Note the place of a claim among the announcements of all schedulers."""
        with self.changed:
            self.claims.announced(claim, order)

    def is_claimed(self, claim: PendingClaim) -> bool:
        """True if Placement has the claim and its request is answered."""
        with self.changed:
            return self.claims.is_claimed(claim)

    def claimed_at(self, claim: PendingClaim) -> float | None:
        """When the request of a claim was answered; infinite before. None once the
        claim has left the ledger."""
        with self.changed:
            return self.claims.claimed_at(claim)

    def order_of(self, claim: PendingClaim) -> float:
        """The place of a claim among the announcements; infinite before it has one."""
        with self.changed:
            return self.claims.order_of(claim)

    def is_ahead(self, theirs: PendingClaim, ours: PendingClaim) -> bool:
        """True if a claim of another scheduler takes precedence over ours."""
        with self.changed:
            return self.claims.is_ahead(theirs, ours)

    def all(self) -> list[PendingClaim]:
        """The claims on all hosts, in the order in which they came."""
        with self.changed:
            return [*self.claims]
