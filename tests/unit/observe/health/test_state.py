# SPDX-License-Identifier: Apache-2.0
"""The states of health, as transcripts with a clock that is handed in."""

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
        """Let everybody who is not silent report each second; ``work`` is what workers
        report, by the time."""
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
    """What does not pass, and the status of all together."""
    found = {
        name: check.status for name, check in checks.items() if check.status != 'pass'
    }
    return overall(checks.values()), found


def test_the_start():
    """Nobody is missed yet, so that nobody restarts what has just been started; but it
    is not ready before a worker takes requests and has read hosts."""
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
def test_a_process_that_hangs(name):
    """It is a warning when its last report is no longer valid, and a failure when that
    lasts; it passes with the next report. Other workers still serve."""
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


def test_all_workers_hang():
    """What they have reported is discarded, and nothing is known any more."""
    daemon = Daemon(workers=2)
    daemon.pass_time(5)
    daemon.pass_time(11, silent=['worker:0', 'worker:1'])
    assert daemon.ready() == ('fail', {'workers': 'fail'})
    assert list(daemon.state.readiness()) == ['workers']


def test_who_never_reports():
    """A server that was started again does not know who hangs since before; it finds
    out."""
    daemon = Daemon()
    daemon.pass_time(11, silent=['worker:0'])
    assert daemon.live() == ('warn', {'worker:0': 'warn'})
    daemon.pass_time(20, silent=['worker:0'])
    assert daemon.live() == ('fail', {'worker:0': 'fail'})


def test_a_worker_that_is_started_again():
    """For a minute it is shown, which no probe takes for a failure."""
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
def test_threads_that_do_not_move(fields, status):
    """All of them busy for longer than nova.conf lets a request take is a hang, and
    nothing else."""
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
def test_what_the_work_has_met(seconds, fields, found):
    """A warning while requests wait, and a failure once they are refused; it is over
    with the first answer, and never a matter of liveness."""
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


def test_one_of_two_workers():
    """What fails for one of them alone is a warning: the other one serves."""
    daemon = Daemon(workers=2)
    lost = iter(range(1000))
    daemon.pass_time(
        50,
        work=lambda now: replace(IDLE, connected_at=1000.0 if next(lost) % 2 else now),
    )
    assert daemon.ready() == ('warn', {'message_bus': 'warn'})


def test_the_document():
    """It has the form that nova's specification describes."""
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
