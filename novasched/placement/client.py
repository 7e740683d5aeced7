# SPDX-License-Identifier: Apache-2.0
"""The Placement service: candidates, claims and allocations. Equal queries share an
answer."""

import functools
import logging
import threading
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TypeVar

import msgspec
from keystoneauth1 import adapter

from novasched.concurrency.circuit_breaker import Trouble
from novasched.concurrency.single_flight import STUCK_AFTER_S, SingleFlight
from novasched.conf.settings import Settings
from novasched.placement import query
from novasched.placement.allocations import Claim, held_by
from novasched.placement.api import (
    PROBE,
    READ_MICROVERSION,
    RETRY_LIMIT_S,
    PlacementApi,
)
from novasched.placement.batching import BatchWindow
from novasched.placement.candidates import AskedCandidates
from novasched.placement.claims import Claims
from novasched.placement.remembered import RememberedAnswers, Taken
from novasched.placement.wire import (
    AllocationCandidates,
    AllocationRequests,
    ProviderAggregates,
    ProviderSummary,
)
from novasched.scheduler.errors import PlacementUnavailable
from novasched.scheduler.model.basis import FRESH, Basis
from novasched.scheduler.model.candidate import Candidate, Candidates
from novasched.scheduler.model.request import Request
from novasched.scheduler.pending_claims import nothing_taken
from novasched.scheduler.ports import Instances

# Operators search for what these loggers of nova's write.
LOG = logging.getLogger('nova.scheduler.client.report')
MANAGER = logging.getLogger('nova.scheduler.manager')
UTILS = logging.getLogger('nova.scheduler.utils')

Kind = TypeVar('Kind')
NO_CANDIDATES = b'{"allocation_requests": [], "provider_summaries": {}}'


CandidatesWithSummaries = AllocationCandidates[Candidate, ProviderSummary]
"""Candidates, and the capacity of their providers."""
CandidatesText = tuple[list[Candidate], bytes]
"""Candidates, and the text that they are pieces of."""


def parse(text: bytes, kind: type[Kind]) -> Kind:
    """Decode an answer of microversion 1.12 or later.

    :raises PlacementUnavailable: it is no list of candidates.
    """
    try:
        return msgspec.json.decode(text, type=kind)
    except (ValueError, RecursionError) as error:
        raise PlacementUnavailable(
            f'Placement sent no allocation candidates: {error}'
        ) from None


