# SPDX-License-Identifier: Apache-2.0
"""Pending claims: claims for instances that no host reports yet, for all requests.

nova-compute reports an instance seconds after the choice of the host. Until then the
databases show more room on the host than there is. A request subtracts the pending
claims from the hosts, so that instances spread over hosts, NUMA cells and PCI devices
instead of colliding there.

``ledger.py`` has the claims and their stages, and ``shared_ledger.py`` adds the lock
and the clock. The claims of this process are announced to the other schedulers, and the
claims of the other schedulers are in the same ledger. ``rivals.py`` checks a choice
against the claims that other schedulers made at the same moment.
"""

import math
from collections.abc import (
    Callable,
    Collection,
    Container,
    Generator,
    Mapping,
    Sequence,
)
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

from novasched.conf.settings import Settings
from novasched.scheduler import fitting
from novasched.scheduler.claims.decision_lock import DecisionLock, Turn
from novasched.scheduler.claims.hosts_left import (
    CountingClaims,
    HostsLeft,
    changed_hosts,
)
from novasched.scheduler.claims.ledger import TakenAmounts
from novasched.scheduler.claims.shared_ledger import SharedLedger
from novasched.scheduler.model.candidate import Candidate, Candidates, choose
from novasched.scheduler.model.claim import (
    ClaimsOfHost,
    PendingClaim,
    Stage,
    is_pending,
    may_precede_choice,
)
from novasched.scheduler.model.host import Host, HostSnapshot
from novasched.scheduler.model.instance import MAX_READ_LAG_S
from novasched.scheduler.model.pci import HostDevices
from novasched.scheduler.model.request import Request
from novasched.scheduler.ports import Peers
from novasched.scheduler.scheduling_state import SchedulingState

UNDECIDED_CLAIM_S = 1.0
"""Seconds within which nearly every CHOSEN claim becomes CLAIMED or RELEASED."""


