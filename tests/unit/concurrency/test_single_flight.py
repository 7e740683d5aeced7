# SPDX-License-Identifier: Apache-2.0
import contextlib
import gc
import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from novasched.concurrency import single_flight
from novasched.concurrency.single_flight import SingleFlight


class Work:
    """Work that ends when the test allows it, and returns the number of the run."""

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


def results(flights):
    return {flight.result(10) for flight in flights}


def callers(pool, count, flight, moment):
    """The futures of ``count`` callers of a flight at least as late as the moment."""
    return [pool.submit(flight.at_least, moment) for _ in range(count)]


def begun(pool, work, **how):
    """A flight in progress, and the future of the first caller."""
    flight = SingleFlight(work, **how)
    first = pool.submit(flight.at_least)
    assert work.begun.acquire(timeout=10)
    return flight, first


def test_callers_during_a_flight_share_the_next_flight(pool):
    """Callers arriving during a flight share the next flight."""
    flight, first = begun(pool, work := Work())
    moment = time.monotonic()
    others = callers(pool, 8, flight, moment)
    work.may_end.release(2)
    assert first.result(10) == 1
    assert results(others) == {2}


def test_the_next_flight_does_not_wait_for_a_stuck_flight(pool):
    """The next flight does not wait for a stuck flight for ever. Every caller gets the
    result of its own flight."""
    flight, first = begun(pool, work := Work(), stuck_after=0.01)
    second = pool.submit(flight.at_least)
    assert work.begun.acquire(timeout=10)
    work.may_end.release(2)

    assert results([first, second]) == {1, 2}
    assert flight.idle


def test_a_flight_that_began_late_enough_is_shared(monkeypatch):
    """A result serves only callers with a moment before or at the beginning of the
    flight."""
    results = iter('abc')
    flight = SingleFlight(lambda: next(results))
    clock = SimpleNamespace(monotonic=itertools.count(10, 10).__next__)
    monkeypatch.setattr(single_flight, 'time', clock)
    assert flight.at_least() == 'a'  # asked at 10, began at 20
    assert flight.at_least(20) == 'a'
    assert flight.at_least(20.5) == 'b'


def test_a_failure_is_shared_and_then_forgotten(pool):
    """Callers of a flight share its failure. A later caller starts a new flight."""
    flight, first = begun(pool, work := Work(2))
    moment = time.monotonic()
    others = callers(pool, 3, flight, moment)
    work.may_end.release()
    assert first.result(10) == 1

    work.begun.acquire()
    work.may_end.release(2)

    errors = [flight.exception(10) for flight in others]
    assert any(isinstance(error, OSError) for error in errors)
    assert flight.at_least(moment) == 3


def test_an_error_is_freed_with_the_last_caller():
    """An error is freed with the last caller, without the garbage collector."""

    class Failure(Exception):
        pass

    def fail():
        raise Failure

    flight = SingleFlight(fail)
    gc.disable()
    try:
        for _ in range(3):
            with contextlib.suppress(Failure):
                flight.at_least()
        left = [each for each in gc.get_objects() if isinstance(each, Failure)]
    finally:
        gc.enable()
    assert len(left) <= 1, 'the last flight has its own'


@pytest.mark.parametrize('threads', [2, 16])
def test_no_result_is_older_than_the_call(pool, threads):
    """Under any interleaving a result is at least as new as the call, and flights do
    not overlap."""
    running = threading.Semaphore(1)
    writing = threading.Lock()
    newest = [0]

    def work():
        assert running.acquire(blocking=False)
        seen = newest[0]
        running.release()
        return seen

    flight = SingleFlight(work)

    def ask(_):
        with writing:
            newest[0] = mine = newest[0] + 1
        return flight.at_least() >= mine

    assert all(pool.map(ask, range(500 * threads)))


def test_callers_while_a_flight_gathers_share_the_flight(pool):
    gathering = threading.Event()
    come = threading.Event()

    def gather():
        gathering.set()
        assert come.wait(10)

    numbers = itertools.count(1)
    flight = SingleFlight(lambda: next(numbers), gather=gather)
    first = pool.submit(flight.at_least)
    assert gathering.wait(10)
    others = callers(pool, 4, flight, time.monotonic())
    come.set()
    assert results([first, *others]) == {1}
