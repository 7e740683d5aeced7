# SPDX-License-Identifier: Apache-2.0
"""Claims of instances that their hosts do not report yet, shared by all requests.

Between the moment at which a host is chosen and the moment at which its nova-compute
reports the instance, the databases say that the host has more left than it has. A
request that is decided in between subtracts the pending claims, so that instances
spread over hosts, cells of NUMA hosts and PCI devices instead of colliding there.

``ledger.py`` has the claims and their stages, and ``shared_ledger.py`` adds the
lock and the clock. The pending claims here are announced to other schedulers, whose
claims are in the same ledger. Two schedulers that choose at the same moment do not know
of each other's choice yet, so that each scheduler checks its choice once the claim is
made. Of two claims that do not fit beside each other, the claim that was announced
first stays.
"""

import logging
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress, count
from operator import ne
from typing import Any

from novasched.conf.settings import Settings
from novasched.scheduler import fitting
from novasched.scheduler.claims.decision_lock import DecisionLock
from novasched.scheduler.claims.ledger import ClaimsLedger
from novasched.scheduler.claims.shared_ledger import SharedLedger
from novasched.scheduler.model.candidate import Candidate
from novasched.scheduler.model.claim import (
    ClaimsOfHost,
    PendingClaim,
    Stage,
    is_pending,
    may_precede_choice,
)
from novasched.scheduler.model.host import Host, HostSnapshot
from novasched.scheduler.model.instance import MAX_READ_LAG_S
from novasched.scheduler.model.request import Request
from novasched.scheduler.ports import Peers

LOG = logging.getLogger(__name__)

UNDECIDED_CLAIM_S = 1.0
"""Seconds within which nearly every chosen host is claimed or released."""

TakenAmounts = tuple[int, bool, Mapping[str, Mapping[str, int]]]
"""The number of a change of the ledger; False if the amounts were taken since an
earlier change, less the amounts given back, and True if they are all; provider UUID to
resource class to amount."""


def nothing_taken(moment: float, since: int | None) -> TakenAmounts:
    """Say that nothing was taken, where no claims are known; see
    :meth:`PendingClaims.taken`."""
    return 0, since is None, {}


def changed_hosts(
    before: Mapping[str, ClaimsOfHost], now: Mapping[str, ClaimsOfHost]
) -> set[str]:
    """The hosts whose claims differ, by UUID."""
    differs = map(ne, map(before.get, now), now.values())
    return {*compress(now, differs), *(before.keys() - now.keys())}


@dataclass(frozen=True, slots=True)
class _View:
    """The claims that count beside a snapshot of hosts.

    :ivar version: the version of the snapshot.
    :ivar read_at: when the snapshot was read, in monotonic seconds.
    :ivar number: the number of the last change of the ledger.
    """

    version: int = 0
    read_at: float = -math.inf
    number: int = 0
    claims: Mapping[str, ClaimsOfHost] = field(default_factory=dict)


class CountingClaims:
    """Reads from the ledger which claims count beside a snapshot of hosts.

    Few claims change from one request to the next, so that the reader keeps the last
    view, and brings the view up to date by the changes since.
    """

    def __init__(self) -> None:
        self._view = _View()

    def beside(
        self, ledger: ClaimsLedger, snapshot: HostSnapshot
    ) -> Mapping[str, ClaimsOfHost]:
        """The claims that a snapshot does not show, on hosts that the snapshot knows,
        by UUID of the host."""
        view = self._view
        changed = snapshot.changed_since(view.version)
        changes = ledger.changes_since(view.number)
        if changed is None or changes is None:
            counting: dict[str, ClaimsOfHost] = {}
            uuids = {*ledger.hosts()}
        else:
            counting = {**view.claims}
            uuids = {change.entry.claim.host.uuid for change in changes}
            uuids.update(changed.intersection(ledger.hosts()))
            if view.read_at != snapshot.read_at:
                uuids.update(ledger.hosts_with_shown_claims())

        for uuid in uuids:
            claims: ClaimsOfHost = ()
            if uuid in snapshot.hosts or uuid in snapshot.everywhere:
                claims = ledger.counting_at(uuid, snapshot.read_at)
            if claims:
                counting[uuid] = claims
            else:
                counting.pop(uuid, None)
        # Later snapshots do not know the changes since a snapshot for one request.
        if snapshot.is_shared:
            self._view = _View(
                snapshot.version, snapshot.read_at, ledger.number, counting
            )
        return counting


@dataclass(frozen=True, slots=True)
class _Remainder:
    """The hosts that claims leave of a snapshot.

    :ivar version: the version of the snapshot.
    :ivar hosts: the hosts with claims, less the claims, by UUID.
    """

    version: int = 0
    claims: Mapping[str, ClaimsOfHost] = field(default_factory=dict)
    hosts: Mapping[str, Host] = field(default_factory=dict)


