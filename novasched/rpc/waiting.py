# SPDX-License-Identifier: Apache-2.0
"""The queue of messages in front of the thread pool."""

from collections import deque
from typing import Any

from novasched.rpc.heartbeats import PendingCall, RpcHeartbeats

PINGS = frozenset({'ping', 'oslo_rpc_server_ping'})
"""Methods that health probes call: nova's ping and oslo.messaging's ping."""


def is_ping(incoming: Any) -> bool:
    """True for a message that calls a method in ``PINGS``."""
    return incoming.message.get('method') in PINGS


class WaitingMessages:
    """A queue of messages that wait for a thread. Pings wait at the front."""

    def __init__(self, heartbeats: RpcHeartbeats) -> None:
        self._heartbeats = heartbeats
        self._calls: deque[PendingCall] = deque()
        # Messages that went back to the broker, by unique id. The broker sends these
        # messages again.
        self._returned: dict[str, PendingCall] = {}

    def __len__(self) -> int:
        return len(self._calls)

    @property
    def first(self) -> PendingCall | None:
        """The message at the front of the queue."""
        if self._calls:
            return self._calls[0]
        return None

    def add(
        self, incoming: Any, lifetime: float, in_broker: float, redelivered: bool
    ) -> PendingCall:
        """Add a message from the broker, and begin to send heartbeats to the caller.

        The parameters are explained in :meth:`RpcHeartbeats.add`.
        """
        earlier = self._returned.pop(incoming.unique_id, None)
        call = self._heartbeats.add(incoming, lifetime, earlier, in_broker, redelivered)
        if is_ping(incoming):
            self._calls.appendleft(call)
        else:
            self._calls.append(call)
        return call

    def remove_first(self) -> None:
        """Remove the first message. The caller still gets heartbeats."""
        self._calls.popleft()

    def drop(self, call: PendingCall) -> None:
        """Send no more heartbeats for a removed message."""
        self._heartbeats.forget(call.incoming)

    def forget_all(self) -> None:
        """Forget all messages. The broker has the messages, and sends them again. The
        earlier arrival of a message still counts then."""
        self._returned = {}
        for call in self._calls:
            self._heartbeats.forget(call.incoming)
            self._returned[call.incoming.unique_id] = call
        self._calls.clear()
