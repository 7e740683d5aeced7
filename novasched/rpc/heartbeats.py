# SPDX-License-Identifier: Apache-2.0
"""Heartbeats for callers that wait for an answer (ADR 13).

A caller of nova gives up after ``[DEFAULT] rpc_response_timeout`` seconds without a
heartbeat or an answer.
"""

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

LOG = logging.getLogger(__name__)

MIN_HEARTBEAT_INTERVAL_S = 1.0
"""oslo.messaging has the same minimum."""


@dataclass(eq=False, slots=True)
class PendingCall:
    """A message between its arrival and its answer. Moments are monotonic seconds.

    :ivar last_contact: the moment of the last heartbeat. Before the first heartbeat,
        the moment of arrival, less the known time of the message in the broker.
    :ivar heartbeat_timeout: the caller gives up after this time without a heartbeat, in
        seconds.
    :ivar lifetime: the caller gives up this time after the arrival, in seconds.
    """

    incoming: Any
    arrived: float
    last_contact: float
    heartbeat_timeout: float
    lifetime: float = math.inf
    next_heartbeat: float = math.inf

    def has_given_up(self, now: float) -> bool:
        """True if the caller has certainly given up.

        False means that the caller may still wait. Unless the broker adds timestamps, a
        message does not say when it was sent, so that the caller may have given up
        before the message arrived.
        """
        silence = now - self.last_contact
        age = now - self.arrived
        return silence > self.heartbeat_timeout or age > self.lifetime


class RpcHeartbeats:
    """Sends heartbeats to all callers that wait, from one thread.

    A caller gets a heartbeat in intervals of half its timeout. The first heartbeat goes
    out soon after the arrival, since the message may have been in the broker for nearly
    the timeout. The thread starts with the first call.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # Guards all attributes. Notified when the next heartbeat is due earlier, and
        # when a heartbeat was sent.
        self._changed = threading.Condition()
        self._calls: dict[Any, PendingCall] = {}
        # The call that gets a heartbeat now.
        self._current: PendingCall | None = None
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
        """Send heartbeats for a message from now on. A repeated call changes nothing.

        :param lifetime: how long the caller waits after sending the message, in
            seconds.
        :param earlier: the earlier delivery, if the broker sends the message again.
        :param in_broker: the minimum number of seconds that the broker has had the
            message.
        :param redelivered: the message was delivered before, so that another scheduler
            may have sent heartbeats.
        """
        now = self._clock()
        with self._changed:
            call = self._calls.get(incoming)
            if call is not None:
                return call

            call = PendingCall(
                incoming,
                arrived=now,
                last_contact=now,
                heartbeat_timeout=heartbeat_timeout(incoming.client_timeout),
                lifetime=lifetime - in_broker,
            )
            if not redelivered:
                call.last_contact -= in_broker
            if earlier is not None:
                call.arrived = earlier.arrived
                call.last_contact = earlier.last_contact
                call.lifetime = earlier.lifetime
            if call.heartbeat_timeout < math.inf:
                call.next_heartbeat = now + MIN_HEARTBEAT_INTERVAL_S
            self._calls[incoming] = call

            if call.next_heartbeat < self._next:
                self._start_thread()
                self._changed.notify_all()
            return call

    def _start_thread(self) -> None:
        """Start the thread unless it runs. The caller holds the lock."""
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name='heartbeats', daemon=True
            )
            self._thread.start()

    def forget(self, incoming: Any) -> PendingCall | None:
        """Send no further heartbeat for a message, except for a heartbeat that the
        thread is sending now."""
        with self._changed:
            return self._calls.pop(incoming, None)

    def finish(self, incoming: Any) -> None:
        """Send no heartbeat for a message after this returns. The answer comes next."""
        with self._changed:
            call = self._calls.pop(incoming, None)
            if call is not None:
                self._changed.wait_for(lambda: self._current is not call)

    def _run(self) -> None:
        while True:
            for call in self._wait():
                with self._changed:
                    # The call may have ended since the heartbeat became due.
                    if call.incoming not in self._calls:
                        continue
                    self._current = call

                try:
                    self._send(call)
                finally:
                    # finish() may wait for this.
                    with self._changed:
                        self._current = None
                        self._changed.notify_all()

    def _wait(self) -> list[PendingCall]:
        """Wait until heartbeats are due, and return the calls that need a heartbeat."""
        with self._changed:
            while True:
                calls = self._calls.values()
                moments = [call.next_heartbeat for call in calls]
                self._next = min(moments, default=math.inf)

                now = self._clock()
                if self._next <= now:
                    return [call for call in calls if call.next_heartbeat <= now]

                timeout = None
                if self._next < math.inf:
                    timeout = self._next - now
                self._changed.wait(timeout)

    def _send(self, call: PendingCall) -> None:
        if call.has_given_up(self._clock()):
            # After a heartbeat, the caller would count as waiting again.
            call.next_heartbeat = math.inf
            return

        try:
            call.incoming.heartbeat()
        except Exception as error:
            # The reply queue of the caller is gone, or the broker is unavailable.
            LOG.debug('Cannot send a heartbeat to a waiting caller: %s', error)
        else:
            call.last_contact = self._clock()
        call.next_heartbeat = self._clock() + call.heartbeat_timeout / 2


def heartbeat_timeout(client_timeout: Any) -> float:
    """Seconds without a heartbeat after which a caller gives up.

    Infinite if the message has no timeout, or a malformed one.

    :param client_timeout: the timeout in the message, from any sender.
    """
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        seconds = int(client_timeout)
        if seconds / 2 >= MIN_HEARTBEAT_INTERVAL_S:
            return float(seconds)
    return math.inf
