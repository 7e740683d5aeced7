# SPDX-License-Identifier: Apache-2.0
"""Members of server groups that are new to a request, or to the databases.

nova-conductor reads a server group before the call of a scheduler. The ledger of claims
has the members that were placed since then, and the members that are being placed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from novasched.scheduler.claims.shared_ledger import SharedLedger
from novasched.scheduler.model.claim import PendingClaim
from novasched.scheduler.model.host import Host, HostSnapshot
from novasched.scheduler.model.request import Request
from novasched.scheduler.scheduling_state import SchedulingState


def newer_members(
    request: Request, shared: SharedLedger, snapshot: HostSnapshot | None = None
) -> Mapping[str, str]:
    """Members of the server group of a request that are new to the caller, or on hosts
    that are new to the caller: instance UUID to host UUID.

    A request may wait for seconds in the queue of the broker and for Placement.

    :param snapshot: limits the result to members on the hosts of this snapshot, with
        claims that do not count beside the snapshot any more.
    """
    group = request.instance_group
    if group is None or not group.uuid:
        return {}

    own = request.instance_uuids or ()

    def is_known(uuid: str, host: str) -> bool:
        return uuid in own or (uuid in group.members and host in group.hosts)

    hosts = {}
    with shared as ledger:
        # The claims last, since a member may have moved after its past claim.
        for member in ledger.members.past(group.uuid):
            if not is_known(member.uuid, member.host):
                hosts[member.uuid] = member.host_uuid
        for claim in ledger.members.claims(group.uuid):
            uuid = claim.request.instance_uuid or ''
            host = claim.host
            if is_known(uuid, host.host):
                continue
            if snapshot is not None:
                counting = ledger.counting_at(host.uuid, snapshot.read_at)
                if claim in counting:
                    continue
            hosts[uuid] = host.uuid
    return hosts


def with_hosts_of(
    members: Mapping[str, str], request: Request, snapshot: HostSnapshot
) -> Request:
    """Add the hosts of members to the server group of a request, if the snapshot shows
    the members there.

    :param members: instance UUID to the UUID of the claimed host.
    """
    hosts = []
    for uuid, host_uuid in members.items():
        host = snapshot.hosts.get(host_uuid)
        if host is not None and uuid in host.instances:
            hosts.append(host.host)
    return request.with_members((), hosts)


def with_pending_members(
    request: Request, state: SchedulingState, shared: SharedLedger
) -> Request:
    """Add the members with pending claims to the group of the request.

    The databases do not show these members yet, and the members may be new to the
    caller, too.
    """
    group = request.instance_group
    if group is None:
        return request

    members = []
    for claims in state.pending.values():
        for claim in claims:
            if claim.is_in_group(group):
                members.append(claim)
    if members and group.policy == 'affinity':
        members = _staying(members, state, shared)

    # The host in a claim of another scheduler has no aggregates, so that the host of
    # the snapshot is used.
    hosts = state.snapshot.hosts
    everywhere = state.snapshot.everywhere
    located: dict[str, tuple[Host, ...]] = {
        uuid: (host,)
        for uuid, host in state.snapshot.located.items()
        if uuid != request.instance_uuid
    }
    for claim in members:
        uuid = claim.request.instance_uuid or ''
        host_uuid = claim.host.uuid
        host = hosts[host_uuid] if host_uuid in hosts else everywhere[host_uuid]
        located[uuid] = (*located.get(uuid, ()), host)

    uuids = {claim.request.instance_uuid or '' for claim in members}
    names = {claim.host.host for claim in members}
    group = replace(
        group,
        members=group.members | uuids,
        hosts=group.hosts | names,
        located=located,
    )
    return replace(request, instance_group=group)


def _staying(
    members: Sequence[PendingClaim], state: SchedulingState, shared: SharedLedger
) -> list[PendingClaim]:
    """The members of an affinity group that keep their hosts.

    Members with an answer keep their hosts, and so do the first instances of the
    request itself. Without such members, the member announced first keeps its host. The
    claims of the remaining members will be released.
    """
    with shared as ledger:
        staying = [
            member
            for member in members
            if member in state.placed or ledger.is_claimed(member)
        ]
        if staying:
            return staying

        def position(member: PendingClaim) -> tuple[float, float]:
            return ledger.position_of(member), member.since

        return [min(members, key=position)]
