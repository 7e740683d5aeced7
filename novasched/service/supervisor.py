# SPDX-License-Identifier: Apache-2.0
"""The processes of the daemon: a master, and those that it forks and keeps alive.

SIGHUP
    Every process reloads its configuration and goes on serving meanwhile.
SIGTERM, SIGINT
    Every process finishes the work in progress; the exit status is 0 if all of it was
    finished. A second signal ends every process at once.

Only the master counts signals: a terminal or systemd may send the same one to the
others, too, which then take it and the master's own for one.
"""

import logging
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from dataclasses import dataclass
from typing import NoReturn, Protocol

from oslo_service import systemd

from novasched.conf.errors import NovaschedError
from novasched.service.runtime import set_process_title

LOG = logging.getLogger(__name__)
STOP_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT})
HANDLED_SIGNALS = STOP_SIGNALS | {signal.SIGHUP, signal.SIGCHLD}
PIPE_READ_BYTES = 4096  # bytes, of which each is a signal
RESTART_INTERVAL_S = 1.0  # seconds from one start of a process to the next
BEAT_INTERVAL_S = 1.0  # seconds from one sign of life to the next
START_TIMEOUT_S = (
    2.0  # seconds for a start that is under way when the process shall stop
)
EXIT_OK = 0
EXIT_FAILED = 1


class ProcessService(Protocol):
    """The work of a process. Each method is called in another thread than the
    others."""

    def start(self) -> None:
        """Begin to serve, and return."""

    def beat(self) -> None:
        """Show that this process moves; called each second, and returns at once."""

    def reload(self) -> None:
        """Read what may have changed, and serve meanwhile."""

    def stop(self) -> None:
        """Take no more requests, and return when those in progress are answered."""


@dataclass(frozen=True, slots=True)
class Job:
    """One process: ``make`` is called in there, ``ended`` in the master when it is
    gone. If it is not ``vital``, its failure is not the daemon's."""

    make: Callable[[], ProcessService]
    title: str = 'worker'
    vital: bool = True
    ended: Callable[[], None] | None = None


class Signals:
    """The signals that come to this process, whichever thread the system gives them to.

    Those that come again before they are waited for count once; none is lost.
    """

    def __init__(self) -> None:
        self._pipe, mouth = os.pipe()
        os.set_blocking(mouth, False)
        signal.set_wakeup_fd(mouth, warn_on_full_buffer=False)
        for number in HANDLED_SIGNALS:
            signal.signal(number, lambda *_: None)

    def wait(self, seconds: float | None = None) -> frozenset[int]:
        """The next signals; none of them after so many seconds."""
        ready, _, _ = select.select([self._pipe], [], [], seconds)
        if ready:
            return frozenset(os.read(self._pipe, PIPE_READ_BYTES))
        return frozenset()


class Supervisor:
    """The master process.

    :param jobs: a process runs for each.
    :param timeout: the seconds that they have for what is in progress; 0: as many as
        they need.
    :param reload: the master's own part of a SIGHUP.
    :param beat: shows that the master moves.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        timeout: Callable[[], int],
        reload: Callable[[], None],
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        self._jobs = jobs
        self._timeout = timeout
        self._reload = reload
        self._beat = beat
        self._running: dict[
            int, tuple[Job, float]
        ] = {}  # by pid, with the moment of the start
        self._failed = False
        # Never written to: a worker reads its end when the master is gone.
        self._life, self._hold = os.pipe()

    def run(self) -> int:
        """Run the processes until a signal ends them; the answer is the exit status."""
        set_process_title(f'master process [{" ".join(sys.argv)}]')
        signals = Signals()
        for job in self._jobs:
            self._fork(job)
        systemd.notify_once()
        while not (got := signals.wait(BEAT_INTERVAL_S)) & STOP_SIGNALS:
            self._beat()
            if signal.SIGHUP in got:
                self._reload()
                self._send(signal.SIGHUP)
            for job, started in self._reap():
                # One that cannot start is not tried more often than this.
                time.sleep(max(0.0, started + RESTART_INTERVAL_S - time.monotonic()))
                self._fork(job)
        return self._stop(signals)

    def _stop(self, signals: Signals) -> int:
        seconds = self._timeout()
        LOG.info(
            'Stopping: requests in progress have %s',
            f'{seconds} s' if seconds else 'time',
        )
        until = time.monotonic() + seconds if seconds else None
        self._failed = False
        self._send(signal.SIGTERM)
        while self._running:
            left = None if until is None else max(0.0, until - time.monotonic())
            got = signals.wait(left)
            for _ in self._reap():
                pass
            if self._running and (got & STOP_SIGNALS or left == 0.0):
                LOG.warning('Not all requests in progress are finished; ending at once')
                self._send(signal.SIGKILL)
                return EXIT_FAILED
        if self._failed:
            return EXIT_FAILED
        return EXIT_OK

    def _send(self, number: int) -> None:
        for pid in self._running:
            os.kill(pid, number)  # at the least a zombie, until it is reaped

    def _reap(self) -> Iterator[tuple[Job, float]]:
        """The processes that have ended since the last time, with the moments of their
        start."""
        for pid, (job, started) in list(self._running.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                code = os.waitstatus_to_exitcode(status)
                LOG.info(
                    '%s %d ended with status %d', job.title.capitalize(), pid, code
                )
                self._failed |= job.vital and code != EXIT_OK
                del self._running[pid]
                if job.ended:
                    job.ended()
                yield job, started

    def _fork(self, job: Job) -> None:
        # What is sent to the new process before it listens, waits; it does not go into
        # the pipe that this one reads.
        signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED_SIGNALS)
        pid = os.fork()
        if not pid:
            self._work(job)
        self._running[pid] = job, time.monotonic()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED_SIGNALS)

    def _work(self, job: Job) -> NoReturn:
        """The life of a process."""
        status = EXIT_FAILED
        try:
            signals = Signals()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED_SIGNALS)
            os.close(self._hold)
            threading.Thread(target=self._end_with_master, daemon=True).start()
            set_process_title(f'{job.title} (novasched)')
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
        if seconds := self._timeout():
            time.sleep(seconds)
            os._exit(EXIT_FAILED)


def work(service: ProcessService, signals: Signals) -> int:
    """Run a service in this process until a signal ends it; the answer is the exit
    status.

    Start and reloads come one after the other, in a thread of their own, so that the
    end need not wait for them. A reload begins after the last SIGHUP, and sees what the
    sender has done before.

    :raises Exception: the start does.
    """
    orders = futures.ThreadPoolExecutor(1, thread_name_prefix='orders')
    start = orders.submit(_started, service)
    reload = start
    service.beat()
    while not (got := signals.wait(BEAT_INTERVAL_S)) & STOP_SIGNALS:
        service.beat()
        if signal.SIGHUP in got and (
            reload is start or reload.running() or reload.done()
        ):
            reload = orders.submit(_reloaded, service)
    done, _ = futures.wait([start], timeout=START_TIMEOUT_S)
    if done:
        start.result()
        service.stop()
    # Else it waits for something that it needs before it takes a request.
    return EXIT_OK


def _started(service: ProcessService) -> None:
    try:
        service.start()
    except BaseException:
        os.kill(os.getpid(), signal.SIGTERM)
        raise


def _reloaded(service: ProcessService) -> None:
    try:
        service.reload()
    except NovaschedError as error:
        LOG.error('SIGHUP: all stays as it was: %s', error)
    except Exception:  # a bug, which costs the reload alone
        LOG.exception('SIGHUP: all stays as it was')
