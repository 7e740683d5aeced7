# SPDX-License-Identifier: Apache-2.0
"""The state of a request part of whose instances are placed."""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import compress
from operator import attrgetter, is_not
from typing import Any

import numpy as np
from numpy.typing import NDArray

from novasched.scheduler.decision_lock import Turn
from novasched.scheduler.errors import NoValidHost, StaleData
from novasched.scheduler.fitting import far_devices
from novasched.scheduler.model.basis import Basis
from novasched.scheduler.model.candidate import Candidate, Candidates, choose
from novasched.scheduler.model.claim import ClaimsOfHost, PendingClaim
from novasched.scheduler.model.host import Host, HostSnapshot, Selection, uuid_of
from novasched.scheduler.model.request import Request
from novasched.scheduler.pending_claims import PendingClaims, changed_hosts
from novasched.scheduler.pipeline import Pipeline
from novasched.scheduler.ports import Peers

LOG = logging.getLogger('nova.scheduler.manager')
CLAIMS = logging.getLogger('nova.scheduler.utils')
NOT_ENOUGH = 'There are not enough hosts available.'

SIZES: Mapping[str, Callable[[Any], int]] = {
    'VCPU': attrgetter('vcpus_total'),
    'MEMORY_MB': attrgetter('total_usable_ram_mb'),
    'DISK_GB': attrgetter('total_usable_disk_gb'),
}
"""Resource classes, and what a host has of them before overcommit."""

