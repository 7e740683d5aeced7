# SPDX-License-Identifier: Apache-2.0
"""Tasks on one thread of the operating system, in virtual time.

A task is a greenlet. A task runs until it waits: for a moment, for a lock, or for the
end of another task. Then the loop runs another task. Time stands still while a task
runs, and jumps to the next moment when no task is ready.

A seeded random number chooses among the tasks that are ready, so that each seed has an
interleaving of its own, and the same seed always the same. A task may also lose its
turn at any lock.

Every task has an owner: a process of the simulated cloud, or the world around the
processes. The tasks of a process that is killed end at the places where they wait.
"""

import gc
import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from greenlet import getcurrent, greenlet

WORLD = 'world'
"""The owner of all tasks that belong to no process."""
BEGIN_S = 100_000.0
"""The virtual time at which a simulation begins, in seconds."""
LOSES_TURN = (0.02, 0.05, 0.3)
"""Probabilities that a task loses its turn at a lock. Each loop has one of these
numbers."""
LOST_TURN_S = 0.005
"""The mean seconds of a lost turn: the switch interval of the interpreter."""

EVENTS_PER_COLLECTION = 20_000
"""Events between two collections of garbage."""


class Killed(BaseException):
    """Ends a task of a killed process. No handler of errors catches this exception, and
    the ``finally`` blocks of the task have no effect on the world
    (:meth:`Loop.check_alive`)."""


@dataclass
class Clocks:
    """The clocks of an owner, as seconds beside virtual time.

    :ivar monotonic_offset: as by the boot of its machine. It must not change.
    :ivar wall_offset: the error of the wall clock.
    """

    monotonic_offset: float = 0.0
    wall_offset: float = 0.0


TRUE_CLOCKS = Clocks()


class Wait:
    """A task that waits."""

    def __init__(self, task: 'Task') -> None:
        self.task = task
        self.is_over = False
        self.in_time = True


class Task(greenlet):
    """A task of a loop."""

    def __init__(self, work: Callable[[], object], owner: str, number: int) -> None:
        super().__init__(work)
        self.owner = owner
        self.number = number
        self.thread: Any = None
        self.locals: dict[int, dict[str, Any]] = {}
        self.wait: Wait | None = None


class Loop:
    """Runs tasks, one at a time.

    :ivar now: virtual time in seconds.
    :ivar clocks: the clocks of owners that differ from virtual time.
    :ivar random: decides all that is left to chance in the simulation.
    :ivar events: the number of turns of tasks so far.
    :ivar current: the running task; None outside of all tasks.
    :ivar owner: the owner of the running task.
    """

    def __init__(self, seed: int) -> None:
        self.now = BEGIN_S
        self.clocks: dict[str, Clocks] = {}
        self.random = Random(seed)
        self.events = 0
        self.current: Task | None = None
        self.owner = WORLD
        self._loses_turn = self.random.choice(LOSES_TURN)
        self._hub = getcurrent()
        self._numbers = itertools.count(1)
        self._ready: list[Wait] = []
        self._moments: list[tuple[float, int, Wait]] = []
        # Tasks by owner, in a dict without values: the order must not depend on chance.
        self._tasks: dict[str, dict[Task, None]] = {}
        self._dead: set[str] = set()

    @property
    def monotonic(self) -> float:
        """The monotonic clock of the running task, in seconds."""
        return self.now + self.clocks.get(self.owner, TRUE_CLOCKS).monotonic_offset

    @property
    def wall(self) -> float:
        """The wall clock of the running task, in seconds."""
        return self.now + self.clocks.get(self.owner, TRUE_CLOCKS).wall_offset

    def spawn(self, work: Callable[[], object], owner: str | None = None) -> Task:
        """Make a task that is ready.

        :param owner: the owner of the running task by default.
        """
        if owner is None:
            owner = self.owner
        task = Task(lambda: self._run(task, work), owner, next(self._numbers))
        task.parent = self._hub
        self._tasks.setdefault(owner, {})[task] = None
        task.wait = Wait(task)
        self._ready.append(task.wait)
        return task

    def _run(self, task: Task, work: Callable[[], object]) -> None:
        try:
            if task.owner not in self._dead:
                work()
        except Killed:
            pass
        finally:
            self._tasks[task.owner].pop(task, None)

    def begin_wait(self) -> Wait:
        """A wait of the running task, for :meth:`suspend` and :meth:`wake`."""
        task = self.current
        if task is None:
            raise RuntimeError('only a task can wait')
        task.wait = Wait(task)
        return task.wait

    def suspend(self, wait: Wait, seconds: float | None = None) -> bool:
        """Run other tasks until a wait is over.

        :param seconds: the longest time to wait; None for no limit.
        :returns: False if the time was over first.
        """
        self.check_alive()
        if seconds is not None:
            moment = self.now + max(0.0, seconds)
            heapq.heappush(self._moments, (moment, next(self._numbers), wait))
        self._hub.switch()
        self.check_alive()
        return wait.in_time

    def wake(self, wait: Wait) -> None:
        """End a wait."""
        if not wait.is_over:
            wait.is_over = True
            self._ready.append(wait)

    def sleep(self, seconds: float) -> None:
        """Let the running task wait for some seconds."""
        self.suspend(self.begin_wait(), seconds)

    def lose_turn(self) -> None:
        """Let other tasks run first, sometimes."""
        if self.current is not None and self.random.random() < self._loses_turn:
            self.sleep(self.random.expovariate(1 / LOST_TURN_S))

    def check_alive(self) -> None:
        """End the running task if its process was killed."""
        if self.owner in self._dead:
            raise Killed()

    def is_dead(self, owner: str) -> bool:
        """True for a process that was killed."""
        return owner in self._dead

    def kill(self, owner: str) -> None:
        """Kill a process: its tasks end where they wait."""
        self._dead.add(owner)
        for task in list(self._tasks.get(owner, ())):
            if task is not self.current and task.wait is not None:
                self.wake(task.wait)

    def run_until(self, moment: float) -> None:
        """Run all tasks until a moment, outside of all tasks."""
        while True:
            if not self._ready and not self._next_moment(moment):
                break
            index = self.random.randrange(len(self._ready))
            # The order of the rest is of no importance.
            self._ready[index], self._ready[-1] = self._ready[-1], self._ready[index]
            wait = self._ready.pop()
            if wait.task.dead or wait.task.wait is not wait:
                continue
            self.events += 1
            self._run_until_it_waits(wait.task)
            if self.events % EVENTS_PER_COLLECTION == 0:
                gc.collect()
        self.now = moment

    def _run_until_it_waits(self, task: Task) -> None:
        self.current = task
        self.owner = task.owner
        task.switch()
        self.current = None
        self.owner = WORLD

    def _next_moment(self, last: float) -> bool:
        """Move on to the next moment for which a task waits; False if it is after the
        last moment."""
        while self._moments:
            moment, _, wait = self._moments[0]
            if moment > last:
                return False
            heapq.heappop(self._moments)
            if wait.is_over or wait.task.dead:
                continue
            self.now = max(self.now, moment)
            wait.is_over = True
            wait.in_time = False
            self._ready.append(wait)
            return True
        return False
