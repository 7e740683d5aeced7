# SPDX-License-Identifier: Apache-2.0
"""Child processes, waiting with a deadline, free ports, and the programs of servers,
which are installed from Debian's packages if they are missing."""

import contextlib
import ctypes
import fcntl
import functools
import importlib
import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from setproctitle import setproctitle

# Seconds between two polls: short against all waits, long against the cost of a poll.
PAUSE = 0.05
# prctl(2): the signal that a process gets when its parent ends.
PR_SET_PDEATHSIG = 1
KILLED = 30.0
"""Seconds until a killed process has ended."""
START = 180.0
"""Seconds until a server has started or stopped."""


class Failed(Exception):
    """A server or another condition of a test does not come up."""


def free_port():
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return probe.getsockname()[1]


def wait_until(predicate, seconds, what, pause=PAUSE):
    """Wait until a predicate holds.

    :param what: the condition, for the message of an error.
    :raises Failed: the predicate does not hold in time.
    """
    deadline = time.monotonic() + seconds
    while not predicate():
        if time.monotonic() > deadline:
            raise Failed(f'after {seconds} s still no {what}')
        time.sleep(pause)


class Process:
    """A child process in a new session, with its output in a file.

    In a new session, Ctrl-C reaches the tests alone, which stop the servers in order,
    and kill() reaches grandchildren, too.
    """

    def __init__(self, command, log, *, env=None, cwd=None):
        self.command = list(command)
        self.log = log
        with log.open('ab') as output:
            self._child = subprocess.Popen(
                [*_dying_with_us(), *self.command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=None if env is None else dict(env),
                cwd=cwd,
                start_new_session=True,
            )

    @property
    def pid(self):
        """The process ID, which is the ID of the session and process group, too."""
        return self._child.pid

    def status(self, seconds):
        """The exit status; None if the child does not end in time."""
        try:
            return self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def alive(self):
        return self.status(0) is None

    def text(self):
        return self.log.read_text(errors='replace')

    def ready(self, predicate, seconds, what):
        """Wait until a predicate holds. A child that ends meanwhile fails at once, with
        the end of its output."""
        wait_until(lambda: not self.alive() or predicate(), seconds, what)
        if not self.alive():
            last = '\n'.join(self.text().splitlines()[-25:])
            raise Failed(f'{self.command[0]} ended with {self.status(0)}:\n{last}')

    def wait(self, seconds):
        """The exit status.

        :raises Failed: the child does not end in time.
        """
        status = self.status(seconds)
        if status is None:
            raise Failed(f'{self.command[0]} does not end within {seconds} s')
        return status

    def stop(self, seconds=30):
        """Send SIGTERM; the exit status.

        :raises Failed: the child did not end in time, and is killed.
        """
        if self.alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)
        try:
            return self.wait(seconds)
        finally:
            self.kill()

    def kill(self):
        """Send SIGKILL to the whole process group, unless all processes have ended."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.status(KILLED)


class Service:
    """A program in a ``with`` block. Tests may stop and start the program."""

    _process: Process | None = None

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_exception):
        self.close()

    @property
    def process(self):
        assert self._process is not None, 'not started'
        return self._process

    @property
    def pid(self):
        return self.process.pid

    def alive(self):
        return self.process.alive()

    def start(self):
        """Start the program with its earlier data, and wait until it serves."""
        raise NotImplementedError

    def stop(self, seconds=START):
        """Stop the program in an orderly way; the exit status."""
        return self.process.stop(seconds)

    def kill(self):
        """Let the program crash, if it runs."""
        if self._process is not None:
            self._process.kill()

    def freeze(self):
        """Suspend the program: connections stay without answers."""
        for process in self._all():
            process.suspend()

    def thaw(self):
        for process in self._all():
            process.resume()

    def _all(self):
        main = psutil.Process(self.pid)
        return [main, *main.children(recursive=True)]

    def close(self):
        """End the program in any state."""
        self.kill()


PRELOADED = 'novasched.cmd.novasched'
"""The scheduler, which imports nearly all modules that ``novaschedctl`` imports."""


class Forked(Process):
    """A Python program in a fork of a process that has imported :data:`PRELOADED`. A
    fork saves the seconds of CPU of the import.

    :param module: the module of the program.
    :param command: ``sys.argv`` of the program.
    """

    def __init__(self, module, command, log, *, env):
        self.command = list(command)
        self.log = log
        context = multiprocessing.get_context('forkserver')
        context.set_forkserver_preload([PRELOADED])  # takes effect at the first fork
        ready, mouth = context.Pipe(duplex=False)
        self._fork = context.Process(
            target=_run, args=(module, self.command, log, dict(env), mouth), daemon=True
        )
        self._fork.start()
        mouth.close()
        ready.poll(None)  # until the child leads a new session, or has ended
        ready.close()

    @property
    def pid(self):
        return self._fork.pid

    def status(self, seconds):
        self._fork.join(seconds)
        return self._fork.exitcode


def _run(module, command, log, env, ready):
    """Run a program in this process as its command line would."""
    os.setsid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    # Before the environment changes: setproctitle finds the memory for titles by the
    # original environment.
    setproctitle(' '.join(command))
    os.environ.clear()
    os.environ.update(env)
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for number in (1, 2):
        os.dup2(output, number)
    sys.argv = list(command)
    ready.close()
    sys.exit(importlib.import_module(module).main())


def _dying_with_us():
    """A prefix of commands that end when the tests are killed (util-linux)."""
    setpriv = shutil.which('setpriv')
    if setpriv:
        return [setpriv, '--pdeathsig', 'TERM', '--']
    return []


# The PATH of ordinary users does not have Debian's servers.
SEARCH = os.pathsep.join(
    [
        os.environ.get('PATH', ''),
        '/usr/lib/rabbitmq/bin',
        '/usr/sbin',
        '/usr/local/sbin',
        '/sbin',
    ]
)

# With this policy a package does not start its service: tests start private servers.
POLICY = '#!/bin/sh\nexit 101\n'
POLICY_FILE = Path('/usr/sbin/policy-rc.d')
LOCK = Path(tempfile.gettempdir(), 'novasched-tests-apt.lock')


def program(package, *names):
    """The path of the first program that exists. Without a program the package is
    installed, or the test fails with a line that names the package."""
    path = find(*names)
    if path is None:
        install(package)
        path = find(*names)
    if path is None:
        refuse(f'functional tests need {" or ".join(names)}: install {package}')
    return path


def refuse(reason):
    """Fail the test, whose machine lacks something, with one line.

    pytest.exit() is no choice: in a process of pytest-xdist it ends the run with an
    internal error, and the reason is lost.
    """
    pytest.fail(reason, pytrace=False)


def run(command, **options):
    """The output of a program.

    :param options: additional arguments of subprocess.run().
    :raises Failed: the program fails. The text has its output.
    """
    process = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        **options,
    )
    if process.returncode:
        output = f'{process.stdout}{process.stderr}'
        raise Failed(f'{command} ended with {process.returncode}:\n{output}')
    return process.stdout


def find(*names):
    """The path of the first program that exists, in PATH or in directories of
    servers."""
    # Debian's /usr/sbin/rabbitmq-server runs as the user of the package alone. The
    # script of RabbitMQ runs as any user, and takes precedence.
    preferred = Path('/usr/lib/rabbitmq/bin')
    for name in names:
        if (preferred / name).exists():
            return str(preferred / name)
        path = shutil.which(name, path=SEARCH)
        if path is not None:
            return path
    return None


def install(package):
    """Install a Debian package without questions and without starting its service. If
    that fails, the test fails with the lines of apt-get that tell why."""
    if os.geteuid() != 0 or shutil.which('apt-get') is None:
        refuse(
            f'functional tests need the Debian package {package}:'
            ' apt-get install mariadb-server memcached postgresql prometheus rabbitmq-server'
        )
    reason = _installation_failure(package)
    if reason:
        refuse(f'the Debian package {package} cannot be installed: {reason}')


@functools.cache
def _installation_failure(package):
    """Install a Debian package once. The errors of apt-get; empty without errors."""
    with LOCK.open('w') as lock:
        # A second apt-get would fail instead of waiting.
        fcntl.flock(lock, fcntl.LOCK_EX)
        is_our_policy = not POLICY_FILE.exists()
        if is_our_policy:
            POLICY_FILE.write_text(POLICY)
            POLICY_FILE.chmod(0o755)
        try:
            return _apt_get('update') or _apt_get(
                'install', '-y', '--no-install-recommends', package
            )
        finally:
            if is_our_policy:
                POLICY_FILE.unlink()


def _apt_get(*arguments):
    """Run apt-get. The lines of its errors; empty if it succeeds."""
    try:
        run(
            ['apt-get', '-q', *arguments],
            env={**os.environ, 'DEBIAN_FRONTEND': 'noninteractive', 'LC_ALL': 'C'},
        )
    except Failed as error:
        lines = str(error).splitlines()
        return '\n'.join(line for line in lines if line.startswith('E:')) or str(error)
    return ''


@contextlib.contextmanager
def in_threads(functions, is_over):
    """Run each function in a thread during a block.

    :param is_over: an event that ends the functions, set at the end of the block.
    :raises Exception: the error of a function.
    """
    with ThreadPoolExecutor(len(functions)) as pool:
        calls = [pool.submit(function) for function in functions]
        try:
            yield
        finally:
            is_over.set()
    for call in calls:
        call.result()
