# SPDX-License-Identifier: Apache-2.0
import contextlib
import gc
import itertools
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from novasched.turns import Company, Turns


class Work:
    """Work that ends when it is told to, and gives its number."""

    def __init__(self, *failures):
        self.failures = failures
        self.numbers = itertools.count(1)
        self.begun = threading.Semaphore(0)
        self.may_end = threading.Semaphore(0)

    def __call__(self):
        number = next(self.numbers)
        self.begun.release()
        assert self.may_end.acquire(timeout=10)
        if number in self.failures:
            raise OSError(number)
        return number


@pytest.fixture
def pool():
    with ThreadPoolExecutor(20) as pool:
        yield pool


def test_who_comes_during_a_turn_shares_the_next(pool):
    """However many come while the work is done, it is done once more for all of them."""
    work = Work()
    turns = Turns(work)
    first = pool.submit(turns.since)
    work.begun.acquire()
    moment = turns._clock()
    others = [pool.submit(turns.since, moment) for _ in range(8)]
    work.may_end.release(2)
    assert first.result(10) == 1
    assert {each.result(10) for each in others} == {2}


def test_a_turn_that_began_late_enough_is_good_enough():
    """A result is shared with whoever arrived before its turn began, and with nobody else."""
    clock = itertools.count(10, 10).__next__
    results = iter('abc')
    turns = Turns(lambda: next(results), clock)
    assert turns.since() == 'a'  # asked at 10, began at 20
    assert turns.since(20) == 'a'
    assert turns.since(20.5) == 'b'


def test_a_failure_is_shared_and_then_forgotten(pool):
    """Those who share a turn share its failure; whoever asks afterwards has it done again."""
    work = Work(2)
    turns = Turns(work)
    first = pool.submit(turns.since)
    work.begun.acquire()
    moment = turns._clock()
    others = [pool.submit(turns.since, moment) for _ in range(3)]
    work.may_end.release()
    assert first.result(10) == 1
    work.begun.acquire()
    work.may_end.release(2)
    ends = [each.exception(10) for each in others]
    assert any(isinstance(end, OSError) for end in ends)
    assert turns.since(moment) == 3


def test_nothing_is_left_of_a_failure():
    """Whoever hears of it has it, and nobody else."""

    class Failure(Exception):
        pass

    def fail():
        raise Failure

    turns = Turns(fail)
    gc.disable()
    try:
        for _ in range(3):
            with contextlib.suppress(Failure):
                turns.since()
        left = [each for each in gc.get_objects() if isinstance(each, Failure)]
    finally:
        gc.enable()
    assert len(left) <= 1, 'the last turn has its own'


@pytest.mark.parametrize('threads', [2, 16])
def test_nobody_gets_what_began_before_they_came(pool, threads):
    """Under any interleaving a result is at least as new as the question, and only one turn
    runs at a time."""
    running = threading.Semaphore(1)
    writing = threading.Lock()
    newest = [0]

    def work():
        assert running.acquire(blocking=False)
        seen = newest[0]
        running.release()
        return seen

    turns = Turns(work)

    def ask(_):
        with writing:
            newest[0] = mine = newest[0] + 1
        return turns.since() >= mine

    assert all(pool.map(ask, range(500 * threads)))


class Hand:
    """A clock that stands still."""

    now = 100.0

    def __call__(self):
        return self.now


@pytest.mark.parametrize('set_out', [[], [99.9], [99.9, 50.0]])
def test_nobody_waits_for_who_is_late(set_out):
    """One who set out long ago has given up, and who is alone does not wait at all."""
    company = Company(patience=0.05, most=60, clock=Hand())
    for moment in set_out:
        company.expect(moment)
    company.gather()


def test_who_is_about_to_come_is_waited_for(pool):
    """The others begin once everybody is there who set out in time."""
    company = Company(patience=60, most=60, clock=Hand())
    company.expect(99)
    company.expect(98)
    gathered = pool.submit(company.gather)
    company.arrived(99)
    assert not gathered.done()
    company.arrived(98)
    gathered.result(10)


def test_there_is_an_end_to_waiting():
    """However many set out one after another, who waits for them begins at last."""
    company = Company(patience=60, most=0)
    company.expect(company._clock())
    company.gather()


def test_a_turn_waits_for_company(pool):
    """Whoever comes while a turn gathers shares that turn."""
    gathering, come = threading.Event(), threading.Event()

    def gather():
        gathering.set()
        assert come.wait(10)

    numbers = itertools.count(1)
    turns = Turns(lambda: next(numbers), gather=gather)
    first = pool.submit(turns.since)
    assert gathering.wait(10)
    others = [pool.submit(turns.since, turns._clock()) for _ in range(4)]
    come.set()
    assert {each.result(10) for each in (first, *others)} == {1}
