# SPDX-License-Identifier: Apache-2.0
"""Work that is done once for all who wait for it, and never too early for any of them."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Result = TypeVar('Result')

NOW = math.inf
"""The moment of whoever wants what begins only after the call."""


@dataclass(slots=True)
class _Turn(Generic[Result]):
    """One run of the work; ``began`` is when (monotonic seconds), once it has."""

    result: Future[Result] = field(default_factory=Future)
    began: float = -math.inf


class Turns(Generic[Result]):
    """Runs work one turn after the other.

    Whoever asks gets the result of a turn that began at its moment or later: one that is
    under way, the last one, or the next, which everybody shares who came too late for the
    one under way. So work that takes long is done often enough and not more often.
    """

    def __init__(
        self, work: Callable[[], Result], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._work = work
        self._clock = clock
        self._lock = threading.Lock()
        self._turn = _Turn[Result]()
        self._next: _Turn[Result] | None = None
        self._turn.result.set_exception(RuntimeError('before the first turn'))

    def since(self, moment: float = NOW) -> Result:
        """The result of a turn that began at that moment (monotonic seconds) or later.

        What the work raises is raised to everyone who shares the turn, and to nobody else.
        """
        moment = min(moment, self._clock())
        with self._lock:
            turn = before = self._turn
            first = False
            if before.began < moment or _failed(before):
                first = self._next is None
                turn = self._next = self._next or _Turn()
        if first:
            before.result.exception()  # waits: there is one turn at a time
            with self._lock:
                turn.began = self._clock()
                self._turn, self._next = turn, None
            self._run(turn)
        return turn.result.result()

    @property
    def idle(self) -> bool:
        """Whether no turn is under way or wanted."""
        with self._lock:
            return self._turn.result.done() and self._next is None

    def _run(self, turn: _Turn[Result]) -> None:
        try:
            turn.result.set_result(self._work())
        except BaseException as error:  # whatever it is, those who wait must hear of it
            turn.result.set_exception(error)


def _failed(turn: _Turn[Result]) -> bool:
    return turn.result.done() and turn.result.exception() is not None
