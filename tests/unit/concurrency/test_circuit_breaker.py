# SPDX-License-Identifier: Apache-2.0
import threading
import time

import pytest

from novasched.concurrency.circuit_breaker import CircuitBreaker


class Patient:
    """A service that answers once it is well.

    :ivar asked: counts the probes.
    """

    def __init__(self):
        self.well = threading.Event()
        self.asked = threading.Semaphore(0)

    def probe(self):
        self.asked.release()
        if not self.well.is_set():
            raise OSError('no answer')

    def wait_for(self, probes):
        for _ in range(probes):
            assert self.asked.acquire(timeout=10)


@pytest.fixture
def patient():
    return Patient()


@pytest.fixture
def told():
    """The calls of ``on_change``."""
    return []


@pytest.fixture
def breaker(patient, told):
    breaker = CircuitBreaker(
        patient.probe, OSError, first=0.01, last=0.02, on_change=told.append
    )
    yield breaker
    breaker.stop()


def probing_threads():
    """The number of threads that probe."""
    return [thread.name for thread in threading.enumerate()].count('breaker')


def ended():
    """Wait for the probing threads to end."""
    for thread in threading.enumerate():
        if thread.name == 'breaker':
            thread.join(timeout=10)
    return probing_threads() == 0


def closed(breaker):
    return ended() and breaker.reason is None and breaker.wait_closed(0)


def test_the_circuit_is_open_until_a_probe_is_answered(breaker, patient, told):
    """The circuit is open for the first reason until a probe is answered, and may open
    again. A closed circuit is not probed."""
    assert closed(breaker)
    assert not patient.asked.acquire(blocking=False)
    for reason in ('silent', 'refused'):
        patient.well.clear()
        breaker.failed(reason, time.monotonic())
        breaker.failed('no more than one thread probes', time.monotonic())
        patient.wait_for(3)
        assert breaker.reason == reason
        assert not breaker.wait_closed(0)
        assert probing_threads() == 1

        patient.well.set()
        assert breaker.wait_closed(10)
        assert closed(breaker)

    assert told == ['silent', None, 'refused', None]


def test_a_slow_call_among_answered_calls_keeps_the_circuit_closed(
    breaker, patient, told
):
    """A slow answer does not open the circuit if other calls and the probe are
    answered."""
    patient.well.set()
    began = time.monotonic()
    breaker.succeeded()
    breaker.failed('silent for 60 s', began)
    patient.wait_for(1)
    assert closed(breaker)
    assert told == []


def test_a_failed_probe_opens_the_circuit_despite_earlier_answers(
    breaker, patient, told
):
    """If calls were answered during the failed call, the first failed probe opens the
    circuit."""
    began = time.monotonic()
    breaker.succeeded()
    breaker.failed('silent for 60 s', began)
    patient.wait_for(2)
    assert breaker.reason == 'silent for 60 s'

    patient.well.set()
    assert closed(breaker)
    assert told == ['silent for 60 s', None]


def test_a_failed_probe_keeps_the_circuit_closed_amid_answered_calls(told):
    """A failed probe does not open the circuit while other calls are answered."""

    def probe():
        breaker.succeeded()
        raise OSError('no answer')

    breaker = CircuitBreaker(probe, OSError, first=0.01, on_change=told.append)
    began = time.monotonic()
    breaker.succeeded()
    breaker.failed('silent', began)
    assert closed(breaker)
    assert told == []


def test_an_unexpected_probe_error_closes_the_circuit(patient, monkeypatch):
    """An unexpected error of a probe closes the circuit: a mistake in the probe must
    not keep callers away."""
    monkeypatch.setattr(threading, 'excepthook', lambda args: None)
    breaker = CircuitBreaker(patient.probe, ValueError, first=0.01)
    breaker.failed('silent', time.monotonic())
    assert closed(breaker)


def test_trouble_covers_all_unanswered_calls_until_an_answer(breaker, patient):
    """The trouble covers all calls without an answer, from the first to the last,
    including fast failures, until a call or a probe is answered."""
    assert breaker.trouble is None
    before = time.monotonic()
    breaker.missed('refused')
    first = breaker.trouble
    breaker.missed('reset')
    second = breaker.trouble
    assert before <= first.since == first.last == second.since <= second.last
    assert (first.why, second.why) == ('refused', 'reset')
    assert breaker.reason is None

    breaker.succeeded()
    assert breaker.trouble is None

    breaker.failed('silent', time.monotonic())
    since = breaker.trouble.since
    patient.wait_for(3)
    assert (breaker.trouble.since, breaker.trouble.why) == (since, 'silent')

    patient.well.set()
    assert closed(breaker)
    assert breaker.trouble is None


def test_stopping_ends_probes_and_releases_waiting_callers(breaker, patient):
    """Stopping ends the probes, and lets waiting callers go on."""
    breaker.failed('silent', time.monotonic())
    patient.wait_for(1)
    breaker.stop()
    assert breaker.wait_closed(0)
    assert ended()

    breaker.failed('after the end', time.monotonic())
    assert probing_threads() == 0
