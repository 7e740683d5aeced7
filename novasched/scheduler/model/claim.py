# SPDX-License-Identifier: Apache-2.0
"""A claim of an instance that its host does not report yet."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from novasched.scheduler.model.candidate import Candidate
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.numa import Fit
from novasched.scheduler.model.request import InstanceGroup, Request


class State(str, Enum):
    """A claim as others are told of it. It is over for them as it is for us, by what
    the databases show, unless it is released."""

    CHOSEN = 'chosen'
    CLAIMED = 'claimed'
    RELEASED = 'released'


@dataclass(eq=False, slots=True)
class PendingClaim:
    """An instance on its way to a host, with what it takes there; ``place`` is that on
    the cells of the host, if it is fitted on any, and ``amounts`` those of its
    candidate.

    ``since`` is when it was chosen, ``claimed`` when Placement had it and the request
    was answered, ``shown`` when hosts were read that show it (monotonic seconds). Of
    claims that several schedulers have announced, ``order`` says which came first,
    infinite as long as nobody has heard of it; ``number`` is what the one calls it
    whose it is, and ``is_ours`` tells that it is this process.
    """

    host: Host
    request: Request
    candidate: Candidate | None
    place: Fit | None
    limits: Mapping[str, Any]
    since: float
    amounts: Mapping[str, Mapping[str, int]]
    claimed: float = math.inf
    shown: float = math.inf
    order: float = math.inf
    number: int = 0
    is_ours: bool = True

    def is_in_group(self, group: InstanceGroup | None) -> bool:
        """True if the instance is of that server group."""
        own = self.request.instance_group
        return bool(group and own and group.uuid and group.uuid == own.uuid)

    def is_near(self, other: 'PendingClaim') -> bool:
        """True if both claims are on the same host or of the same server group, so that
        one claim may keep the other from fitting."""
        is_on_same_host = self.host.uuid == other.host.uuid
        return is_on_same_host or self.is_in_group(other.request.instance_group)

    def is_ahead_of(self, ours: 'PendingClaim') -> bool:
        """True if this claim of another scheduler takes precedence over a claim of
        ours, since it was announced earlier or its request has been answered. Ours is
        given back if it does not fit beside this claim."""
        is_first = self.claimed < math.inf or self.order < ours.order
        return not self.is_ours and is_first


ClaimsOfHost = tuple[PendingClaim, ...]


def is_pending(row: Any, key: tuple[str, str]) -> bool:
    """True if an instance with this row of the table ``instances`` may still be on its
    way to a host (its name and its node's), which does not show it yet.

    nova-compute writes what it has claimed for an instance to its compute node before
    it goes on to the next ``task_state``; nova sets the first one of a move before it
    asks for a host. So every ``task_state`` but those named here says that the instance
    has arrived, or that it never will: it goes elsewhere, or the move is over.
    """
    if row.deleted:
        return False
    host = None if row.host is None else (row.host, row.node)
    if row.vm_state == 'building':
        return row.task_state in (None, 'scheduling') and host in (None, key)
    if row.vm_state == 'shelved_offloaded':
        # The claim sets the host and leaves the task_state, which lasts until the guest
        # runs.
        return row.task_state in ('unshelving', 'spawning')
    if row.task_state in ('migrating', 'rebuilding'):
        return host != key  # where it is already, it came by an earlier request
    return bool(row.task_state == 'resize_prep')  # perhaps on its own host
