# SPDX-License-Identifier: Apache-2.0
import threading

import pytest

from novasched.breaker import Breaker


class Patient:
    """Something that answers once it is well; ``asked`` counts the probes."""

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
def breaker(patient):
    breaker = Breaker(patient.probe, OSError, first=0.01, most=0.02)
    yield breaker
    breaker.close()


def closed(breaker):
    """Wait for the thread that probes to end."""
    for thread in threading.enumerate():
        if thread.name == 'breaker':
            thread.join(timeout=10)
    return breaker.why is None


def test_nobody_probes_what_answers(breaker, patient):
    assert breaker.why is None
    assert not patient.asked.acquire(blocking=False)


def test_it_is_left_alone_until_it_answers(breaker, patient):
    """It is asked again and again meanwhile, by nobody who waits."""
    breaker.trip('silent for 60 s')
    patient.wait_for(3)
    assert breaker.why == 'silent for 60 s'
    patient.well.set()
    assert closed(breaker)


def test_the_first_reason_stays(breaker, patient):
    assert breaker.trip('silent')
    assert not breaker.trip('refused')
    assert breaker.why == 'silent'
    assert [each.name for each in threading.enumerate()].count('breaker') == 1


def test_it_can_trip_again(breaker, patient):
    patient.well.set()
    for why in ('once', 'twice'):
        breaker.trip(why)
        assert breaker.why == why
        assert closed(breaker)


def test_an_error_that_nobody_expects(patient, monkeypatch):
    """What is wrong with the probe must not keep callers away."""
    monkeypatch.setattr(threading, 'excepthook', lambda args: None)
    breaker = Breaker(patient.probe, ValueError, first=0.01)
    breaker.trip('silent')
    assert closed(breaker)


def test_no_probe_outlives_the_process(breaker, patient):
    breaker.trip('silent')
    patient.wait_for(1)
    breaker.close()
    for thread in threading.enumerate():
        if thread.name == 'breaker':
            thread.join(timeout=10)
            assert not thread.is_alive()
    breaker.trip('after the end')
    assert [each.name for each in threading.enumerate()].count('breaker') == 0
