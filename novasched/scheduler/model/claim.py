# SPDX-License-Identifier: Apache-2.0
"""A claim of an instance that its host does not report yet."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from novasched.scheduler.model.candidate import Candidate
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.numa import Fit
from novasched.scheduler.model.request import Request, ServerGroup


class Stage(StrEnum):
    """The stages of a claim; ``scheduler/claims/ledger.py`` draws the stages.

    CHOSEN, CLAIMED and RELEASED are announced to other schedulers, which read SHOWN
    from the databases.
    """

    CHOSEN = 'chosen'
    CLAIMED = 'claimed'
    SHOWN = 'shown'
    RELEASED = 'released'


@dataclass(frozen=True, eq=False, slots=True)
class PendingClaim:
    """A host chosen for an instance.

    :ivar host: the host at the moment of the choice.
    :ivar request: the request, with the instance as current instance.
    :ivar candidate: the allocation candidate; None if nothing is claimed.
    :ivar fit: the guest cells on the cells of ``host``, for a guest with a NUMA
        topology; None if unknown.
    :ivar limits: the limits that filters have set for the host.
    :ivar since: the moment of the choice (monotonic seconds).
    :ivar amounts: provider UUID to resource class to amount of the candidate.
    :ivar number: identifies the claim in the announcements of its scheduler.
    :ivar is_ours: this process made the claim.
    """

    host: Host
    request: Request
    candidate: Candidate | None
    fit: Fit | None
    limits: Mapping[str, Any]
    since: float
    amounts: Mapping[str, Mapping[str, int]]
    number: int = 0
    is_ours: bool = True

    def is_in_group(self, group: ServerGroup | None) -> bool:
        """True if the instance is a member of a server group."""
        own_group = self.request.instance_group
        if group is None or own_group is None or not group.uuid:
            return False
        return group.uuid == own_group.uuid

    def is_near(self, other: 'PendingClaim') -> bool:
        """True if both claims are on the same host or of the same server group, so that
        one claim may keep the other from fitting."""
        is_on_same_host = self.host.uuid == other.host.uuid
        return is_on_same_host or self.is_in_group(other.request.instance_group)


ClaimsOfHost = tuple[PendingClaim, ...]


def is_pending(row: Any, claim: PendingClaim) -> bool:
    """True if the instance of a claim may still be on the way to a host that does not
    show the instance yet.

    nova-compute reports the resources of an instance in ``compute_nodes`` before it
    sets the next ``task_state``. nova sets the first ``task_state`` of a move before it
    asks for a host. With any other ``task_state`` than below, the instance has
    arrived, or will never arrive, since the move has ended or has another destination.

    :param row: the row of the table ``instances``.
    """
    if row.deleted:
        return False

    key = claim.host.key
    host = None
    if row.host is not None:
        host = (row.host, row.node)
    if row.vm_state == 'building':
        return row.task_state in (None, 'scheduling') and host in (None, key)
    if row.vm_state == 'shelved_offloaded':
        # The claim sets the host and leaves the task_state, which lasts until the guest
        # runs.
        return row.task_state in ('unshelving', 'spawning')
    if row.task_state in ('migrating', 'rebuilding'):
        # On the host itself, the instance has arrived by an earlier request.
        return host != key
    if row.task_state == 'resize_prep':
        # A resize may go to the present host, where the row has the flavor before. With
        # the flavor of the claim, the instance has arrived by an earlier request.
        return not has_arrived(row, claim)
    return False


def has_arrived(row: Any, claim: PendingClaim) -> bool:
    """True if a row has the host and the flavor of a claim. Where a flavor has no id,
    the host decides: otherwise the instance would count twice.

    :param row: the row of the table ``instances``.
    """
    flavor_ids = {row.instance_type_id, claim.request.flavor.id} - {None}
    return (row.host, row.node) == claim.host.key and len(flavor_ids) <= 1


def may_precede_choice(row: Any, claim: PendingClaim) -> bool:
    """True if a row may be from before the choice of the host, although the row was
    read afterwards from a database that lags behind.

    An instance that moves has a row before the choice, without the task of the move. A
    build has none, unless nova asks for another host after a failure, as before Queens.
    Two rows are certain: the row of a deleted instance, and a row with the host and the
    flavor of the claim. A resize to the present host has another flavor there before.

    :param row: the row of the table ``instances``.
    """
    return not row.deleted and not has_arrived(row, claim)
