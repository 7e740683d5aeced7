# SPDX-License-Identifier: Apache-2.0
"""Claims and their allocations, as values and as the bodies of requests.

``PUT /allocations/{consumer_uuid}`` and ``POST /allocations`` at microversion 1.36 in
the Placement API reference have the format.
"""

import math
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from novasched.placement.api import READ_MICROVERSION, PlacementApi
from novasched.placement.wire import (
    ConsumerAllocations,
    ResourceProviders,
    Resources,
)
from novasched.scheduler.model.basis import FRESH, Basis
from novasched.scheduler.model.candidate import Candidate
from novasched.scheduler.model.request import Request

CLAIM_LIMIT_S = 600.0
"""Seconds after the first claim of a try in which further claims may begin. Placement
may refuse very many claims, slowly."""
Body = Mapping[str, Any]


def held_by(
    api: PlacementApi,
    consumer: str,
    trace_id: str | None = None,
    retry_s: float | None = None,
) -> ConsumerAllocations:
    """Read the allocations of an instance.

    :param retry_s: see :meth:`novasched.placement.api.PlacementApi.send`.
    :raises PlacementUnavailable: Placement does not answer.
    """
    path = f'/allocations/{consumer}'
    answer = api.send(
        'GET', path, trace_id, microversion=READ_MICROVERSION, retry_s=retry_s
    )
    return answer.decode(ConsumerAllocations)


def tree_of(
    api: PlacementApi,
    provider: str,
    trace_id: str | None = None,
    retry_s: float | None = None,
) -> frozenset[str]:
    """The UUIDs of all providers in the tree of a provider, such as a compute node and
    its devices.

    :param retry_s: see :meth:`novasched.placement.api.PlacementApi.send`.
    :raises PlacementUnavailable: Placement does not answer.
    """
    path = f'/resource_providers?in_tree={provider}'
    answer = api.send(
        'GET', path, trace_id, microversion=READ_MICROVERSION, retry_s=retry_s
    )
    tree = answer.decode(ResourceProviders).resource_providers
    return frozenset(each.uuid for each in tree)


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim of a candidate for an instance.

    :ivar before: the allocations of the instance before the claim; None for an instance
        without allocations.
    :ivar generation: the consumer generation after the claim. A change adds 1.
    :ivar moves: the instance was in a cell before the request.
    :ivar is_uncertain: Placement may make the claim at a later moment, or once more,
        since an attempt is without an answer. Equal allocations may belong to another
        request.
    :ivar earlier: abandoned claims for the same instance, which Placement may make even
        now.
    :ivar until: when the claim may begin at the latest (monotonic seconds).
    :ivar retry_until: until when the claim is repeated while Placement is unavailable
        (monotonic seconds).
    """

    uuid: str
    candidate: Candidate
    owner: Mapping[str, str | None]
    trace_id: str | None = None
    before: Resources | None = None
    generation: int = 1
    moves: bool = False
    is_uncertain: bool = False
    earlier: 'Sequence[Claim]' = ()
    until: float = math.inf
    retry_until: float = math.inf

    @classmethod
    def of(
        cls, request: Request, candidate: Candidate, basis: Basis = FRESH
    ) -> 'Claim':
        """Claim a candidate for the current instance."""
        return cls(
            str(request.instance_uuid),
            candidate,
            {'project_id': request.project_id, 'user_id': request.user_id},
            request.trace_id,
            moves=request.moves,
            until=basis.first_claim + CLAIM_LIMIT_S,
            retry_until=basis.deadline,
        )

    @property
    def retry_s(self) -> float:
        """Seconds for which requests of the claim may still be repeated."""
        return max(0.0, self.retry_until - time.monotonic())

    def uncertain(self) -> 'Claim':
        """The claim after an attempt without an answer."""
        return replace(self, is_uncertain=True)

    def beside(
        self, held: ConsumerAllocations, without: Collection[str] = ()
    ) -> 'Claim':
        """The claim for an instance with allocations. The allocations are kept, unless
        an earlier claim has made them: then they are replaced.

        :param without: the UUIDs of providers whose allocations are not kept.
        """
        resources = held.resources
        before: Resources = {rp: resources[rp] for rp in resources if rp not in without}
        for claim in self.earlier:
            if claim.equals(held):
                before = claim.before or {}
                break
        return replace(self, before=before, generation=held.generation + 1)

    def wanted(self) -> Resources:
        """Amounts of the instance after the claim.

        A provider of the source and the destination of a move, such as shared storage,
        is allocated once.
        """
        return {**self.candidate.resources(), **(self.before or {})}

    def equals(self, held: ConsumerAllocations) -> bool:
        """True if an instance has the amounts of a successful claim. Another request
        may have made the claim."""
        return held.resources == self.wanted()

    def added(self) -> Resources:
        """Amounts on the providers without earlier allocations of the instance."""
        before = self.before or {}
        amounts = self.candidate.resources()
        return {rp: amounts[rp] for rp in amounts if rp not in before}

    def is_part_of(self, held: ConsumerAllocations) -> bool:
        """True if an instance has the amounts of this claim beside changed allocations.

        Either another scheduler has claimed on further providers and kept existing
        allocations; or allocations from before the claim are gone, as after the source
        of an evacuation has returned.
        """
        added = self.added()
        is_part = bool(added) and added.items() <= held.resources.items()
        return is_part and not self.equals(held)

    def is_made(self, held: ConsumerAllocations) -> bool:
        """True if an instance has the allocations of this claim, unchanged since."""
        return self.equals(held) and held.generation == self.generation

    def body(self) -> Body:
        """The body that makes the claim."""
        if self.before is None:
            return {
                'allocations': self.candidate.allocations,
                'mappings': self.candidate.mappings,
                # For a consumer that Placement does not know (1.28).
                'consumer_generation': None,
                **self.owner,
            }

        # Without mappings: none are known of the earlier allocations.
        return {
            'allocations': {**self.candidate.allocations, **_plain(self.before)},
            'consumer_generation': self.generation - 1,
            **self.owner,
        }

    def undo_body(self, held: ConsumerAllocations) -> Body:
        """The body that removes this claim from the allocations of an instance.
        Placement refuses it after another change of the allocations."""
        added = self.added()
        resources = held.resources
        kept = {rp: resources[rp] for rp in resources if rp not in added}
        return {
            'allocations': _plain(kept),
            'consumer_generation': held.generation,
            **self.owner,
        }


def _plain(resources: Resources) -> dict[str, Any]:
    """Amounts in the format of a body."""
    return {provider: {'resources': amounts} for provider, amounts in resources.items()}
