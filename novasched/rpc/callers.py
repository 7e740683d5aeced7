# SPDX-License-Identifier: Apache-2.0
"""Those who wait for an answer, and are told meanwhile that somebody is at it."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

LOG = logging.getLogger(__name__)

LINGER = 60.0  # seconds that the thread stays when nobody waits
SHORTEST = 1.0  # seconds between heartbeats; as in oslo.messaging, nobody is sent more


Moments = tuple[float, float]


@dataclass(eq=False, slots=True)
class Call:
    """A message, from when it has come until it is answered.

    All times are seconds, of the monotonic clock. ``heard`` is the last moment at which the
    caller can have been patient: when the message came, or when a heartbeat went out.
    """

    incoming: Any
    came: float
    heard: float
    patience: float
    lifetime: float = math.inf
    due: float = math.inf
    sending: threading.Lock = field(default_factory=threading.Lock)

    def given_up(self, now: float) -> bool:
        """Whether the caller has certainly given up: it has heard nothing of us for longer
        than it says that it waits for a sign of life, or waits longer than it does at all.

        It may have given up before the message came, which nobody can know: a message
        does not say when it was sent. So False means that the caller may still be there.
        """
        return now - self.heard > self.patience or now - self.came > self.lifetime


class Callers:
    """Sends heartbeats to all who wait, from one thread, every half of the time after which
    each gives up. The first goes out soon, since a message may have been with the broker for
    nearly that time. The thread is there only while somebody waits."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._calls: dict[Any, Call] = {}
        self._changed = threading.Condition()
        self._next = math.inf
        self._thread: threading.Thread | None = None

    def add(self, incoming: Any, lifetime: float = math.inf, before: Moments | None = None) -> Call:
        """Somebody waits for the answer to a message; unless this is known already.

        :param lifetime: seconds after which the message is of no use to anybody.
        :param before: ``came`` and ``heard`` of this message if it comes once more.
        """
        now = self._clock()
        with self._changed:
            if known := self._calls.get(incoming):
                return known
            call = Call(incoming, now, now, patience(incoming.client_timeout), lifetime)
            if before is not None:
                call.came, call.heard = before
            if call.patience < math.inf:
                call.due = now + SHORTEST
            self._calls[incoming] = call
            if call.due < self._next:
                self._wake()
            return call

    def forget(self, incoming: Any) -> Call | None:
        """Nobody waits for this answer any more, at least not here."""
        with self._changed:
            return self._calls.pop(incoming, None)

    def answer(self, incoming: Any) -> None:
        """The answer is about to be sent: no heartbeat goes out after this."""
        if call := self.forget(incoming):
            with call.sending:
                pass  # the one that is on its way

    def _wake(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name='heartbeats', daemon=True)
            self._thread.start()
        self._changed.notify()

    def _run(self) -> None:
        while due := self._wait():
            for call in due:
                with call.sending:
                    if call.incoming in self._calls:
                        self._beat(call)

    def _wait(self) -> list[Call]:
        """Those whose time has come, when it has; none if nobody has waited for long."""
        late = False
        with self._changed:
            while True:
                self._next = min((each.due for each in self._calls.values()), default=math.inf)
                now = self._clock()
                if self._next <= now:
                    return [each for each in self._calls.values() if each.due <= now]
                if self._next < math.inf:
                    self._changed.wait(self._next - now)
                elif late:
                    self._thread = None
                    return []
                else:
                    late = not self._changed.wait(LINGER)

    def _beat(self, call: Call) -> None:
        try:
            call.incoming.heartbeat()
        except Exception as error:  # the caller's queue is gone, or the broker is
            LOG.debug('No heartbeat can be sent to who waits for an answer: %s', error)
        else:
            call.heard = self._clock()
        call.due = self._clock() + call.patience / 2


def patience(client_timeout: Any) -> float:
    """Seconds without a heartbeat after which a caller gives up; infinite if it does not
    listen to any, or does not say so in a way that makes sense."""
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        seconds = int(client_timeout)
        if seconds / 2 >= SHORTEST:
            return float(seconds)
    return math.inf