class PendingClaims:
    """Enters the claims of this process in a ledger, and announces them to peers.

    Every method may be called by any thread.

    :param ledger: None for a ledger with ``[novasched] in_flight_timeout``.
    :ivar peers: the other schedulers; None if claims are not shared.
    :ivar decision_lock: lets one request decide at a time, so that a decision counts
        the claims of all earlier decisions.
    :ivar given_back: the number of claims released because of an earlier claim of
        another request.
    """

    given_back = 0

    def __init__(
        self,
        settings: Settings,
        ledger: SharedLedger | None = None,
        peers: Peers | None = None,
    ) -> None:
        if ledger is None:
            ledger = SharedLedger(settings.in_flight_timeout)
        self.settings = settings
        self.ledger = ledger
        self.peers = peers
        self.decision_lock = DecisionLock(clock=ledger.clock)
        self._counting = CountingClaims()
        self._hosts_left = HostsLeft(settings, self.release)
        self._numbers = count(1)

    def for_request(self, request: Request) -> 'PendingClaims':
        """The pending claims for a request: to be counted by the request, and to be
        joined by the claims of the request.

        The request has a ledger of its own if the operator has switched pending claims
        off (``[novasched] in_flight_timeout = 0``), or if the request claims nothing.
        """
        if self.ledger.timeout and request.claims:
            return self
        return PendingClaims(self.settings, SharedLedger(math.inf, self.ledger.clock))

    def turn(self, request: Request) -> AbstractContextManager[Turn]:
        """Wait for a turn to decide. The turn lasts as long as the context."""
        return self.decision_lock.turn(of_several=request.count > 1)

    def turns(self, request: Request) -> Generator[Turn, None, None]:
        """A turn for each instance; see
        :meth:`novasched.scheduler.claims.decision_lock.DecisionLock.turns`."""
        return self.decision_lock.turns(of_several=request.count > 1)

    def beside(self, state: SchedulingState) -> SchedulingState:
        """The state less the claims that are pending now: less room on the hosts, and
        fewer candidates."""
        pending = self.of(state.snapshot, state.own_instances, state.placed)
        if pending == state.pending:
            state = replace(state, pending=pending)
            return self._with_candidates_left(state, ())

        left = self.left(state.snapshot, pending)
        changed = left
        # The hosts of the first state are the hosts of the snapshot.
        if state.pending:
            # After its last claim, a host is whole again.
            whole = state.snapshot.hosts
            changed = {}
            for uuid in changed_hosts(state.pending, pending) & whole.keys():
                changed[uuid] = left.get(uuid, whole[uuid])
        state = state.with_pending(pending, changed)
        return self._with_candidates_left(state, {*changed})

    def _with_candidates_left(
        self, state: SchedulingState, changed: Collection[str]
    ) -> SchedulingState:
        """The state with the candidates that the pending claims leave, without hosts
        that have no candidate left.

        :param changed: the UUIDs of the hosts with changed claims.
        """
        if state.candidates is None:
            return state

        unclaimed = partial(self.unclaimed, state.asked_at)
        devices = partial(_devices_of, state, self.settings)
        candidates = state.candidates.beside(unclaimed, devices, changed)
        hosts = state.hosts
        if changed:
            exhausted = candidates.exhausted(changed)
            if exhausted:
                hosts = hosts.without(exhausted)
        return replace(state, hosts=hosts, candidates=candidates)

    def best_candidate(
        self, state: SchedulingState, host: Host, refused: Sequence[Candidate] = ()
    ) -> Candidate | None:
        """The best candidate of a host beside the pending claims.

        None if the request claims nothing, and if Placement would refuse all remaining
        candidates for the reason of an earlier refusal.

        :param refused: candidates after a refusal of Placement.
        """
        if state.candidates is None or not state.request.claims:
            return None

        unclaimed = partial(self.unclaimed, state.asked_at)
        far = partial(fitting.far_devices, host, state.request, self.settings)
        candidate = choose(state.candidates, host.uuid, unclaimed, far, refused)
        # Without the answer of Placement, which a claim would keep in memory.
        return candidate and candidate.detach()

    def of(
        self,
        snapshot: HostSnapshot,
        again: Collection[str] = (),
        own: Collection[PendingClaim] = (),
    ) -> Mapping[str, ClaimsOfHost]:
        """The claims to count beside a snapshot of hosts, by UUID of the host.

        :param again: UUIDs of the instances that are being placed now. Earlier claims
            of these instances do not count: an instance goes to one host at a time.
        :param own: claims of the request itself, which count.
        """
        with self.ledger as ledger:
            ledger.expire(self.ledger.clock())
            counting = self._counting.beside(ledger, snapshot)
            repeated = ledger.hosts_of(again)

        # Few requests are for an instance with an earlier claim: mostly the mapping of
        # the last request serves, without a copy.
        visible: dict[str, ClaimsOfHost] | None = None
        for uuid in repeated & counting.keys():
            claims = _without_earlier(counting[uuid], again, own)
            if claims == counting[uuid]:
                continue
            if visible is None:
                visible = {**counting}
            if claims:
                visible[uuid] = claims
            else:
                del visible[uuid]
        return counting if visible is None else visible

    def on_host(
        self,
        uuid: str,
        snapshot: HostSnapshot,
        again: Collection[str] = (),
        own: Collection[PendingClaim] = (),
    ) -> ClaimsOfHost:
        """The claims that :meth:`of` has for a host of the snapshot."""
        with self.ledger as ledger:
            counting = ledger.counting_at(uuid, snapshot.read_at)
        return _without_earlier(counting, again, own)

    def left(
        self, snapshot: HostSnapshot, claims: Mapping[str, ClaimsOfHost]
    ) -> Mapping[str, Host]:
        """The hosts with claims, less the claims, by UUID."""
        return self._hosts_left.all(snapshot, claims)

    def subtract(self, host: Host, claims: ClaimsOfHost) -> Host:
        """A host less claims."""
        return self._hosts_left.of(host, claims)

    def choose(
        self,
        host: Host,
        request: Request,
        candidate: Candidate | None,
        limits: Mapping[str, Any],
    ) -> PendingClaim:
        """Enter a claim for the current instance of a request, and announce the
        claim."""
        fit = None
        if request.numa_topology is not None:
            fit = fitting.claimed_fit(host, request, candidate, limits, self.settings)
        claim = PendingClaim(
            host=host,
            request=replace(request, origin=None),
            candidate=candidate,
            fit=fit,
            limits=limits,
            since=self.ledger.clock(),
            amounts=candidate.resources() if candidate else {},
            number=next(self._numbers),
        )

        # Entered before the announcement, which may come back at once.
        with self.ledger as ledger:
            ledger.chosen(claim)
        if self.peers is not None:
            self.peers.announce(claim, Stage.CHOSEN)
        return claim

    def release(self, claim: PendingClaim) -> None:
        """Release a claim that was not made after all, or was undone."""
        with self.ledger as ledger:
            was_there = ledger.released(claim, self.ledger.clock())
        if was_there and claim.is_ours and self.peers is not None:
            self.peers.announce(claim, Stage.RELEASED)

    def claimed(self, claims: Sequence[PendingClaim]) -> None:
        """Note the claims in the answer to a request."""
        with self.ledger as ledger:
            ledger.claimed(claims, self.ledger.clock())
        if self.peers is not None:
            for claim in claims:
                if claim.is_ours:
                    self.peers.announce(claim, Stage.CLAIMED)

    def may_fit_now(
        self, request: Request, since: float, candidates: Candidates | None = None
    ) -> bool:
        """Wait for the CHOSEN claims, for at most :data:`UNDECIDED_CLAIM_S`, and tell
        if a request that was refused may fit now. There are two reasons.

        Several schedulers may choose the same host at once. Then more is taken for a
        moment than Placement claims in the end, and another request releases a claim.

        And Placement may make a claim between the question and the answer. The answer
        counts the claim, and the ledger, which cannot know, subtracts the claim again.

        :param since: the begin of the try that was refused.
        :param candidates: the offer of Placement to this try.
        """
        own = request.instance_uuids or ()
        has_peers = self.peers is not None and self.peers.position[1] > 1
        offered: Container[str] = ()
        if candidates is not None and candidates.depends_on_claims:
            offered = candidates

        with self.ledger as ledger:
            begun = self.ledger.clock() - UNDECIDED_CLAIM_S
            undecided = []
            doubtful = []
            for claim in ledger:
                is_offered = claim.host.uuid in offered
                if claim.since > begun and (is_offered or has_peers):
                    undecided.append(claim)
                if is_offered and ledger.was_chosen_at(claim, since):
                    doubtful.append(claim)

            def was_released() -> bool:
                return has_peers and ledger.was_released(since, own)

            def is_over() -> bool:
                return was_released() or not any(map(ledger.is_chosen, undecided))

            self.ledger.wait_for(is_over, UNDECIDED_CLAIM_S)
            return was_released() or not all(map(ledger.is_chosen, doubtful))

    def unclaimed(self, moment: float) -> Mapping[str, Mapping[str, int]]:
        """The amounts of claims missing in Placement's answer to a query of a moment,
        by provider UUID and resource class."""
        return self.taken(moment).by_provider

    def taken(self, moment: float, since: int | None = None) -> TakenAmounts:
        """The amounts of claims missing in Placement's answer to a query of a moment,
        or only the changes of these amounts.

        :param since: the number of the last change that the caller knows; None for all
            amounts.
        """
        with self.ledger as ledger:
            return ledger.amounts_since(since, moment)

    def awaited_instances(self) -> Mapping[str, Sequence[str]]:
        """The UUIDs of the instances that are awaited on hosts, by UUID of the cell: no
        reading shows the instance yet, or a later reading may still lack the instance,
        from a database that lags behind."""
        awaited: dict[str, list[str]] = {}
        with self.ledger as ledger:
            settled = self.ledger.clock() - MAX_READ_LAG_S
            for claim in ledger:
                uuid = claim.request.instance_uuid
                if uuid and not ledger.was_shown_before(claim, settled):
                    awaited.setdefault(claim.host.cell_uuid, []).append(uuid)
        return awaited

    def note_shown(self, rows: Mapping[str, Any], read_at: float) -> None:
        """Note the instances that a reading of hosts shows, and the instances that will
        never arrive.

        :param rows: the rows of ``instances`` by UUID, which were read after the
            moment and before the hosts.
        :param read_at: the moment from which on the hosts were read.
        """
        for claim in self.ledger.all() if rows else ():
            row = rows.get(claim.request.instance_uuid or '')
            if row is None:
                continue

            # The row may be older than the claim, and show no move yet. A database that
            # lags behind shows even older rows.
            oldest = read_at
            if may_precede_choice(row, claim):
                oldest -= MAX_READ_LAG_S

            is_over = claim.since <= oldest and not is_pending(row, claim)
            with self.ledger as ledger:
                # Another thread may have released the claim since the list was made.
                if claim not in ledger:
                    continue
                if is_over:
                    is_there = (row.host, row.node) == claim.host.key
                    has_arrived = is_there and not row.deleted
                    ledger.shown(claim, read_at, self.ledger.clock(), has_arrived)
                else:
                    ledger.hidden(claim, read_at)

    def note_hidden(
        self, is_missing: Callable[[PendingClaim], bool], read_at: float
    ) -> None:
        """Note the instances that an earlier reading of hosts shows and this reading
        does not: the database lags behind.

        :param is_missing: True if this reading does not show the instance of a claim.
        :param read_at: the moment of this reading.
        """
        with self.ledger as ledger:
            for claim in ledger.arrivals_shortly_before(read_at):
                if is_missing(claim):
                    ledger.hidden(claim, read_at)

    def count(self) -> int:
        """The number of instances that this process has sent to hosts, and that no host
        shows yet."""
        with self.ledger as ledger:
            ledger.expire(self.ledger.clock())
            return sum(
                claim.is_ours and ledger.stage_of(claim) is not Stage.SHOWN
                for claim in ledger
            )


def _without_earlier(
    claims: ClaimsOfHost, again: Collection[str], own: Collection[PendingClaim]
) -> ClaimsOfHost:
    """The claims without earlier claims of instances that are placed again."""
    return tuple(
        claim
        for claim in claims
        if claim.request.instance_uuid not in again or claim in own
    )


def _devices_of(state: SchedulingState, settings: Settings, uuid: str) -> HostDevices:
    """The PCI devices of a host of a state, less the pending claims."""
    host = state.hosts.base.get(uuid) or state.snapshot.hosts[uuid]
    return fitting.host_devices(host, state.request, settings)
