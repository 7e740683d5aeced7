# SPDX-License-Identifier: Apache-2.0
"""The reports of a process, and their way to the HTTP process."""

import os
import socket

import pytest

from novasched.observe.health.state import from_json
from novasched.observe.health.vitals import Vitals


@pytest.fixture
def channel():
    """Both ends of the pair of sockets."""
    inbox, outbox = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with inbox, outbox:
        for each in (inbox, outbox):
            each.setblocking(False)
        yield inbox, outbox


def test_a_process_does_not_wait_for_a_reader_of_reports(channel):
    """A process does not wait for a reader of its reports."""
    vitals = Vitals(channel[1], 'main')
    for _ in range(10_000):
        vitals()
    assert from_json(channel[0].recv(1000)).pid == os.getpid()


def test_a_report_is_sent_although_the_description_fails(channel, caplog):
    """A report without work is sent all the same, and the log has the error once."""

    def fail():
        raise RuntimeError('as told')

    vitals = Vitals(channel[1], 'worker:0', fail)
    for _ in range(2):
        vitals()
        report = from_json(channel[0].recv(1000))
        assert (report.name, report.work) == ('worker:0', None)
    assert len(caplog.records) == 1
