# SPDX-License-Identifier: Apache-2.0
"""Processes and signals: a small program instead of the scheduler."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.lab.processes import Process, wait_until

WAIT = 20.0


class Program:
    """The program of supervised.py, and the file that it reads."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / 'file'
        self.file.write_text('')
        self.log = folder / 'log'

    def start(self, workers: int = 1, *aside: str) -> Process:
        words = [str(self.file), str(workers), *aside]
        command = [sys.executable, '-m', 'tests.unit.service.supervised', *words]
        root = Path(__file__).parents[3]
        self.process = Process(command, self.log, env=dict(os.environ), cwd=root)
        return self.process

    def lines(self) -> list[str]:
        return self.log.read_text().splitlines()

    def says(self, text: str, times: int = 1) -> None:
        wait_until(lambda: self.lines().count(text) >= times, WAIT, f'{text} in {self.lines()}')

    def send(self, number: int) -> None:
        os.kill(self.process.pid, number)


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    made = Program(tmp_path)
    yield made
    made.process.kill()


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize('workers', [1, 3])
def test_end(program: Program, number: int, workers: int) -> None:
    """Every worker stops in its own way, and the status is 0."""
    program.start(workers)
    program.says('started', workers)
    program.send(number)
    assert program.process.wait(WAIT) == 0
    assert program.lines().count('stopping') == workers


def hang(program: Program) -> None:
    """Nothing more; the time runs out."""


def again(program: Program) -> None:
    """The second signal."""
    program.says('stopping')
    program.send(signal.SIGTERM)


@pytest.mark.parametrize('further', [hang, again])
def test_end_at_once(program: Program, further: Callable[[Program], None]) -> None:
    """A worker that does not stop is killed when its time is up, or at a second signal."""
    program.start()
    program.says('started')
    program.file.write_text('hang')
    program.send(signal.SIGTERM)
    further(program)
    assert program.process.wait(WAIT) == 1


def test_end_of_a_start_that_hangs(program: Program) -> None:
    """Who cannot begin has nothing to finish."""
    program.file.write_text('hang at start')
    program.start()
    program.says('starting')
    program.send(signal.SIGTERM)
    assert program.process.wait(WAIT) == 0
    assert 'stopping' not in program.lines()


def test_the_last_reload_is_not_lost(program: Program) -> None:
    """However fast SIGHUP comes, a reload begins after the last of them; many share one."""
    program.start(2)
    program.says('started', 2)
    for number in range(200):
        program.file.write_text(str(number))
        program.send(signal.SIGHUP)
    program.says('reload 199', 2)
    assert sum(line.startswith('reload') for line in program.lines()) < 2 * 200
    program.send(signal.SIGTERM)
    assert program.process.wait(WAIT) == 0


def test_a_reload_that_fails(program: Program) -> None:
    """It is logged, and the worker lives."""
    program.start()
    program.says('started')
    program.file.write_text('fail')
    program.send(signal.SIGHUP)
    program.says('reload fail')
    program.file.write_text('well')
    program.send(signal.SIGHUP)
    program.says('reload well')
    assert program.lines().count('started') == 1


def test_a_worker_that_cannot_start(program: Program) -> None:
    """It is tried again, and comes when it can."""
    program.file.write_text('fail at start')
    program.start()
    wait_until(lambda: 'RuntimeError: as told' in program.lines(), WAIT, 'failure')
    program.file.write_text('')
    program.says('started')


def test_what_is_not_vital(program: Program) -> None:
    """A process beside the workers is started again when it dies, and told of when it has ended;
    it hears of signals as they do, and however it ends, the status is theirs."""
    program.file.write_text('break aside')
    program.start(1, 'aside')
    program.says('aside ended')
    program.file.write_text('')
    program.says('aside started', 2)
    program.send(signal.SIGHUP)
    program.says('aside reload')
    program.says('reload ')
    program.send(signal.SIGTERM)
    assert program.process.wait(WAIT) == 0
    assert program.lines().count('started') == 1
    assert program.lines().count('aside ended') >= 2
