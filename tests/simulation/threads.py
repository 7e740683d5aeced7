# SPDX-License-Identifier: Apache-2.0
"""The standard library's threads, locks and clocks, as tasks of a loop in virtual time.

:func:`install` replaces them for the whole process, before the scheduler is imported.
So the scheduler runs in the simulation as it is, without a hook for tests.
"""

import logging
import queue
import random
import secrets
import sys
import threading
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from oslo_utils import timeutils

from tests.simulation.loop import Loop, Task, Wait

EARLY = ('concurrent.futures.thread', 'novasched', 'sqlalchemy', 'oslo_messaging')
"""Modules that must not be imported before the threads are replaced."""
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
"""A true wall clock at the virtual time 0."""
MAIN = threading.get_ident()
"""The number of the thread outside of all tasks, as the standard library knows it."""


class Simulated:
    """The loop of the process."""

    loop: Loop


class Lock:
    """A lock. Outside of all tasks a lock must be free: only tasks can wait."""

    def __init__(self) -> None:
        self._is_taken = False
        self._holder: object = None
        self._waiting: list[Wait] = []

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        loop = Simulated.loop
        if blocking:
            loop.lose_turn()
        if not self._is_taken:
            self._is_taken = True
            self._holder = _me()
            return True
        if not blocking:
            return False

        wait = loop.begin_wait()
        self._waiting.append(wait)
        # The lock is handed over, so that it is ours when the wait is over in time.
        try:
            if loop.suspend(wait, None if timeout < 0 else timeout):
                self._holder = _me()
                return True
        finally:
            if wait in self._waiting:
                self._waiting.remove(wait)
        return False

    def release(self) -> None:
        loop = Simulated.loop
        if loop.is_dead(loop.owner) and self._holder is not _me():
            # A killed task ends in the middle of threading.Condition.wait().
            return
        if not self._is_taken:
            raise RuntimeError('release unlocked lock')
        self._holder = None
        alive = [wait for wait in self._waiting if not loop.is_dead(wait.task.owner)]
        if alive:
            wait = loop.random.choice(alive)
            self._waiting.remove(wait)
            loop.wake(wait)
        else:
            self._is_taken = False

    def locked(self) -> bool:
        return self._is_taken

    def _at_fork_reinit(self) -> None:
        self._is_taken = False

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()


