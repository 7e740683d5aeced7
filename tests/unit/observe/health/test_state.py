# SPDX-License-Identifier: Apache-2.0
"""Transcripts of health, with a clock that the test sets."""

from dataclasses import replace

import pytest

from novasched.concurrency.circuit_breaker import Trouble
from novasched.observe.health.state import (
    CellReport,
    HealthState,
    ProcessReport,
    WorkReport,
    from_json,
    overall,
    to_json,
)

PATIENCE = 30.0
IDLE = WorkReport(
    connected_at=0.0,
    moved=0.0,
    max_request_s=360.0,
    done=0,
    in_progress=0,
    threads=4,
    waiting=0,
    hosts={'up': 2},
    read_at=0.0,
    peers=0,
    cells=(CellReport('u1', 'c1', 1), CellReport('u2', 'c2', 1)),
)


class Daemon:
    """A main process and workers that report, and the time."""

    def __init__(self, workers=1):
        self.now = 1000.0
        names = ['main', *(f'worker:{number}' for number in range(workers))]
        self.state = HealthState(names, PATIENCE, PATIENCE, lambda: self.now)
        self.pids = dict(zip(names, range(100, 200), strict=False))

    def pass_time(self, seconds, silent=(), work=None):
        """Have all processes report each second that are not silent. ``work`` makes the
        report of a worker by the time."""
        for _ in range(int(seconds)):
            self.now += 1
            for name in self.pids.keys() - set(silent):
                self.report(name, work)

    def report(self, name, work=None):
        found = None if name == 'main' else work(self.now) if work else self.idle()
        self.state.hear(
            from_json(
                to_json(ProcessReport(name, self.pids[name], 0.0, self.now, found))
            )
        )

    def idle(self):
        return replace(IDLE, connected_at=self.now, moved=self.now, read_at=self.now)

    def live(self):
        return statuses(self.state.liveness())

    def ready(self):
        return statuses(self.state.readiness())


def statuses(checks):
    """The overall status, and the items that do not pass."""
    found = {}
    for name, check in checks.items():
        if check.status != 'pass':
            found[name] = check.status
    return overall(checks.values()), found


def test_readiness_fails_at_the_start_and_liveness_passes():
    """At the start no process is missed, so liveness passes. Readiness fails until a
    worker takes requests and has read the hosts."""
    daemon = Daemon()
    assert daemon.live() == ('pass', {})
    assert daemon.ready() == ('fail', {'workers': 'fail'})
    for seconds in (1, 100):  # a database may take so long
        daemon.pass_time(seconds, work=lambda now: None)
        assert daemon.live() == ('pass', {})
        assert daemon.ready() == ('fail', {'message_bus': 'fail'})
    daemon.pass_time(
        1, work=lambda now: replace(IDLE, connected_at=now, hosts=None, read_at=None)
    )
    assert daemon.ready() == ('fail', {'hosts': 'fail'})
    daemon.pass_time(1)
    assert daemon.ready() == ('pass', {})


@pytest.mark.parametrize('name', ['main', 'worker:1'])
def test_a_hanging_process_is_a_warning_and_then_a_failure(name):
    """A process is a warning when its last report expires, and a failure after a longer
    silence. The next report passes. Meanwhile the remaining worker serves."""
    daemon = Daemon(workers=2)
    daemon.pass_time(5)
    daemon.pass_time(10, silent=[name])
    assert daemon.live() == ('pass', {})
    daemon.pass_time(1, silent=[name])
    assert daemon.live() == ('warn', {name: 'warn'})
    daemon.pass_time(20, silent=[name])
    assert daemon.live() == ('fail', {name: 'fail'})
    assert daemon.ready() == (
        ('pass', {}) if name == 'main' else ('warn', {'workers': 'warn'})
    )
    daemon.pass_time(1)
    assert daemon.live() == ('pass', {})
    assert daemon.ready() == ('pass', {})


def test_readiness_fails_if_all_workers_hang():
    """Expired reports are discarded, so nothing is known of RabbitMQ, Placement and the
    databases."""
    daemon = Daemon(workers=2)
    daemon.pass_time(5)
    daemon.pass_time(11, silent=['worker:0', 'worker:1'])
    assert daemon.ready() == ('fail', {'workers': 'fail'})
    assert list(daemon.state.readiness()) == ['workers']


def test_a_process_that_never_reports_becomes_a_failure():
    """A restarted HTTP process finds out which process hangs since before."""
    daemon = Daemon()
    daemon.pass_time(11, silent=['worker:0'])
    assert daemon.live() == ('warn', {'worker:0': 'warn'})
    daemon.pass_time(20, silent=['worker:0'])
    assert daemon.live() == ('fail', {'worker:0': 'fail'})


def test_a_restarted_worker_is_a_warning_for_a_minute():
    """A restart is a warning for a minute, and fails no probe."""
    daemon = Daemon()
    daemon.pass_time(5)
    daemon.pids['worker:0'] = 999
    daemon.pass_time(60)
    assert daemon.live() == ('warn', {'worker:0': 'warn'})
    assert '101 has ended' in daemon.state.liveness()['worker:0'].output
    assert daemon.state.status('h', '1')['processes'][1]['restarts'] == 1
    daemon.pass_time(2)
    assert daemon.live() == ('pass', {})


