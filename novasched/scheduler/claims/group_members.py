# SPDX-License-Identifier: Apache-2.0
"""The members of server groups in the ledger of pending claims."""

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass

from novasched.scheduler.model.claim import PendingClaim


@dataclass(frozen=True, slots=True)
class PastMember:
    """A member of a server group after its claim is OVER.

    :ivar host_uuid: the UUID of the host.
    :ivar host: the name of the host.
    :ivar until: from then on every request in progress knows the member (monotonic
        seconds).
    """

    uuid: str
    group: str
    host_uuid: str
    host: str
    until: float


class GroupMembers:
    """The claims of members of server groups, and the past members.

    A past member is remembered until every request in progress knows the member: such
    requests began after the claim was OVER.

    :ivar queue: the past members, in the order in which the claims ended.
    """

    def __init__(self) -> None:
        self._claims: dict[str, dict[PendingClaim, None]] = {}
        self._past: dict[str, dict[str, PastMember]] = {}
        self.queue: deque[PastMember] = deque()

    def claims(self, group: str) -> Collection[PendingClaim]:
        """The claims of the members of a group, in the order of arrival."""
        return self._claims.get(group, {}).keys()

    def past(self, group: str) -> Collection[PastMember]:
        """The past members of a group."""
        return self._past.get(group, {}).values()

    def add(self, claim: PendingClaim) -> None:
        """Note a claim, if the instance is a member of a group."""
        group = claim.request.instance_group
        if group is not None and group.uuid:
            self._claims.setdefault(group.uuid, {})[claim] = None

    def remove(self, claim: PendingClaim) -> None:
        """Remove a claim, if the instance is a member of a group."""
        group = claim.request.instance_group
        if group is not None and group.uuid:
            del self._claims[group.uuid][claim]
            if not self._claims[group.uuid]:
                del self._claims[group.uuid]

    def remember(self, claim: PendingClaim, until: float) -> None:
        """Remember the instance and the host of a claim, if the instance is a member of
        a group."""
        group = claim.request.instance_group
        instance = claim.request.instance_uuid
        if group is None or not group.uuid or instance is None:
            return
        host = claim.host
        member = PastMember(instance, group.uuid, host.uuid, host.host, until)
        self._past.setdefault(group.uuid, {})[instance] = member
        self.queue.append(member)

    def forget(self, now: float) -> None:
        """Forget the past members known to every request in progress."""
        while self.queue and self.queue[0].until <= now:
            member = self.queue.popleft()
            members = self._past.get(member.group, {})
            # A later claim of the same instance has another entry in the queue.
            if members.get(member.uuid) is member:
                del members[member.uuid]
                if not members:
                    del self._past[member.group]
