# SPDX-License-Identifier: Apache-2.0
"""Messages that wait for a thread."""

import math
from dataclasses import dataclass, field

from novasched.rpc.heartbeats import RpcHeartbeats
from novasched.rpc.waiting import WaitingMessages


@dataclass(eq=False)
class Message:
    """A message of the broker. A cast has no message id."""

    unique_id: str
    msg_id: str | None = None
    message: dict = field(default_factory=dict)
    client_timeout: float | None = None


def test_a_message_redelivered_by_the_broker_keeps_the_arrival_time():
    """The broker sends the messages again, in another order. Each message keeps the
    moment of its own arrival, as do messages without a message id."""
    waiting = WaitingMessages(RpcHeartbeats())
    calls = {}
    for unique_id, msg_id in (('a', 'call'), ('b', None), ('c', None)):
        message = Message(unique_id, msg_id)
        calls[unique_id] = waiting.add(message, math.inf, 0.0, redelivered=False)
    waiting.forget_all()

    for unique_id in 'cba':
        call = waiting.add(Message(unique_id), math.inf, 0.0, redelivered=True)
        assert call.arrived == calls[unique_id].arrived
