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
        self,
        work: Callable[[], Result],
        clock: Callable[[], float] = time.monotonic,
        gather: Callable[[], None] = lambda: None,
    ) -> None:
        """:param gather: waits, before a turn begins, for others who are about to want it."""
        self._work = work
        self._clock = clock
        self._gather = gather
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
            self._gather()
            with self._lock:
                turn.began = self._clock()
                self._turn, self._next = turn, None
            self._run(turn)
        try:
            return turn.result.result()
        finally:
            del turn, before  # see below

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
        finally:
            del turn  # to which the error would lead, and it to the error


class Company:
    """Those who are on their way to a turn.

    Requests of a burst come within milliseconds. The first of them would ask alone, and the
    others wait until it has its answer before they ask. So it looks who else is about to
    come. Who is alone does not wait, and nobody waits for one who is late.
    """

    def __init__(
        self, patience: float, most: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """:param patience: seconds that one is waited for at most.
        :param most: seconds that one waits at most, for however many.
        """
        self._patience = patience
        self._most = most
        self._clock = clock
        self._coming: set[float] = set()
        self._changed = threading.Condition()

    def expect(self, moment: float) -> None:
        """Somebody set out at that moment (monotonic seconds)."""
        with self._changed:
            self._forget_the_late()
            self._coming.add(moment)

    def arrived(self, moment: float) -> None:
        """Who set out at that moment is there."""
        with self._changed:
            self._coming.discard(moment)
            self._changed.notify_all()

    def gather(self) -> None:
        """Wait until everybody is there who is not late."""
        until = self._clock() + self._most
        with self._changed:
            while self._forget_the_late() and self._clock() < until:
                soonest = min(until, min(self._coming) + self._patience)
                self._changed.wait(max(soonest - self._clock(), 0))

    def _forget_the_late(self) -> bool:
        """Whether anybody is left."""
        last = self._clock() - self._patience
        self._coming = {moment for moment in self._coming if moment > last}
        return bool(self._coming)


def _failed(turn: _Turn[Result]) -> bool:
    return turn.result.done() and turn.result.exception() is not None
