# SPDX-License-Identifier: Apache-2.0
"""The processes of the daemon: a master, and those that it forks and keeps alive.

============  ==========================================================================
SIGHUP        every process reloads, and goes on serving meanwhile
SIGTERM       every process finishes what is in progress; the status is 0 if all of it was
SIGINT        the same
the second    everything ends at once
============  ==========================================================================

Only the master counts signals: a terminal or systemd may send the same one to the others,
too, which then take it and the master's own for one.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent import futures
from dataclasses import dataclass
from typing import NoReturn, Protocol

from oslo_service import systemd

from novasched.errors import NovaschedError
from novasched.processes import entitle

LOG = logging.getLogger(__name__)
ENDS = frozenset({signal.SIGTERM, signal.SIGINT})
HEARD = ENDS | {signal.SIGHUP, signal.SIGCHLD}
READ = 4096  # bytes, of which each is a signal
PAUSE = 1.0  # seconds from one start of a process to the next
PATIENCE = 2.0  # seconds for a start that is under way when the process shall stop
DONE, FAILED = 0, 1


class Service(Protocol):
    """What a process does. Each method is called in another thread than the others."""

    def start(self) -> None:
        """Begin to serve, and return."""

    def reload(self) -> None:
        """Read what may have changed, and serve meanwhile."""

    def stop(self) -> None:
        """Take no more requests, and return when those in progress are answered."""


def _nothing() -> None:
    """Nothing is to be done."""


@dataclass(frozen=True, slots=True)
class Job:
    """What one process is for: ``make`` is called in there, ``ended`` in the master when it is
    gone. If it is not ``vital``, its failure is not the daemon's."""

    make: Callable[[], Service]
    title: str = 'worker'
    vital: bool = True
    ended: Callable[[], None] = _nothing


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run, a process for each job. ``timeout`` gives the seconds that they have for
    what is in progress, 0 for as many as they need; ``reload`` is the master's own part of a
    SIGHUP."""

    jobs: Sequence[Job]
    timeout: Callable[[], int]
    reload: Callable[[], None]


class Signals:
    """The signals that come to this process, whichever thread the system gives them to.

    Those that come again before they are waited for count once; none is lost.
    """

    def __init__(self) -> None:
        self._pipe, mouth = os.pipe()
        os.set_blocking(mouth, False)
        signal.set_wakeup_fd(mouth, warn_on_full_buffer=False)
        for number in HEARD:
            signal.signal(number, lambda *_: None)

    def wait(self, seconds: float | None = None) -> frozenset[int]:
        """The next signals; none of them after so many seconds."""
        ready, _, _ = select.select([self._pipe], [], [], seconds)
        return frozenset(os.read(self._pipe, READ)) if ready else frozenset()


@dataclass(frozen=True, slots=True)
class _Begun:
    """A process, and when it was started (monotonic seconds)."""

    job: Job
    moment: float


class Supervisor:
    """The master process."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._begun: dict[int, _Begun] = {}  # by pid
        self._failed = False
        # Never written to: a worker reads its end when the master is gone.
        self._life, self._hold = os.pipe()

    def run(self) -> int:
        """Run the processes until a signal ends them; the answer is the exit status."""
        entitle(f'master process [{" ".join(sys.argv)}]')
        signals = Signals()
        for job in self._plan.jobs:
            self._fork(job)
        systemd.notify_once()
        while not (got := signals.wait()) & ENDS:
            if signal.SIGHUP in got:
                self._plan.reload()
                self._send(signal.SIGHUP)
            for begun in self._reap():
                # One that cannot start is not tried more often than this.
                time.sleep(max(0.0, begun.moment + PAUSE - time.monotonic()))
                self._fork(begun.job)
        return self._stop(signals)

    def _stop(self, signals: Signals) -> int:
        seconds = self._plan.timeout()
        LOG.info('Stopping: requests in progress have %s', f'{seconds} s' if seconds else 'time')
        until = time.monotonic() + seconds if seconds else None
        self._failed = False
        self._send(signal.SIGTERM)
        while self._begun:
            left = None if until is None else max(0.0, until - time.monotonic())
            got = signals.wait(left)
            for _ in self._reap():
                pass
            if self._begun and (got & ENDS or left == 0.0):
                LOG.warning('Not all requests in progress are finished; ending at once')
                self._send(signal.SIGKILL)
                return FAILED
        return FAILED if self._failed else DONE

    def _send(self, number: int) -> None:
        for pid in self._begun:
            os.kill(pid, number)  # at the least a zombie, until it is reaped

    def _reap(self) -> Iterable[_Begun]:
        """The processes that have ended since the last time."""
        for pid, begun in list(self._begun.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                code = os.waitstatus_to_exitcode(status)
                LOG.info('%s %d ended with status %d', begun.job.title.capitalize(), pid, code)
                self._failed |= begun.job.vital and code != DONE
                del self._begun[pid]
                begun.job.ended()
                yield begun

    def _fork(self, job: Job) -> None:
        # What is sent to the new process before it listens, waits; it does not go into the
        # pipe that this one reads.
        signal.pthread_sigmask(signal.SIG_BLOCK, HEARD)
        pid = os.fork()
        if not pid:
            self._work(job)
        self._begun[pid] = _Begun(job, time.monotonic())
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HEARD)

    def _work(self, job: Job) -> NoReturn:
        """The life of a process."""
        status = FAILED
        try:
            signals = Signals()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, HEARD)
            os.close(self._hold)
            threading.Thread(target=self._end_with_master, daemon=True).start()
            entitle(f'{job.title} (novasched)')
            status = work(job.make(), signals)
        except NovaschedError as error:
            LOG.critical('%s', error)
        except BaseException:  # there is nobody above who could tell
            LOG.exception('A process fails: %s', job.title)
        # A thread that hangs, on a database for instance, keeps nobody alive.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)

    def _end_with_master(self) -> None:
        os.read(self._life, 1)
        LOG.error('The master process has died; ending')
        os.kill(os.getpid(), signal.SIGTERM)
        if seconds := self._plan.timeout():
            time.sleep(seconds)
            os._exit(FAILED)


def work(service: Service, signals: Signals) -> int:
    """Run a service in this process until a signal ends it; the answer is the exit status.

    Start and reloads come one after the other, in a thread of their own, so that the end
    need not wait for them. A reload begins after the last SIGHUP, and sees what the sender
    has done before.

    :raises Exception: the start does.
    """
    orders = futures.ThreadPoolExecutor(1, thread_name_prefix='orders')
    start = orders.submit(_started, service)
    reload = start
    while not (got := signals.wait()) & ENDS:
        if signal.SIGHUP in got and (reload is start or reload.running() or reload.done()):
            reload = orders.submit(_reloaded, service)
    done, _ = futures.wait([start], timeout=PATIENCE)
    if done:
        start.result()
        service.stop()
    # Else it waits for something that it needs before it takes a request.
    return DONE


def _started(service: Service) -> None:
    try:
        service.start()
    except BaseException:
        os.kill(os.getpid(), signal.SIGTERM)
        raise


def _reloaded(service: Service) -> None:
    try:
        service.reload()
    except NovaschedError as error:
        LOG.error('SIGHUP: all stays as it was: %s', error)
    except Exception:  # a bug, which costs the reload alone
        LOG.exception('SIGHUP: all stays as it was')
