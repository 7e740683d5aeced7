# SPDX-License-Identifier: Apache-2.0
"""Heartbeats for callers that wait for an answer, so that they do not give up (ADR
13)."""

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

LOG = logging.getLogger(__name__)

MIN_HEARTBEAT_INTERVAL_S = 1.0  # as in oslo.messaging


@dataclass(eq=False, slots=True)
class PendingCall:
    """A message from its arrival until its answer. Times are of the monotonic clock.

    :ivar last_contact: the moment of the last heartbeat. Before the first heartbeat,
        the moment of arrival, less the known time of the message in the broker.
    :ivar heartbeat_timeout: the seconds without a heartbeat after which its caller
        gives up.
    :ivar lifetime: the seconds from the arrival for which its caller waits in all.
    """

    incoming: Any
    arrived: float
    last_contact: float
    heartbeat_timeout: float
    lifetime: float = math.inf
    next_heartbeat: float = math.inf
    sending: threading.Lock = field(default_factory=threading.Lock)

    def given_up(self, now: float) -> bool:
        """True if the caller has certainly given up.

        False means that the caller may still be there. Unless the broker adds
        timestamps, a message does not say when it was sent, so that its caller may have
        given up before the message arrived.
        """
        silence = now - self.last_contact
        age = now - self.arrived
        return silence > self.heartbeat_timeout or age > self.lifetime


class RpcHeartbeats:
    """Sends heartbeats to all callers that wait, from one thread, every half of the
    time after which each gives up. The first goes out soon, since a message may have
    been with the broker for nearly that time. The thread is there once a caller has
    waited."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._calls: dict[Any, PendingCall] = {}
        self._changed = threading.Condition()
        self._next = math.inf
        self._thread: threading.Thread | None = None

    def add(
        self,
        incoming: Any,
        lifetime: float = math.inf,
        earlier: PendingCall | None = None,
        in_broker: float = 0.0,
        redelivered: bool = False,
    ) -> PendingCall:
        """Send heartbeats for a message from now on, unless this is done already.

        :param lifetime: the seconds that the caller waits after it has sent the
            message.
        :param earlier: the same message, if the broker sends the message once more.
        :param in_broker: the least number of seconds that the broker has had the
            message.
        :param redelivered: the message was delivered before, so that another scheduler
            may have sent heartbeats.
        """
        now = self._clock()
        with self._changed:
            if call := self._calls.get(incoming):
                return call
            timeout = heartbeat_timeout(incoming.client_timeout)
            last_contact = now if redelivered else now - in_broker
            lifetime -= in_broker
            call = PendingCall(incoming, now, last_contact, timeout, lifetime)
            if earlier is not None:
                call.arrived = earlier.arrived
                call.last_contact = earlier.last_contact
                call.lifetime = earlier.lifetime
            if call.heartbeat_timeout < math.inf:
                call.next_heartbeat = now + MIN_HEARTBEAT_INTERVAL_S
            self._calls[incoming] = call
            if call.next_heartbeat < self._next:
                if self._thread is None:
                    run = threading.Thread(
                        target=self._run, name='heartbeats', daemon=True
                    )
                    self._thread = run
                    run.start()
                self._changed.notify()
            return call

    def forget(self, incoming: Any) -> PendingCall | None:
        """Send no further heartbeat for a message; one may be on its way."""
        with self._changed:
            return self._calls.pop(incoming, None)

    def finish(self, incoming: Any) -> None:
        """Send no heartbeat for a message after this returns: its answer comes next."""
        if call := self.forget(incoming):
            with call.sending:
                pass  # the one that is on its way

    def _run(self) -> None:
        while True:
            for call in self._wait():
                with call.sending:
                    if call.incoming in self._calls:
                        self._send(call)

    def _wait(self) -> list[PendingCall]:
        """The calls whose heartbeat is due, once there are any."""
        with self._changed:
            while True:
                calls = self._calls.values()
                self._next = min(
                    (call.next_heartbeat for call in calls), default=math.inf
                )
                now = self._clock()
                if self._next <= now:
                    return [call for call in calls if call.next_heartbeat <= now]
                self._changed.wait(None if self._next == math.inf else self._next - now)

    def _send(self, call: PendingCall) -> None:
        if call.given_up(self._clock()):
            # The caller would not read a heartbeat, and would seem to be there again.
            call.next_heartbeat = math.inf
            return
        try:
            call.incoming.heartbeat()
        except Exception as error:  # the caller's queue is gone, or the broker is
            LOG.debug('No heartbeat can be sent to who waits for an answer: %s', error)
        else:
            call.last_contact = self._clock()
        call.next_heartbeat = self._clock() + call.heartbeat_timeout / 2


def heartbeat_timeout(client_timeout: Any) -> float:
    """Seconds without a heartbeat after which a caller gives up; infinite if its
    message asks for none, or not in a way that makes sense."""
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        seconds = int(client_timeout)
        if seconds / 2 >= MIN_HEARTBEAT_INTERVAL_S:
            return float(seconds)
    return math.inf