class PlacementClient:
    """Implements :class:`novasched.scheduler.ports.Placement`."""

    def __init__(
        self,
        settings: Settings,
        http: adapter.Adapter,
        instances: Instances | None = None,
        taken: Taken = nothing_taken,
        processes: int = 1,
    ) -> None:
        """:param instances: see :class:`novasched.placement.cleanup.AllocationDeleter`.

        See :class:`novasched.placement.remembered.RememberedAnswers` for the others.
        """
        self.settings = settings
        self._api = PlacementApi(
            http, retry_limit=min(RETRY_LIMIT_S, settings.placement_patience)
        )
        self._queries: dict[str, SingleFlight[CandidatesText]] = {}
        self._lock = threading.Lock()
        self._window = BatchWindow()
        self._remembered = RememberedAnswers(
            settings.candidates_max_age,
            functools.partial(self._answer, trace_id=None),
            taken,
            processes,
        )
        forget = self._remembered.forget
        self._claims = Claims(self._api, instances, provider_gone=forget)

    @property
    def circuit_open(self) -> bool:
        """True while Placement is not asked, until it answers a probe."""
        return self._api.breaker.reason is not None

    @property
    def trouble(self) -> Trouble | None:
        """The calls without an answer since the last one that had one."""
        return self._api.breaker.trouble

    @property
    def remembered_age(self) -> float | None:
        """Seconds since the newest answer was asked for that serves later requests."""
        return self._remembered.age

    @property
    def pending_deletions(self) -> int:
        """Number of claims whose allocations are still to be deleted."""
        return self._claims.cleanup.pending

    def close(self, seconds: float = 0.0) -> None:
        """Ask no more, after so many seconds at the most for allocations that are to be
        deleted."""
        self._remembered.close()
        self._claims.cleanup.close(seconds)
        self._api.breaker.stop()

    def check(self) -> None:
        """See that Placement is there and accepts our credentials.

        :raises PlacementUnauthorized: it does not accept the credentials.
        :raises PlacementUnavailable: it cannot be reached.
        """
        self._api.send('GET', PROBE, retry_s=0)

    def aggregates(self, provider: str) -> frozenset[str]:
        """The aggregates of a provider; none also where there is no such provider.

        :raises PlacementUnavailable: Placement does not answer.
        """
        path = f'/resource_providers/{provider}/aggregates'
        answer = self._api.send('GET', path, microversion=READ_MICROVERSION)
        if answer.status_code == 404:
            return frozenset()
        return frozenset(answer.decode(ProviderAggregates).aggregates)

    def allocations(self, consumer: str) -> Mapping[str, Mapping[str, int]]:
        """Amounts that an instance holds, by provider UUID and resource class.

        :raises PlacementUnavailable: Placement does not answer.
        """
        return held_by(self._api, consumer).resources

    def announce_arrival(self, moment: float) -> None:
        self._window.expect(moment)

    def candidates(self, request: Request, basis: Basis = FRESH) -> Candidates:
        """The candidates that Placement offers for the request, by host.

        :raises PlacementUnavailable: no answer, or one that is no list of candidates.
        """
        first, *others = queries = query.build_all(request, self.settings)
        if basis.from_memory:
            # The request may wait for an answer that the others do not need.
            self._window.arrived(basis.began)
            remembered = self._remembered.offer(queries)
            if remembered is not None:
                return remembered
        answers = [self._ask(first, request, basis)]
        for fallback in others:
            MANAGER.debug(
                'Requesting fallback allocation candidates with VCPU instead of PCPU'
            )
            answers.append(self._ask(fallback, request, basis))
        candidates = chain.from_iterable(candidates for candidates, _ in answers)
        return AskedCandidates(candidates, [text for _, text in answers])

    def offer(self, built: query.Query) -> CandidatesWithSummaries:
        """The answer to a query, and what its providers have.

        :raises PlacementUnavailable: no answer, or one that is no list of candidates.
        """
        return parse(self._answer(built, None), CandidatesWithSummaries)

    def _ask(
        self, built: query.Query, request: Request, basis: Basis
    ) -> CandidatesText:
        """The answer to a query, shared by requests that ask it and came before it was
        sent."""
        for warning in built.warnings:
            UTILS.warning(warning)
        self._window.arrived(basis.began)
        with self._lock:
            flight = self._queries.get(built.string)
            if flight is None:
                get = functools.partial(self._get, built, request.trace_id)
                flight = SingleFlight(
                    get, gather=self._window.wait, stuck_after=STUCK_AFTER_S
                )
                self._queries[built.string] = flight
        try:
            return flight.at_least(basis.began)
        finally:
            with self._lock:
                if flight.idle and self._queries.get(built.string) is flight:
                    del self._queries[built.string]

    def _get(self, built: query.Query, trace_id: str | None) -> CandidatesText:
        text = self._answer(built, trace_id)
        return parse(text, AllocationRequests).allocation_requests, text

    def _answer(self, built: query.Query, trace_id: str | None) -> bytes:
        """The answer to a query; no candidates where Placement refuses the query."""
        # Those who need it ask anew, each for as long as it may wait.
        path = f'/allocation_candidates?{built.string}'
        answer = self._api.send('GET', path, trace_id, retry_s=0)
        if answer.status_code == 400:
            # The query is at fault: an extra spec may name what Placement does not
            # know.
            LOG.warning(
                'Placement refuses the query %s: %s', built.string, answer.detail
            )
            return NO_CANDIDATES
        if answer.status_code != 200:
            raise PlacementUnavailable(
                'Failed to retrieve allocation candidates from placement API for '
                f'{built.string}: {answer}'
            )
        return answer.content

    def claim(
        self, request: Request, candidate: Candidate, basis: Basis = FRESH
    ) -> Claim | None:
        """:raises ClaimFailed: another process changes the same instance's allocations.
        :raises PlacementUnavailable: Placement does not answer.
        """
        made = self._claims.allocate([Claim.of(request, candidate, basis)])
        if made:
            return made[0]
        self._remembered.refuse([*candidate.allocations])
        return None

    def claim_together(
        self, claims: Sequence[tuple[Request, Candidate]], basis: Basis = FRESH
    ) -> Sequence[Claim] | None:
        """:raises ClaimFailed: see :meth:`claim`.
        :raises PlacementUnavailable: Placement does not answer; nothing stays claimed.
        """
        made = self._claims.allocate([Claim.of(*claim, basis) for claim in claims])
        if not made:
            self._remembered.refuse(
                [rp for _, each in claims for rp in each.allocations]
            )
        return made

    def delete_allocations(self, claim: Claim) -> None:
        MANAGER.debug('Cleaning up allocations for %s', [claim.uuid])
        self._claims.delete(claim)