@pytest.mark.parametrize(
    ('fields', 'status'),
    [
        ({'in_progress': 3}, 'pass'),
        ({'in_progress': 4, 'max_request_s': None}, 'pass'),
        ({'in_progress': 4, 'max_request_s': 500.0}, 'pass'),
        ({'in_progress': 4}, 'fail'),
        ({'in_progress': 5}, 'fail'),  # one of them is a ping
    ],
)
def test_a_worker_fails_if_all_threads_are_busy_for_too_long(fields, status):
    """A worker hangs if all its threads are busy for longer than nova.conf lets a
    request take."""
    daemon = Daemon()
    daemon.pass_time(
        400, work=lambda now: replace(IDLE, connected_at=now, moved=1010.0, **fields)
    )
    assert daemon.live()[0] == status


def trouble(since, last=None):
    return Trouble(
        1000.0 + since, 1000.0 + (since if last is None else last), 'refused'
    )


CELLS = IDLE.cells
AWAY = trouble(10, 50)
TROUBLES = [
    # seconds since the start, what the worker has met, and what does not pass
    (12, {'connected_at': 1010.0}, {}),
    (16, {'connected_at': 1010.0}, {'message_bus': 'warn'}),
    (41, {'connected_at': 1010.0}, {'message_bus': 'fail'}),
    (99, {'connected_at': None}, {}),
    (12, {'shares': False}, {'peers': 'warn'}),
    (99, {'shares': False}, {'peers': 'warn'}),
    (39, {'troubles': {'placement': AWAY}}, {'placement': 'warn'}),
    (40, {'troubles': {'placement': AWAY}}, {'placement': 'fail'}),
    (170, {'troubles': {'placement': AWAY}}, {'placement': 'fail'}),
    (171, {'troubles': {'placement': AWAY}}, {'placement': 'warn'}),  # unknown
    (99, {'troubles': {'database': AWAY}}, {'database': 'warn'}),
    (99, {'troubles': {'api_database': AWAY}}, {'api_database': 'warn'}),
    (99, {'cells': (replace(CELLS[0], trouble=AWAY), CELLS[1])}, {'cell:c1': 'warn'}),
    (
        39,
        {'cells': [replace(x, trouble=AWAY) for x in CELLS]},
        {'cell:c1': 'warn', 'cell:c2': 'warn'},
    ),
    (
        40,
        {'cells': [replace(x, trouble=AWAY) for x in CELLS]},
        {'cell:c1': 'fail', 'cell:c2': 'fail'},
    ),
    (99, {'cells': (replace(CELLS[0], trouble=AWAY, disabled=True), CELLS[1])}, {}),
    (
        99,
        {'cells': [replace(CELLS[0], trouble=AWAY), replace(CELLS[1], name='c1')]},
        {'cell:u1': 'warn'},
    ),
]


@pytest.mark.parametrize(('seconds', 'fields', 'found'), TROUBLES)
def test_troubles_of_a_worker_affect_readiness_but_not_liveness(seconds, fields, found):
    """Readiness is a warning while requests wait, and a failure once requests are
    refused. The first answer ends both. Liveness passes throughout."""
    daemon = Daemon()
    daemon.pass_time(
        seconds, work=lambda now: replace(IDLE, **{'connected_at': now, **fields})
    )
    whole = max(found.values(), default='pass', key=['pass', 'warn', 'fail'].index)
    assert daemon.ready() == (whole, found)
    assert daemon.live() == ('pass', {})
    for name in found:
        assert daemon.state.readiness()[name].output
    daemon.pass_time(1)
    assert daemon.ready() == ('pass', {})


def test_a_failure_of_a_single_worker_is_a_warning():
    """A failure of one worker is a warning, because the second worker serves."""
    daemon = Daemon(workers=2)
    lost = iter(range(1000))
    daemon.pass_time(
        50,
        work=lambda now: replace(IDLE, connected_at=1000.0 if next(lost) % 2 else now),
    )
    assert daemon.ready() == ('warn', {'message_bus': 'warn'})


def test_the_health_document_has_the_form_of_nova():
    """The document has the form of nova's specification."""
    daemon = Daemon()
    daemon.pass_time(41, work=lambda now: replace(IDLE, connected_at=1010.0))
    found = daemon.state.document(daemon.state.readiness(), 'controller-1')
    bus = found['checks'].pop('message_bus')
    assert (bus['status'], bus['output']) == ('fail', 'no connection for 31 s')
    assert found['checks'].pop('placement').keys() == {'status', 'time'}
    assert {name: found[name] for name in found if name != 'checks'} == {
        'status': 'fail', 'version': '1.0', 'description': 'nova-scheduler',
        'notes': {'host': 'controller-1'},
    }  # fmt: skip
