# SPDX-License-Identifier: Apache-2.0
"""The client of Placement: candidates, claims and allocations. Equal queries share an
answer."""

import functools
import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain
from typing import TypeVar
from urllib.parse import quote

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
    Response,
)
from novasched.placement.base_answer import BaseAnswer
from novasched.placement.batching import BatchWindow
from novasched.placement.candidates import AskedCandidates
from novasched.placement.claims import Claims
from novasched.placement.cleanup import Instances
from novasched.placement.local_candidates import LocalCandidates, match
from novasched.placement.remembered import RememberedAnswers, Taken, nothing_taken
from novasched.placement.tree_search import SearchTooLong
from novasched.placement.wire import (
    AllocationCandidates,
    AllocationRequests,
    Body,
    ProviderAggregates,
    ProviderSummary,
    ResourceProviders,
    UnusableAnswer,
    decode,
)
from novasched.scheduler.errors import PlacementUnavailable
from novasched.scheduler.model.basis import FRESH, Basis
from novasched.scheduler.model.candidate import Candidate, Candidates
from novasched.scheduler.model.request import Request

# Operators search for the lines of these loggers of nova's.
LOG = logging.getLogger('nova.scheduler.client.report')
MANAGER = logging.getLogger('nova.scheduler.manager')
UTILS = logging.getLogger('nova.scheduler.utils')

Kind = TypeVar('Kind')
NO_CANDIDATES = b'{"allocation_requests": [], "provider_summaries": {}}'
FACTS_S = 60.0
"""Seconds for which the answer to a question about a name counts."""
MAX_FACTS = 1_000
"""Such answers that are kept. Requests may name any resource class and any trait."""


CandidatesWithSummaries = AllocationCandidates[Candidate, ProviderSummary]
"""Candidates, and the capacity of their providers."""
CandidatesText = tuple[list[Candidate], bytes]
"""Candidates, and the text of the answer that has them."""


def _has_providers(answer: Response) -> bool:
    """True if an answer lists providers. Placement answers by 400 if it does not know
    the resource class."""
    if answer.status_code != 200:
        return False
    return bool(answer.decode(ResourceProviders).resource_providers)


