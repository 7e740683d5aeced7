# SPDX-License-Identifier: Apache-2.0
"""Deletes the allocations of claims without an answer (lost claims), unless another
request may own the allocations.

Allocations may be equal to a lost claim and belong to a repeated request: another
scheduler has claimed the same candidate. nova-api sets the task of the instance before
the call of a scheduler, and the host of the instance before the task ends. The cleanup
reads the allocations first and the instance afterwards. If the instance has neither a
task, nor a migration, nor the host of the claim, then no request owns the allocations.
In doubt the cleanup leaves the allocations, and the log names the instance. A database
that lags behind may show the instance from before the task. So the cleanup deletes
allocations only some time after the first look: longer than a database may lag behind.

Between the two readings another scheduler may delete the lost claim and claim a second
host, and the build or the move may end. The new allocations may have the generation of
the lost claim. So the cleanup reads the allocations again after the instance, and
deletes only unchanged allocations.

Placement may make a lost claim just before another scheduler claims for the instance on
a second host. That scheduler keeps existing allocations, as for a move. Then the
cleanup removes the amounts of the lost claim from the allocations of the instance, and
leaves the rest. The same holds for a claim that was not deleted before another
scheduler claimed.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Protocol

from novasched.concurrency import backoff
from novasched.placement.allocations import Claim, held_by, tree_of
from novasched.placement.api import (
    OutcomeUnknown,
    PlacementApi,
)
from novasched.placement.claim_protocol import PROXY_PATIENCE_S
from novasched.placement.cleanup_task import (
    CLEANUP_LIMIT_S,
    LATE_CLAIM_S,
    CleanupTask,
    Doubt,
    TaskEnd,
    are_hosts_known,
    doubt_about,
)
from novasched.placement.wire import ConsumerAllocations
from novasched.scheduler.errors import DatabaseUnavailable, PlacementUnavailable
from novasched.scheduler.model.instance import MAX_READ_LAG_S, InstanceState
from novasched.scheduler.model.request import REQUEST_LIMIT_S

# Operators search for what this logger of nova's writes.
LOG = logging.getLogger('nova.scheduler.client.report')

FIRST_PAUSE_S = 1.0
LAST_PAUSE_S = 10.0
"""Seconds between attempts, at first and at last."""
LOOK_LIMIT_S = 5.0
"""Maximum time between the first reading of allocations and the deletion, in seconds. A
consumer that loses all allocations and gets equal allocations has the same generation
again, but not before another scheduler has deleted the lost claim and another move has
begun."""
MAX_TASKS = 1000
"""Maximum number of claims in the queue."""
MAX_WATCHED = 100
"""Number of claims in the queue from which on no further claim is watched."""
ADVICE = 'Compare it with the server by "nova-manage placement audit".'


Delete = Callable[[Claim, bool], Doubt | None]
"""Deletes the allocations of a claim, or returns the reason to leave the allocations.
The flag is True if the current request is for the instance. Raises PlacementUnavailable
if the allocations cannot be read or deleted."""


class Instances(Protocol):
    """Reads the state of instances (``cells/instance_states.py``)."""

    def find(self, uuid: str, providers: Collection[str]) -> InstanceState | None:
        """The present state of an instance; None if nova does not know the instance.

        :param providers: UUIDs of compute nodes, whose hosts the state includes.
        :raises DatabaseUnavailable: a database does not answer.
        """


class AllocationDeleter:
    """Deletes the allocations of one claim.

    :ivar lost: instance UUID to the moment (monotonic seconds) until which Placement
        may carry out a deletion: without an answer, or once more.
    """

    def __init__(self, api: PlacementApi, instances: Instances | None) -> None:
        """:param instances: finds an instance in nova's databases. Without this, every
        case is in doubt, and allocations stay unless deleted before the answer to the
        request.
        """
        self._api = api
        self._instances = instances
        self.lost: dict[str, float] = {}
        # Instance UUID to the generation of the allocations, and the moment of the
        # first look at this generation.
        self._known_since: dict[str, tuple[int | None, float]] = {}

    def delete(self, claim: Claim, held: ConsumerAllocations) -> None:
        """Remove a claim from unchanged allocations of an instance.

        The request is sent once. A repetition might delete the claim of another
        scheduler. A proxy may repeat a request that a Placement behind it does not
        answer, and then this Placement may carry out the request after the answer of
        another one.

        :param held: the allocations that were read.
        :raises PlacementUnavailable: Placement has not done so, or its answer is lost.
        """
        path = f'/allocations/{claim.uuid}'
        body = claim.undo_body(held)
        began = time.monotonic()
        try:
            answer = self._api.send('PUT', path, claim.trace_id, body, once=True)
        except OutcomeUnknown:
            self.lost[claim.uuid] = time.monotonic() + LATE_CLAIM_S
            raise
        if answer.status_code != 204:
            raise PlacementUnavailable(f'({answer})')
        now = time.monotonic()
        if now - began > PROXY_PATIENCE_S:
            self.lost[claim.uuid] = now + LATE_CLAIM_S

        LOG.info('Deleted allocations for instance %s', claim.uuid)

    def delete_unless_in_doubt(self, claim: Claim, requested: bool) -> Doubt | None:
        """See :data:`Delete`."""
        began = time.monotonic()
        # The allocations come before the instance, as the docstring of the module
        # explains. The cleanup repeats failures itself.
        held = held_by(self._api, claim.uuid, claim.trace_id, retry_s=0)
        is_part = claim.is_uncertain and claim.is_part_of(held)
        if not (is_part or claim.equals(held)):
            self._known_since.pop(claim.uuid, None)
            return None

        # The task of a request about the instance is no doubt.
        is_new = not requested and self._is_new(claim.uuid, held)
        doubt = self._doubt(claim, requested, is_part, is_new)
        if doubt is not None:
            return doubt

        # A request may have begun and ended during the look, and the new allocations
        # may have the generation that was read. Then Placement would not refuse the
        # deletion.
        if held_by(self._api, claim.uuid, claim.trace_id, retry_s=0) != held:
            raise PlacementUnavailable('the allocations have changed meanwhile')

        if time.monotonic() - began > LOOK_LIMIT_S:
            why = f'it took more than {LOOK_LIMIT_S:.0f} s to look at it'
            return Doubt(why, is_part, proves_nothing=True)
        self.delete(claim, held)
        self._known_since.pop(claim.uuid, None)
        return None

    def _is_new(self, uuid: str, held: ConsumerAllocations) -> bool:
        """True if a database that lags behind may show an instance from before the
        allocations."""
        now = time.monotonic()
        for known, (_, since) in [*self._known_since.items()]:
            if since < now - CLEANUP_LIMIT_S:
                self._known_since.pop(known, None)  # perhaps not looked at any more

        generation, since = self._known_since.get(uuid, (None, now))
        if generation != held.generation:
            since = now
        self._known_since[uuid] = held.generation, since
        return now - since < MAX_READ_LAG_S

    def forget_old_losses(self) -> None:
        """Forget deletions after the time in which Placement may carry out requests."""
        now = time.monotonic()
        for uuid, until in [*self.lost.items()]:
            if until < now:
                self.lost.pop(uuid, None)

    def _doubt(
        self, claim: Claim, requested: bool, is_part: bool, is_new: bool
    ) -> Doubt | None:
        if self._instances is None:
            return Doubt('nobody can tell', is_part)

        try:
            state = self._instances.find(claim.uuid, [*claim.candidate.allocations])
        except DatabaseUnavailable as error:
            return Doubt(str(error), is_part, may_pass=True)

        is_one_tree = False
        if is_part and state is not None and not are_hosts_known(claim, state, False):
            providers = claim.candidate.allocations.keys()
            tree = tree_of(self._api, next(iter(providers)), claim.trace_id, retry_s=0)
            is_one_tree = providers <= tree
        return doubt_about(claim, state, requested, is_part, is_new, is_one_tree)


class AllocationCleanup:
    """A queue of deletions, repeated until success or the time limit.

    A thread works on the queue while the queue has tasks. A new claim waits for the
    deletions for the same instances alone.
    """

    def __init__(
        self,
        delete: Delete,
        first_pause: float = FIRST_PAUSE_S,
        capacity: int = MAX_TASKS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._delete = delete
        self._first_pause = first_pause
        self._capacity = capacity
        self._clock = clock
        # Guards the tasks and the instances, against the threads of requests and the
        # thread of the queue. It is not held while Placement is asked.
        self._changed = threading.Condition()
        self._tasks: list[CleanupTask] = []
        self._trying: set[str] = set()  # UUIDs of instances, while Placement is asked
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def pending(self) -> int:
        """Number of claims in the queue."""
        return len(self._tasks)

    def add(self, claim: Claim) -> None:
        """Delete the allocations of a claim, now or as soon as possible."""
        now = self._clock()
        final = now
        if claim.is_uncertain:
            final += LATE_CLAIM_S  # Placement may make the claim until then
        self.put_back([self._task(claim, final)])

    def watch(self, claim: Claim) -> None:
        """Delete allocations that Placement makes by an earlier attempt at a claim,
        after the claim was made and deleted.

        Each task asks Placement every few seconds. So only a few claims are watched
        after a failure of Placement.
        """
        if len(self._tasks) >= MAX_WATCHED:
            return
        task = self._task(claim, self._clock() + LATE_CLAIM_S)
        self.put_back([task.after(claim)])

    def _task(self, claim: Claim, final: float) -> CleanupTask:
        """A task that begins now."""
        now = self._clock()
        return CleanupTask(
            claim, final, now + CLEANUP_LIMIT_S, longest=now + REQUEST_LIMIT_S
        )

    def take(self, uuids: Collection[str]) -> Sequence[CleanupTask]:
        """Delete the allocations of lost claims before a new claim for the same
        instances.

        :returns: tasks in doubt, and tasks of claims that Placement may make later. The
            caller puts the tasks back in all cases.
        :raises PlacementUnavailable: allocations cannot be read or deleted. All tasks
            stay.
        """
        instances = set(uuids)
        with self._changed:
            while self._trying & instances:
                self._changed.wait()
            tasks = [task for task in self._tasks if task.claim.uuid in instances]
            if not tasks:
                return []
            self._trying |= instances

        # The latest claim first: its deletion would make a look at an earlier claim out
        # of date.
        tasks.sort(key=attrgetter('until'), reverse=True)

        try:
            rest = []
            for task in tasks:
                doubt = self._delete(task.successor or task.claim, True)
                is_left = doubt is not None and not doubt.proves_nothing
                if is_left and task.successor is None:
                    _leave(task, doubt)
                if doubt is not None or self._clock() < task.final:
                    task = task.after_look(doubt, self._clock())
                    rest.append(replace(task, in_doubt=doubt is not None))
            with self._changed:
                self._tasks = [task for task in self._tasks if task not in tasks]
            return rest
        finally:
            with self._changed:
                self._trying -= instances
                self._changed.notify_all()

    def put_back(self, tasks: Iterable[CleanupTask]) -> None:
        """Add tasks to the queue. After :meth:`close`, or with a full queue, give the
        tasks up."""
        with self._changed:
            for task in tasks:
                if self._over.is_set() or len(self._tasks) >= self._capacity:
                    _leave(task)
                else:
                    self._tasks.append(task)
            if self._tasks and self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name='cleanup', daemon=True
                )
                self._thread.start()

    def close(self, seconds: float) -> None:
        """Attempt all tasks once more, for some seconds, and give up the remaining
        tasks."""
        until = time.monotonic() + seconds
        self._over.set()
        if (thread := self._thread) is not None:
            thread.join(seconds)

        pauses = backoff(self._first_pause, LAST_PAUSE_S)
        while self._tasks and time.monotonic() < until:
            self._try_all(is_last=True)
            if self._tasks:
                time.sleep(max(0.0, min(next(pauses), until - time.monotonic())))

        with self._changed:
            for task in self._tasks:
                _leave(task)
            self._tasks.clear()

    def _run(self) -> None:
        """Attempt all tasks again and again, until the queue is empty."""
        try:
            for pause in backoff(self._first_pause, LAST_PAUSE_S):
                self._try_all(is_last=False)
                with self._changed:
                    if not self._tasks:
                        # A task that is added from now on begins another thread.
                        self._thread = None
                        return
                if self._over.wait(pause):
                    return
        finally:
            with self._changed:
                if self._thread is threading.current_thread():
                    self._thread = None

    def _try_all(self, is_last: bool) -> None:
        """Attempt all tasks, until Placement does not answer. An unexpected error of a
        task is logged, and the next task follows.

        :param is_last: the process ends, and tasks are not attempted later.
        """
        for task in [*self._tasks]:
            if self._over.is_set() and not is_last:
                return
            try:
                self._try(task, is_last)
            except PlacementUnavailable as error:
                LOG.debug('Allocations are still to be deleted: %s', error)
                return
            except Exception:
                uuid = task.claim.uuid
                LOG.exception('Cannot delete allocation for instance %s', uuid)

    def _try(self, task: CleanupTask, is_last: bool) -> None:
        """Attempt a task, unless another thread does so.

        :raises PlacementUnavailable: allocations cannot be read or deleted.
        """
        uuid = task.claim.uuid
        with self._changed:
            # A request for the instance may have taken the task meanwhile.
            if task not in self._tasks or uuid in self._trying:
                return
            self._trying.add(uuid)

        # Placement is asked without the lock. New tasks may come meanwhile.
        following: CleanupTask | TaskEnd = task
        doubt = None
        try:
            doubt = self._delete(task.successor or task.claim, False)
            following = task.following(doubt, self._clock(), is_last)
        except PlacementUnavailable:
            raise  # without an answer of Placement, the task goes on
        except BaseException:
            if self._clock() >= task.until:
                following = TaskEnd.LEFT
            raise
        finally:
            with self._changed:
                self._trying.discard(uuid)
                self._replace(task, following, doubt)
                self._changed.notify_all()

    def _replace(
        self, task: CleanupTask, following: CleanupTask | TaskEnd, doubt: Doubt | None
    ) -> None:
        """Replace a task after an attempt. The caller holds the lock."""
        if task not in self._tasks:
            return  # given up meanwhile
        self._tasks.remove(task)
        if following is TaskEnd.LEFT:
            _leave(task, doubt)
        elif isinstance(following, CleanupTask):
            # Behind the other tasks, which may fare better.
            self._tasks.append(following)


def _leave(task: CleanupTask, doubt: Doubt | None = None) -> None:
    """Tell the operator that allocations are left."""
    uuid = task.claim.uuid
    if doubt is None:
        LOG.error(
            'Unable to delete allocation for instance %s: given up. %s', uuid, ADVICE
        )
        return
    LOG.warning(
        'An allocation for instance %s is left, since it may be that of another'
        ' request: %s. %s',
        uuid,
        doubt.why,
        ADVICE,
    )
