# SPDX-License-Identifier: Apache-2.0
"""Claims of instances that their hosts do not report yet.

Between the moment at which a host is chosen and the moment at which its nova-compute
reports one instance more, the databases say that the host has more left than it has.
Who decides in between subtracts the pending claims, so that instances spread over
hosts, cells of NUMA hosts and PCI devices instead of colliding there.

An instance goes to one place at a time: once a request has placed it, claims that
earlier requests made for it are over.

Other schedulers announce theirs, and hear of ours. Two that choose at the same moment
do not know of each other yet, so each looks again once its claim is made: of claims
that do not fit beside each other the one that was announced first stays.
"""

import logging
import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress, islice
from operator import is_not
from typing import Any

from novasched.conf.settings import Settings
from novasched.scheduler import fitting
from novasched.scheduler.decision_lock import DecisionLock
from novasched.scheduler.model.candidate import Candidate
from novasched.scheduler.model.claim import (
    ClaimsOfHost,
    PendingClaim,
    State,
    is_pending,
)
from novasched.scheduler.model.host import Host, HostSnapshot
from novasched.scheduler.model.request import Request
from novasched.scheduler.ports import Peers

LOG = logging.getLogger(__name__)

SETTLED = 120.0
"""Seconds after which no request works any more on hosts that were read before."""

UNDECIDED_CLAIM_S = 1.0
"""Seconds within which what is chosen is claimed or released, mostly."""
RELEASED_KEPT = 1000
"""Released claims that are remembered."""

FORGETTING_S = 1.0
"""Seconds between looks for claims that are over, where none is known to be over
earlier."""

CHANGES_KEPT = 1000
"""Changes of claims that are remembered: those of some seconds. Who missed more looks
at all."""


TakenAmounts = tuple[int, bool, Mapping[str, Mapping[str, int]]]
"""The number of a change of claims; False if the amounts are what was taken since an
earlier one, less what was given back, and True if they are all; provider to resource
class to amount."""


def nothing_taken(moment: float, since: int | None) -> TakenAmounts:
    """Say that nothing was taken, where no claims are known; see
    :meth:`PendingClaims.taken`."""
    return 0, since is None, {}


def changed_hosts(before: Mapping[str, object], now: Mapping[str, object]) -> set[str]:
    """Keys whose value has come, has gone, or is another object."""
    others = compress(now, map(is_not, map(before.get, now), now.values()))
    return {*others, *(before.keys() - now.keys())}


@dataclass(frozen=True, slots=True)
class _View:
    """The claims that count for those who work on a snapshot, as of a change of that
    number."""

    snapshot: HostSnapshot
    number: int = 0
    claims: Mapping[str, ClaimsOfHost] = field(default_factory=dict)


