# SPDX-License-Identifier: Apache-2.0
"""Heartbeats, and callers after the timeout."""

import math
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import pytest

from novasched.rpc.heartbeats import PendingCall, RpcHeartbeats, heartbeat_timeout

NEVER = math.inf


@dataclass(eq=False)
class Message:
    """A message with a caller that counts heartbeats. ``gone``: the queue of the caller
    does not exist."""

    client_timeout: Any = 2
    gone: bool = False
    heard: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def heartbeat(self):
        self.heard.release()
        if self.gone:
            raise RuntimeError('no such queue')


@pytest.mark.parametrize(
    ('said', 'seconds'),
    [
        (60, 60),
        ('60', 60),
        (2, 2),
        (2.9, 2),
        (1, NEVER),
        (0, NEVER),
        (-5, NEVER),
        (None, NEVER),
        ('soon', NEVER),
        ([], NEVER),
        (math.inf, NEVER),
    ],
)
def test_a_heartbeat_timeout_is_read_as_in_oslo_messaging(said, seconds):
    """A timeout has the same meaning as in oslo.messaging. A malformed timeout counts
    as no timeout."""
    assert heartbeat_timeout(said) == seconds


@pytest.mark.parametrize(
    ('arrived', 'last_contact', 'timeout', 'lifetime', 'given_up'),
    [
        (0, 0, 101, NEVER, False),
        (0, 0, 100, NEVER, False),
        (0, 0, 99, NEVER, True),
        (0, 41, 60, NEVER, False),
        (0, 39, 60, NEVER, True),
        (0, 99, 60, 1800, False),
        (0, 99, 60, 90, True),
        (20, 99, 60, 90, False),
        (0, 0, NEVER, NEVER, False),
        (0, 0, NEVER, 99, True),
    ],
)
def test_a_caller_gives_up_after_the_timeout_or_the_lifetime(
    arrived, last_contact, timeout, lifetime, given_up
):
    """A caller gives up after the timeout without a heartbeat, and after the lifetime.
    The moment is 100 seconds."""
    call = PendingCall(None, arrived, last_contact, timeout, lifetime)
    assert call.has_given_up(100) is given_up


def test_the_timeout_counts_from_the_first_delivery_of_a_message():
    """The time since the first delivery counts, since the caller waits no longer."""
    now = [0.0]
    heartbeats = RpcHeartbeats(lambda: now[0])
    # Heartbeats fail, so that the thread changes nothing meanwhile.
    first = heartbeats.add(Message(60, gone=True))

    now[0] = 50
    again = heartbeats.add(Message(60, gone=True), earlier=first)
    assert not again.has_given_up(60)
    assert again.has_given_up(61)
    assert not heartbeats.add(Message(60, gone=True)).has_given_up(61)


def test_a_caller_with_a_timeout_gets_heartbeats_until_the_answer():
    """A caller with a timeout gets heartbeats from the thread until the answer. A
    caller without a queue counts as silent."""
    before = threading.active_count()
    heartbeats = RpcHeartbeats()
    here = Message()
    gone = Message(gone=True)
    deaf = Message(None)
    answered = Message()
    call = heartbeats.add(here)
    call_of_gone = heartbeats.add(gone)
    heartbeats.add(deaf)
    heartbeats.add(answered)
    assert heartbeats.add(here) is call
    heartbeats.finish(answered)

    for message in (here, here, gone):
        assert message.heard.acquire(timeout=30)
    assert call.last_contact > call.arrived
    assert call_of_gone.last_contact == call_of_gone.arrived
    assert not deaf.heard.acquire(blocking=False)
    assert not answered.heard.acquire(blocking=False)
    assert threading.active_count() == before + 1

    for message in (here, gone, deaf):
        heartbeats.finish(message)


def test_a_caller_that_has_given_up_gets_no_heartbeat():
    """A caller gets no heartbeat after its timeout, as after this process was frozen:
    after the heartbeat the caller would count as waiting again."""
    frozen = [0.0]
    heartbeats = RpcHeartbeats(lambda: time.monotonic() + frozen[0])
    gone = Message(2)
    here = Message(2)
    call = heartbeats.add(gone)
    frozen[0] = 2.5
    heartbeats.add(here)
    assert here.heard.acquire(timeout=30)
    assert not gone.heard.acquire(blocking=False)
    assert call.has_given_up(time.monotonic() + frozen[0])
    for message in (gone, here):
        heartbeats.finish(message)


def test_the_time_of_a_message_in_the_broker_counts_as_silence():
    """The known time of a message in the broker counts as silence. For a repeated
    message, only the time of the first delivery counts."""
    now = [1000.0]
    heartbeats = RpcHeartbeats(lambda: now[0])
    fresh = heartbeats.add(Message(60), 1800, in_broker=60)
    assert not fresh.has_given_up(1000)
    assert fresh.has_given_up(1001)
    assert heartbeats.add(Message(None), 1800, in_broker=1801).has_given_up(1000)

    # Another scheduler may have sent heartbeats.
    again = heartbeats.add(Message(60), 1800, in_broker=1700, redelivered=True)
    assert not again.has_given_up(1059)
    assert again.has_given_up(1101)

    now[0] = 1090
    twice = heartbeats.add(
        Message(None), 1800, earlier=again, in_broker=1790, redelivered=True
    )
    assert not twice.has_given_up(1060)
    assert twice.has_given_up(1101)


def test_the_lifetime_counts_from_the_first_delivery_of_a_message():
    """The lifetime of a call counts from the first arrival of the message."""
    now = [0.0]
    heartbeats = RpcHeartbeats(lambda: now[0])
    first = heartbeats.add(Message(None), lifetime=70)
    now[0] = 50
    again = heartbeats.add(Message(None), lifetime=70, earlier=first)
    assert not again.has_given_up(70)
    assert again.has_given_up(71)


def test_no_heartbeat_comes_after_the_answer():
    """The answer waits for a heartbeat that the thread is sending."""
    events = []
    answered = threading.Event()

    class Slow(Message):
        """A message with a slow heartbeat."""

        def heartbeat(self):
            self.heard.release()
            answered.wait(0.5)
            events.append('heartbeat')

    message = Slow()
    heartbeats = RpcHeartbeats()
    heartbeats.add(message)
    assert message.heard.acquire(timeout=30)
    heartbeats.finish(message)
    events.append('answer')
    answered.set()
    assert events == ['heartbeat', 'answer']