class HostsLeft:
    """Subtracts claims from hosts, and keeps the result for the next request.

    Several threads may call every method at the same time: a request looks for
    alternates while another request decides, and so does a request that was overtaken.
    Each value that is kept says which hosts and claims the value is from.

    :param drop: called with a claim of another scheduler that cannot be subtracted.
    """

    def __init__(
        self, settings: Settings, drop: Callable[[PendingClaim], None]
    ) -> None:
        self._settings = settings
        self._drop = drop
        # By UUID: the host, the claims, and the host less the claims.
        self._less_claims: dict[str, tuple[Host, ClaimsOfHost, Host]] = {}
        # Of a shared snapshot. Read once and written once by a call: parts of the
        # results of two threads do not belong together.
        self._last = _Remainder()

    def all(
        self, snapshot: HostSnapshot, claims: Mapping[str, ClaimsOfHost]
    ) -> Mapping[str, Host]:
        """The hosts with claims, less the claims, by UUID."""
        hosts = snapshot.hosts
        last = self._last
        changed = snapshot.changed_since(last.version)
        if changed is None:
            left: dict[str, Host] = {}
            uuids = {*claims}
        else:
            left = {**last.hosts}
            uuids = changed_hosts(last.claims, claims) | (changed & claims.keys())

        for uuid in left.keys() - claims.keys():
            del left[uuid]
            self._less_claims.pop(uuid, None)
        for uuid in uuids & claims.keys():
            if uuid in hosts:
                left[uuid] = self.of(hosts[uuid], claims[uuid])
            else:
                left.pop(uuid, None)

        if snapshot.is_shared:
            self._last = _Remainder(snapshot.version, claims, left)
        return left

    def of(self, host: Host, claims: ClaimsOfHost) -> Host:
        """A host less claims. If the claims begin with the claims that were subtracted
        last, only the new claims are subtracted.

        :raises Exception: a claim of this process cannot be subtracted.
        """
        if not claims:
            return host
        base, subtracted, left = self._less_claims.get(host.uuid, (host, (), host))
        if base is not host or claims[: len(subtracted)] != subtracted:
            subtracted = ()
            left = host

        for claim in claims[len(subtracted) :]:
            try:
                left = self._less(left, claim)
            except Exception as error:
                if claim.is_ours:
                    raise
                # Another process wrote the claim, so that no request of ours must fail.
                LOG.warning(
                    'A claim of another scheduler on %s cannot be subtracted, and is'
                    ' dropped: %r',
                    host,
                    error,
                )
                self._drop(claim)
        self._less_claims[host.uuid] = host, claims, left
        return left

    def _less(self, host: Host, claim: PendingClaim) -> Host:
        place = claim.place
        if host is not claim.host:
            # The claim was fitted on the host as it was then.
            place = fitting.claimed_fit(
                host, claim.request, claim.candidate, claim.limits, self._settings
            )
        return fitting.with_instance_claimed(
            host, claim.request, claim.candidate, place
        )


