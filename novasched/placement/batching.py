# SPDX-License-Identifier: Apache-2.0
"""Batches: queries that wait for equal queries, and claims that share a POST."""

import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent import futures
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field

from novasched.concurrency.single_flight import STUCK_AFTER_S
from novasched.placement.allocations import Claim
from novasched.placement.claim_protocol import Written
from novasched.scheduler.model.basis import RequestId

POST_TARGET_S = 1.0
"""Seconds that a common POST may take, estimated from the latest POSTs. No request
waits longer for other requests, and Placement's database holds no lock for longer."""
POST_MAX_CONSUMERS = 100
"""Maximum number of consumers in a common POST: for so many consumers Placement claimed
within one second when this was measured."""
MAX_BATCHES_IN_FLIGHT = 2
"""Maximum number of batches in flight. In POSTs of 20 consumers, a Placement on two
cores claims for 55 consumers per second with one POST in flight, for 64 with two, and
for 66 with four."""
FIRST_CONSUMER_S = 0.02
"""Seconds that a consumer is assumed to cost before the first measurement: the time of
a PUT."""
WINDOW_PER_REQUEST_S = 0.02
"""Seconds that a query waits for one request with the same query."""
WINDOW_S = 0.06
"""Seconds that a query waits for all requests with the same query."""


class BatchWindow:
    """Waits for requests about to ask the same query.

    Requests of a burst come within milliseconds. Without the window, the first request
    would ask alone, and the next requests would wait for the answer before asking. A
    single request does not wait, and no request waits for a late request.
    """

    def __init__(
        self,
        per_request: float = WINDOW_PER_REQUEST_S,
        longest: float = WINDOW_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._per_request = per_request
        self._longest = longest
        self._clock = clock
        # When each expected request began, in monotonic seconds.
        self._expected: dict[RequestId, float] = {}
        self._changed = threading.Condition()

    def expect(self, request_id: RequestId, began: float) -> None:
        """Announce a request.

        :param began: when the try of the request began, in monotonic seconds.
        """
        with self._changed:
            self._forget_late()
            self._expected[request_id] = began

    def arrived(self, request_id: RequestId) -> None:
        """Note the arrival of a request, or that the request does not need to ask."""
        with self._changed:
            self._expected.pop(request_id, None)
            self._changed.notify_all()

    def wait(self) -> None:
        """Wait until all expected requests have arrived or are late."""
        until = self._clock() + self._longest
        with self._changed:
            while self._forget_late() and self._clock() < until:
                soonest = min(until, min(self._expected.values()) + self._per_request)
                self._changed.wait(max(soonest - self._clock(), 0))

    def _forget_late(self) -> bool:
        """Forget late requests. True if the window still expects a request."""
        last = self._clock() - self._per_request
        for request_id, began in list(self._expected.items()):
            if began <= last:
                del self._expected[request_id]
        return bool(self._expected)


@dataclass(slots=True, eq=False)
class Order:
    """The claims of a request, all or nothing.

    :ivar is_separate: the order is written without other orders.
    :ivar until: the order does not begin after this moment (monotonic seconds).
    :ivar others: set once the order is in a batch. The thread of the first order gets
        the rest of the batch; the other threads get None.
    :ivar written: set to the end of the claims.
    """

    claims: Sequence[Claim]
    is_separate: bool = False
    until: float = math.inf
    others: Future[Sequence['Order'] | None] = field(default_factory=Future)
    written: Future[Written] = field(default_factory=Future)

    @property
    def uuids(self) -> set[str]:
        """UUIDs of the instances."""
        return {claim.uuid for claim in self.claims}

    @property
    def writes(self) -> set[str]:
        """UUIDs of the instances and of the resource providers."""
        uuids = self.uuids
        for claim in self.claims:
            uuids.update(claim.candidate.allocations)
        return uuids


class Batches:
    """A queue of orders, first come, first served. The thread of the first order writes
    the batch, so that no thread works for others alone.

    The time of the latest POSTs limits the number of consumers of a batch, see
    :data:`POST_TARGET_S`. No two batches in flight write the same instance or resource
    provider: conflicting writers wait for seconds in Placement's database. A stuck
    batch does not count. An order waits for conflicting batches in flight and for
    conflicting earlier orders, so that no order is overtaken for ever.
    """

    def __init__(self) -> None:
        # Guards both collections; each thread of a request comes here.
        self._lock = threading.Lock()
        self.waiting: list[Order] = []
        # The begin (monotonic seconds) and the orders, by the first order.
        self._in_flight: dict[Order, tuple[float, Sequence[Order]]] = {}
        self._per_consumer = FIRST_CONSUMER_S

    def took(self, seconds: float, consumers: int) -> None:
        """Note the time of a POST that reached Placement. The latest POSTs count most.
        A PUT, for a single consumer, does not count."""
        if consumers > 1:
            self._per_consumer = (self._per_consumer + seconds / consumers) / 2

    @property
    def max_consumers(self) -> int:
        """Maximum number of consumers of a batch. Larger orders are written in parts of
        this size.

        The number is two at least: only a POST shows that Placement has become quick
        again.
        """
        per_consumer = max(self._per_consumer, POST_TARGET_S / POST_MAX_CONSUMERS)
        return max(2, int(POST_TARGET_S / per_consumer))

    def batch_of(self, order: Order) -> Sequence[Order]:
        """Wait until an order is in a batch.

        :returns: the batch, for the thread of its first order, which writes the batch
            and calls :meth:`end`. Nothing for the other threads.
        """
        with self._lock:
            self.waiting.append(order)

        while True:
            self.begin()
            # A batch that gets stuck meanwhile makes room, and nobody calls begin().
            with suppress(futures.TimeoutError):
                others = order.others.result(STUCK_AFTER_S)
                if others is None:
                    return ()
                return (order, *others)

    def begin(self) -> None:
        """Begin as many batches as possible, each in the thread of its first order."""
        with self._lock:
            while batch := self._next():
                first, *others = batch
                self._in_flight[first] = time.monotonic(), batch
                self.waiting = [order for order in self.waiting if order not in batch]
                for other in others:
                    other.others.set_result(None)
                first.others.set_result(others)

    def end(self, batch: Sequence[Order]) -> None:
        """Note the end of a batch, and begin the next batches."""
        with self._lock:
            del self._in_flight[batch[0]]
        self.begin()

    def _next(self) -> Sequence[Order]:
        """The next batch to begin now; empty without one. The caller holds the lock.

        A batch has no instance twice.
        """
        # A stuck batch counts no more: Placement may have lost the POST.
        stuck_since = time.monotonic() - STUCK_AFTER_S
        in_flight: list[Order] = []
        number = 0
        for began, orders in self._in_flight.values():
            if began > stuck_since:
                number += 1
                in_flight += orders
        if number >= MAX_BATCHES_IN_FLIGHT:
            return ()

        batch: list[Order] = []
        busy = set[str]().union(*[order.writes for order in in_flight])
        uuids: set[str] = set()
        for order in self.waiting:
            writes = order.writes
            if not busy.isdisjoint(writes):
                # Later orders for the same providers wait behind this order.
                busy |= writes
                continue

            added = order.uuids
            fits = len(uuids) + len(added) <= self.max_consumers
            is_separate = order.is_separate or (batch and batch[0].is_separate)
            # A single order may be larger than a batch.
            if batch and (is_separate or not fits or uuids & added):
                break

            batch.append(order)
            uuids |= added
        return batch
