# SPDX-License-Identifier: Apache-2.0
"""Heartbeats, and callers that have given up."""

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
    """A message whose caller hears heartbeats, unless its queue is gone."""

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
def test_heartbeat_timeout(said, seconds):
    """A message is understood as oslo.messaging understands it; garbage is nothing."""
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
def test_given_up(arrived, last_contact, timeout, lifetime, given_up):
    """At 100: a caller that has heard nothing for longer than its timeout, or has
    waited longer than its lifetime, has given up; one that names neither has not."""
    assert (
        PendingCall(None, arrived, last_contact, timeout, lifetime).given_up(100)
        is given_up
    )


def test_a_message_that_comes_again():
    """The time before counts, so that its caller waits no longer than before."""
    now = [0.0]
    heartbeats = RpcHeartbeats(lambda: now[0])
    first = heartbeats.add(
        Message(60, gone=True)
    )  # or the thread may send one meanwhile
    now[0] = 50
    again = heartbeats.add(Message(60, gone=True), earlier=first)
    assert not again.given_up(60)
    assert again.given_up(61)
    assert not heartbeats.add(Message(60, gone=True)).given_up(61)


def test_heartbeats():
    """Each caller that asks for them gets them again and again, from one thread, until
    the answer is made; one whose queue is gone counts as one that hears nothing."""
    before = threading.active_count()
    heartbeats = RpcHeartbeats()
    here = Message()
    gone = Message(gone=True)
    deaf = Message(None)
    answered = Message()
    calls = {each: heartbeats.add(each) for each in (here, gone, deaf, answered)}
    assert heartbeats.add(here) is calls[here]
    heartbeats.finish(answered)
    for each in (here, here, gone):
        assert each.heard.acquire(timeout=30)
    assert calls[here].last_contact > calls[here].arrived
    assert calls[gone].last_contact == calls[gone].arrived
    assert not deaf.heard.acquire(blocking=False)
    assert not answered.heard.acquire(blocking=False)
    assert threading.active_count() == before + 1
    for each in (here, gone, deaf):
        heartbeats.finish(each)


def test_a_caller_that_has_given_up_stays_gone():
    """No heartbeat goes to a caller that has heard nothing for too long, as where this
    process was frozen: the heartbeat would be sent, and its caller would seem to be
    there again."""
    frozen = [0.0]
    heartbeats = RpcHeartbeats(lambda: time.monotonic() + frozen[0])
    gone = Message(2)
    here = Message(2)
    call = heartbeats.add(gone)
    frozen[0] = 2.5
    heartbeats.add(here)
    assert here.heard.acquire(timeout=30)
    assert not gone.heard.acquire(blocking=False)
    assert call.given_up(time.monotonic() + frozen[0])
    for each in (gone, here):
        heartbeats.finish(each)


def test_a_message_that_was_with_the_broker():
    """The time that a message is known to have been with the broker counts as silence,
    and that of a message that comes again only once."""
    now = [1000.0]
    heartbeats = RpcHeartbeats(lambda: now[0])
    fresh = heartbeats.add(Message(60), 1800, in_broker=60)
    assert not fresh.given_up(1000)
    assert fresh.given_up(1001)
    assert heartbeats.add(Message(None), 1800, in_broker=1801).given_up(1000)
    # Another scheduler may have sent heartbeats.
    again = heartbeats.add(Message(60), 1800, in_broker=1700, redelivered=True)
    assert not again.given_up(1059)
    assert again.given_up(1101)
    now[0] = 1090
    twice = heartbeats.add(
        Message(None), 1800, earlier=again, in_broker=1790, redelivered=True
    )
    assert not twice.given_up(1060)
    assert twice.given_up(1101)


def test_a_message_that_comes_again_lives_no_longer():
    """The lifetime of a call counts from the first arrival of its message."""
    now = [0.0]
    heartbeats = RpcHeartbeats(lambda: now[0])
    first = heartbeats.add(Message(None), lifetime=70)
    now[0] = 50
    again = heartbeats.add(Message(None), lifetime=70, earlier=first)
    assert not again.given_up(70)
    assert again.given_up(71)


def test_no_heartbeat_comes_after_the_answer():
    """Who answers waits for the heartbeat that is on its way."""
    said = []
    answered = threading.Event()

    class Slow(Message):
        """A message whose heartbeat takes a while, longer if the answer does not
        wait."""

        def heartbeat(self):
            self.heard.release()
            answered.wait(0.5)
            said.append('heartbeat')

    message = Slow()
    heartbeats = RpcHeartbeats()
    heartbeats.add(message)
    assert message.heard.acquire(timeout=30)
    heartbeats.finish(message)
    said.append('answer')
    answered.set()
    assert said == ['heartbeat', 'answer']
