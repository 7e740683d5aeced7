# SPDX-License-Identifier: Apache-2.0
"""The state of a request while its instances are placed one after the other."""

import logging
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from novasched.scheduler.claims.decision_lock import Turn
from novasched.scheduler.claims.pending_claims import PendingClaims, changed_hosts
from novasched.scheduler.errors import IncompleteData, NoValidHost, StaleData
from novasched.scheduler.fitting import far_devices, host_devices
from novasched.scheduler.model.basis import Basis
from novasched.scheduler.model.candidate import (
    Candidate,
    CandidateIndex,
    Candidates,
    choose,
)
from novasched.scheduler.model.claim import ClaimsOfHost, PendingClaim
from novasched.scheduler.model.host import Host, HostSnapshot, Selection, uuid_of
from novasched.scheduler.model.pci import HostDevices
from novasched.scheduler.model.request import Request
from novasched.scheduler.pipeline import Pipeline
from novasched.scheduler.ports import MAX_CLAIMS_PER_HOST

LOG = logging.getLogger('nova.scheduler.manager')
CLAIMS = logging.getLogger('nova.scheduler.utils')
NOT_ENOUGH = 'There are not enough hosts available.'

Limits = Callable[[Host, Request], Mapping[str, Any]]


def with_hosts_of(
    members: Mapping[str, str], request: Request, snapshot: HostSnapshot
) -> Request:
    """Add the hosts of members to the server group of a request, as far as the hosts
    show the members.

    :param members: by UUID, the UUIDs of the compute nodes for which the members were
        claimed.
    """
    hosts = []
    for uuid, host_uuid in members.items():
        host = snapshot.hosts.get(host_uuid)
        if host is not None and uuid in host.instances:
            hosts.append(host.host)
    return request.with_members((), hosts)