def _exists(answer: Response) -> bool:
    """True if Placement knows a name."""
    return answer.status_code < 300


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
        :param taken: see :class:`novasched.placement.remembered.RememberedAnswers`.
        :param processes: see there.
        """
        self.settings = settings
        self._api = PlacementApi(
            http, retry_limit=min(RETRY_LIMIT_S, settings.placement_patience)
        )
        # Queries for which Placement is asked, by query string. The lock guards them
        # against the threads of requests.
        self._queries: dict[str, SingleFlight[CandidatesText]] = {}
        self._bases: dict[str, SingleFlight[BaseAnswer]] = {}
        # By path of a question: the answer, and until when the answer counts (monotonic
        # seconds).
        self._facts: dict[str, tuple[bool, float]] = {}
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
        """True while requests fail at once, until Placement answers a probe."""
        return self._api.breaker.reason is not None

    @property
    def trouble(self) -> Trouble | None:
        """Calls without an answer since the last answer; None without such calls."""
        return self._api.breaker.trouble

    @property
    def remembered_age(self) -> float | None:
        """Seconds since Placement was asked for the newest remembered answer."""
        return self._remembered.age

    @property
    def pending_deletions(self) -> int:
        """Number of claims that wait for the deletion of their allocations."""
        return self._claims.cleanup.pending

    def close(self, seconds: float = 0.0) -> None:
        """End the background threads.

        :param seconds: time for allocations that wait for their deletion.
        """
        self._remembered.close()
        self._claims.cleanup.close(seconds)
        self._api.breaker.stop()

    def check(self) -> None:
        """Check that Placement answers and accepts the credentials.

        :raises PlacementUnauthorized: Placement does not accept the credentials.
        :raises PlacementUnavailable: Placement does not answer.
        """
        self._api.send('GET', PROBE, retry_s=0)

    def aggregates(self, provider: str) -> frozenset[str]:
        """The aggregates of a provider. Empty for an unknown provider.

        :raises PlacementUnavailable: Placement does not answer.
        """
        path = f'/resource_providers/{provider}/aggregates'
        answer = self._api.send('GET', path, microversion=READ_MICROVERSION)
        if answer.status_code == 404:
            return frozenset()
        return frozenset(answer.decode(ProviderAggregates).aggregates)

    def allocations(self, consumer: str) -> Mapping[str, Mapping[str, int]]:
        """The allocations of an instance, by provider UUID and resource class.

        :raises PlacementUnavailable: Placement does not answer.
        """
        return held_by(self._api, consumer).resources

    def announce_arrival(self, basis: Basis) -> None:
        self._window.expect(basis.request_id, basis.began)

    def candidates(self, request: Request, basis: Basis = FRESH) -> Candidates:
        """The candidates that Placement offers for the request.

        :raises PlacementUnavailable: no answer, or an answer in another format.
        """
        queries = query.build_all(request, self.settings)
        may_be_local = not any(self._is_shared(built.local) for built in queries)
        if basis.from_memory and may_be_local:
            # This request may wait for an answer that other requests do not need.
            self._window.arrived(basis.request_id)
            remembered = self._remembered.offer(queries)
            if remembered is not None:
                for built in queries:
                    self._warn(built)
                return remembered
        if may_be_local:
            worked_out = self._worked_out(queries, request, basis)
            if worked_out is not None:
                for built in queries:
                    self._warn(built)
                return worked_out

        answers: list[CandidatesText] = []
        for built in queries:
            if answers:
                MANAGER.debug(
                    'Requesting fallback allocation candidates with VCPU instead of'
                    ' PCPU'
                )
            answers.append(self._ask(built, request, basis))
        candidates = chain.from_iterable(candidates for candidates, _ in answers)
        return AskedCandidates(candidates, [text for _, text in answers])

    def offer(self, built: query.Query) -> CandidatesWithSummaries:
        """The answer to a query, with the capacity of providers.

        :raises PlacementUnavailable: no answer, or an answer in another format.
        """
        return decode(self._answer(built, None), CandidatesWithSummaries)

    def _worked_out(
        self, queries: Sequence[query.Query], request: Request, basis: Basis
    ) -> LocalCandidates | None:
        """Candidates worked out from answers to base queries that are asked now. None
        if Placement is to be asked the queries themselves.

        Placement lists all permutations of devices, which takes minutes for a few
        devices of each host. In place of its own query, a request with many groups then
        has a base query with its own amounts.
        """
        local = [built.local for built in queries if built.local is not None]
        if len(local) < len(queries) or any(built.is_for_placement for built in local):
            return None
        if basis.own_query and all(built.has_few_permutations for built in local):
            return None

        matches = []
        asked_at = math.inf
        for local_query in local:
            base = local_query.base
            if basis.own_query:
                base = local_query.own_base
            get = functools.partial(self._get_base, base, request.trace_id)
            try:
                answer = self._share(self._bases, base, basis, get)
                matched = match(answer, local_query.trees, answer.capacity_left)
            except (UnusableAnswer, SearchTooLong) as error:
                LOG.debug('Placement is asked for devices: %s', error)
                return None
            if not self._are_known(answer.unknown_traits(local_query.trees)):
                return None
            self._remembered.keep(base, answer)
            matches.append(matched)
            asked_at = min(asked_at, answer.asked_at)
        return LocalCandidates(matches, asked_at)

    def _is_shared(self, local: query.LocalQuery | None) -> bool:
        """True if providers share a resource class that the base query does not ask
        for: the answer to the base query would not have the sharing providers.

        :raises PlacementUnavailable: no answer.
        """
        if local is None:
            return False
        for name in local.further_classes:
            path = f'/resource_providers?{query.sharing(name)}'
            if self._is_true(path, _has_providers):
                return True
        return False

    def _are_known(self, traits: Collection[str]) -> bool:
        """True if Placement knows traits. It refuses a query with another trait.

        :raises PlacementUnavailable: no answer.
        """
        for name in traits:
            if not self._is_true(f'/traits/{quote(name, safe="")}', _exists):
                return False
        return True

    def _is_true(self, path: str, judge: Callable[[Response], bool]) -> bool:
        """The answer to a question about a name, at most :data:`FACTS_S` old.

        :param judge: reads the answer from Placement's response.
        :raises PlacementUnavailable: no answer.
        """
        verdict, until = self._facts.get(path, (False, -math.inf))
        if time.monotonic() > until:
            verdict = judge(self._api.send('GET', path, retry_s=0))
            if len(self._facts) >= MAX_FACTS:
                self._facts = {}
            self._facts[path] = verdict, time.monotonic() + FACTS_S
        return verdict

    def base_answer(self, local: query.LocalQuery) -> BaseAnswer:
        """The answer to a base query, for the queries of a simulation.

        :raises UnusableAnswer: hosts share providers, or the answer has another format.
        :raises PlacementUnavailable: no answer, or an error of Placement.
        """
        return BaseAnswer(self.base_text(local), time.monotonic())

    def base_text(self, local: query.LocalQuery) -> bytes:
        """The answer to a base query as JSON.

        :raises UnusableAnswer: hosts share providers.
        :raises PlacementUnavailable: no answer, or an error of Placement.
        """
        if self._is_shared(local):
            raise UnusableAnswer('hosts share providers')
        return self._answer(local.base, None)

    def read(self, path: str, kind: type[Body]) -> Body:
        """Read a part of Placement's data.

        :raises PlacementUnavailable: no answer, or an answer in another format.
        """
        answer = self._api.send('GET', path, microversion=READ_MICROVERSION)
        return answer.decode(kind)

    def _get_base(self, built: query.Query, trace_id: str | None) -> BaseAnswer:
        began = time.monotonic()
        text = self._answer(built, trace_id)
        return BaseAnswer(text, began, time.monotonic() - began)

    def _ask(
        self, built: query.Query, request: Request, basis: Basis
    ) -> CandidatesText:
        """The answer to a query."""
        self._warn(built)
        get = functools.partial(self._get, built, request.trace_id)
        return self._share(self._queries, built, basis, get)

    def _warn(self, built: query.Query) -> None:
        for warning in built.warnings:
            UTILS.warning(warning)

    def _share(
        self,
        flights: dict[str, SingleFlight[Kind]],
        built: query.Query,
        basis: Basis,
        get: Callable[[], Kind],
    ) -> Kind:
        """The answer to a query, shared by all requests that arrived before the query
        was sent.

        :param flights: queries for which Placement is asked, by query string.
        """
        self._window.arrived(basis.request_id)
        with self._lock:
            flight = flights.get(built.string)
            if flight is None:
                flight = SingleFlight(
                    get, gather=self._window.wait, stuck_after=STUCK_AFTER_S
                )
                flights[built.string] = flight

        try:
            return flight.at_least(basis.began)
        finally:
            with self._lock:
                if flight.idle and flights.get(built.string) is flight:
                    del flights[built.string]

    def _get(self, built: query.Query, trace_id: str | None) -> CandidatesText:
        text = self._answer(built, trace_id)
        return decode(text, AllocationRequests).allocation_requests, text

    def _answer(self, built: query.Query, trace_id: str | None) -> bytes:
        """The answer to a query. An empty answer for a query that Placement refuses.

        :raises PlacementUnavailable: no answer, or an error of Placement.
        """
        # Not repeated here: each request that shares the answer is decided again, as
        # long as it may wait.
        path = f'/allocation_candidates?{built.string}'
        answer = self._api.send('GET', path, trace_id, retry_s=0)

        if answer.status_code == 400:
            # An extra spec may name a resource class or a trait that Placement does
            # not know.
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
        """Claim a candidate for the current instance; None if Placement refuses.

        :raises ClaimFailed: another process changes the allocations of the instance.
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
        """Claim a candidate for each of several instances; None if Placement refuses.

        :raises ClaimFailed: another process changes the allocations of an instance.
        :raises PlacementUnavailable: Placement does not answer; nothing stays claimed.
        """
        made = self._claims.allocate([Claim.of(*claim, basis) for claim in claims])
        if not made:
            providers: list[str] = []
            for _, candidate in claims:
                providers += candidate.allocations
            self._remembered.refuse(providers)
        return made

    def delete_allocations(self, claim: Claim) -> None:
        MANAGER.debug('Cleaning up allocations for %s', [claim.uuid])
        self._claims.delete(claim)
