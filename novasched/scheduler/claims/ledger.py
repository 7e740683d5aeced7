# SPDX-License-Identifier: Apache-2.0
"""The ledger of pending claims, with the stage of each claim.

::

                          shown, late,
              claimed     or superseded        expired
    CHOSEN ---------> CLAIMED ---------> SHOWN --------> OVER
       |                 |                 ^               ^
       |     shown       |                 |               |
       +-----------------)-----------------+               |
       |     superseded  |                                 |
       +-----------------)---------------------------------+
       |     released    |     released
       +-------------> RELEASED <

CHOSEN
    A host is chosen for the instance. Placement may refuse the claim yet.
CLAIMED
    Placement has the allocations, and the request is answered. The host does not report
    the instance yet.
SHOWN
    The databases show the instance on its host, or show that the instance will never
    arrive. A claim that the databases do not show becomes SHOWN some time after the
    answer, too, and once a later request has placed the instance elsewhere. The claim
    still counts beside snapshots from before. A database may lag behind and hide the
    instance again: the claim counts beside such a snapshot as well.
OVER
    No snapshot needs the claim any more: all tries in progress have read their hosts
    later. A claim that is still CHOSEN is OVER as well once a later request has placed
    the instance.
RELEASED
    The claim was not made after all, or was undone.

A claim leaves the ledger once the claim is OVER or RELEASED. The ledger remembers the
instance and the host of a member of a server group for a while after OVER: a request
may have waited for minutes, and not know this member.

Changes are numbered, and the last changes are kept. A reader remembers the number of
the last change, and reads only later changes next time.

The ledger has no lock, no clock and no thread: the caller says what happens, and when.
"""

import math
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from novasched.scheduler.claims.group_members import GroupMembers
from novasched.scheduler.model.claim import ClaimsOfHost, PendingClaim, Stage
from novasched.scheduler.model.instance import MAX_READ_LAG_S
from novasched.scheduler.model.request import REQUEST_LIMIT_S

SHOWN_S = 120.0
"""Minimum time for which a claim is kept after hosts show the instance, in seconds: a
try may begin with hosts from the reading of an earlier request."""

EXPIRY_INTERVAL_S = 1.0
"""Seconds between two searches for expired claims among thousands of claims. A claim
counts at most so much longer than its timeout."""

CHANGES_KEPT = 1000
"""Number of changes kept: the changes of some seconds. A reader that has missed more
changes reads all claims."""
RELEASES_KEPT = 1000
"""Number of releases kept."""