class RLock:
    """A lock that its task may acquire again."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._owner: object = None
        self._count = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        me = _me()
        if self._owner is me:
            self._count += 1
            return True
        if not self._lock.acquire(blocking, timeout):
            return False
        self._owner = me
        self._count = 1
        return True

    def release(self) -> None:
        loop = Simulated.loop
        if loop.is_dead(loop.owner) and self._owner is not _me():
            return
        if self._owner is not _me():
            raise RuntimeError('cannot release un-acquired lock')
        self._count -= 1
        if not self._count:
            self._owner = None
            self._lock.release()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()

    # For threading.Condition; locked() since Python 3.14.

    def locked(self) -> bool:
        return self._lock.locked()

    def _is_owned(self) -> bool:
        return self._owner is _me()

    def _release_save(self) -> int:
        count = self._count
        self._count = 0
        self._owner = None
        self._lock.release()
        return count

    def _acquire_restore(self, count: int) -> None:
        self._lock.acquire()
        self._owner = _me()
        self._count = count


def _me() -> object:
    return Simulated.loop.current or Simulated


class NoLock:
    """The lock of a log handler, which all simulated processes share. No task waits
    while it writes a line."""

    def acquire(self) -> None:
        pass

    release = acquire

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        pass


class Thread:
    """A thread: a task of the owner that starts it."""

    def __init__(
        self,
        group: None = None,
        target: Callable[..., object] | None = None,
        name: str | None = None,
        args: Any = (),
        kwargs: Any = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        self.name = name or 'thread'
        self.daemon = bool(daemon)
        self.ident: int | None = None
        self._work = target, args, kwargs or {}
        self._task: Task | None = None
        self._is_over = Lock()
        self._is_over.acquire(blocking=False)

    def start(self) -> None:
        self._task = Simulated.loop.spawn(self._bootstrap)
        self._task.thread = self
        self.ident = self._task.number

    def _bootstrap(self) -> None:
        try:
            self.run()
        finally:
            self._is_over.release()

    def run(self) -> None:
        target, args, kwargs = self._work
        if target is not None:
            target(*args, **kwargs)

    def join(self, timeout: float | None = None) -> None:
        if self._is_over.acquire(timeout=-1 if timeout is None else timeout):
            self._is_over.release()

    def is_alive(self) -> bool:
        return self._task is not None and self._is_over.locked()


class Timer(Thread):
    """A thread that calls a function after some seconds."""

    def __init__(
        self,
        interval: float,
        function: Callable[..., object],
        args: Any = None,
        kwargs: Any = None,
    ) -> None:
        super().__init__(target=function, args=args or (), kwargs=kwargs)
        self._interval = interval
        self._finished = threading.Event()

    def cancel(self) -> None:
        self._finished.set()

    def run(self) -> None:
        self._finished.wait(self._interval)
        if not self._finished.is_set():
            super().run()


class Local:
    """Attributes that each task has for itself."""

    def _values(self) -> dict[str, Any]:
        task = Simulated.loop.current
        if task is None:
            return self.__dict__
        return task.locals.setdefault(id(self), {})

    def __getattribute__(self, name: str) -> Any:
        if name == '_values' or name.startswith('__'):
            return object.__getattribute__(self, name)
        try:
            return self._values()[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: object) -> None:
        self._values()[name] = value

    def __delattr__(self, name: str) -> None:
        del self._values()[name]


class _NoThread:
    """The thread outside of all tasks, and of tasks that no thread has started."""

    name = 'MainThread'
    ident = MAIN
    native_id = MAIN
    daemon = False

    def is_alive(self) -> bool:
        return True


_no_thread = _NoThread()


def _current_thread() -> Any:
    task = Simulated.loop.current
    if task is None or task.thread is None:
        return _no_thread
    return task.thread


def _ident() -> int:
    task = Simulated.loop.current
    return task.number if task is not None else MAIN


def _create_no_lock(handler: Any) -> None:
    handler.lock = NoLock()


def install() -> None:
    """Replace threads, clocks and sources of random numbers, for the whole process.
    Nothing runs before :func:`begin`."""
    for name in EARLY:
        if name in sys.modules:
            raise RuntimeError(f'{name} is imported already')
    Simulated.loop = Loop(seed=0)

    def now() -> float:
        return Simulated.loop.monotonic

    replaced: dict[Any, dict[str, Any]] = {
        time: {
            'monotonic': now,
            'perf_counter': now,
            'time': lambda: Simulated.loop.wall,
            'sleep': lambda seconds: Simulated.loop.sleep(seconds),
        },
        threading: {
            'Lock': Lock,
            '_allocate_lock': Lock,
            'RLock': RLock,
            'Thread': Thread,
            'Timer': Timer,
            'local': Local,
            'current_thread': _current_thread,
            'get_ident': _ident,
            'get_native_id': _ident,
            '_time': now,
        },
        logging.Handler: {'createLock': _create_no_lock},
        queue: {'time': now, 'SimpleQueue': queue._PySimpleQueue},
        secrets: {'randbits': random.getrandbits, 'token_hex': _token_hex},
        uuid: {'uuid4': _uuid4},
        timeutils: {'utcnow': _utcnow},
    }
    for module, members in replaced.items():
        for name, member in members.items():
            setattr(module, name, member)
    # An executor logs the end of a killed thread as an error.
    logging.getLogger('concurrent.futures').disabled = True


def begin(loop: Loop, seed: int) -> None:
    """Let all threads run in a loop, and draw all random numbers from a seed."""
    Simulated.loop = loop
    random.seed(seed)


def _utcnow(with_timezone: bool = False) -> datetime:
    moment = EPOCH + timedelta(seconds=Simulated.loop.wall)
    return moment if with_timezone else moment.replace(tzinfo=None)


def _token_hex(nbytes: int = 16) -> str:
    return f'{random.getrandbits(8 * nbytes):0{2 * nbytes}x}'


def _uuid4() -> uuid.UUID:
    return uuid.UUID(int=random.getrandbits(128), version=4)
