# SPDX-License-Identifier: Apache-2.0
"""Deletes allocations that may come of claims without an answer, unless they may be
another's.

An allocation that equals a lost claim is no proof that it comes of it: another
scheduler may have claimed the same for a repeated request. nova's API sets the
instance's task before a scheduler is asked, and the instance's host before the task is
over. So if the allocation is read first, the instance after it, and the instance has
neither a task, nor a migration, nor the claim's host, then the allocation belongs to no
request. In doubt it is left, and the log names the instance.

Placement may make a lost claim just before another scheduler claims for the instance on
another host. The other scheduler keeps the allocations that it finds, as for a move.
Then the amounts that the lost claim has added are taken from the allocations of the
instance, and the rest stays. A claim that could not be deleted before another scheduler
claimed is treated likewise.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from novasched.concurrency import backoff
from novasched.placement.allocations import Claim, held_by
from novasched.placement.api import OutcomeUnknown, PlacementApi
from novasched.placement.wire import ConsumerAllocations
from novasched.scheduler.errors import DatabaseUnavailable, PlacementUnavailable
from novasched.scheduler.ports import Instances, InstanceState

# Operators search for what this logger of nova's writes.
LOG = logging.getLogger('nova.scheduler.client.report')

FIRST_PAUSE_S = 1.0
LAST_PAUSE_S = 10.0
"""Seconds between tries, at first and in the end."""
LATE_CLAIM_S = 120.0
"""Seconds after which Placement does no request: its database and web server have given
up."""
CLEANUP_LIMIT_S = 300.0
"""Seconds in which a deletion is tried: a claim that comes late, and then three minutes
in which nova ends its work on the instance, or Placement is restarted. Allocations that
are left after that are found by ``nova-manage placement audit``."""
LOOK_LIMIT_S = 5.0
"""Seconds from the look at an allocation to its end. A consumer that loses all and is
claimed for anew has the generation it had, but for that a whole move has to begin and
to end."""
MAX_TASKS = 1000
ADVICE = 'Compare it with the server by "nova-manage placement audit".'


class Doubt(NamedTuple):
    """The reason why the allocations of a claim are left.

    :ivar is_part: the instance holds the allocations of the claim beside others.
    :ivar is_there: the instance is on a host of the claim.
    """

    why: str
    is_part: bool = False
    is_there: bool = False


Delete = Callable[[Claim, bool], Doubt | None]
"""Deletes the allocations of a claim if they are there, or says why they are left. The
flag tells whether the current request is about the instance. Raises
PlacementUnavailable if it cannot be told, or done."""


class AllocationDeleter:
    """Deletes the allocations of one claim.

    :param instances: tells whose allocations may be; without them every doubt stays,
        and so do the allocations that were not deleted before the request was answered.
    :ivar lost: by instance, until when (monotonic seconds) a lost deletion may still be
        done.
    """

    def __init__(self, api: PlacementApi, instances: Instances | None) -> None:
        self._api = api
        self._instances = instances
        self.lost: dict[str, float] = {}

    def delete(self, claim: Claim, held: ConsumerAllocations) -> None:
        """Take a claim from what an instance holds, if that is still what was seen. It
        is sent once: what is sent twice may be done to another's claim the second time.

        :raises PlacementUnavailable: it is not done, or perhaps not.
        """
        path = f'/allocations/{claim.uuid}'
        body = claim.undo_body(held)
        try:
            answer = self._api.send('PUT', path, claim.trace_id, body, once=True)
        except OutcomeUnknown:
            self.lost[claim.uuid] = time.monotonic() + LATE_CLAIM_S
            raise
        if answer.status_code != 204:
            raise PlacementUnavailable(f'({answer})')
        LOG.info('Deleted allocations for instance %s', claim.uuid)

    def delete_unless_in_doubt(self, claim: Claim, requested: bool) -> Doubt | None:
        """See :data:`Delete`. The allocations are read before the instance: see
        above."""
        began = time.monotonic()
        held = held_by(
            self._api, claim.uuid, claim.trace_id, retry_s=0
        )  # it is tried again
        is_part = claim.outcome_unknown and claim.is_part_of(held)
        if not (is_part or claim.equals(held)):
            return None
        doubt = self._doubt(claim, requested, is_part)
        if doubt is None and time.monotonic() - began > LOOK_LIMIT_S:
            doubt = Doubt(
                f'it took more than {LOOK_LIMIT_S:.0f} s to look at it', is_part
            )
        if doubt is not None:
            return doubt
        self.delete(claim, held)
        return None

    def forget_old_losses(self) -> None:
        """Forget deletions whose answers were lost too long ago for them to be done."""
        now = time.monotonic()
        for uuid, until in [*self.lost.items()]:
            if until < now:
                self.lost.pop(uuid, None)

    def _doubt(self, claim: Claim, requested: bool, is_part: bool) -> Doubt | None:
        if self._instances is None:
            return Doubt('nobody can tell', is_part)
        providers = [*claim.candidate.allocations]
        try:
            state = self._instances.find(claim.uuid, providers)
        except DatabaseUnavailable as error:
            return Doubt(str(error), is_part)

        why = why_in_doubt(state, claim.moves, requested, is_part, len(providers))
        if why is None:
            return None
        is_there = state is not None and state.host in state.hosts
        return Doubt(why, is_part, is_there)


def why_in_doubt(
    state: InstanceState | None,
    moves: bool,
    requested: bool,
    is_part: bool = False,
    providers: int = 1,
) -> str | None:
    """Why an allocation that equals a claim may be that of another request; None if it
    cannot.

    :param moves: the claim was for an instance that was in a cell already.
    :param requested: the current request is about the instance, and its task is this
        request's.
    :param is_part: the instance holds more. Then the claim is known to be nobody's
        where the instance is at rest, and none of the claim's providers, so many, is or
        serves its host.
    """
    if state is None:
        if moves or is_part:
            return 'nova does not know it'
        return None
    if state.gone:
        return None
    if state.host is not None:
        if not state.hosts:
            return f'it is on the host {state.host}, and that of the claim is not known'
        if state.host in state.hosts:
            return f'it is on the host {state.host}, for which the claim was'
    if is_part and (state.host is None or len(state.hosts) < providers):
        return 'it holds more, which may be on the same host'
    if requested:
        return None
    if state.building:
        return 'its build has not ended'
    if state.task:
        return f'it has a task in progress: {state.task}'
    return None


@dataclass(frozen=True, slots=True, eq=False)
class CleanupTask:
    """A claim whose allocations may have to be deleted.

    :ivar final: from when on (monotonic seconds) nothing comes of it any more.
    :ivar until: when it is given up.
    :ivar successor: a later claim for the same amounts, which had an answer. All is
        well while the instance holds these amounts alone; beside others they may come
        of the lost claim, after the caller has dropped the successor.
    :ivar in_doubt: an allocation like it was there before the next claim for the
        instance.
    """

    claim: Claim
    final: float
    until: float
    successor: Claim | None = None
    in_doubt: bool = False

    def after(self, made: Claim | None) -> 'CleanupTask':
        """The rest of the task after another claim for its instance. A claim for the
        same amounts is deleted only if nova says that the instance is gone, or at rest
        on another host."""
        if made is None:
            return self
        if made.wanted() == self.claim.wanted():
            successor = replace(made, moves=True, outcome_unknown=True)
            return replace(self, successor=successor)
        if made.candidate.allocations.keys().isdisjoint(
            self.claim.candidate.allocations
        ):
            return self
        # What the instance holds there beside others is of that one.
        return replace(self, claim=replace(self.claim, outcome_unknown=False))

    def after_look(self, doubt: Doubt | None) -> 'CleanupTask':
        """The task after a look at what the instance holds.

        Once the instance was seen on the host of the successor, its allocations there
        are its own, also beside others: an evacuated instance keeps those of its
        source.
        """
        if self.successor is None or doubt is None or not doubt.is_there:
            return self
        return replace(self, successor=replace(self.successor, outcome_unknown=False))


class AllocationCleanup:
    """A queue of deletions that are tried again, in a thread which is there only while
    there are some. A claim waits for what is tried for its own instances, and for no
    other."""

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
        self._tasks: list[CleanupTask] = []
        self._trying: set[str] = set()  # instances for which Placement is being asked
        self._changed = threading.Condition()  # of both
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def pending(self) -> int:
        """Number of claims whose allocations may still have to be deleted."""
        return len(self._tasks)

    def add(self, claim: Claim) -> None:
        """Delete the allocations of a claim, now or as soon as possible. One whose
        outcome is unknown may yet be made, or be made once more."""
        now = self._clock()
        final = now + LATE_CLAIM_S if claim.outcome_unknown else now
        self.put_back([CleanupTask(claim, final, now + CLEANUP_LIMIT_S)])

    def take(self, uuids: Collection[str]) -> Sequence[CleanupTask]:
        """Delete the allocations of lost claims before the instances get others. Tasks
        that may come later, or are in doubt, are returned, to be put back in any case.

        :raises PlacementUnavailable: that cannot be told, or be done; all tasks stay.
        """
        instances = set(uuids)
        with self._changed:
            self._changed.wait_for(lambda: not self._trying & instances)
            tasks = [task for task in self._tasks if task.claim.uuid in instances]
            if not tasks:
                return []
            self._trying |= instances
        try:
            rest = []
            for task in tasks:
                doubt = self._delete(task.successor or task.claim, True)
                if doubt is not None and task.successor is None:
                    _leave(task, doubt)
                if doubt is not None or self._clock() < task.final:
                    task = task.after_look(doubt)
                    rest.append(replace(task, in_doubt=doubt is not None))
            with self._changed:
                self._tasks = [task for task in self._tasks if task not in tasks]
            return rest
        finally:
            with self._changed:
                self._trying -= instances
                self._changed.notify_all()

    def put_back(self, tasks: Iterable[CleanupTask]) -> None:
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
        """Try once more, and again for so many seconds; tasks that are left then are
        given up."""
        until = time.monotonic() + seconds
        self._over.set()
        if (thread := self._thread) is not None:
            thread.join(seconds)
        pauses = backoff(self._first_pause, LAST_PAUSE_S)
        while self._tasks and time.monotonic() < until:
            self._try_all(final=True)
            if self._tasks:
                time.sleep(max(0.0, min(next(pauses), until - time.monotonic())))
        with self._changed:
            for task in self._tasks:
                _leave(task)
            self._tasks.clear()

    def _run(self) -> None:
        try:
            for pause in backoff(self._first_pause, LAST_PAUSE_S):
                self._try_all(final=False)
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

    def _try_all(self, final: bool) -> None:
        """Try each task, unless Placement does not answer. An unexpected error of one
        task is logged, and does not keep the others from being tried."""
        for task in [*self._tasks]:
            if self._over.is_set() and not final:
                return
            try:
                self._try(task, final)
            except PlacementUnavailable as error:
                LOG.debug('Allocations are still to be deleted: %s', error)
                return
            except Exception:
                uuid = task.claim.uuid
                LOG.exception('Cannot delete allocation for instance %s', uuid)

    def _try(self, task: CleanupTask, final: bool) -> None:
        """:raises PlacementUnavailable: nothing can be told, or done."""
        uuid = task.claim.uuid
        with self._changed:
            if task not in self._tasks or uuid in self._trying:
                return  # another thread does it
            self._trying.add(uuid)
        ended = False
        doubt = None
        try:
            doubt = self._delete(task.successor or task.claim, False)
            is_well = doubt is None
            if doubt is not None and task.successor is not None:
                is_well = not doubt.is_part
            ended = is_well and (final or self._clock() >= task.final)
        finally:
            with self._changed:
                self._trying.discard(uuid)
                self._changed.notify_all()
                if task in self._tasks:  # and not given up meanwhile
                    self._tasks.remove(task)
                    if not ended and (self._clock() >= task.until or (final and doubt)):
                        _leave(task, doubt)
                    elif not ended:
                        # Behind the others, which may fare better.
                        self._tasks.append(task.after_look(doubt))


def _leave(task: CleanupTask, doubt: Doubt | None = None) -> None:
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
