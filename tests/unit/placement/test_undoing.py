# SPDX-License-Identifier: Apache-2.0
import logging
import threading

import pytest

from novasched.errors import PlacementUnavailable
from novasched.placement.undoing import LATE, LONGEST, Undoing
from tests.unit.test_inflight import Clock


class Script:
    """What comes of one try after the other, the last for good: no answer, or None. ``tried``
    counts them."""

    def __init__(self, *outcomes):
        self.outcomes = list(outcomes)
        self.tried = threading.Semaphore(0)

    def __call__(self):
        self.tried.release()
        outcome = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
        if outcome is AWAY:
            raise PlacementUnavailable('no answer')

    def wait_for(self, tries):
        for _ in range(tries):
            assert self.tried.acquire(timeout=10)


AWAY = 'away'


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def undoing(clock):
    undoing = Undoing(first=1e-3, most=3, clock=clock)
    yield undoing
    undoing.close(0)


def ended():
    """Wait for the thread to end, which it does when there is nothing left."""
    for thread in threading.enumerate():
        if thread.name == 'undoing':
            thread.join(10)
            assert not thread.is_alive()


def errors(caplog):
    return [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]


@pytest.mark.parametrize(
    ('outcomes', 'tries'),
    [([None], 1), ([AWAY, AWAY, None], 3)],
)
def test_what_was_done(undoing, outcomes, tries):
    """It is tried until it is undone."""
    script = Script(*outcomes)
    undoing.add('server', script, may_come=False)
    script.wait_for(tries)
    ended()
    assert not script.tried.acquire(blocking=False)


def test_what_may_come(undoing, clock):
    """It is undone again and again, until nothing can come any more."""
    script = Script(None)
    undoing.add('server', script, may_come=True)
    script.wait_for(5)
    clock.now += LATE
    ended()


def test_one_that_fails(undoing):
    """It does not keep the others from their turn."""
    failing, other = Script(AWAY), Script(None)
    undoing.add('one', failing, may_come=False)
    failing.wait_for(2)
    undoing.add('two', other, may_come=False)
    other.wait_for(1)
    failing.wait_for(2)


def test_it_is_given_up(undoing, clock, caplog):
    """After a long time, with the server's name in the log."""
    script = Script(AWAY)
    undoing.add('server', script, may_come=False)
    script.wait_for(2)
    clock.now += LONGEST
    ended()
    [error] = errors(caplog)
    assert 'instance server: given up' in error


def test_too_many(undoing, caplog):
    """The memory of them is bounded."""
    assert undoing.pending == 0
    for number in range(5):
        undoing.add(f'server{number}', Script(AWAY), may_come=False)
    assert undoing.pending == 3
    assert ['server3' in errors(caplog)[0], 'server4' in errors(caplog)[1]] == [True, True]


def test_the_end(undoing, caplog):
    """Each is tried once more; what cannot be undone is named."""
    there, away = Script(None), Script(AWAY)
    undoing.add('there', there, may_come=True)
    there.wait_for(1)
    undoing.add('away', away, may_come=False)
    undoing.close(0.5)
    ended()
    [error] = errors(caplog)
    assert 'instance away: given up' in error


def test_a_server_that_gets_something_else(undoing):
    """What it had is undone before, what may come is left to whoever asks, and while Placement
    does not answer it gets nothing."""
    had, comes = Script(AWAY, None), Script(AWAY, None)
    undoing.add('had', had, may_come=False)
    undoing.add('comes', comes, may_come=True)
    other = Script(AWAY)
    undoing.add('other', other, may_come=False)
    other.wait_for(1)
    assert undoing.settle(['had']) == []
    [task] = undoing.settle(['comes'])
    assert task.undo is comes
    assert undoing.settle(['comes']) == []
    with pytest.raises(PlacementUnavailable):
        undoing.settle(['other'])
    undoing.restore([task])
    assert undoing.settle(['comes']) == [task]
