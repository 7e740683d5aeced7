# SPDX-License-Identifier: Apache-2.0
"""One decision at a time, first come, first served, in two queues.

A turn is a place in a queue, and ends in one of two ways:

    waiting -> deciding -> over
                        -> overtaken -> over

A request for several instances has a turn for each instance, so that other requests
decide in between. In a common queue, such a request would wait for all other requests
once for each instance. Therefore requests for several instances wait in a second queue.
While turns wait in both queues, the queues decide alternately, for a slice of time: 111
ms for single instances, 100 ms for requests for several instances.

The timeout limits a decision, not the wait in a queue: only the deciding request can be
overtaken, and then the next request begins. So a long queue of quick decisions stays a
queue. A decision that hangs, which only a plugin can cause, delays the next decision by
no more than the timeout.

An overtaken decision does not know the decisions after the end of the turn. So the
request checks the decision in another turn before the decision may stand.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

DECISION_TIMEOUT_S = 5.0
"""Seconds that a decision may take while other requests wait."""

SLICE_S = 0.1
"""Seconds for which requests for several instances decide while single instances wait.
Threads with other work slow down the first milliseconds."""
SEVERAL_PER_SINGLE = 0.9
"""Seconds for requests for several instances, per second for single instances, while
turns wait in both queues.

Beside clients for single instances, however many, a request for many instances takes
2.1 times as long as alone. The clients wait 1.9 times as long as without requests for
several instances, however many. Threads outside of turns make both times longer.
"""


@dataclass(eq=False, slots=True)
class Turn:
    """The place of one decision in a queue.

    :ivar of_several: the request is for several instances.
    :ivar has_come: set when the request may decide.
    :ivar began: the begin of the decision (seconds of the lock's clock).
    :ivar was_overtaken: another request has ended the turn, since the decision took too
        long.
    """

    of_several: bool
    has_come: threading.Event = field(default_factory=threading.Event)
    began: float = 0.0
    was_overtaken: bool = False


class DecisionLock:
    """The queues of the requests that decide.

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
        self._deciding: Turn | None = None
        self._single: deque[Turn] = deque()
        self._several: deque[Turn] = deque()
        # The credit of the requests for several instances, in seconds. Decisions for
        # single instances add to the credit; a slice uses the credit up.
        self._credit = 0.0
        self._is_slice = False
        self._of_thread = threading.local()

    def is_in_turn(self) -> bool:
        """True if this thread has a turn, or was overtaken in its turn."""
        return getattr(self._of_thread, 'turn', None) is not None

    @contextmanager
    def turn(self, of_several: bool = False) -> Iterator[Turn]:
        """Wait for a turn. The turn lasts as long as the block.

        Read ``was_overtaken`` of the turn after the block.

        :param of_several: the request is for several instances.
        """
        with closing(self.turns(of_several)) as turns:
            yield next(turns)

    def turns(self, of_several: bool) -> Generator[Turn, None, None]:
        """Turns for the decisions of a request. A turn lasts until the next turn is
        asked for, or until the generator is closed."""
        assert not self.is_in_turn(), 'a request would wait for itself'
        queue = self._several if of_several else self._single
        turn: Turn | None = None
        try:
            while True:
                ended = turn
                turn = Turn(of_several)
                with self._lock:
                    # The request queues before the turn ends, so that the slice may go
                    # on.
                    queue.append(turn)
                    if ended is not None:
                        self._end(ended)
                    if self._deciding is None:
                        self._begin_next()

                # A waiting request watches the time of the deciding request.
                while not turn.has_come.wait(self._seconds_left(turn)):
                    self._overtake(turn)
                self._of_thread.turn = turn
                yield turn
        finally:
            self._of_thread.turn = None
            if turn is not None:
                with self._lock:
                    self._end(turn)

    def _seconds_left(self, waiting: Turn) -> float:
        """The seconds after which the deciding request may be overtaken; 0 if no turn
        is awaited any more."""
        with self._lock:
            if waiting.has_come.is_set() or self._deciding is None:
                return 0.0
            ends = self._deciding.began + self._timeout
        return max(0.0, ends - self._clock())

    def _overtake(self, waiting: Turn) -> None:
        """End the turn of a decision that takes too long, and begin the next turn."""
        with self._lock:
            deciding = self._deciding
            if waiting.has_come.is_set() or deciding is None:
                return  # the turn has come meanwhile
            if self._clock() - deciding.began >= self._timeout:
                deciding.was_overtaken = True
                self._end(deciding)

    def _end(self, turn: Turn) -> None:
        """End a turn, and begin the next turn. Nothing happens for an overtaken turn.
        The caller holds the lock."""
        if self._deciding is not turn:
            return

        seconds = self._clock() - turn.began
        # Time without competition is not made up for later. Yet the next request for
        # several instances begins with a whole slice.
        if turn.of_several:
            self._credit -= seconds
            if not self._single:
                self._credit = max(self._credit, 0.0)
        else:
            self._credit += seconds * SEVERAL_PER_SINGLE
            if not self._several:
                self._credit = min(self._credit, SLICE_S)
        self._begin_next()

    def _begin_next(self) -> None:
        """Begin the next turn, if a turn waits. The caller holds the lock."""
        if self._single and self._several:
            if self._credit <= 0:
                self._is_slice = False
            elif self._credit >= SLICE_S:
                self._is_slice = True
        else:
            self._is_slice = bool(self._several)

        self._deciding = None
        queue = self._several if self._is_slice else self._single
        if queue:
            turn = queue.popleft()
            self._deciding = turn
            turn.began = self._clock()
            turn.has_come.set()
