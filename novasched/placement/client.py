# SPDX-License-Identifier: Apache-2.0
"""The Placement service over HTTP: the only module that talks to it.

What is asked at the same time is asked once.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec
from keystoneauth1 import adapter

from novasched.errors import PlacementUnavailable
from novasched.model.candidate import Candidate
from novasched.model.request import Request
from novasched.model.settings import Settings
from novasched.placement import query
from novasched.placement.api import PROBE, READ_MICROVERSION, Api, decode, detail
from novasched.placement.candidates import Candidates, Offer, by_provider, parse, parse_offer
from novasched.placement.claims import Allocations, Claim, Claims
from novasched.turns import Company, Turns

# Operators search for what these loggers of nova's write.
LOG = logging.getLogger('nova.scheduler.client.report')
MANAGER = logging.getLogger('nova.scheduler.manager')
UTILS = logging.getLogger('nova.scheduler.utils')

Answered = TypeVar('Answered')
PATIENCE, MOST = 0.02, 0.06
"""Seconds that a query waits for one request that is about to ask the same, and for all."""


class _Aggregates(msgspec.Struct):
    aggregates: list[str]


class PlacementClient:
    """Candidates, claims and their undoing."""

    def __init__(self, settings: Settings, http: adapter.Adapter) -> None:
        self.settings = settings
        self._api = Api(http)
        self._claims = Claims(self._api)
        self._queries: dict[str, Turns[Sequence[Candidate]]] = {}
        self._lock = threading.Lock()
        self._company = Company(PATIENCE, MOST)

    @property
    def left_alone(self) -> bool:
        """Whether Placement is, until it answers again."""
        return self._api.left_alone

    @property
    def give_backs(self) -> int:
        """How many claims are still to be given back."""
        return self._claims.pending

    def close(self, seconds: float = 0.0) -> None:
        """Ask no more, after so many seconds at the most for what is still to be undone."""
        self._claims.close(seconds)
        self._api.close()

    def check(self) -> None:
        """See that Placement is there and knows us.

        :raises PlacementUnauthorized: it does not accept the credentials.
        :raises PlacementUnavailable: it cannot be reached.
        """
        self._api.call('GET', PROBE, patience=0)

    def aggregates(self, provider: str) -> frozenset[str]:
        """The aggregates of a provider; none also where there is no such provider.

        :raises PlacementUnavailable: Placement does not answer.
        """
        path = f'/resource_providers/{provider}/aggregates'
        answer = self._api.call('GET', path, microversion=READ_MICROVERSION)
        if answer.status_code == 404:
            return frozenset()
        return frozenset(decode(answer, _Aggregates).aggregates)

    def allocations(self, consumer: str) -> Mapping[str, Mapping[str, int]]:
        """What a server has: provider UUID to resource class to amount.

        :raises PlacementUnavailable: Placement does not answer.
        """
        path = f'/allocations/{consumer}'
        answer = self._api.call('GET', path, microversion=READ_MICROVERSION)
        return decode(answer, Allocations).resources

    def expect(self, moment: float) -> None:
        """See :class:`novasched.ports.Placement`."""
        self._company.expect(moment)

    def candidates(self, request: Request) -> Candidates:
        """See :class:`novasched.ports.Placement`.

        :raises PlacementUnavailable: no answer, or one that is no list of candidates.
        """
        first, *others = query.every(request, self.settings)
        found = self._ask(first, request)
        for fallback in others:
            MANAGER.debug('Requesting fallback allocation candidates with VCPU instead of PCPU')
            found = [*found, *self._ask(fallback, request)]
        return by_provider(found)

    def offer(self, what: query.Query) -> Offer:
        """The answer to a query, and what its providers have.

        :raises PlacementUnavailable: no answer, or one that is no list of candidates.
        """
        return self._answer(what, None, parse_offer) or Offer([], {})

    def _ask(self, what: query.Query, request: Request) -> Sequence[Candidate]:
        """The answer to a query, which requests share that ask the same, unless it was sent
        before they came."""
        for warning in what.warnings:
            UTILS.warning(warning)
        self._company.arrived(request.arrived)
        with self._lock:
            turns = self._queries.get(what.string)
            if turns is None:
                get = functools.partial(self._get, what, request.trace_id)
                turns = Turns(get, gather=self._company.gather)
                self._queries[what.string] = turns
        try:
            return turns.since(request.arrived)
        finally:
            with self._lock:
                if turns.idle and self._queries.get(what.string) is turns:
                    del self._queries[what.string]

    def _get(self, what: query.Query, trace_id: str | None) -> Sequence[Candidate]:
        return self._answer(what, trace_id, parse) or []

    def _answer(
        self, what: query.Query, trace_id: str | None, read: Callable[[bytes], Answered]
    ) -> Answered | None:
        """What is read of an answer; None where Placement refuses the query."""
        answer = self._api.call('GET', f'/allocation_candidates?{what.string}', trace_id)
        if answer.status_code == 400:
            # The query is at fault: an extra spec may name what Placement does not know.
            LOG.warning('Placement refuses the query %s: %s', what.string, detail(answer))
            return None
        if answer.status_code != 200:
            raise PlacementUnavailable(
                f'Failed to retrieve allocation candidates from placement API for {what.string}: '
                f'{answer.status_code} {detail(answer)}'
            )
        try:
            return read(answer.content)
        except ValueError as error:
            raise PlacementUnavailable(
                f'Placement sent no allocation candidates: {error}'
            ) from None

    def claim(self, request: Request, candidate: Candidate) -> Claim | None:
        """See :class:`novasched.ports.Placement`.

        :raises ClaimFailed: somebody else changes the same server's allocations.
        :raises PlacementUnavailable: Placement does not answer.
        """
        made = self._claims.make([Claim.of(request, candidate)])
        return made[0] if made else None

    def claim_together(self, wanted: Sequence[tuple[Request, Candidate]]) -> Sequence[Claim] | None:
        """See :class:`novasched.ports.Placement`.

        :raises PlacementUnavailable: Placement does not answer; nothing stays claimed.
        """
        return self._claims.make([Claim.of(*each) for each in wanted])

    def give_back(self, claim: Claim) -> None:
        """See :class:`novasched.ports.Placement`."""
        self._claims.give_back(claim)
