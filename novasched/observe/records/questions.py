# SPDX-License-Identifier: Apache-2.0
"""Questions to Placement about single constraints, for a diagnosis."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import os_traits
from keystoneauth1 import adapter
from keystoneauth1 import exceptions as ks_exc

from novasched.conf.redaction import hide, one_line
from novasched.placement import query
from novasched.placement.api import (
    MICROVERSION,
    Body,
    Response,
)
from novasched.placement.query import Constraint
from novasched.placement.wire import (
    AllocationCandidates,
    AllocationRequest,
    ProviderAggregates,
    ProviderSummaryRoot,
    ResourceProviders,
)
from novasched.scheduler.errors import PlacementUnavailable
from novasched.scheduler.model.request import Request

DIAGNOSIS_TIMEOUT_S = 30.0
"""Seconds that Placement has for an answer."""
MAX_ANSWERS = 16
"""Answers that serve later diagnoses, too."""
SHARING = Constraint('trait', os_traits.MISC_SHARES_VIA_AGGREGATE)
EVERYONE = ''
"""The query for all providers."""

BAD_REQUEST_PREFIX = (
    'The server could not comply with the request since it is either malformed or'
    ' otherwise incorrect. '
)
"""Every refusal of a query begins with it, before the reason."""


Trees = AllocationCandidates[AllocationRequest, ProviderSummaryRoot]


class RefusedQuery(Exception):
    """Placement refuses a query, and says why."""


@dataclass(frozen=True, slots=True)
class Meeting:
    """The providers that meet a constraint, and the roots of their trees, at a moment
    (monotonic seconds)."""

    asked_at: float
    providers: frozenset[str]
    roots: frozenset[str]


class Questions:
    """Asks Placement, so many times at the most, and no more than once the same.

    :ivar named: the hosts that any answer named.
    :ivar seconds: the time that Placement took to answer.
    :ivar is_over: True once a question could not be asked.
    """

    def __init__(
        self,
        http: adapter.Adapter,
        answers: dict[str, Meeting],
        most: int,
        request: Request,
        since: float,
        circuit_open: Callable[[], bool],
        clock: Callable[[], float],
    ) -> None:
        """:param answers: the answers to earlier questions, by their queries.
        :param circuit_open: tells whether the circuit to Placement is open.
        """
        self.request = request
        self._http = http
        self._answers = answers
        self._circuit_open = circuit_open
        self._clock = clock
        self.seconds = 0.0
        self._most = most
        self.asked = 0
        self._since = min(since, time.monotonic())
        self.named: set[str] = set()
        self.is_over = False

    def meeting(self, question: str) -> Meeting | None:
        """The providers that a query finds; None if it may not be asked any more. An
        answer that another request had after this one came does as well."""
        found = self._answers.get(question)
        if found is None or found.asked_at < self._since:
            began = time.monotonic()
            answer = self._ask(f'/resource_providers?{question}', ResourceProviders)
            if answer is None:
                return None
            roots = frozenset(
                each.root_provider_uuid for each in answer.resource_providers
            )
            providers = frozenset(each.uuid for each in answer.resource_providers)
            found = Meeting(began, roots if roots == providers else providers, roots)
            self._answers.pop(question, None)
            self._answers[question] = found
            if len(self._answers) > MAX_ANSWERS:
                del self._answers[next(iter(self._answers))]
        self.named |= found.roots
        return found

    def shares(self) -> dict[str, frozenset[str]]:
        """The hosts that each provider shares with that does."""
        shares = {}
        sharing = self.meeting(SHARING.question)
        for provider in sorted(sharing.providers if sharing else ()):
            path = f'/resource_providers/{provider}/aggregates'
            answer = self._ask(path, ProviderAggregates)
            if answer and answer.aggregates:
                members = f'in:{",".join(sorted(answer.aggregates))}'
                if met := self.meeting(Constraint('aggregates', members).question):
                    shares[provider] = met.roots
        return shares

    def offered(self, strings: Sequence[str]) -> set[str] | None:
        """The roots of all providers that queries offer; None if they may not be
        asked."""
        roots: set[str] = set()
        for string in strings:
            answer = self._ask(
                f'/allocation_candidates?{query.unlimited(string)}', Trees
            )
            if answer is None:
                return None
            trees = answer.provider_summaries
            names = {
                rp for each in answer.allocation_requests for rp in each.allocations
            }
            roots.update(trees[rp].root_provider_uuid for rp in names if rp in trees)
        return roots

    def _ask(self, path: str, kind: type[Body]) -> Body | None:
        """An answer of Placement; None if it may not be asked any more.

        :raises PlacementUnavailable: Placement does not answer, or the circuit is open.
        """
        if self.asked >= self._most:
            self.is_over = True
            return None
        if self._circuit_open():
            raise PlacementUnavailable('Placement does not answer requests')
        self.asked += 1
        began = self._clock()
        trace = self.request.trace_id
        try:
            response = self._http.request(
                path.removesuffix('?'),
                'GET',
                headers={'X-Openstack-Request-Id': trace} if trace else {},
                microversion=MICROVERSION,
                raise_exc=False,
                timeout=DIAGNOSIS_TIMEOUT_S,
            )
        except ks_exc.ClientException as error:
            raise PlacementUnavailable(hide(error)) from None
        finally:
            self.seconds += self._clock() - began
        answer = Response(response.status_code, response.content, response.reason or '')
        if answer.status_code == 400:
            raise RefusedQuery(one_line(answer.detail).removeprefix(BAD_REQUEST_PREFIX))
        return answer.decode(kind)
