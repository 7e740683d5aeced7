# SPDX-License-Identifier: Apache-2.0
"""One decision at a time, first come, first served.

A turn is a place in a queue, and ends in one of two ways:

    waiting -> deciding -> over
                        -> overtaken -> over

The timeout belongs to the decision, not to the queue: only the request that is deciding
can be overtaken, and the next request in the queue begins then. So a long queue of
quick decisions stays a queue. A decision that hangs, which only a plugin can cause,
delays the next decision by no more than the timeout.

An overtaken decision does not know the decisions that were made after its turn was
taken away. Its request has to check the decision in another turn before the decision
may stand.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

DECISION_TIMEOUT_S = 5.0
"""Seconds that one decision may take while others wait."""


@dataclass(eq=False, slots=True)
class Turn:
    """The place of one decision in the queue.

    :ivar is_first: set when the request may decide.
    :ivar began: when the request began to decide (seconds of the lock's clock).
    :ivar was_overtaken: another request has taken the turn away, since the decision
        took too long.
    """

    is_first: threading.Event = field(default_factory=threading.Event)
    began: float = 0.0
    was_overtaken: bool = False


class DecisionLock:
    """The queue of the requests that decide.

    :param timeout: seconds that one decision may take while others wait.
    :param clock: seconds, from any moment on.
    """

    def __init__(
        self,
        timeout: float = DECISION_TIMEOUT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._timeout = timeout
        self._clock = clock
        self._lock = threading.Lock()
        # The turn of the request that is deciding, then the turns of all waiting
        # requests.
        self._turns: deque[Turn] = deque()

    @contextmanager
    def turn(self) -> Iterator[Turn]:
        """Wait for a turn, and have it for as long as the block lasts.

        Read ``was_overtaken`` of the turn after the block.
        """
        turn = Turn()
        with self._lock:
            self._turns.append(turn)
            if len(self._turns) == 1:
                self._begin(turn)

        while not turn.is_first.wait(self._seconds_left(turn)):
            self._overtake(turn)

        try:
            yield turn
        finally:
            with self._lock:
                if not turn.was_overtaken:
                    self._end_first()

    def _seconds_left(self, waiting: Turn) -> float:
        """The seconds after which the request that is deciding may be overtaken; 0 if
        no turn is awaited any more."""
        with self._lock:
            if waiting.is_first.is_set():
                return 0.0
            ends = self._turns[0].began + self._timeout
        return max(0.0, ends - self._clock())

    def _overtake(self, waiting: Turn) -> None:
        """Take the turn away from a decision that takes too long; the next one
        begins."""
        with self._lock:
            if waiting.is_first.is_set():
                return  # the turn has come meanwhile
            first = self._turns[0]
            if self._clock() - first.began >= self._timeout:
                first.was_overtaken = True
                self._end_first()

    def _end_first(self) -> None:
        """Remove the first turn, and begin the next. The caller holds the lock."""
        self._turns.popleft()
        if self._turns:
            self._begin(self._turns[0])

    def _begin(self, turn: Turn) -> None:
        turn.began = self._clock()
        turn.is_first.set()
