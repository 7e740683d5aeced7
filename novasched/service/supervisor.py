# SPDX-License-Identifier: Apache-2.0
"""The processes of the daemon: a master forks workers and keeps the workers alive.

SIGHUP
    Every process reloads the configuration and keeps serving.
SIGTERM, SIGINT
    Every process finishes the requests in progress. The exit status is 0 if all
    requests were finished. A second signal ends every process at once.

Only the master counts signals. A terminal or systemd may send a signal to all
processes; a worker takes such a signal and the signal of the master for a single
signal.
"""

import logging
import math
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
PIPE_READ_BYTES = 4096
"""Bytes to read from the pipe of signals; each byte is a signal."""
RESTART_INTERVAL_S = 1.0
"""Least seconds between two starts of a process."""
BEAT_INTERVAL_S = 1.0
"""Seconds between two signs of life of a process."""
START_TIMEOUT_S = 2.0
"""Seconds that a stopping process waits for its start to complete."""
RELOAD_FAILED = 'SIGHUP: reload failed, keeping the current configuration'
EXIT_OK = 0
EXIT_FAILED = 1


class ProcessService(Protocol):
    """The work of a process; the methods may be called in different threads."""

    def start(self) -> None:
        """Begin to serve, and return."""

    def beat(self) -> None:
        """Give a sign of life; called every second, must return at once."""

    def reload(self) -> None:
        """Reload the configuration while requests are served."""

    def stop(self) -> None:
        """Take no more requests, finish the requests in progress, and return."""


@dataclass(frozen=True, slots=True)
class Job:
    """A process of the daemon.

    :ivar make: makes the service; called in the process.
    :ivar vital: a failure of the process is a failure of the daemon.
    :ivar ended: called in the master after the end of the process.
    """

    make: Callable[[], ProcessService]
    title: str = 'worker'
    vital: bool = True
    ended: Callable[[], None] | None = None


class Signals:
    """The signals that this process receives, in any thread.

    A signal that arrives repeatedly before :meth:`wait` counts once. No signal is lost.
    """

    def __init__(self) -> None:
        self._pipe, write_end = os.pipe()
        os.set_blocking(write_end, False)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        for number in HANDLED_SIGNALS:
            signal.signal(number, lambda *_: None)

    def wait(self, seconds: float | None = None) -> frozenset[int]:
        """Wait for signals; the answer is empty after the given seconds."""
        ready, _, _ = select.select([self._pipe], [], [], seconds)
        if ready:
            return frozenset(os.read(self._pipe, PIPE_READ_BYTES))
        return frozenset()


