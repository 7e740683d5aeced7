# SPDX-License-Identifier: Apache-2.0
"""Where the system's server programs are, and Debian's packages when they are not;
child processes, free ports, and waiting with a deadline."""

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
from pathlib import Path

import psutil
import pytest
from setproctitle import setproctitle

# A poll's pause: short against every wait here, long against the cost of asking.
PAUSE = 0.05
# prctl(2): the signal that a process gets when its parent ends.
PR_SET_PDEATHSIG = 1
KILLED = 30.0
START = 60.0
"""Seconds in which whatever is started is there, or is gone."""


class Failed(Exception):
    """Something that the tests need does not come up; the text says what to read."""


def free_port():
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return probe.getsockname()[1]


def wait_until(predicate, seconds, what, pause=PAUSE):
    """Return when the predicate holds, raise Failed when the deadline passes first."""
    deadline = time.monotonic() + seconds
    while not predicate():
        if time.monotonic() > deadline:
            raise Failed(f'after {seconds} s still no {what}')
        time.sleep(pause)


class Process:
    """A child in a session of its own, its output in a file.

    A session of its own: Ctrl-C reaches only the tests, which stop their servers in
    order, and kill() reaches the grandchildren too.
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
        """The process id, which is also that of its session and process group."""
        return self._child.pid

    def status(self, seconds):
        """Its exit status as soon as it has ended, None when it has not in so many
        seconds."""
        try:
            return self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def alive(self):
        return self.status(0) is None

    def text(self):
        return self.log.read_text(errors='replace')

    def ready(self, predicate, seconds, what):
        """wait_until(), but a child that ends meanwhile fails at once, with its last
        words."""
        wait_until(lambda: not self.alive() or predicate(), seconds, what)
        if not self.alive():
            last = '\n'.join(self.text().splitlines()[-25:])
            raise Failed(f'{self.command[0]} ended with {self.status(0)}:\n{last}')

    def wait(self, seconds):
        """Its exit status; Failed when it does not end in time."""
        status = self.status(seconds)
        if status is None:
            raise Failed(f'{self.command[0]} does not end within {seconds} s')
        return status

    def stop(self, seconds=30):
        """SIGTERM and its exit status; killed and Failed when it does not end in
        time."""
        if self.alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)
        try:
            return self.wait(seconds)
        finally:
            self.kill()

    def kill(self):
        """SIGKILL to the whole group, as a crash would; nothing when all have ended."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.status(KILLED)


class Service:
    """A program that a ``with`` block runs, and that can be ended and started again
    meanwhile."""

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
        """Start it, where it was before; returns when it serves."""
        raise NotImplementedError

    def stop(self, seconds=START):
        """End it in an orderly way; its exit status."""
        return self.process.stop(seconds)

    def kill(self):
        """End it as a crash would; nothing where it does not run."""
        if self._process is not None:
            self._process.kill()

    def freeze(self):
        """Let it do nothing: connections stay, and nothing is answered."""
        for process in self._all():
            process.suspend()

    def thaw(self):
        for process in self._all():
            process.resume()

    def _all(self):
        main = psutil.Process(self.pid)
        return [main, *main.children(recursive=True)]

    def close(self):
        """End it, however it stands."""
        self.kill()


class Forked(Process):
    """A Python program in a fork of a process that has imported its module already,
    which saves the seconds of CPU that this takes.

    Its command is the interpreter's: ``sys.argv`` as the program shall see it.
    """

    def __init__(self, module, command, log, *, env):
        self.command = list(command)
        self.log = log
        context = multiprocessing.get_context('forkserver')
        context.set_forkserver_preload([module])  # heeded by the first fork of all
        ready, mouth = context.Pipe(duplex=False)
        self._fork = context.Process(
            target=_run, args=(module, self.command, log, dict(env), mouth), daemon=True
        )
        self._fork.start()
        mouth.close()
        ready.poll(None)  # it leads a session of its own now, or is gone
        ready.close()

    @property
    def pid(self):
        return self._fork.pid

    def status(self, seconds):
        self._fork.join(seconds)
        return self._fork.exitcode


def _run(module, command, log, env, ready):
    """Become what the command line would have started."""
    os.setsid()
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    setproctitle(
        ' '.join(command)
    )  # it finds the place for titles by the environment that was
    os.environ.clear()
    os.environ.update(env)
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for number in (1, 2):
        os.dup2(output, number)
    sys.argv = list(command)
    ready.close()
    sys.exit(importlib.import_module(module).main())


def _dying_with_us():
    """A prefix that ends the child when the tests themselves are killed
    (util-linux)."""
    setpriv = shutil.which('setpriv')
    if setpriv:
        return [setpriv, '--pdeathsig', 'TERM', '--']
    return []


# Debian keeps servers out of an ordinary user's PATH.
SEARCH = os.pathsep.join(
    [
        os.environ.get('PATH', ''),
        '/usr/lib/rabbitmq/bin',
        '/usr/sbin',
        '/usr/local/sbin',
        '/sbin',
    ]
)

# With this answer the packages' own services stay off: the tests start private ones.
POLICY = '#!/bin/sh\nexit 101\n'
POLICY_FILE = Path('/usr/sbin/policy-rc.d')
LOCK = Path(tempfile.gettempdir(), 'novasched-tests-apt.lock')


def program(package, *names):
    """The path of the first of these programs; the package is installed if none is
    there and the user may, otherwise the run ends with one line that names it."""
    found = find(*names)
    if found is None:
        install(package)
        found = find(*names)
    if found is None:
        pytest.exit(f'functional tests need {" or ".join(names)}: install {package}', 3)
    return found


def run(command, **how):
    """What a program prints.

    :param how: what subprocess.run() takes beside.
    :raises Failed: it does not end well; the text has all that it printed.
    """
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        **how,
    )
    if done.returncode:
        raise Failed(
            f'{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}'
        )
    return done.stdout


def find(*names):
    """The first program of these names, an ordinary user's PATH or not."""
    # Debian's /usr/sbin/rabbitmq-server insists on the packages' user; the one of
    # RabbitMQ itself runs as anybody, so it is looked for first.
    preferred = Path('/usr/lib/rabbitmq/bin')
    for name in names:
        if (preferred / name).exists():
            return str(preferred / name)
        path = shutil.which(name, path=SEARCH)
        if path is not None:
            return path
    return None


@functools.cache
def install(package):
    """Install a Debian package without questions and without starting its service."""
    if os.geteuid() != 0 or shutil.which('apt-get') is None:
        pytest.exit(
            f'functional tests need the Debian package {package}:'
            ' apt-get install mariadb-server memcached postgresql prometheus rabbitmq-server',
            3,
        )
    with LOCK.open('w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until it is closed: apt-get waits for nobody
        ours = not POLICY_FILE.exists()
        if ours:
            POLICY_FILE.write_text(POLICY)
            POLICY_FILE.chmod(0o755)
        try:
            _apt_get('update')
            _apt_get('install', '-y', '--no-install-recommends', package)
        finally:
            if ours:
                POLICY_FILE.unlink()


def _apt_get(*arguments):
    try:
        run(
            ['apt-get', '-q', *arguments],
            env={**os.environ, 'DEBIAN_FRONTEND': 'noninteractive'},
        )
    except Failed as error:
        pytest.exit(str(error), 3)
