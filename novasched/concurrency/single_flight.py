# SPDX-License-Identifier: Apache-2.0
"""Single flight: a call serves all waiting callers, and no caller gets an outdated
result."""

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
"""Seconds after which the next flight to Placement no longer waits for a flight without
a result."""


@dataclass(slots=True)
class _Flight(Generic[Result]):
    """One run of the work.

    :ivar began: monotonic seconds; minus infinity until the flight begins.
    """

    result: Future[Result] = field(default_factory=Future)
    began: float = -math.inf

    @property
    def failed(self) -> bool:
        return self.result.done() and self.result.exception() is not None


class SingleFlight(Generic[Result]):
    """Runs work one flight after the other.

    A caller gets the result of a flight that began at the caller's moment or later: the
    last flight, the current flight, or the next flight. All callers too late for the
    current flight share the next flight, so work that takes long runs no more often
    than necessary. Two flights overlap only if the first is stuck.
    """

    def __init__(
        self,
        work: Callable[[], Result],
        gather: Callable[[], None] = lambda: None,
        stuck_after: float | None = None,
    ) -> None:
        """Begin without a flight.

        :param gather: called before a flight begins; waits for further callers that are
            about to want the flight.
        :param stuck_after: seconds from the beginning of a flight; afterwards the next
            flight no longer waits for the end; None waits for ever.
        """
        self._work = work
        self._gather = gather
        self._stuck_after = stuck_after
        # Guards the current and the next flight; never held while work runs.
        self._lock = threading.Lock()
        self._flight = _Flight[Result]()
        self._next: _Flight[Result] | None = None
        self._flight.result.set_exception(RuntimeError('before the first flight'))

    def at_least(self, moment: float = FROM_NOW) -> Result:
        """Return the result of a flight that began at a moment or later.

        All callers of a flight get the error of the flight. An error is not kept for
        later callers.

        :param moment: monotonic seconds.
        """
        moment = min(moment, time.monotonic())
        is_leader = False
        with self._lock:
            current = self._flight
            flight = current
            if current.began < moment or current.failed:
                if self._next is None:
                    self._next = _Flight()
                    is_leader = True
                flight = self._next

        try:
            if is_leader:
                self._fly(flight, current)
            return flight.result.result()
        finally:
            # An error refers to this frame, and the flight to the error: without the
            # cycle, both are freed at once.
            del flight
            del current

    def _fly(self, flight: _Flight[Result], previous: _Flight[Result]) -> None:
        """Run the work in the thread of the flight's first caller, once the previous
        flight has ended or is stuck."""
        timeout = None
        if self._stuck_after is not None:
            timeout = max(0.0, previous.began + self._stuck_after - time.monotonic())
        with contextlib.suppress(futures.TimeoutError):
            previous.result.exception(timeout)
        self._gather()

        with self._lock:
            flight.began = time.monotonic()
            self._flight = flight
            self._next = None
        try:
            flight.result.set_result(self._work())
        except BaseException as error:
            # Every exception: the other callers of the flight wait for the result.
            flight.result.set_exception(error)
        finally:
            # As above.
            del flight
            del previous

    @property
    def idle(self) -> bool:
        """True while no flight is under way or wanted."""
        with self._lock:
            return self._flight.result.done() and self._next is None
