# SPDX-License-Identifier: Apache-2.0
"""Claims of instances that their hosts do not report yet.

Between the moment at which a host is chosen and the moment at which its nova-compute
reports one instance more, the databases say that the host has more left than it has. Who
decides in between subtracts the pending claims, so that instances spread over hosts, cells of
NUMA hosts and PCI devices instead of colliding there.

An instance goes to one place at a time: once a request has placed it, claims that earlier
requests made for it are over.
"""

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from novasched.conf.settings import Settings
from novasched.scheduler import fitting
from novasched.scheduler.model.candidate import Candidate
from novasched.scheduler.model.host import Host, HostSnapshot
from novasched.scheduler.model.numa import Fit
from novasched.scheduler.model.request import Request

DECISION_LOCK_TIMEOUT_S = 5.0
"""Seconds for which a decision waits for another one. One that takes longer is a plugin's
that hangs, and hangs the others no longer."""

SETTLED = 120.0
"""Seconds after which no request works any more on hosts that were read before."""

FORGETTING_S = 1.0
"""Seconds between looks for claims that are over, where none is known to be over earlier."""


@dataclass(eq=False, slots=True)
class PendingClaim:
    """An instance on its way to a host, with what it takes there; ``place`` is that on the cells
    of the host, if it is fitted on any, and ``amounts`` those of its candidate.

    ``since`` is when it was chosen, ``claimed`` when Placement had it and the request was
    answered, ``shown`` when hosts were read that show it (monotonic seconds).
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


ClaimsOfHost = tuple[PendingClaim, ...]


def is_pending(row: Any, key: tuple[str, str]) -> bool:
    """True if an instance with this row of the table ``instances`` may still be on its way
    to a host (its name and its node's), which does not show it yet.

    nova-compute writes what it has claimed for an instance to its compute node before it goes
    on to the next ``task_state``; nova sets the first one of a move before it asks for a host.
    So every ``task_state`` but those named here says that the instance has arrived, or that it
    never will: it goes elsewhere, or the move is over.
    """
    if row.deleted:
        return False
    host = None if row.host is None else (row.host, row.node)
    if row.vm_state == 'building':
        return row.task_state in (None, 'scheduling') and host in (None, key)
    if row.vm_state == 'shelved_offloaded':
        # The claim sets the host and leaves the task_state, which lasts until the guest runs.
        return row.task_state in ('unshelving', 'spawning')
    if row.task_state in ('migrating', 'rebuilding'):
        return host != key  # where it is already, it came by an earlier request
    return bool(row.task_state == 'resize_prep')  # perhaps on its own host


class PendingClaims:
    """The pending claims, by the compute node that they are on."""

    def __init__(
        self,
        settings: Settings,
        clock: Callable[[], float] = time.monotonic,
        timeout: float | None = None,
    ) -> None:
        """``timeout`` are the seconds after which an instance that is not shown is forgotten;
        else it is ``[novasched] in_flight_timeout``."""
        self.settings = settings
        self.timeout = settings.in_flight_timeout if timeout is None else timeout
        self._clock = clock
        self._claims: dict[str, ClaimsOfHost] = {}
        # Of the same: those of each instance, and the hosts that show some.
        self._of_instance: dict[str | None, ClaimsOfHost] = {}
        self._showing: set[str] = set()
        self._forget_at = 0.0
        self._lock = threading.Lock()
        self._decision = threading.Lock()
        self._known: dict[str, tuple[Host, ClaimsOfHost, Host]] = {}

    def for_request(self, request: Request) -> 'PendingClaims':
        """View of a request on the others, and of them on it: nothing where the option
        switches it off, nor where nothing is claimed. Its own instances it always sees."""
        if self.timeout and request.claims:
            return self
        return PendingClaims(self.settings, self._clock, timeout=math.inf)

    @contextmanager
    def deciding(self) -> Iterator[None]:
        """While a decision lasts no other is made, so that each sees those before it."""
        mine = self._decision.acquire(timeout=DECISION_LOCK_TIMEOUT_S)
        try:
            yield
        finally:
            if mine:
                self._decision.release()

    def of(
        self,
        snapshot: HostSnapshot,
        again: Collection[str] = (),
        own: Collection[PendingClaim] = (),
    ) -> dict[str, ClaimsOfHost]:
        """The claims that hosts of a snapshot do not show, by UUID of the host.

        :param again: instances that are being placed now. None of their claims counts but
            those that are the request's ``own``.
        """
        with self._lock:
            self._forget_old()
            pending = {x: each for x, each in self._claims.items() if x in snapshot.hosts}
            repeated = {x.host.uuid for uuid in again for x in self._of_instance.get(uuid, ())}
            for uuid in (self._showing | repeated) & pending.keys():
                left = tuple(
                    x
                    for x in pending[uuid]
                    if x.shown > snapshot.read_at
                    and (x.request.instance_uuid not in again or x in own)
                )
                if left:
                    pending[uuid] = left
                else:
                    del pending[uuid]
        return pending

    def add(
        self, host: Host, request: Request, candidate: Candidate | None, limits: Mapping[str, Any]
    ) -> PendingClaim:
        """Note that the request's current instance goes to a host."""
        lasting = replace(request, origin=None)
        place = None
        if request.numa_topology is not None:
            place = fitting.claimed_fit(host, request, candidate, limits, self.settings)
        amounts = candidate.resources() if candidate else {}
        claim = PendingClaim(host, lasting, candidate, place, limits, self._clock(), amounts)
        uuid = request.instance_uuid
        with self._lock:
            self._claims[host.uuid] = (*self._claims.get(host.uuid, ()), claim)
            self._of_instance[uuid] = (*self._of_instance.get(uuid, ()), claim)
            self._forget_at = min(self._forget_at, claim.since + self.timeout)
        return claim

    def drop(self, claim: PendingClaim) -> None:
        """Forget a claim that was not made after all."""
        with self._lock:
            self._remove(claim)

    def settle(self, claims: Sequence[PendingClaim]) -> None:
        """A request is answered with these: other claims of their instances are over.

        Not before: a request that is refused says nothing of where its instances are, and the
        rows of these tell whether earlier claims still count.
        """
        now = self._clock()
        uuids = {each.request.instance_uuid for each in claims} - {None}
        with self._lock:
            for claim in claims:
                claim.claimed = now
            for each in [x for uuid in uuids for x in self._of_instance.get(uuid, ())]:
                if each not in claims:
                    self._remove(each)

    def unclaimed(self, moment: float) -> Mapping[str, Mapping[str, int]]:
        """Amounts of claims that Placement did not have yet at a moment, so that its answer to
        a question from then on may leave them out: provider to resource class to amount."""
        taken: dict[str, Counter[str]] = {}
        for claim in self._all():
            if claim.claimed > moment:
                for provider, amounts in claim.amounts.items():
                    taken.setdefault(provider, Counter()).update(amounts)
        return taken

    def awaited(self, cell_uuid: str) -> list[str]:
        """The instances that hosts of a cell do not show yet, by UUID."""
        return [
            each.request.instance_uuid
            for each in self._all()
            if each.shown == math.inf
            and each.request.instance_uuid
            and each.host.cell_uuid == cell_uuid
        ]

    def seen(self, rows: Mapping[str, Any], moment: float) -> None:
        """See which instances hosts show that were read at that moment, or that will not come:
        ``rows`` are those of ``instances`` by UUID, read before the hosts."""
        for claim in self._all() if rows else ():
            row = rows.get(claim.request.instance_uuid or '')
            if row is not None and not is_pending(row, claim.host.key):
                claim.shown = min(claim.shown, moment)
                with self._lock:
                    self._showing.add(claim.host.uuid)

    def _all(self) -> list[PendingClaim]:
        with self._lock:
            return [each for claims in self._claims.values() for each in claims]

    def count(self) -> int:
        """The number of instances on their way, for the operator."""
        with self._lock:
            self._forget_old()
            return sum(map(len, self._claims.values()))

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

    def _remove(self, claim: PendingClaim) -> None:
        """Forget a claim, if it is there; the lock is held."""
        of_host, uuid = self._claims, claim.host.uuid
        left = tuple(each for each in of_host.get(uuid, ()) if each is not claim)
        if left:
            of_host[uuid] = left
        elif of_host.pop(uuid, None):
            self._known.pop(uuid, None)
            self._showing.discard(uuid)
        instance = claim.request.instance_uuid
        same = tuple(each for each in self._of_instance.get(instance, ()) if each is not claim)
        if same:
            self._of_instance[instance] = same
        else:
            self._of_instance.pop(instance, None)

    def subtract(self, host: Host, claims: ClaimsOfHost) -> Host:
        """The host with those instances on it; what was found out for the first of them is
        not found out again."""
        if not claims:
            return host
        base, before, left = self._known.get(host.uuid, (host, (), host))
        if base is not host or claims[: len(before)] != before:
            before, left = (), host
        for each in claims[len(before) :]:
            taken = each.request, each.candidate
            place = each.place
            if left is not each.host:
                place = fitting.claimed_fit(left, *taken, each.limits, self.settings)
            left = fitting.after(left, *taken, place)
        self._known[host.uuid] = host, claims, left
        return left
