# SPDX-License-Identifier: Apache-2.0
"""The claims that count beside a snapshot of hosts, and the hosts less these claims."""

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import compress
from operator import ne

from novasched.conf.settings import Settings
from novasched.scheduler import fitting
from novasched.scheduler.claims.ledger import ClaimsLedger
from novasched.scheduler.model.claim import ClaimsOfHost, PendingClaim
from novasched.scheduler.model.host import Host, HostSnapshot

LOG = logging.getLogger(__name__)


def changed_hosts(
    before: Mapping[str, ClaimsOfHost], now: Mapping[str, ClaimsOfHost]
) -> set[str]:
    """The UUIDs of the hosts with changed claims."""
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
    """Reads from the ledger the claims to count beside a snapshot of hosts.

    Few claims change between two requests. So the reader keeps the last view, and
    applies the changes since.
    """

    def __init__(self) -> None:
        self._view = _View()

    def beside(
        self, ledger: ClaimsLedger, snapshot: HostSnapshot
    ) -> Mapping[str, ClaimsOfHost]:
        """The claims to count beside a snapshot, on hosts of the snapshot, by UUID of
        the host."""
        view = self._view
        changed = snapshot.view.changes.since(view.version)
        changes = ledger.changes_since(view.number)
        # Without all changes since the last view, the view is made anew.
        if changed is None or changes is None:
            counting: dict[str, ClaimsOfHost] = {}
            uuids = {*ledger.hosts()}
        else:
            counting = {**view.claims}
            uuids = {change.entry.claim.host.uuid for change in changes}
            uuids.update(changed.intersection(ledger.hosts()))
            # A later reading may show the instance of a claim that counted before.
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
        if snapshot.view.is_shared:
            self._view = _View(
                snapshot.view.version, snapshot.read_at, ledger.number, counting
            )
        return counting


@dataclass(frozen=True, slots=True)
class _Remainder:
    """The hosts of a snapshot, less the claims.

    :ivar version: the version of the snapshot.
    :ivar hosts: the hosts with claims, less the claims, by UUID.
    """

    version: int = 0
    claims: Mapping[str, ClaimsOfHost] = field(default_factory=dict)
    hosts: Mapping[str, Host] = field(default_factory=dict)


class HostsLeft:
    """Subtracts claims from hosts, and keeps the result for the next request.

    Every method may be called by several threads at the same time: a request looks for
    alternates while another request decides, and an overtaken request may still decide,
    too. Each kept value names the hosts and the claims of its subtraction.

    :param drop: called with a claim of another scheduler that cannot be subtracted.
    """

    def __init__(
        self, settings: Settings, drop: Callable[[PendingClaim], None]
    ) -> None:
        self._settings = settings
        self._drop = drop
        # Host UUID to the host, the claims, and the host less the claims.
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
        changed = snapshot.view.changes.since(last.version)
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

        if snapshot.view.is_shared:
            self._last = _Remainder(snapshot.view.version, claims, left)
        return left

    def of(self, host: Host, claims: ClaimsOfHost) -> Host:
        """A host less claims. Mostly a claim was added since the last subtraction, and
        only the new claim is subtracted.

        :raises Exception: a claim of this process cannot be subtracted.
        """
        if not claims:
            return host

        base, subtracted, left = self._less_claims.get(host.uuid, (host, (), host))
        # A later reading has changed the host, or an earlier claim has ended.
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
        fit = claim.fit
        if host is not claim.host:
            # The claim was fitted on the host as it was then.
            fit = fitting.claimed_fit(
                host, claim.request, claim.candidate, claim.limits, self._settings
            )
        return fitting.with_instance_claimed(host, claim.request, claim.candidate, fit)