@dataclass(frozen=True, slots=True)
class SchedulingState:
    """A request, the claims for its first instances, and the hosts for the remaining
    instances.

    :ivar hosts: the hosts of the snapshot that passed the filters for the instance
        before, less the pending claims, in the same order; at first all offered hosts.
    :ivar candidates: Placement's offer, without the candidates that filters have
        dropped for earlier instances; None if Placement was not asked.
    :ivar pending: the claims that were subtracted from hosts, by UUID of the host.
    """

    request: Request
    basis: Basis
    snapshot: HostSnapshot
    hosts: Sequence[Host]
    candidates: Candidates | None
    pending_claims: PendingClaims
    placed: tuple[PendingClaim, ...] = ()
    pending: Mapping[str, ClaimsOfHost] = field(default_factory=dict)

    @property
    def instance_uuids(self) -> Sequence[str | None]:
        """UUIDs of the instances to be placed, in order."""
        return self.request.instance_uuids or [None] * self.request.count

    def turn(self) -> AbstractContextManager[Turn]:
        """Wait for a turn to decide, and have it for as long as the context lasts."""
        of_several = self.request.count > 1
        return self.pending_claims.decision_lock.turn(of_several)

    def turns(self) -> Generator[Turn, None, None]:
        """A turn for each instance; see
        :meth:`novasched.scheduler.claims.decision_lock.DecisionLock.turns`."""
        of_several = self.request.count > 1
        return self.pending_claims.decision_lock.turns(of_several)

    def now(self) -> 'SchedulingState':
        """The state with hosts less the claims that are pending now. Claims of earlier
        requests for the same instances do not count."""
        own_instances = frozenset(self.request.instance_uuids or ())
        before = self.pending
        pending = self.pending_claims.of(self.snapshot, own_instances, self.placed)
        if pending == before:
            state = replace(self, pending=pending)
            return state._with_candidates_beside(())

        less_claims = self.pending_claims.left(self.snapshot, pending)
        changed = less_claims
        if before:
            # Hosts whose last claim has ended are whole again.
            whole = self.snapshot.hosts
            changed = {}
            for uuid in changed_hosts(before, pending) & whole.keys():
                changed[uuid] = less_claims.get(uuid, whole[uuid])
        hosts = [*map(changed.get, map(uuid_of, self.hosts), self.hosts)]
        state = replace(self, hosts=hosts, pending=pending)
        return state._with_candidates_beside({*changed})

    def _with_candidates_beside(self, changed: Collection[str]) -> 'SchedulingState':
        """The state with the candidates that the pending claims leave, without hosts
        that have no candidate left.

        :param changed: the hosts whose claims have changed.
        """
        if self.candidates is None:
            return self

        hosts = self.hosts
        devices = partial(self._devices_of, hosts, {})
        candidates = self.candidates.beside(self._unclaimed, devices, changed)
        if changed:
            exhausted = frozenset(candidates.exhausted(changed))
            if exhausted:
                hosts = [host for host in hosts if host.uuid not in exhausted]
        return replace(self, hosts=hosts, candidates=candidates)

    def avoiding(self, host: Host, refused: Sequence[Candidate]) -> 'SchedulingState':
        """The state with candidates of a host that avoid the devices of refused
        candidates. The state itself if there are no such candidates. Filters have not
        judged the new candidates."""
        if self.candidates is None:
            return self
        candidates = self.candidates.without(host.uuid, refused)
        if candidates is self.candidates:
            return self
        return replace(self, candidates=candidates)

    def _unclaimed(self) -> Mapping[str, Mapping[str, int]]:
        """The amounts of claims that Placement had not counted when it was asked."""
        asked_at = self.basis.began
        if self.candidates is not None and self.candidates.asked_at is not None:
            asked_at = self.candidates.asked_at
        return self.pending_claims.unclaimed(asked_at)

    def _devices_of(
        self, hosts: Sequence[Host], by_uuid: dict[str, Host], uuid: str
    ) -> HostDevices:
        """The PCI devices of a host.

        :param hosts: the hosts, less the pending claims.
        :param by_uuid: gets the hosts by UUID at the first call.
        """
        if not by_uuid:
            by_uuid.update(zip(map(uuid_of, hosts), hosts, strict=True))
        host = by_uuid.get(uuid) or self.snapshot.hosts[uuid]
        return host_devices(host, self.request, self.pending_claims.settings)

    def with_pending_members(self, request: Request) -> Request:
        """Add the members with pending claims to the group of the request.

        No database knows these members yet, and the caller may not know them either.
        """
        group = request.instance_group
        if group is None:
            return request

        members = []
        for claims in self.pending.values():
            for claim in claims:
                if claim.is_in_group(group):
                    members.append(claim)
        if members and group.policy == 'affinity':
            members = self._staying(members)

        # A claim of another scheduler does not know the aggregates of its host.
        hosts = self.snapshot.hosts
        everywhere = self.snapshot.everywhere
        located: dict[str, tuple[Host, ...]] = {
            uuid: (host,)
            for uuid, host in self.snapshot.located.items()
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

    def _staying(self, members: Sequence[PendingClaim]) -> list[PendingClaim]:
        """The members of an affinity group that stay where they are.

        Claimed members stay, and the first instances of the request itself beside them.
        Without such members, the member that was announced first stays. Members on
        other hosts will be released.
        """
        with self.pending_claims.ledger as ledger:
            staying = [
                member
                for member in members
                if member in self.placed or ledger.is_claimed(member)
            ]
            if staying:
                return staying

            def position(member: PendingClaim) -> tuple[float, float]:
                return ledger.order_of(member), member.since

            return [min(members, key=position)]

    def is_as_before(self, before: 'SchedulingState', host: Host) -> bool:
        """True if the pending claims on a host are the claims of an earlier state. For
        a member of a group, the pending claims on all hosts."""
        if self.request.instance_group is not None:
            return self.pending == before.pending
        return self.pending.get(host.uuid) == before.pending.get(host.uuid)

    def stays(self, choice: 'Choice', pipeline: Pipeline) -> bool:
        """True if a choice, once it is claimed, fits beside the claims that other
        schedulers made at the same time. If the choice was overtaken, also beside the
        claims of other requests of this process."""
        claims = self.pending_claims
        claim = choice.claim
        turn = choice.turn
        if claims.peers is not None:
            claims.peers.catch_up(claim)
        elif not turn.was_overtaken:
            return True  # all requests that chose meanwhile have seen this choice

        while turn.was_overtaken or self._rivals(claim):
            # Within a turn no other request chooses. Earlier choices are seen here, and
            # later requests see this choice.
            with self.turn() as next_turn:
                rivals = self._rivals(claim, with_ours=turn.was_overtaken)
                if rivals and not self._fits_beside(rivals, claim, pipeline):
                    claims.given_back += 1
                    LOG.info(
                        'Another request was faster on %s for instance %s',
                        claim.host,
                        claim.request.instance_uuid,
                    )
                    return False
            if not next_turn.was_overtaken:
                return True
            turn = next_turn
        return True

    def _rivals(
        self,
        choice: PendingClaim,
        with_ours: bool = False,
    ) -> list[PendingClaim]:
        """The claims since the ranking of the hosts that take precedence over a
        choice.

        :param with_ours: also the claims of this process, which were chosen in turns.
        """
        before = self.pending
        own_instances = frozenset(self.request.instance_uuids or ())
        now = self.pending_claims.of(self.snapshot, own_instances, self.placed)
        rivals = []
        for uuid in changed_hosts(before, now) & now.keys():
            for claim in now[uuid]:
                if claim in before.get(uuid, ()):
                    continue
                is_ahead = with_ours
                if not claim.is_ours:
                    with self.pending_claims.ledger as ledger:
                        is_ahead = ledger.is_ahead(claim, choice)
                if is_ahead and claim.is_near(choice):
                    rivals.append(claim)
        return rivals

    def _fits_beside(
        self, rivals: Sequence[PendingClaim], choice: PendingClaim, pipeline: Pipeline
    ) -> bool:
        """True if a choice passes the filters when the rivals are counted."""
        pending = dict(self.pending)
        for rival in rivals:
            pending[rival.host.uuid] = (*pending.get(rival.host.uuid, ()), rival)

        request = self.request.for_instance(choice.request.instance_uuid)
        state = replace(self, pending=pending)
        request = state.with_pending_members(request)
        uuid = choice.host.uuid
        claims = pending.get(uuid, ())
        host = self.pending_claims.subtract(self.snapshot.hosts[uuid], claims)
        # The host may fit with devices of other candidates, which are not claimed.
        candidates = self.candidates
        if choice.candidate is not None:
            candidates = CandidateIndex([choice.candidate])
        ranking = pipeline.filter([host], request, len(self.placed), candidates)
        return bool(ranking.hosts)

    def candidate(
        self, host: Host, refused: Sequence[Candidate] = ()
    ) -> Candidate | None:
        """The best candidate of a host beside the pending claims.

        None if the request claims nothing, and if Placement would refuse all remaining
        candidates for the reason of an earlier refusal.

        :param refused: candidates that Placement has refused.
        """
        if self.candidates is None or not self.request.claims:
            return None

        far = partial(far_devices, host, self.request, self.pending_claims.settings)
        candidate = choose(self.candidates, host.uuid, self._unclaimed, far, refused)
        return candidate and candidate.detach()

    def with_candidates_alone(self) -> 'SchedulingState':
        """The state without hosts on which no candidate was found: the search in the
        tree of a host may be given up.

        :raises NoValidHost: no host remains.
        """
        hosts = [*filter(self.has_candidate, self.hosts)]
        if not hosts:
            raise self.not_enough()
        return replace(self, hosts=hosts)

    def has_candidate(self, host: Host) -> bool:
        """True if a candidate was found on a host, or if Placement was not asked."""
        return self.candidates is None or bool(self.candidates[host.uuid])

    def assign(
        self,
        request: Request,
        host: Host,
        candidate: Candidate | None,
        limits: Limits,
        undo: ExitStack,
    ) -> PendingClaim:
        """Enter a pending claim for the current instance on a host, in a turn. Other
        requests count the claim at once.

        :param undo: releases the claim unless the request is answered.
        """
        assert self.pending_claims.decision_lock.is_in_turn(), 'chosen without a turn'
        if candidate is not None:
            CLAIMS.debug(
                'Attempting to claim resources in the placement API for instance %s',
                request.instance_uuid,
            )
        claim = self.pending_claims.choose(
            host, request, candidate, limits(host, request)
        )
        undo.callback(self.pending_claims.release, claim)
        return claim

    def with_one_more(self, request: Request, claim: PendingClaim) -> 'SchedulingState':
        """The state for the next instance of the request."""
        request = request.with_placed_instance(claim.host.host, claim.candidate)
        return replace(self, request=request, placed=(*self.placed, claim))

    def check_claim_refusal(self, refused: int) -> None:
        """Check, after a refused claim, that further claims are worthwhile.

        :param refused: the number of claims for the instance that were refused.
        :raises StaleData: the candidate was remembered, and may have been taken since.
        :raises IncompleteData: several candidates from a new answer about all hosts
            were refused. ``max_unit`` and ``step_size`` of inventories, which such an
            answer does not tell, may exclude all hosts.
        """
        candidates = self.candidates
        if candidates is None or candidates.asked_at is None:
            return
        if candidates.is_remembered:
            raise StaleData('a claim was refused')
        if refused >= MAX_CLAIMS_PER_HOST and not self.basis.own_query:
            raise IncompleteData('claims were refused')

    def not_enough(self) -> NoValidHost:
        """The refusal of a request if no host remains for an instance."""
        LOG.debug(
            'There are %d hosts available but %d instances requested to build.',
            len(self.placed),
            self.request.count,
        )
        return NoValidHost(NOT_ENOUGH)

    def selections(
        self, spare: Sequence[Host], number: int, zone: str | None, limits: Limits
    ) -> list[list[Selection]]:
        """The chosen hosts, each followed by alternates: spare hosts of the same cell.

        :param number: the maximum number of alternates.
        :param zone: the availability zone of hosts without an availability zone.
        :param limits: makes the limits of an alternate.
        """
        chosen = {claim.host.uuid for claim in self.placed}
        selections = []
        for claim in self.placed:
            uuid = claim.request.instance_uuid
            host = claim.host
            LOG.debug('Selected host: %s', host, extra={'instance_uuid': uuid})
            row = [Selection.of(host, claim.candidate, zone, claim.limits)]
            for other in spare:
                if len(row) > number:
                    break
                is_spare = other.uuid not in chosen and self.has_candidate(other)
                if is_spare and other.cell_uuid == host.cell_uuid:
                    candidate = self.candidate(other)
                    limited = limits(other, self.request)
                    row.append(Selection.of(other, candidate, zone, limited))
            selections.append(row)
        return selections


@dataclass(frozen=True, slots=True)
class Choice:
    """A host chosen for an instance, and not claimed yet.

    :ivar turn: the turn in which the host was chosen.
    :ivar beside: the state in which the host was chosen. Later choices of a request are
        made beside more pending claims.
    """

    claim: PendingClaim
    turn: Turn
    beside: SchedulingState
