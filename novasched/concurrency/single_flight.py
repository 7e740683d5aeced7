# SPDX-License-Identifier: Apache-2.0
"""Single flight: one call serves all who wait for its result, and none gets one that is
too old."""

import contextlib
import math
import threading
import time
from collections.abc import Callable
from concurrent import futures
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Result = TypeVar('Result')

FROM_NOW = math.inf
"""The moment of a caller that accepts only a flight which begins after the call."""
STUCK_AFTER_S = 5.0
"""Seconds after which a flight to Placement without a result is overtaken by the
next."""


@dataclass(slots=True)
class _Flight(Generic[Result]):
    """One run of the work; ``began`` is in monotonic seconds, minus infinity before."""

    result: Future[Result] = field(default_factory=Future)
    began: float = -math.inf

    @property
    def failed(self) -> bool:
        return self.result.done() and self.result.exception() is not None


class SingleFlight(Generic[Result]):
    """Runs work one flight after the other.

    A caller gets the result of a flight that began at its moment or later: the current
    one, the last one, or the next, which all share who came too late for the current
    one. So work that takes long is done no more often than it must. Two fly at a time
    only where one is stuck.
    """

    def __init__(
        self,
        work: Callable[[], Result],
        gather: Callable[[], None] = lambda: None,
        stuck_after: float | None = None,
    ) -> None:
        """Begin without a flight.

        :param gather: waits, before a flight begins, for others who are about to want
            it.
        :param stuck_after: seconds from the beginning of a flight after which the next
            no longer waits for its end; None waits for ever.
        """
        self._work = work
        self._gather = gather
        self._stuck_after = stuck_after
        self._lock = threading.Lock()
        self._flight = _Flight[Result]()
        self._next: _Flight[Result] | None = None
        self._flight.result.set_exception(RuntimeError('before the first flight'))

    def at_least(self, moment: float = FROM_NOW) -> Result:
        """Return the result of a flight that began at that moment (monotonic seconds)
        or later.

        An error of the work is raised to all who share the flight, and is not kept for
        others.
        """
        moment = min(moment, time.monotonic())
        with self._lock:
            flight = before = self._flight
            leads = False
            if before.began < moment or before.failed:
                leads = self._next is None
                flight = self._next = self._next or _Flight()
        if leads:
            if (left := self._stuck_after) is not None:
                left = max(0.0, before.began + left - time.monotonic())
            with contextlib.suppress(futures.TimeoutError):
                before.result.exception(left)
            self._gather()
            with self._lock:
                flight.began = time.monotonic()
                self._flight = flight
                self._next = None
            try:
                flight.result.set_result(self._work())
            except BaseException as error:  # also for the others, whatever it is
                flight.result.set_exception(error)
        try:
            return flight.result.result()
        finally:
            del (
                flight,
                before,
            )  # else the error leads to this frame, and the frame to the error

    @property
    def idle(self) -> bool:
        """True while no flight is under way or wanted."""
        with self._lock:
            return self._flight.result.done() and self._next is None