Limits = Callable[[Host, Request], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class _Listed:
    """Hosts of these UUIDs, in their order, with None for what is no host; and their
    sizes, which are :data:`SIZES` in one row each, negative for what is none."""

    uuids: Sequence[str]
    known: Mapping[str, Host]
    hosts: Sequence[Host | None]
    sizes: NDArray[np.float64]


class OfferedHosts:
    """The hosts that are candidates of requests. Those of remembered candidates are
    much the same from one request to the next, and are kept in columns."""

    def __init__(self) -> None:
        self._last = _Listed((), {}, (), np.empty((len(SIZES), 0)))

    def of(
        self,
        candidates: Candidates | None,
        snapshot: HostSnapshot,
        basis: Basis,
        peers: Peers | None,
    ) -> list[Host]:
        """The candidates' hosts in Placement's order, which is that in which equally
        good ones are tried; so each of several schedulers begins with others. All hosts
        where it was not asked.

        :raises StaleData: remembered candidates do not do (:func:`check_up_to_date`).
        """
        if candidates is None:
            hosts = [*snapshot.hosts.values()]
        elif candidates.is_remembered:
            check_up_to_date(candidates, snapshot, basis.is_alone)
            hosts = self._large_enough(candidates, snapshot)
        else:
            known = snapshot.hosts
            hosts = [known[uuid] for uuid in candidates if uuid in known]
        if peers is None:
            return hosts
        place, number = peers.position
        first = len(hosts) * place // number
        return hosts[first:] + hosts[:first]

    def _large_enough(
        self, candidates: Candidates, snapshot: HostSnapshot
    ) -> list[Host]:
        """Hosts of remembered candidates that are as large as the amounts which
        Placement has not checked: nova gives no instance more than a host has before
        overcommit (``max_unit`` of its inventories)."""
        uuids, is_offered = candidates.rows()
        listed = self._last = _listed(uuids, snapshot.hosts, self._last)
        amounts = candidates.unchecked_amounts
        for size, name in zip(listed.sizes, SIZES, strict=True):
            is_offered = is_offered & (size >= amounts.get(name, 0))
        return [*compress(listed.hosts, is_offered.tolist())]  # type: ignore[list-item]


def _listed(uuids: Sequence[str], known: Mapping[str, Host], last: _Listed) -> _Listed:
    """Hosts of these UUIDs; what they have in common with the last ones is not looked
    up anew."""
    if last.uuids is uuids and last.known is known:
        return last
    hosts = [*map(known.get, uuids)]
    sizes = last.sizes
    changed: Sequence[int] = range(len(hosts))
    if last.uuids is uuids:
        others = np.fromiter(map(is_not, hosts, last.hosts), bool, len(hosts))
        sizes = sizes.copy()
        changed = np.flatnonzero(others).tolist()
    else:
        sizes = np.empty((len(SIZES), len(hosts)))
    sizes[:, changed] = [
        [-1 if hosts[i] is None else size(hosts[i]) for i in changed]
        for size in SIZES.values()
    ]
    return _Listed(uuids, known, hosts, sizes)


def check_up_to_date(
    candidates: Candidates, snapshot: HostSnapshot, is_alone: bool
) -> None:
    """See that remembered candidates still are what Placement would offer.

    :param is_alone: no other request is being decided, so that the request may wait for
        Placement.
    :raises StaleData: since Placement was asked, aggregates have changed or, for a
        request that is alone, a host that is not among the candidates has become freer.
    """
    asked_at = candidates.asked_at
    if asked_at is None:
        return
    if asked_at < snapshot.aggregates_settled:
        raise StaleData('aggregates have changed')
    if is_alone:
        for uuid, moment in snapshot.freed.items():
            if moment > asked_at and uuid not in candidates:
                raise StaleData(f'{uuid} may have become free')


@dataclass(frozen=True, slots=True)
class SchedulingState:
    """A request, the claims for its first instances, and the hosts for the others.

    :ivar hosts: those of the snapshot that the request may go to, less the pending
        claims; those that were fit for the instance before, in their order.
    :ivar candidates: Placement's offer, less what the filters have taken away for the
        instances so far; None where it was not asked.
    :ivar pending: the claims that were subtracted from hosts, by UUID.
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
        """The instances to be placed, in order."""
        return self.request.instance_uuids or [None] * self.request.count

    def now(self) -> 'SchedulingState':
        """The state with hosts less the claims that are pending now, but for what
        earlier requests have sent there of the same instances."""
        again = frozenset(self.request.instance_uuids or ())
        before = self.pending
        pending = self.pending_claims.of(self.snapshot, again, self.placed)
        if pending == before:
            return replace(self, pending=pending)
        known = self.snapshot.hosts
        anew = left = self.pending_claims.left(known, pending)
        if before:
            changed = changed_hosts(before, pending) & known.keys()
            anew = {uuid: left.get(uuid, known[uuid]) for uuid in changed}
        hosts = [*map(anew.get, map(uuid_of, self.hosts), self.hosts)]
        return replace(self, hosts=hosts, pending=pending)

    def with_pending_members(self, request: Request) -> Request:
        """The current instance's request, whose group has those too that are on their
        way: no database tells of them yet, nor, perhaps, does the caller. Where all are
        to stay together, those that are claimed stay in any case, and the request's own
        first instances beside them; without any of these the one that was announced
        first: others will be given back if they are not with it."""
        if (group := request.instance_group) is None:
            return request
        members = [
            claim
            for claims in self.pending.values()
            for claim in claims
            if claim.is_in_group(group)
        ]
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

        Members that are claimed stay, and the request's own first instances beside
        them. Without such members the one that was announced first stays: others will
        be released if they are not on the same host.
        """
        claims = self.pending_claims
        staying = [
            member
            for member in members
            if member in self.placed or claims.ledger.is_claimed(member)
        ]
        if staying:
            return staying

        def position(member: PendingClaim) -> tuple[float, float]:
            return claims.ledger.order_of(member), member.since

        return [min(members, key=position)]

    def is_as_before(self, before: 'SchedulingState', host: Host) -> bool:
        """True if no other claims are pending on a host than in an earlier state, nor,
        for a member of a group, on any."""
        if self.request.instance_group is not None:
            return self.pending == before.pending
        return self.pending.get(host.uuid) == before.pending.get(host.uuid)

    def stays(self, choice: PendingClaim, turn: Turn, pipeline: Pipeline) -> bool:
        """True if a choice, after its claim, fits beside the claims that were made at
        the same time by other schedulers and, if the choice was overtaken, by other
        requests of this process.

        :param turn: the turn in which the choice was made.
        """
        claims = self.pending_claims
        if claims.peers is not None:
            claims.peers.catch_up(choice)
        elif not turn.was_overtaken:
            return True  # all requests that chose meanwhile have seen this choice

        while turn.was_overtaken or self._rivals(choice):
            # Within a turn no other request chooses. Earlier choices are seen here, and
            # later requests see this choice.
            with claims.decision_lock.turn() as next_turn:
                rivals = self._rivals(choice, with_ours=turn.was_overtaken)
                if rivals and not self._fits_beside(rivals, choice, pipeline):
                    claims.given_back += 1
                    LOG.info(
                        'Another request was faster on %s for instance %s',
                        choice.host,
                        choice.request.instance_uuid,
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
        """The claims that came after the hosts were ranked and that take precedence
        over a choice.

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
                    is_ahead = self.pending_claims.ledger.is_ahead(claim, choice)
                if is_ahead and claim.is_near(choice):
                    rivals.append(claim)
        return rivals

    def _fits_beside(
        self, rivals: Sequence[PendingClaim], choice: PendingClaim, pipeline: Pipeline
    ) -> bool:
        """True if the host of a choice passes the filters when the rivals are
        counted."""
        pending = dict(self.pending)
        for rival in rivals:
            pending[rival.host.uuid] = (*pending.get(rival.host.uuid, ()), rival)

        request = self.request.for_instance(choice.request.instance_uuid)
        state = replace(self, pending=pending)
        request = state.with_pending_members(request)
        uuid = choice.host.uuid
        claims = pending.get(uuid, ())
        host = self.pending_claims.subtract(self.snapshot.hosts[uuid], claims)
        ranking = pipeline.filter([host], request, len(self.placed), self.candidates)
        return bool(ranking.hosts)

    def candidate(
        self, host: Host, refused: Sequence[Candidate] = ()
    ) -> Candidate | None:
        """Candidate to claim on a host, beside what other requests are about to claim;
        None where nothing is claimed at all, and where each that is left would be
        refused as others were."""
        if self.candidates is None or not self.request.claims:
            return None
        pending = partial(self.pending_claims.unclaimed, self.basis.began)
        far = partial(far_devices, host, self.request, self.pending_claims.settings)
        candidate = choose(self.candidates, host.uuid, pending, far, refused)
        return candidate and candidate.detach()

    def assign(
        self,
        request: Request,
        host: Host,
        candidate: Candidate | None,
        limits: Limits,
        undo: ExitStack,
    ) -> PendingClaim:
        """Send the current instance to a host; other requests see it there at once.

        :param undo: takes it back unless the request is answered.
        """
        if candidate is not None:
            CLAIMS.debug(
                'Attempting to claim resources in the placement API for instance %s',
                request.instance_uuid,
            )
        claim = self.pending_claims.add(host, request, candidate, limits(host, request))
        undo.callback(self.pending_claims.drop, claim)
        return claim

    def with_one_more(self, request: Request, claim: PendingClaim) -> 'SchedulingState':
        """The state for the next instance, after the current one of the request."""
        request = request.with_placed_instance(claim.host.host, claim.candidate)
        return replace(self, request=request, placed=(*self.placed, claim))

    def check_claim_refusal(self) -> None:
        """See that a claim which Placement refused was for a candidate that Placement
        offered to this try.

        :raises StaleData: the candidate was remembered, and may have been taken since.
        """
        if self.candidates is not None and self.candidates.is_remembered:
            raise StaleData('a claim was refused')

    def not_enough(self) -> NoValidHost:
        """The refusal where no host is left for an instance."""
        LOG.debug(
            'There are %d hosts available but %d instances requested to build.',
            len(self.placed),
            self.request.count,
        )
        return NoValidHost(NOT_ENOUGH)

    def selections(
        self, spare: Sequence[Host], number: int, zone: str | None, limits: Limits
    ) -> list[list[Selection]]:
        """The chosen hosts, with so many alternates behind each: spare hosts of its
        cell.

        :param zone: the availability zone of hosts that are in none.
        :param limits: those of an alternate.
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
                if other.uuid not in chosen and other.cell_uuid == host.cell_uuid:
                    candidate = self.candidate(other)
                    limited = limits(other, self.request)
                    row.append(Selection.of(other, candidate, zone, limited))
            selections.append(row)
        return selections
