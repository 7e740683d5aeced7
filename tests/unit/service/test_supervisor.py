# SPDX-License-Identifier: Apache-2.0
"""Processes and signals: a small program instead of the scheduler, which says on its
output what it does. It is this module, run as ``python -m
tests.unit.service.test_supervisor FILE WORKERS [ASIDE]``: words in the file make it
fail or hang, a reload takes a while and says what the file holds when it begins, and
with ASIDE there is one more process, which is not vital.

The ends of the daemon, by signals and when its time is up, are in
``functional/test_process.py``.
"""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from novasched.service.supervisor import Job, Supervisor
from tests.lab.processes import Process, wait_until

WAIT = 20.0
TIMEOUT = 4  # seconds for the end


class Talkative:
    """A service. What is aside ends badly where it can."""

    def __init__(self, file, name=''):
        self.file = file
        self.name = name

    def start(self):
        say(f'{self.name}starting')
        text = self.file.read_text()
        if text == 'hang at start':
            threading.Event().wait()
        if text == 'fail at start':
            raise RuntimeError('as told')
        if text == 'break aside' and self.name:
            os._exit(3)
        say(f'{self.name}started')

    def beat(self):
        pass

    def reload(self):
        text = self.file.read_text()
        say(f'{self.name}reload {text}')
        time.sleep(0.05)
        if text == 'fail':
            raise RuntimeError('as told')

    def stop(self):
        say(f'{self.name}stopping')
        if self.name:
            os._exit(3)


def say(text):
    os.write(1, f'{text}\n'.encode())  # at once, since several processes write


def run(file, workers, aside):
    jobs = [Job(lambda: Talkative(file))] * workers
    if aside:
        beside = Talkative(file, 'aside ')
        jobs.append(Job(lambda: beside, 'aside', False, lambda: say('aside ended')))
    return Supervisor(jobs, lambda: TIMEOUT, lambda: say('master')).run()


class Program:
    """The program, and the file that it reads."""

    def __init__(self, folder):
        self.file = folder / 'file'
        self.file.write_text('')
        self.log = folder / 'log'

    def start(self, workers=1, *aside):
        command = [sys.executable, '-m', 'tests.unit.service.test_supervisor']
        command += [str(self.file), str(workers), *aside]
        root = Path(__file__).parents[3]
        self.process = Process(command, self.log, env=dict(os.environ), cwd=root)

    def lines(self):
        return self.log.read_text().splitlines()

    def says(self, text, times=1):
        wait_until(
            lambda: self.lines().count(text) >= times, WAIT, f'{text} in {self.lines()}'
        )

    def reload(self, text):
        self.file.write_text(text)
        os.kill(self.process.pid, signal.SIGHUP)

    def end(self, number=signal.SIGTERM):
        """Expect the status 0."""
        os.kill(self.process.pid, number)
        assert self.process.wait(WAIT) == 0


@pytest.fixture
def program(tmp_path):
    made = Program(tmp_path)
    yield made
    made.process.kill()


def test_end_of_a_start_that_hangs(program):
    """Who cannot begin has nothing to finish."""
    program.file.write_text('hang at start')
    program.start()
    program.says('starting')
    program.end()
    assert 'stopping' not in program.lines()


def test_the_last_reload_is_not_lost(program):
    """However fast SIGHUP comes, a reload begins after the last of them; many share
    one. Every worker stops in its own way."""
    program.start(2)
    program.says('started', 2)
    for number in range(200):
        program.reload(str(number))
    program.says('reload 199', 2)
    assert sum(line.startswith('reload') for line in program.lines()) < 2 * 200
    program.end(signal.SIGINT)
    assert program.lines().count('stopping') == 2


def test_a_reload_that_fails(program):
    """It is logged, and the worker lives."""
    program.start()
    program.says('started')
    for text in ('fail', 'well'):
        program.reload(text)
        program.says(f'reload {text}')
    assert program.lines().count('started') == 1


def test_a_worker_that_cannot_start(program):
    """It is tried again, and comes when it can."""
    program.file.write_text('fail at start')
    program.start()
    program.says('RuntimeError: as told')
    program.file.write_text('')
    program.says('started')


def test_what_is_not_vital(program):
    """A process beside the workers is started again when it dies, and told of when it
    has ended; it hears of signals as they do, and however it ends, the status is
    theirs."""
    program.file.write_text('break aside')
    program.start(1, 'aside')
    program.says('aside ended')
    program.file.write_text('')
    program.says('aside started')
    program.reload('now')
    program.says('aside reload now')
    program.says('reload now')
    program.end()
    assert program.lines().count('started') == 1
    assert program.lines().count('aside ended') >= 2


if __name__ == '__main__':
    sys.exit(run(Path(sys.argv[1]), int(sys.argv[2]), len(sys.argv) > 3))
