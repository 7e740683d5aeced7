# SPDX-License-Identifier: Apache-2.0
"""Heartbeats, and what is known of those who wait for them."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field
from typing import Any

import pytest

from novasched.rpc.callers import Call, Callers, patience

NEVER = math.inf


@dataclass(eq=False)
class Message:
    """A message whose caller hears heartbeats, unless its queue is gone."""

    client_timeout: Any = 2
    gone: bool = False
    heard: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def heartbeat(self) -> None:
        self.heard.release()
        if self.gone:
            raise RuntimeError('no such queue')


@pytest.mark.parametrize(
    ('said', 'seconds'),
    [
        (60, 60), ('60', 60), (2, 2), (2.9, 2),
        (1, NEVER), (0, NEVER), (-5, NEVER), (None, NEVER), ('soon', NEVER), ([], NEVER), (math.inf, NEVER),
    ],
)  # fmt: skip
def test_patience(said: Any, seconds: float) -> None:
    """What a message says is taken for what oslo.messaging takes it; garbage is nothing."""
    assert patience(said) == seconds


@pytest.mark.parametrize(
    ('came', 'heard', 'patience', 'lifetime', 'given_up'),
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
def test_who_has_given_up(
    came: float, heard: float, patience: float, lifetime: float, given_up: bool
) -> None:
    """At 100: who has heard nothing for longer than its patience, or has waited longer in all
    than it does, has given up; who says neither is waited for."""
    assert Call(None, came, heard, patience, lifetime).given_up(100) is given_up


def test_a_message_that_comes_again() -> None:
    """What was known of it is known, and it waits for no longer than before."""
    now = [0.0]
    callers = Callers(lambda: now[0])
    first = callers.add(Message(60))
    now[0] = 50
    again = callers.add(Message(60), before=(first.came, first.heard))
    assert not again.given_up(60)
    assert again.given_up(61)
    assert not callers.add(Message(60)).given_up(61)


def test_heartbeats() -> None:
    """Everybody who wants them hears of us again and again, from one thread, until the answer
    is made; whose queue is gone counts as one who hears nothing."""
    before = threading.active_count()
    callers = Callers()
    here, gone, deaf, answered = Message(), Message(gone=True), Message(None), Message()
    calls = {each: callers.add(each) for each in (here, gone, deaf, answered)}
    assert callers.add(here) is calls[here]
    callers.answer(answered)
    for each in (here, here, gone, gone):
        assert each.heard.acquire(timeout=30)
    assert calls[here].heard > calls[here].came
    assert calls[gone].heard == calls[gone].came
    assert not deaf.heard.acquire(blocking=False)
    assert not answered.heard.acquire(blocking=False)
    assert threading.active_count() == before + 1
    for each in (here, gone, deaf):
        callers.answer(each)
