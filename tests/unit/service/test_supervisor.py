# SPDX-License-Identifier: Apache-2.0
"""Processes and signals, with a small program in place of the scheduler.

The program is this module, run as ``python -m tests.unit.service.test_supervisor FILE
WORKERS [ASIDE]``. The program prints each step. Words in the file make the program fail
or hang. A reload takes a moment, and prints the text of the file at its begin. With
ASIDE, the program has a further process, which is not vital.

The end of the daemon, by signals and by timeout, is tested in
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
TIMEOUT = 4
"""Seconds for the end of the processes."""


class Talkative:
    """A service that prints each step; with a name, the service ends with an error."""

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
    # A single write, since several processes write to the same output.
    os.write(1, f'{text}\n'.encode())


def run(file, workers, aside):
    jobs = [Job(lambda: Talkative(file))] * workers
    if aside:
        beside = Talkative(file, 'aside ')
        jobs.append(Job(lambda: beside, 'aside', False, lambda: say('aside ended')))
    return Supervisor(jobs, lambda: TIMEOUT, lambda: say('master')).run()


class Program:
    """The program, and the file for the program."""

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
        def is_said():
            return self.lines().count(text) >= times

        wait_until(is_said, WAIT, f'{text} in {self.lines()}')

    def reload(self, text):
        self.file.write_text(text)
        os.kill(self.process.pid, signal.SIGHUP)

    def end(self, number=signal.SIGTERM):
        """End the program, and expect the exit status 0."""
        os.kill(self.process.pid, number)
        assert self.process.wait(WAIT) == 0


@pytest.fixture
def program(tmp_path):
    program = Program(tmp_path)
    yield program
    program.process.kill()


def test_a_worker_that_hangs_at_start_ends_on_sigterm(program):
    """A worker that has not started has no requests to finish."""
    program.file.write_text('hang at start')
    program.start()
    program.says('starting')

    program.end()

    assert 'stopping' not in program.lines()


def test_the_last_reload_is_not_lost(program):
    """A reload begins after the last SIGHUP, however fast the signals come, and many
    signals share a reload."""
    program.start(2)
    program.says('started', 2)

    for number in range(200):
        program.reload(str(number))

    program.says('reload 199', 2)
    reloads = [line for line in program.lines() if line.startswith('reload')]
    assert len(reloads) < 2 * 200

    program.end(signal.SIGINT)
    assert program.lines().count('stopping') == 2


def test_a_worker_survives_a_failed_reload(program):
    """The worker survives a failed reload."""
    program.start()
    program.says('started')

    for text in ('fail', 'well'):
        program.reload(text)
        program.says(f'reload {text}')

    assert program.lines().count('started') == 1


def test_a_worker_that_fails_to_start_is_started_again(program):
    """A worker that fails to start is started again."""
    program.file.write_text('fail at start')
    program.start()
    program.says('RuntimeError: as told')

    program.file.write_text('')
    program.says('started')


def test_a_process_that_is_not_vital_is_started_again(program):
    """A process that is not vital is started again after its end, and gets the same
    signals as the workers. Its exit status does not count."""
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
