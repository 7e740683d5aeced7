# SPDX-License-Identifier: Apache-2.0
"""Tasks of the cleanup: a claim without a certain end, and the step after each look at
the allocations of the instance.

::

               nothing is left, and Placement makes the claim no more
    attempted -------------------------------------------------------> OVER
        |
        |      another request may own the allocations, to the end
        +------------------------------------------------------------> LEFT

After any other look, the task is attempted again: while Placement may still make the
claim, while nova works on the instance, while a database does not answer, and after a
look that proves nothing.

``cleanup.py`` looks at the allocations, deletes them, and carries out the steps.
Nothing here asks Placement, waits, or reads a clock.
"""

from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import NamedTuple

from novasched.placement.allocations import Claim
from novasched.scheduler.model.instance import InstanceState

LATE_CLAIM_S = 120.0
"""Seconds after which Placement does not carry out a request any more: its database and
web server have given up."""
AFTER_WORK_S = 180.0
"""Minimum time for which a deletion is attempted after nova has ended its work on the
instance, and after an outage of a database, in seconds."""
CLEANUP_LIMIT_S = LATE_CLAIM_S + AFTER_WORK_S
"""Minimum time for which a deletion is attempted, in seconds. Only a look at the
allocations ends the attempts, so that no outage of Placement does. Afterwards
``nova-manage placement audit`` finds the allocations."""


class Doubt(NamedTuple):
    """The reason to leave the allocations of a claim.

    :ivar is_part: the instance has further allocations beside the allocations of the
        claim.
    :ivar is_there: the instance is on a host of the claim.
    :ivar proves_nothing: the look came too early, or took too long. A later look tells
        whether the allocations have to be deleted, so that no task ends with this look.
    :ivar may_pass: a later look may tell, since nova works on the instance, or a
        database does not answer.
    """

    why: str
    is_part: bool = False
    is_there: bool = False
    proves_nothing: bool = False
    may_pass: bool = False


class TaskEnd(Enum):
    """The end of a task."""

    OVER = auto()
    """No allocations of the claim are left, and none will come."""
    LEFT = auto()
    """Allocations may be left. The log names the instance."""


@dataclass(frozen=True, slots=True, eq=False)
class CleanupTask:
    """A claim without a certain end: the allocations of the claim may have to be
    deleted.

    :ivar final: from this moment on Placement does not make the claim any more
        (monotonic seconds).
    :ivar until: the first look from this moment on is the last look, unless the look
        proves nothing (monotonic seconds).
    :ivar longest: the latest moment for ``until`` (monotonic seconds).
    :ivar successor: a later claim for the same amounts, with an answer. An instance
        with these amounts alone has the allocations of the successor. Beside further
        allocations, the amounts may be the lost claim, made after the caller had
        deleted the successor.
    :ivar in_doubt: equal allocations existed before the next claim for the instance.
    """

    claim: Claim
    final: float
    until: float
    longest: float
    successor: Claim | None = None
    in_doubt: bool = False

    def after(self, made: Claim | None) -> 'CleanupTask':
        """The task after another claim for the same instance.

        A successor is deleted only if the instance is gone, or at rest on another host.

        :param made: the other claim; None if Placement has refused it.
        """
        if made is None:
            return self

        # Nothing tells equal allocations apart, so that both claims share one task.
        if made.wanted() == self.claim.wanted():
            successor = replace(made.uncertain(), moves=True)
            return replace(self, successor=successor)

        providers = made.candidate.allocations.keys()
        if providers.isdisjoint(self.claim.candidate.allocations):
            return self
        # The other claim has some of these providers. Beside further allocations, the
        # amounts of these providers belong to the other claim.
        return replace(self, claim=replace(self.claim, is_uncertain=False))

    def following(
        self, doubt: Doubt | None, now: float, is_last: bool
    ) -> 'CleanupTask | TaskEnd':
        """The task after a look at the allocations of the instance, or its end.

        :param doubt: the reason to leave the allocations; None if nothing is left.
        :param is_last: no later look follows, since the process ends.
        """
        if self._is_settled(doubt) and (is_last or now >= self.final):
            return TaskEnd.OVER

        task = self.after_look(doubt, now)
        if doubt is not None and doubt.proves_nothing:
            # However late the look comes, as after an outage of Placement.
            return task
        # The work on the instance may have postponed the last look.
        if now >= task.until or (is_last and doubt is not None):
            return TaskEnd.LEFT
        return task

    def _is_settled(self, doubt: Doubt | None) -> bool:
        """True if the instance has no allocations of the lost claim after a look.

        The amounts of a successor, without further allocations, belong to the
        successor.
        """
        if doubt is None:
            return True
        if doubt.is_part or doubt.proves_nothing:
            return False
        return self.successor is not None

    def after_look(self, doubt: Doubt | None, now: float) -> 'CleanupTask':
        """The task for the next look.

        Once the instance was on the host of the successor, the allocations of the
        successor belong to the instance, also beside further allocations: an evacuated
        instance keeps the allocations on the source.

        A request may decide, and nova may work on an instance, for longer than a
        deletion is attempted. Only a look afterwards tells whether the instance has
        the allocations.
        """
        if doubt is None:
            return self

        task = self
        if doubt.may_pass:
            until = min(max(self.until, now + AFTER_WORK_S), self.longest)
            task = replace(task, until=until)
        if doubt.is_there and self.successor is not None:
            successor = replace(self.successor, is_uncertain=False)
            task = replace(task, successor=successor)
        return task