@dataclass(eq=False, slots=True)
class Entry:
    """The progress of a claim.

    :ivar claimed_at: the moment of the answer to the request; infinite before.
    :ivar settled_at: the moment from which on the claim is no longer CHOSEN, so that
        Placement's answers since then include the claim if the claim was made at all;
        infinite before.
    :ivar shown_at: the moment of the reading that shows the instance, or from which on
        no reading has to show the instance; infinite before.
    :ivar hidden_at: the moment of the last later reading without the instance, from a
        database that lags behind; None without such a reading.
    :ivar position: the position of the claim in the announcements of all schedulers;
        infinite for a claim of this process until the announcement has come back.
    """

    claim: PendingClaim
    stage: Stage = Stage.CHOSEN
    claimed_at: float = math.inf
    settled_at: float = math.inf
    shown_at: float = math.inf
    hidden_at: float | None = None
    position: float = math.inf

    def counts_at(self, read_at: float) -> bool:
        """True if the claim counts beside hosts that were read at a moment."""
        if self.hidden_at is not None and self.hidden_at >= read_at:
            return True
        return self.shown_at > read_at


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the ledger.

    :ivar added: 1 for a new claim, -1 for a claim that has left the ledger, 0 for a
        reading that shows or hides the instance.
    """

    entry: Entry
    added: int


class TakenAmounts(NamedTuple):
    """The amounts of claims missing in an answer of Placement.

    :ivar number: the number of the last change of the ledger.
    :ivar is_all: True for the amounts of all claims, False for the difference since an
        earlier change.
    :ivar by_provider: provider UUID to resource class to amount. A difference is
        negative where more was given back than taken.
    """

    number: int
    is_all: bool
    by_provider: Mapping[str, Mapping[str, int]]


def chosen_limit(timeout: float) -> float:
    """Seconds after which a claim is OVER that is still CHOSEN: the message about the
    end of the request was lost. The ledger of a single request has no timeout, and
    keeps CHOSEN claims.

    :param timeout: see :class:`ClaimsLedger`.
    """
    return max(REQUEST_LIMIT_S, timeout)


class ClaimsLedger:
    """The pending claims of this process and of other schedulers, by host.

    Moments are monotonic seconds.

    :param timeout: seconds after the answer to a request, after which a claim counts no
        longer although no reading has shown the instance (``[novasched]
        in_flight_timeout``).
    :ivar number: the number of the last change.
    :ivar members: the members of server groups.
    """

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self._chosen_limit = chosen_limit(timeout)
        self.number = 0
        self._entries: dict[PendingClaim, Entry] = {}
        # The same claims by host and instance, in the order of arrival. Dicts, since a
        # peer may send thousands of claims on a host, which expire at once.
        self._of_host: dict[str, dict[PendingClaim, None]] = {}
        self._of_instance: dict[str | None, dict[PendingClaim, None]] = {}
        self.members = GroupMembers()
        # The tries in progress, by the moment from which on their hosts were read.
        self._tries: Counter[float] = Counter()
        self._shown_on: set[str] = set()  # hosts with claims that are SHOWN
        self._changes: deque[Change] = deque(maxlen=CHANGES_KEPT)
        self._releases: deque[tuple[str | None, float]] = deque(maxlen=RELEASES_KEPT)
        # The claims whose instances have arrived within the lag of databases.
        self._arrivals: dict[PendingClaim, Entry] = {}
        self._expire_at = 0.0

    def __contains__(self, claim: object) -> bool:
        return claim in self._entries

    def __iter__(self) -> Iterator[PendingClaim]:
        return iter(self._entries)

    def chosen(self, claim: PendingClaim, position: float = math.inf) -> None:
        """Enter a claim for a chosen host.

        :param position: the position of the claim in the announcements of all
            schedulers.
        """
        entry = Entry(claim, position=position)
        self._entries[claim] = entry
        host = claim.host.uuid
        instance = claim.request.instance_uuid
        self._of_host.setdefault(host, {})[claim] = None
        self._of_instance.setdefault(instance, {})[claim] = None
        if claim.request.instance_group is not None:
            self.members.add(claim)
        self._note(entry, 1)

    def begin_try(self, read_since: float) -> None:
        """Keep the claims for a try to decide a request.

        :param read_since: the hosts of the try are read at this moment, or later.
        """
        self._tries[read_since] += 1

    def end_try(self, read_since: float) -> None:
        """Note that a try has ended."""
        self._tries[read_since] -= 1
        if not self._tries[read_since]:
            del self._tries[read_since]

    def claimed(self, claims: Collection[PendingClaim], moment: float) -> None:
        """Note the claims in the answer to a request.

        An instance goes to one host at a time. So earlier claims of the same instances
        are superseded now. A claim of another scheduler is superseded as well if the
        announcement arrives after the answer to a later claim.

        Earlier claims stay until the answer, since the request may still be refused.
        Then the rows of the instances tell whether earlier claims count.

        :param moment: the moment of the answer.
        """
        for claim in claims:
            # A peer may have ended the claim, or hosts may show the instance already.
            entry = self._entries.get(claim)
            if entry is not None:
                entry.claimed_at = moment
                if entry.stage is Stage.CHOSEN:
                    entry.stage = Stage.CLAIMED
                    entry.settled_at = moment

        # Only now: each claim of the answer is CLAIMED when the others are compared.
        for claim in claims:
            instance = claim.request.instance_uuid
            if instance is None:
                continue

            for other in tuple(self._of_instance.get(instance, ())):
                if other is claim or other in claims:
                    continue
                if other.since <= claim.since:
                    self._supersede(other, claim.since)
                elif self.is_claimed(other):
                    self._supersede(claim, other.since)

    def shown(
        self,
        claim: PendingClaim,
        read_at: float,
        now: float,
        has_arrived: bool = False,
    ) -> None:
        """Note that the hosts of a reading show the instance.

        :param read_at: the moment of the reading.
        :param has_arrived: True if the instance was seen on the host of the claim.
            Otherwise the instance is late, will never arrive, or has gone.
        """
        entry = self._entries[claim]
        if not has_arrived:
            self._arrivals.pop(claim, None)
        if entry.shown_at <= read_at:
            return

        if entry.stage is Stage.CHOSEN:
            # The answer to the request is not known: the scheduler has died, or a
            # message was lost. The moment of the reading would not do: meanwhile a
            # reader may have subtracted the claim from a later answer of Placement.
            entry.settled_at = now
        self._show(entry, read_at)
        if has_arrived:
            self._note_arrival(entry)

    def hidden(self, claim: PendingClaim, read_at: float) -> None:
        """Note that the hosts of a reading do not show the instance.

        After a slightly earlier reading with the instance, this means that the database
        lags behind. A long time later, the instance has gone.

        :param read_at: the moment of the reading.
        """
        entry = self._entries[claim]
        ends = min(entry.shown_at + MAX_READ_LAG_S, entry.claimed_at + self.timeout)
        if entry.shown_at <= read_at < ends:
            entry.hidden_at = max(entry.hidden_at or read_at, read_at)
            self._note(entry, 0)

    def arrivals_shortly_before(self, read_at: float) -> list[PendingClaim]:
        """The claims of instances that arrived shortly before a moment. A reading at
        this moment may lack the instances, from a database that lags behind."""
        return [
            claim
            for claim, entry in self._arrivals.items()
            if read_at - MAX_READ_LAG_S < entry.shown_at <= read_at
        ]

    def was_shown_before(self, claim: PendingClaim, moment: float) -> bool:
        """True if a reading from before a moment shows the instance."""
        return self._entries[claim].shown_at < moment

    def released(self, claim: PendingClaim, now: float) -> bool:
        """Note that a claim was not made after all, or was undone.

        :returns: False if the claim was OVER or RELEASED already.
        """
        # Also for a claim that is OVER: waiting requests learn of every release.
        self._releases.append((claim.request.instance_uuid, now))
        return self._remove(claim)

    def announced(self, claim: PendingClaim, position: float) -> None:
        """Note the position of a claim in the announcements of all schedulers."""
        entry = self._entries.get(claim)
        if entry is not None:
            entry.position = position

    def expire(self, now: float) -> None:
        """Remove the claims that are over. Does nothing within
        :data:`EXPIRY_INTERVAL_S` after the last search."""
        if now < self._expire_at:
            return
        self._expire_at = now + EXPIRY_INTERVAL_S

        # A claim stays while the hosts of the oldest try may lack the instance, but not
        # for ever: a try that never ends must not keep all claims.
        oldest = max(min(self._tries, default=math.inf), now - REQUEST_LIMIT_S)
        for claim, entry in [*self._entries.items()]:
            late_at = entry.claimed_at + self.timeout
            # If no host shows the instance for so long, the build has failed, or the
            # instance has been deleted.
            if entry.stage is Stage.CLAIMED and late_at <= now:
                self._show(entry, late_at)

            end = late_at
            if entry.stage is Stage.CHOSEN:
                end = claim.since + self._chosen_limit
            elif entry.stage is Stage.SHOWN:
                end = entry.shown_at + SHOWN_S
                if entry.counts_at(oldest):
                    continue
            if end > now:
                continue

            self._remove(claim)
            if entry.stage is Stage.SHOWN:
                # A request that began just after the choice may not know the member.
                self.members.remember(claim, claim.since + self._chosen_limit)
        if self.members.queue:
            self.members.forget(now)

    def stage_of(self, claim: PendingClaim) -> Stage | None:
        """The stage of a claim; None once the claim is OVER or RELEASED."""
        entry = self._entries.get(claim)
        return None if entry is None else entry.stage

    def is_chosen(self, claim: PendingClaim) -> bool:
        """True if a claim is CHOSEN: Placement may refuse the claim yet."""
        return self.stage_of(claim) is Stage.CHOSEN

    def was_chosen_at(self, claim: PendingClaim, moment: float) -> bool:
        """True if a claim of the ledger was CHOSEN at a moment, or was chosen later."""
        entry = self._entries[claim]
        return entry.stage is Stage.CHOSEN or moment < entry.claimed_at < math.inf

    def is_claimed(self, claim: PendingClaim) -> bool:
        """True if Placement has the claim and its request is answered."""
        entry = self._entries.get(claim)
        return entry is not None and entry.claimed_at < math.inf

    def claimed_at(self, claim: PendingClaim) -> float | None:
        """The moment of the answer to the request of a claim; infinite before. None
        once the claim is OVER or RELEASED."""
        entry = self._entries.get(claim)
        return None if entry is None else entry.claimed_at

    def position_of(self, claim: PendingClaim) -> float:
        """The position of a claim in the announcements of all schedulers."""
        entry = self._entries.get(claim)
        return math.inf if entry is None else entry.position

    def is_ahead(self, theirs: PendingClaim, ours: PendingClaim) -> bool:
        """True if a claim of another scheduler takes precedence over a claim of this
        process: the request is answered, or the claim was announced earlier. If the
        host has no room for both claims, the claim of this process is released."""
        if theirs.is_ours:
            return False
        if self.is_claimed(theirs):
            return True
        return self.position_of(theirs) < self.position_of(ours)

    def on_host(self, uuid: str) -> ClaimsOfHost:
        """The claims on a host, in the order of arrival."""
        return tuple(self._of_host.get(uuid, ()))

    def hosts(self) -> Collection[str]:
        """The UUIDs of the hosts with claims."""
        return self._of_host.keys()

    def hosts_of(self, instances: Iterable[str]) -> set[str]:
        """The UUIDs of the hosts that were chosen for instances."""
        return {
            claim.host.uuid
            for instance in instances
            for claim in self._of_instance.get(instance, ())
        }

    def hosts_with_shown_claims(self) -> Collection[str]:
        """The UUIDs of the hosts with SHOWN claims."""
        return self._shown_on

    def counting_at(self, uuid: str, read_at: float) -> ClaimsOfHost:
        """The claims on a host that count beside hosts read at a moment."""
        claims = self.on_host(uuid)
        if uuid not in self._shown_on:
            return claims
        return tuple(
            claim for claim in claims if self._entries[claim].counts_at(read_at)
        )

    def was_released(self, since: float, except_for: Collection[str]) -> bool:
        """True if a claim was released since a moment.

        :param except_for: UUIDs of instances whose releases do not count.
        """
        return any(
            moment >= since and instance not in except_for
            for instance, moment in self._releases
        )

    def changes_since(self, number: int) -> Sequence[Change] | None:
        """The changes after a change, the newest first; None if the ledger no longer
        keeps all these changes.

        :param number: the number of the change.
        """
        count = self.number - number
        if count > len(self._changes):
            return None
        return [*islice(reversed(self._changes), count)]

    def amounts_since(self, number: int | None, moment: float) -> TakenAmounts:
        """The amounts of claims that Placement had not made at a moment.

        :param number: the number of the last change that the caller knows; None for the
            amounts of all claims.
        """
        changes = None if number is None else self.changes_since(number)
        is_all = changes is None
        if changes is None:
            changes = [Change(entry, 1) for entry in self._entries.values()]

        sums: dict[str, Counter[str]] = {}
        for change in changes:
            # Placement's answer includes the claims that were made before the query.
            if not change.added or change.entry.settled_at <= moment:
                continue
            for provider, amounts in change.entry.claim.amounts.items():
                of_provider = sums.setdefault(provider, Counter())
                for name, amount in amounts.items():
                    of_provider[name] += change.added * amount
        return TakenAmounts(self.number, is_all, sums)

    def _show(self, entry: Entry, read_at: float) -> None:
        entry.stage = Stage.SHOWN
        entry.shown_at = read_at
        self._shown_on.add(entry.claim.host.uuid)
        self._note(entry, 0)

    def _note_arrival(self, entry: Entry) -> None:
        """Note an arrival, and forget the arrivals from before the lag of databases.
        The arrivals are in the order of the readings."""
        while self._arrivals:
            first = next(iter(self._arrivals.values()))
            if first.shown_at > entry.shown_at - MAX_READ_LAG_S:
                break
            del self._arrivals[first.claim]
        self._arrivals[entry.claim] = entry

    def _note(self, entry: Entry, added: int) -> None:
        self._changes.append(Change(entry, added))
        self.number += 1

    def _supersede(self, claim: PendingClaim, moment: float) -> None:
        """Note that a later request has placed the instance of a claim.

        nova moves an instance after its arrival, and builds an instance anew after a
        failure. So a reading from after the later request shows either. Tries in
        progress may have read the host before the instance arrived.

        :param moment: when the later request has chosen a host.
        """
        entry = self._entries.get(claim)
        if entry is None:
            return
        if entry.stage is Stage.CHOSEN:
            self._remove(claim)
        elif entry.stage is Stage.CLAIMED:
            self._show(entry, moment)

    def _remove(self, claim: PendingClaim) -> bool:
        """Remove a claim. False if the ledger does not have the claim."""
        entry = self._entries.pop(claim, None)
        if entry is None:
            return False

        self._arrivals.pop(claim, None)
        host = claim.host.uuid
        del self._of_host[host][claim]
        if not self._of_host[host]:
            del self._of_host[host]
            self._shown_on.discard(host)

        instance = claim.request.instance_uuid
        del self._of_instance[instance][claim]
        if not self._of_instance[instance]:
            del self._of_instance[instance]

        if claim.request.instance_group is not None:
            self.members.remove(claim)
        self._note(entry, -1)
        return True
