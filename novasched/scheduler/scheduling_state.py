# SPDX-License-Identifier: Apache-2.0
"""The state of a request while its instances are placed one after the other."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from novasched.scheduler.errors import IncompleteData, NoValidHost, StaleData
from novasched.scheduler.model.basis import Basis
from novasched.scheduler.model.candidate import Candidate, Candidates
from novasched.scheduler.model.claim import ClaimsOfHost, PendingClaim
from novasched.scheduler.model.host import Host, HostSnapshot
from novasched.scheduler.model.host_list import HostList
from novasched.scheduler.model.request import Request
from novasched.scheduler.ports import MAX_CLAIMS_PER_HOST

LOG = logging.getLogger('nova.scheduler.manager')

NOT_ENOUGH = 'There are not enough hosts available.'


@dataclass(frozen=True, slots=True)
class SchedulingState:
    """A request, the claims for its first instances, and the hosts for the remaining
    instances. Each step makes another state; ``claims/pending_claims.py`` subtracts the
    pending claims.

    :ivar hosts: the hosts of the snapshot that passed the filters for the instance
        before, less the pending claims, in the same order; at first all offered hosts.
    :ivar candidates: Placement's offer, without the candidates that filters have
        dropped for earlier instances; None if Placement was not asked.
    :ivar pending: the claims that were subtracted from hosts, by UUID of the host.
    """

    request: Request
    basis: Basis
    snapshot: HostSnapshot
    hosts: HostList
    candidates: Candidates | None
    placed: tuple[PendingClaim, ...] = ()
    pending: Mapping[str, ClaimsOfHost] = field(default_factory=dict)

    @property
    def instance_uuids(self) -> Sequence[str | None]:
        """UUIDs of the instances to be placed, in order."""
        return self.request.instance_uuids or [None] * self.request.count

    @property
    def own_instances(self) -> frozenset[str]:
        """UUIDs of the instances of the request. Claims of earlier requests for these
        instances do not count."""
        return frozenset(self.request.instance_uuids or ())

    @property
    def asked_at(self) -> float:
        """When Placement was asked for the candidates, in monotonic seconds; Placement
        has counted the claims that were made before."""
        if self.candidates is not None and self.candidates.asked_at is not None:
            return self.candidates.asked_at
        return self.basis.began

    def with_pending(
        self, pending: Mapping[str, ClaimsOfHost], changed: Mapping[str, Host]
    ) -> 'SchedulingState':
        """The state beside other pending claims.

        :param changed: the hosts whose claims differ, less the claims, by UUID.
        """
        return replace(self, hosts=self.hosts.with_hosts(changed), pending=pending)

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

    def is_as_before(self, before: 'SchedulingState', host: Host) -> bool:
        """True if the pending claims on a host are the claims of an earlier state. For
        a member of a group, the pending claims on all hosts."""
        if self.request.instance_group is not None:
            return self.pending == before.pending
        return self.pending.get(host.uuid) == before.pending.get(host.uuid)

    def with_candidates_alone(self) -> 'SchedulingState':
        """The state without hosts on which no candidate was found: the search in the
        tree of a host may be given up.

        :raises NoValidHost: no host remains.
        """
        has_candidate = np.fromiter(map(self.has_candidate, self.hosts), bool)
        if not has_candidate.any():
            raise self.not_enough()
        return replace(self, hosts=self.hosts.where(has_candidate))

    def has_candidate(self, host: Host) -> bool:
        """True if a candidate was found on a host, or if Placement was not asked."""
        return self.candidates is None or bool(self.candidates[host.uuid])

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