class PendingClaims:
    """The pending claims, by the compute node that they are on.

    Few of them change from one request to the next. So changes are numbered, and the
    last ones remembered: who knows how things were at a number looks at what has
    changed since.

    :ivar decision_lock: lets one request decide at a time, so that each decision sees
        the claims of the earlier decisions.
    :ivar peers: the other schedulers; None where nothing is shared with them.
    :ivar given_back: how many claims did not fit beside those of others.
    """

    peers: Peers | None = None
    given_back = 0

    def __init__(
        self,
        settings: Settings,
        clock: Callable[[], float] = time.monotonic,
        timeout: float | None = None,
    ) -> None:
        """``timeout`` are the seconds after which an instance that is not shown is
        forgotten; else it is ``[novasched] in_flight_timeout``."""
        self.settings = settings
        self.timeout = settings.in_flight_timeout if timeout is None else timeout
        self._clock = clock
        self.decision_lock = DecisionLock(clock=clock)
        self._claims: dict[str, ClaimsOfHost] = {}
        # Of the same: those of each instance, and the hosts that show some.
        self._of_instance: dict[str | None, ClaimsOfHost] = {}
        self._showing: set[str] = set()
        self._forget_at = 0.0
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        # Instances whose claims were released last, and when.
        self._released: deque[tuple[str | None, float]] = deque(maxlen=RELEASED_KEPT)
        self._known: dict[str, tuple[Host, ClaimsOfHost, Host]] = {}
        # Claims that came (1), that are gone (-1), and that hosts were seen to show
        # (0).
        self._changes: deque[tuple[PendingClaim, int]] = deque(maxlen=CHANGES_KEPT)
        self._number = 0
        self._view = _View(HostSnapshot({}))
        # Hosts of a snapshot, the claims on them, and what these leave.
        self._left: tuple[object, Mapping[str, ClaimsOfHost], Mapping[str, Host]] = (
            None,
            {},
            {},
        )

    def for_request(self, request: Request) -> 'PendingClaims':
        """View of a request on the others, and of them on it: nothing where the option
        switches it off, nor where nothing is claimed. Its own instances it always
        sees."""
        if self.timeout and request.claims:
            return self
        return PendingClaims(self.settings, self._clock, timeout=math.inf)

    def of(
        self,
        snapshot: HostSnapshot,
        again: Collection[str] = (),
        own: Collection[PendingClaim] = (),
    ) -> Mapping[str, ClaimsOfHost]:
        """The claims that hosts do not show which are known to a snapshot, by UUID of
        the host.

        :param again: instances that are being placed now. None of their claims counts
            but those that are the request's ``own``.
        """
        here = snapshot.hosts
        others = snapshot.everywhere
        with self._lock:
            self._forget_old()
            view = self._view
            before = self._view.snapshot
            changes = None
            if before.hosts is here and before.everywhere is others:
                changes = self._since(view.number)
            if changes is None:
                pending = {}
                uuids = {*self._claims}
            else:
                pending = {**view.claims}
                uuids = {claim.host.uuid for claim, _ in changes}
                if before.read_at != snapshot.read_at:
                    uuids |= self._showing
            for uuid in uuids:
                if uuid in here or uuid in others:
                    left = self._claims.get(uuid, ())
                else:
                    left = ()
                if uuid in self._showing:
                    left = tuple(
                        [claim for claim in left if claim.shown > snapshot.read_at]
                    )
                if left:
                    pending[uuid] = left
                else:
                    pending.pop(uuid, None)
            self._view = _View(snapshot, self._number, pending)
            repeated = {
                x.host.uuid for uuid in again for x in self._of_instance.get(uuid, ())
            }
        visible = pending
        for uuid in repeated & pending.keys():
            left = tuple(
                [
                    x
                    for x in pending[uuid]
                    if x.request.instance_uuid not in again or x in own
                ]
            )
            if left != pending[uuid]:
                visible = {**pending} if visible is pending else visible
                if left:
                    visible[uuid] = left
                else:
                    del visible[uuid]
        return visible

    def _since(self, number: int) -> Sequence[tuple[PendingClaim, int]] | None:
        """The changes after that of a number, or None if they are not all remembered;
        the lock is held."""
        new = self._number - number
        if new > len(self._changes):
            return None
        return [*islice(reversed(self._changes), new)]

    def left(
        self, hosts: Mapping[str, Host], pending: Mapping[str, ClaimsOfHost]
    ) -> Mapping[str, Host]:
        """The hosts with pending claims, less these, by UUID. Within a decision."""
        known, before, left = self._left
        if known is not hosts:
            before = {}
            left = {}
        changed = changed_hosts(before, pending) & hosts.keys()
        left = {
            **left,
            **{
                x: self.subtract(hosts[x], pending[x]) for x in changed & pending.keys()
            },
        }
        for uuid in left.keys() - pending.keys():
            del left[uuid]
        self._left = hosts, pending, left
        return left

    def add(
        self,
        host: Host,
        request: Request,
        candidate: Candidate | None,
        limits: Mapping[str, Any],
    ) -> PendingClaim:
        """Note that the request's current instance goes to a host."""
        lasting = replace(request, origin=None)
        place = None
        if request.numa_topology is not None:
            place = fitting.claimed_fit(host, request, candidate, limits, self.settings)
        amounts = candidate.resources() if candidate else {}
        claim = PendingClaim(
            host, lasting, candidate, place, limits, self._clock(), amounts
        )
        self.put(claim)
        if self.peers is not None:
            self.peers.tell(claim, State.CHOSEN)
        return claim

    def put(self, claim: PendingClaim) -> None:
        """Note a claim as it is: ours, or another scheduler's."""
        host = claim.host.uuid
        uuid = claim.request.instance_uuid
        with self._lock:
            self._claims[host] = (*self._claims.get(host, ()), claim)
            self._of_instance[uuid] = (*self._of_instance.get(uuid, ()), claim)
            self._changes.append((claim, 1))
            self._number += 1
            self._forget_at = min(self._forget_at, claim.since + self.timeout)

    def drop(self, claim: PendingClaim) -> None:
        """Forget a claim that was not made after all."""
        with self._changed:
            was_there = self._remove(claim)
            self._released.append((claim.request.instance_uuid, self._clock()))
            self._changed.notify_all()
        if was_there and claim.is_ours and self.peers is not None:
            self.peers.tell(claim, State.RELEASED)

    def came_free(self, request: Request, since: float) -> bool:
        """Wait a little for what others have chosen to be claimed: True if any of it
        was released instead since a moment. Where several schedulers choose the same,
        more is taken for a moment than is claimed in the end."""
        if self.peers is None or self.peers.part[1] == 1:
            return False
        own = request.instance_uuids or ()
        now = self._clock()
        chosen = [
            x
            for x in self.all()
            if x.claimed == math.inf and x.since > now - UNDECIDED_CLAIM_S
        ]

        def is_over() -> bool:
            done = [
                x.claimed < math.inf or x not in self._claims.get(x.host.uuid, ())
                for x in chosen
            ]
            return all(done) or came_free()

        def came_free() -> bool:
            return any(at >= since and x not in own for x, at in self._released)

        with self._changed:
            self._changed.wait_for(is_over, UNDECIDED_CLAIM_S)
            return came_free()

    def settle(self, claims: Sequence[PendingClaim]) -> None:
        """A request is answered with these: other claims of their instances are over.

        Not before: a request that is refused says nothing of where its instances are,
        and the rows of these tell whether earlier claims still count.
        """
        now = self._clock()
        uuids = {each.request.instance_uuid for each in claims} - {None}
        with self._changed:
            for claim in claims:
                claim.claimed = now
            for each in [x for uuid in uuids for x in self._of_instance.get(uuid, ())]:
                if each not in claims:
                    self._remove(each)
            self._changed.notify_all()
        if self.peers is not None:
            for claim in [each for each in claims if each.is_ours]:
                self.peers.tell(claim, State.CLAIMED)

    def unclaimed(self, moment: float) -> Mapping[str, Mapping[str, int]]:
        """Amounts of claims that Placement did not have yet at a moment, so that its
        answer to a question from then on may leave them out: provider to resource class
        to amount."""
        return self.taken(moment)[2]

    def taken(self, moment: float, since: int | None = None) -> TakenAmounts:
        """The same, since the change of a number, if that is remembered; all for
        None."""
        with self._lock:
            number = self._number
            changes = None if since is None else self._since(since)
            is_all = changes is None
            if changes is None:
                changes = [
                    (claim, 1) for claims in self._claims.values() for claim in claims
                ]
        taken: dict[str, Counter[str]] = {}
        for claim, change in changes:
            if claim.claimed > moment and change:
                for provider, amounts in claim.amounts.items():
                    sums = taken.setdefault(provider, Counter())
                    for name, amount in amounts.items():
                        sums[name] += change * amount
        return number, is_all, taken

    def awaited(self, cell_uuid: str) -> list[str]:
        """The instances that hosts of a cell do not show yet, by UUID."""
        return [
            each.request.instance_uuid
            for each in self.all()
            if each.shown == math.inf
            and each.request.instance_uuid
            and each.host.cell_uuid == cell_uuid
        ]

    def seen(self, rows: Mapping[str, Any], moment: float) -> None:
        """See which instances hosts show that were read at that moment, or that will
        not come: ``rows`` are those of ``instances`` by UUID, read before the hosts."""
        for claim in self.all() if rows else ():
            row = rows.get(claim.request.instance_uuid or '')
            if row is not None and not is_pending(row, claim.host.key):
                with self._lock:
                    claim.shown = min(claim.shown, moment)
                    self._showing.add(claim.host.uuid)
                    self._changes.append((claim, 0))
                    self._number += 1

    def all(self) -> list[PendingClaim]:
        """Return those of all hosts, also if they are over."""
        with self._lock:
            return [each for claims in self._claims.values() for each in claims]

    def count(self) -> int:
        """The number of instances that this process has sent on their way, for the
        operator."""
        with self._lock:
            self._forget_old()
        return sum(claim.is_ours for claim in self.all())

    def _forget_old(self) -> None:
        """Forget claims that are over; the lock is held."""
        now = self._clock()
        if now < self._forget_at:
            return
        ends = [math.inf]
        for each in [claim for claims in self._claims.values() for claim in claims]:
            end = min(each.since + self.timeout, each.shown + SETTLED)
            if end > now:
                ends.append(end)
            else:
                self._remove(each)
        self._forget_at = min(*ends, now + FORGETTING_S)

    def _remove(self, claim: PendingClaim) -> bool:
        """Forget a claim, and tell if it was there; the lock is held."""
        of_host = self._claims
        uuid = claim.host.uuid
        was_there = claim in of_host.get(uuid, ())
        if was_there:
            self._changes.append((claim, -1))
            self._number += 1
        left = tuple(each for each in of_host.get(uuid, ()) if each is not claim)
        if left:
            of_host[uuid] = left
        elif of_host.pop(uuid, None):
            self._known.pop(uuid, None)
            self._showing.discard(uuid)
        instance = claim.request.instance_uuid
        same = tuple(
            each for each in self._of_instance.get(instance, ()) if each is not claim
        )
        if same:
            self._of_instance[instance] = same
        else:
            self._of_instance.pop(instance, None)
        return was_there

    def subtract(self, host: Host, claims: ClaimsOfHost) -> Host:
        """The host with those instances on it; what was found out for the first of them
        is not found out again."""
        if not claims:
            return host
        base, before, left = self._known.get(host.uuid, (host, (), host))
        if base is not host or claims[: len(before)] != before:
            before = ()
            left = host
        for each in claims[len(before) :]:
            taken = each.request, each.candidate
            place = each.place
            try:
                if left is not each.host:
                    place = fitting.claimed_fit(
                        left, *taken, each.limits, self.settings
                    )
                left = fitting.after(left, *taken, place)
            except Exception as error:
                if each.is_ours:
                    raise
                # Another process wrote the claim, so that no request of ours must fail.
                LOG.warning(
                    'A claim of another scheduler on %s cannot be subtracted, and is'
                    ' dropped: %r',
                    host,
                    error,
                )
                self.drop(each)
        self._known[host.uuid] = host, claims, left
        return left
