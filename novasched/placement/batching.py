# SPDX-License-Identifier: Apache-2.0
"""Batches: queries that wait for equal ones, and claims that are written together."""

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from novasched.concurrency.single_flight import STUCK_AFTER_S
from novasched.placement.allocations import Claim
from novasched.placement.api import OutcomeUnknown

POST_TARGET_S = 1.0
"""Seconds that a common POST may take, by what the last ones took: nobody waits for
longer on account of others, and Placement's database holds its locks no longer."""
POST_MAX_CONSUMERS = 100
"""Consumers in a common POST: what one second was enough for where this was
measured."""
MAX_BATCHES_IN_FLIGHT = 2
"""Batches in flight. Of POSTs of 20 consumers, one Placement on two cores does 55
consumers a second one after the other, 64 two at once, and 66 four at once."""
FIRST_CONSUMER_S = 0.02
"""Seconds that a consumer is taken to cost before anything was measured: those of a
PUT."""
WINDOW_PER_REQUEST_S = 0.02
WINDOW_S = 0.06
"""Seconds that a query waits for one request that is about to ask the same, and for
all."""


class BatchWindow:
    """Waits for requests that are on their way to the same query.

    Requests of a burst come within milliseconds. The first of them would ask alone, and
    the others wait until it has its answer before they ask. A request that is alone
    does not wait, and none waits for one that is late.
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
        self._expected: set[float] = set()
        self._changed = threading.Condition()

    def expect(self, moment: float) -> None:
        """Note a request that set out at that moment (monotonic seconds)."""
        with self._changed:
            self._forget_late()
            self._expected.add(moment)

    def arrived(self, moment: float) -> None:
        """Note that the request which set out at that moment is there."""
        with self._changed:
            self._expected.discard(moment)
            self._changed.notify_all()

    def wait(self) -> None:
        """Wait until every request is there that is not late."""
        until = self._clock() + self._longest
        with self._changed:
            while self._forget_late() and self._clock() < until:
                soonest = min(until, min(self._expected) + self._per_request)
                self._changed.wait(max(soonest - self._clock(), 0))

    def _forget_late(self) -> bool:
        """True if any request is left."""
        last = self._clock() - self._per_request
        self._expected = {moment for moment in self._expected if moment > last}
        return bool(self._expected)


@dataclass(slots=True, eq=False)
class Order:
    """The claims of a request, all or nothing; the outcome is None if they are refused.

    :ivar lost: why nobody knows the outcome of the batch that the claims were in; None
        for new ones. Such an order is written alone.
    :ivar until: the moment (monotonic seconds) after which it is not begun.
    :ivar others: what its thread is to write together with it; None where another
        thread does. There is no such result before it is in a batch.
    """

    claims: Sequence[Claim]
    lost: str | None = None
    until: float = math.inf
    others: Future[Sequence['Order'] | None] = field(default_factory=Future)
    outcome: Future[Sequence[Claim] | None] = field(default_factory=Future)

    @property
    def writes(self) -> set[str]:
        """UUIDs of the instances and of the resource providers."""
        providers = {rp for claim in self.claims for rp in claim.candidate.allocations}
        return providers.union(claim.uuid for claim in self.claims)


class Batches:
    """Orders that wait, to be written together, first come, first served. A batch has
    as many consumers as may be expected to take no longer than they may, by the time
    that the last ones took.

    Of the batches in flight no two write the same instance or resource provider, and
    those that are stuck count no more. An order that writes what is in flight waits,
    and with it whoever comes later and writes the same as it does: so nobody overtakes
    it for ever.
    """

    def __init__(self) -> None:
        self.waiting: list[Order] = []
        self._in_flight: dict[
            Order, tuple[float, Sequence[Order]]
        ] = {}  # by the first of each
        self._lock = threading.Lock()
        self._per_consumer = FIRST_CONSUMER_S

    @contextmanager
    def measure(self, consumers: int) -> Iterator[None]:
        """Learn from a POST, unless Placement has not had it. A PUT tells nothing."""
        began = time.monotonic()
        try:
            yield
        except OutcomeUnknown:
            self.took(time.monotonic() - began, consumers)
            raise
        self.took(time.monotonic() - began, consumers)

    def took(self, seconds: float, consumers: int) -> None:
        """Learn the time of a POST; the last ones count for most."""
        if consumers > 1:
            self._per_consumer = (self._per_consumer + seconds / consumers) / 2

    @property
    def max_consumers(self) -> int:
        """Number of consumers that a batch may have. A larger order is written in parts
        of this size. The number is two at least, since only a POST shows that Placement
        has become quick again."""
        per_consumer = max(self._per_consumer, POST_TARGET_S / POST_MAX_CONSUMERS)
        return max(2, int(POST_TARGET_S / per_consumer))

    def batch_of(self, order: Order) -> Sequence[Order]:
        """Wait until an order is in a batch. It is for the thread of the first in it to
        write that and to :meth:`end` it; the others get nothing. So nobody is stuck
        with a batch of others."""
        with self._lock:
            self.waiting.append(order)
        while True:
            self.begin()
            with suppress(futures.TimeoutError):
                others = order.others.result(STUCK_AFTER_S)
                if others is None:
                    return ()
                return (order, *others)

    def begin(self) -> None:
        """Hand over the batches that may be written now."""
        with self._lock:
            while batch := self._next():
                first, *others = batch
                self._in_flight[first] = time.monotonic(), batch
                self.waiting = [order for order in self.waiting if order not in batch]
                for other in others:
                    other.others.set_result(None)
                first.others.set_result(others)

    def end(self, batch: Sequence[Order]) -> None:
        with self._lock:
            del self._in_flight[batch[0]]
        self.begin()

    def _next(self) -> Sequence[Order]:
        """The first orders that may be written together now. No batch has an instance
        twice, and an order of unknown outcome is alone."""
        since = time.monotonic() - STUCK_AFTER_S
        in_flight = [
            batch for began, batch in self._in_flight.values() if began > since
        ]
        batch: list[Order] = []
        if len(in_flight) >= MAX_BATCHES_IN_FLIGHT:
            return batch
        taken = {uuid for each in in_flight for order in each for uuid in order.writes}
        uuids: set[str] = set()
        for order in self.waiting:
            if not taken.isdisjoint(order.writes):
                taken |= order.writes
                continue
            more = {claim.uuid for claim in order.claims}
            fits = len(uuids) + len(more) <= self.max_consumers
            alone = order.lost is not None or (batch and batch[0].lost is not None)
            if batch and (alone or not fits or uuids & more):
                break
            batch.append(order)
            uuids |= more
        return batch