class PendingClaims:
    """Enters the claims of this process in a ledger, and announces them to peers.

    Every method may be called by any thread.

    :param ledger: None for a ledger with ``[novasched] in_flight_timeout``.
    :ivar peers: the other schedulers; None if claims are not shared with them.
    :ivar decision_lock: lets one request decide at a time, so that each decision sees
        the claims of the earlier decisions.
    :ivar given_back: the number of claims that did not fit beside earlier claims of
        others, and were released.
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
        """The claims that a request counts, and that count the request.

        These are claims of the request alone where the operator has switched pending
        claims off, and where the request claims nothing.
        """
        if self.ledger.timeout and request.claims:
            return self
        return PendingClaims(self.settings, SharedLedger(math.inf, self.ledger.clock))

    def of(
        self,
        snapshot: HostSnapshot,
        again: Collection[str] = (),
        own: Collection[PendingClaim] = (),
    ) -> Mapping[str, ClaimsOfHost]:
        """The claims that count beside a snapshot of hosts, by UUID of the host.

        :param again: instances that are being placed now. Earlier claims of these
            instances do not count: an instance goes to one host at a time.
        :param own: claims of the request itself, which count.
        """
        with self.ledger as ledger:
            ledger.expire(self.ledger.clock())
            counting = self._counting.beside(ledger, snapshot)
            repeated = ledger.hosts_of(again)

        visible: dict[str, ClaimsOfHost] | None = None
        for uuid in repeated & counting.keys():
            claims = tuple(
                claim
                for claim in counting[uuid]
                if claim.request.instance_uuid not in again or claim in own
            )
            if claims == counting[uuid]:
                continue
            if visible is None:
                visible = {**counting}
            if claims:
                visible[uuid] = claims
            else:
                del visible[uuid]
        return counting if visible is None else visible

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
        """Note that the request's current instance goes to a host, and announce it."""
        place = None
        if request.numa_topology is not None:
            place = fitting.claimed_fit(host, request, candidate, limits, self.settings)
        claim = PendingClaim(
            host=host,
            request=replace(request, origin=None),
            candidate=candidate,
            place=place,
            limits=limits,
            since=self.ledger.clock(),
            amounts=candidate.resources() if candidate else {},
            number=next(self._numbers),
        )
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
        """Note that a request is answered with claims."""
        with self.ledger as ledger:
            ledger.claimed(claims, self.ledger.clock())
        if self.peers is not None:
            for claim in claims:
                if claim.is_ours:
                    self.peers.announce(claim, Stage.CLAIMED)

    def newer_members(
        self, request: Request, snapshot: HostSnapshot | None = None
    ) -> Mapping[str, str]:
        """The members of the server group of a request that the caller may not know,
        or whose hosts the caller may not know; by UUID, the UUIDs of their hosts.

        nova-conductor reads the group before it calls a scheduler. A request may wait
        for seconds in the queue of the broker and for Placement.

        :param snapshot: only the members that these hosts show, so that their claims do
            not count beside the hosts any more.
        """
        group = request.instance_group
        if group is None or not group.uuid:
            return {}

        own = request.instance_uuids or ()

        def is_known(uuid: str, host: str) -> bool:
            return uuid in own or (uuid in group.members and host in group.hosts)

        hosts = {}
        with self.ledger as ledger:
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

    def came_free(self, request: Request, since: float) -> bool:
        """Wait a little for the claims that are CHOSEN, and tell if other requests
        have released a claim since a moment.

        Where several schedulers choose the same hosts, more is taken for a moment than
        is claimed in the end.
        """
        if self.peers is None or self.peers.position[1] == 1:
            return False

        own = request.instance_uuids or ()
        with self.ledger as ledger:
            begun = self.ledger.clock() - UNDECIDED_CLAIM_S
            undecided = [
                claim
                for claim in ledger
                if claim.since > begun and not ledger.is_claimed(claim)
            ]

            def is_over() -> bool:
                if ledger.was_released(since, own):
                    return True
                return not any(
                    claim in ledger and not ledger.is_claimed(claim)
                    for claim in undecided
                )

            self.ledger.wait_for(is_over, UNDECIDED_CLAIM_S)
            return ledger.was_released(since, own)

    def unclaimed(self, moment: float) -> Mapping[str, Mapping[str, int]]:
        """The amounts of claims that Placement did not have at a moment, by provider
        UUID and resource class.

        An answer to a query of that moment does not include these amounts.
        """
        return self.taken(moment)[2]

    def taken(self, moment: float, since: int | None = None) -> TakenAmounts:
        """The amounts of claims that Placement did not have at a moment, as far as they
        have changed.

        :param since: the number of the change up to which the amounts are known.
        """
        with self.ledger as ledger:
            is_all, amounts = ledger.amounts_since(since, moment)
            return ledger.number, is_all, amounts

    def instances_awaited_in(self, cell_uuid: str) -> list[str]:
        """The UUIDs of the instances that hosts of a cell do not show yet, or that the
        next reading may not show again, from a database that lags behind."""
        with self.ledger as ledger:
            settled = self.ledger.clock() - MAX_READ_LAG_S
            return [
                claim.request.instance_uuid
                for claim in ledger
                if claim.host.cell_uuid == cell_uuid
                and claim.request.instance_uuid
                and not ledger.was_shown_before(claim, settled)
            ]

    def note_shown(self, rows: Mapping[str, Any], read_at: float) -> None:
        """Note the instances that hosts show which were read from a moment on, or that
        will never arrive.

        :param rows: the rows of ``instances`` by UUID, which were read after the
            moment and before the hosts.
        """
        for claim in self.ledger.all() if rows else ():
            row = rows.get(claim.request.instance_uuid or '')
            if row is None:
                continue
            # The row may be older than the claim, and show no move yet. Databases that
            # lag behind show older rows than the reading is.
            oldest = read_at
            if may_precede_choice(row, claim):
                oldest -= MAX_READ_LAG_S
            is_over = claim.since <= oldest and not is_pending(row, claim.host.key)
            with self.ledger as ledger:
                if claim not in ledger:
                    continue
                if is_over:
                    ledger.shown(claim, read_at)
                else:
                    ledger.hidden(claim, read_at)

    def count(self) -> int:
        """The number of instances that this process has sent on their way, and that no
        host shows."""
        with self.ledger as ledger:
            ledger.expire(self.ledger.clock())
            return sum(
                claim.is_ours and ledger.stage_of(claim) is not Stage.SHOWN
                for claim in ledger
            )
