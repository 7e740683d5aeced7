# SPDX-License-Identifier: Apache-2.0
"""Claims and the allocations that they come to, as values and as Placement's JSON
(``PUT /allocations/{consumer_uuid}`` at microversion 1.36 in the Placement API
reference)."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from novasched.placement.api import READ_MICROVERSION, PlacementApi
from novasched.placement.wire import ConsumerAllocations, Resources
from novasched.scheduler.model.basis import FRESH, Basis
from novasched.scheduler.model.candidate import Candidate
from novasched.scheduler.model.request import Request

CLAIM_LIMIT_S = 600.0
"""Seconds from its arrival in which a request may claim: Placement may refuse very
many, slowly."""
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


@dataclass(frozen=True, slots=True)
class Claim:
    """Allocations for an instance; ``before`` is what it held, None for nothing.

    An instance that ``moves`` was in a cell before. ``generation`` is the consumer's
    once the claim is made: each change adds one. Where the outcome is unknown the claim
    may be made, or be made yet, and what equals it may be another's. ``earlier`` are
    claims for the same instance that were given up, and may be made even now. After
    ``until`` (monotonic seconds) it is not begun, and after ``retry_until`` not
    repeated while Placement is away.
    """

    uuid: str
    candidate: Candidate
    owner: Mapping[str, str | None]
    trace_id: str | None = None
    before: Resources | None = None
    generation: int = 1
    moves: bool = False
    outcome_unknown: bool = False
    earlier: 'Sequence[Claim]' = ()
    until: float = math.inf
    retry_until: float = math.inf

    @classmethod
    def of(
        cls, request: Request, candidate: Candidate, basis: Basis = FRESH
    ) -> 'Claim':
        """Claim a candidate for the current instance."""
        owner = {'project_id': request.project_id, 'user_id': request.user_id}
        aim = request.requested_destination
        return cls(
            str(request.instance_uuid),
            candidate,
            owner,
            request.trace_id,
            # nova keeps to an instance's cell, which only one that is there already
            # has.
            moves=bool(aim and aim.cell_uuid),
            until=basis.began + CLAIM_LIMIT_S,
            retry_until=basis.deadline,
        )

    @property
    def retry_s(self) -> float:
        """Seconds in which what is asked for it may be asked again."""
        return max(0.0, self.retry_until - time.monotonic())

    def beside(self, held: ConsumerAllocations) -> 'Claim':
        """Return the same for an instance that holds something, which it keeps; but
        what comes of an earlier claim it does not keep."""
        late = next((claim for claim in self.earlier if claim.equals(held)), None)
        before = held.resources if late is None else late.before or {}
        return replace(self, before=before, generation=held.generation + 1)

    def wanted(self) -> Resources:
        """Amounts that the instance holds once this is claimed. A provider that serves
        both source and destination of a move, such as shared storage, is not taken from
        twice."""
        return {**self.candidate.resources(), **(self.before or {})}

    def equals(self, held: ConsumerAllocations) -> bool:
        """True if an instance holds what it would hold if this was made, by any
        request."""
        return held.resources == self.wanted()

    def added(self) -> Resources:
        """Amounts that the instance holds by this claim alone."""
        before = self.before or {}
        amounts = self.candidate.resources()
        return {rp: amounts[rp] for rp in amounts if rp not in before}

    def is_part_of(self, held: ConsumerAllocations) -> bool:
        """True if an instance holds the amounts of this claim, but its other
        allocations have changed. Either another scheduler has claimed on other
        providers and kept the allocations that it found; or allocations from before the
        claim are gone, as after the source of an evacuation has returned."""
        added = self.added()
        is_part = bool(added) and added.items() <= held.resources.items()
        return is_part and not self.equals(held)

    def is_made(self, held: ConsumerAllocations) -> bool:
        """True if an instance holds what comes of this, unchanged since."""
        return self.equals(held) and held.generation == self.generation

    def body(self) -> Body:
        if self.before is None:
            return {
                'allocations': self.candidate.allocations,
                'mappings': self.candidate.mappings,
                'consumer_generation': None,
                **self.owner,
            }
        return {
            'allocations': {**self.candidate.allocations, **_plain(self.before)},
            'consumer_generation': self.generation - 1,
            **self.owner,
        }

    def undo_body(self, held: ConsumerAllocations) -> Body:
        """The body that takes this claim from the allocations of an instance, if nobody
        changes them meanwhile."""
        added = self.added()
        rest = {rp: held.resources[rp] for rp in held.resources if rp not in added}
        return {
            'allocations': _plain(rest),
            'consumer_generation': held.generation,
            **self.owner,
        }


def _plain(resources: Resources) -> dict[str, Any]:
    """Amounts as a PUT takes them."""
    return {provider: {'resources': amounts} for provider, amounts in resources.items()}