def doubt_about(
    claim: Claim,
    state: InstanceState | None,
    requested: bool,
    is_part: bool = False,
    is_new: bool = False,
    is_one_tree: bool = False,
) -> Doubt | None:
    """The reason to believe that another request may own allocations equal to a claim;
    None if no request owns the allocations.

    :param state: the instance in nova's databases; None if nova does not know the
        instance.
    :param requested: the current request is for the instance, so that the task of the
        instance is no reason.
    :param is_part: the instance has further allocations. Then no request owns the claim
        only if the instance is at rest, on a host without a provider of the claim.
    :param is_new: the state may be older than the allocations.
    :param is_one_tree: all providers of the claim are in one tree, as a compute node
        and its devices.
    """
    if state is None:
        # An instance that moves, or has further allocations, must have a row: without
        # the row, the reading is not trusted.
        if claim.moves or is_part:
            return Doubt('nova does not know it', is_part)
        return None
    if state.gone:
        return None

    # Doubts because of the instance come first, and doubts because of the reading last.
    if why := _why_in_doubt(claim, state, requested, is_part, is_one_tree):
        is_there = state.host in state.hosts
        is_at_work = state.building or state.task is not None
        return Doubt(why, is_part, is_there, may_pass=is_at_work)

    if is_new:
        why = 'the database may not show yet that it has a task'
        return Doubt(why, is_part, proves_nothing=True)
    return None


def are_hosts_known(claim: Claim, state: InstanceState, is_one_tree: bool) -> bool:
    """True if all providers of a claim are on hosts of the state. A provider that is no
    compute node may be a device there, or be shared with the host of the instance."""
    if len(state.hosts) >= len(claim.candidate.allocations):
        return True
    return is_one_tree and bool(state.hosts)


def _why_in_doubt(
    claim: Claim,
    state: InstanceState,
    requested: bool,
    is_part: bool,
    is_one_tree: bool,
) -> str | None:
    """See :func:`doubt_about`."""
    # The instance is on a host of the claim.
    if state.host is not None:
        if not state.hosts:
            return f'it is on the host {state.host}, and that of the claim is not known'
        if state.host in state.hosts:
            return f'it is on the host {state.host}, for which the claim was'

    # nova-compute deletes the allocations on the source once the source is back.
    if not state.hosts.isdisjoint(state.evacuated_from):
        return 'it was evacuated from the host of the claim, which is not back yet'

    # The amounts may belong to the allocations of the instance itself.
    if is_part and (
        state.host is None or not are_hosts_known(claim, state, is_one_tree)
    ):
        return 'it holds more, which may be on the same host'

    # The task of a request for the instance is the task of the caller.
    if requested:
        return None
    if state.building:
        return 'its build has not ended'
    if state.task:
        return f'it has a task in progress: {state.task}'
    return None