class Supervisor:
    """The master process.

    :param jobs: the processes to run.
    :param timeout: returns the seconds for the requests in progress at the end; 0 sets
        no limit.
    :param reload: the part of a SIGHUP that concerns the master.
    :param beat: gives a sign of life of the master.
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
        # The job and the moment of the start, by process id.
        self._running: dict[int, tuple[Job, float]] = {}
        self._failed = False
        # Nothing is ever written to the pipe. A worker that reads the end of the pipe
        # knows that the master has died.
        self._pipe_of_master, self._held_by_master = os.pipe()

    def run(self) -> int:
        """Run the processes until a signal ends the daemon.

        :returns: the exit status.
        """
        set_process_title(f'master process [{" ".join(sys.argv)}]')
        signals = Signals()
        for job in self._jobs:
            self._fork(job)
        systemd.notify_once()

        while not (received := signals.wait(BEAT_INTERVAL_S)) & STOP_SIGNALS:
            self._beat()
            if signal.SIGHUP in received:
                self._reload()
                self._send(signal.SIGHUP)
            for job, started in self._reap():
                # A process that fails to start must not be started in a busy loop.
                time.sleep(max(0.0, started + RESTART_INTERVAL_S - time.monotonic()))
                self._fork(job)
        return self._stop(signals)

    def _stop(self, signals: Signals) -> int:
        seconds = self._timeout()
        deadline = math.inf
        if seconds:
            deadline = time.monotonic() + seconds
            LOG.info('Stopping: waiting %d s for requests in progress', seconds)
        else:
            LOG.info('Stopping: waiting for requests in progress')

        self._failed = False
        self._send(signal.SIGTERM)
        while self._running:
            remaining = None
            if seconds:
                remaining = max(0.0, deadline - time.monotonic())
            received = signals.wait(remaining)
            for _ in self._reap():
                pass
            if self._running and (received & STOP_SIGNALS or remaining == 0.0):
                LOG.warning(
                    'Requests in progress are not finished, killing all processes'
                )
                self._send(signal.SIGKILL)
                return EXIT_FAILED

        if self._failed:
            return EXIT_FAILED
        return EXIT_OK

    def _send(self, number: int) -> None:
        for pid in self._running:
            # The process exists: until it is reaped, it is at least a zombie.
            os.kill(pid, number)

    def _reap(self) -> Iterator[tuple[Job, float]]:
        """Yield the jobs whose process has ended, with the moment of the start."""
        for pid, (job, started) in list(self._running.items()):
            ended_pid, status = os.waitpid(pid, os.WNOHANG)
            if not ended_pid:
                continue

            code = os.waitstatus_to_exitcode(status)
            LOG.info('%s %d exited with status %d', job.title.capitalize(), pid, code)
            self._failed |= job.vital and code != EXIT_OK
            del self._running[pid]
            if job.ended:
                job.ended()
            yield job, started

    def _fork(self, job: Job) -> None:
        # A signal to the new process waits until the process handles signals. Without
        # the block, the signal would go into the inherited pipe of the master.
        signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED_SIGNALS)
        pid = os.fork()
        if not pid:
            self._work(job)
        self._running[pid] = job, time.monotonic()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED_SIGNALS)

    def _work(self, job: Job) -> NoReturn:
        """Run the job in this process, and exit."""
        status = EXIT_FAILED
        try:
            signals = Signals()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED_SIGNALS)
            os.close(self._held_by_master)
            threading.Thread(target=self._end_with_master, daemon=True).start()
            set_process_title(f'{job.title} (novasched)')
            status = work(job.make(), signals)
        except NovaschedError as error:
            LOG.critical('%s', error)
        except BaseException:  # no caller above would log the error
            LOG.exception('Unhandled error in process: %s', job.title)

        # os._exit() does not wait for threads that hang, for instance on a database.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)

    def _end_with_master(self) -> None:
        os.read(self._pipe_of_master, 1)
        LOG.error('The master process has died, exiting')
        os.kill(os.getpid(), signal.SIGTERM)
        if seconds := self._timeout():
            time.sleep(seconds)
            os._exit(EXIT_FAILED)


def work(service: ProcessService, signals: Signals) -> int:
    """Run a service in this process until a signal ends the process.

    Start and reloads run one after the other in a thread, so that the end of the
    process need not wait for a start. A reload begins after the latest SIGHUP, and so
    reads files that were written before the signal.

    :returns: the exit status.
    :raises Exception: the start raised the error.
    """
    executor = futures.ThreadPoolExecutor(1, thread_name_prefix='orders')
    start = executor.submit(_start, service)
    reload = start
    service.beat()
    while not (received := signals.wait(BEAT_INTERVAL_S)) & STOP_SIGNALS:
        service.beat()
        if signal.SIGHUP in received:
            # A reload that has not begun yet also serves this signal.
            is_waiting = not (reload.running() or reload.done())
            if reload is start or not is_waiting:
                reload = executor.submit(_reload, service)

    done, _ = futures.wait([start], timeout=START_TIMEOUT_S)
    if done:
        start.result()
        service.stop()
    # Otherwise the start still waits, for a database for instance, and no request has
    # been taken.
    return EXIT_OK


def _start(service: ProcessService) -> None:
    try:
        service.start()
    except BaseException:
        # work() waits for signals; this one ends the wait.
        os.kill(os.getpid(), signal.SIGTERM)
        raise


def _reload(service: ProcessService) -> None:
    try:
        service.reload()
    except NovaschedError as error:
        LOG.error('%s: %s', RELOAD_FAILED, error)
    except Exception:
        # A bug must not end the worker.
        LOG.exception(RELOAD_FAILED)
