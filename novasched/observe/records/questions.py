# SPDX-License-Identifier: Apache-2.0
"""Queries to Placement about single constraints, for a diagnosis."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import os_traits
from keystoneauth1 import adapter
from keystoneauth1 import exceptions as ks_exc

from novasched.conf.redaction import hide, one_line
from novasched.placement.api import (
    MICROVERSION,
    Response,
)
from novasched.placement.base_answer import BaseAnswer
from novasched.placement.query import Constraint, Query
from novasched.placement.wire import (
    AllocationCandidates,
    AllocationRequest,
    Body,
    Inventory,
    ProviderAggregates,
    ProviderInventories,
    ProviderSummaryRoot,
    ResourceProviders,
)
from novasched.scheduler.errors import PlacementUnavailable
from novasched.scheduler.model.basis import Basis
from novasched.scheduler.model.request import Request

DIAGNOSIS_TIMEOUT_S = 30.0
"""Timeout of a query to Placement, in seconds."""

MAX_INVENTORIES = 8
"""Maximum number of hosts whose inventories are read in a diagnosis."""

MAX_ANSWERS = 16
"""Number of answers that are kept for later diagnoses."""

SHARING = Constraint('trait', os_traits.MISC_SHARES_VIA_AGGREGATE)
EVERYONE = ''
"""The query for all resource providers."""

BAD_REQUEST_PREFIX = (
    'The server could not comply with the request since it is either malformed or'
    ' otherwise incorrect. '
)
"""The first words of Placement's refusal of a query; the reason follows."""


Trees = AllocationCandidates[AllocationRequest, ProviderSummaryRoot]
"""The part of an answer of ``GET /allocation_candidates`` that names providers."""


class RefusedQuery(Exception):
    """Placement refuses a query. The text is the reason."""


@dataclass(frozen=True, slots=True)
class Meeting:
    """The resource providers with a property, and the roots of the providers'
    trees. ``asked_at`` is in monotonic seconds."""

    asked_at: float
    providers: frozenset[str]
    roots: frozenset[str]


@dataclass(eq=False)
class PlacementQueries:
    """Sends queries to Placement, up to a limit.

    :param limit: the largest number of queries.
    :param circuit_open: True while the circuit to Placement is open.
    :param clock: monotonic seconds.
    :ivar sent: number of queries sent.
    :ivar seconds: time that Placement took to answer.
    :ivar is_exhausted: True once a query could not be sent because of the limit.
    """

    http: adapter.Adapter
    trace_id: str | None
    limit: int
    circuit_open: Callable[[], bool]
    clock: Callable[[], float]
    sent: int = 0
    seconds: float = 0.0
    is_exhausted: bool = False

    def get(self, path: str, kind: type[Body]) -> Body | None:
        """Send a query; None if the limit is reached.

        :raises PlacementUnavailable: Placement does not answer, or the circuit is open.
        :raises RefusedQuery: Placement refuses the query.
        """
        if self.sent >= self.limit:
            self.is_exhausted = True
            return None
        if self.circuit_open():
            raise PlacementUnavailable('Placement does not answer requests')

        headers = {}
        if self.trace_id:
            headers['X-Openstack-Request-Id'] = self.trace_id
        self.sent += 1
        began = self.clock()
        try:
            response = self.http.request(
                path.removesuffix('?'),
                'GET',
                headers=headers,
                microversion=MICROVERSION,
                raise_exc=False,
                timeout=DIAGNOSIS_TIMEOUT_S,
            )
        except ks_exc.ClientException as error:
            raise PlacementUnavailable(hide(error)) from None
        finally:
            self.seconds += self.clock() - began

        answer = Response(response.status_code, response.content, response.reason or '')
        if answer.status_code == 400:
            raise RefusedQuery(one_line(answer.detail).removeprefix(BAD_REQUEST_PREFIX))
        return answer.decode(kind)


class Questions:
    """The questions of one diagnosis. No query is sent twice.

    :param answers: the answers to earlier queries, for all diagnoses of this process.
    :ivar named: the roots of trees that an answer named.
    """

    def __init__(
        self,
        queries: PlacementQueries,
        answers: dict[str, Meeting],
        request: Request,
        basis: Basis,
    ) -> None:
        self.queries = queries
        self.request = request
        self.basis = basis
        self.named: set[str] = set()
        self._inventories: dict[str, Mapping[str, Inventory]] = {}
        self._answers = answers
        # An answer to another request serves if it is newer than this request.
        self._since = min(basis.began, time.monotonic())

    def meeting(self, query_string: str) -> Meeting | None:
        """The resource providers that a query finds; None if the limit of queries is
        reached."""
        meeting = self._answers.get(query_string)
        if meeting is None or meeting.asked_at < self._since:
            began = time.monotonic()
            answer = self.queries.get(
                f'/resource_providers?{query_string}', ResourceProviders
            )
            if answer is None:
                return None

            rows = answer.resource_providers
            providers = frozenset(row.uuid for row in rows)
            roots = frozenset(row.root_provider_uuid for row in rows)
            if providers == roots:
                providers = roots  # one set in memory for both
            meeting = Meeting(began, providers, roots)
            self._keep(query_string, meeting)
        self.named |= meeting.roots
        return meeting

    def _keep(self, query_string: str, meeting: Meeting) -> None:
        """Keep an answer for later diagnoses, in place of the oldest answer."""
        self._answers.pop(query_string, None)
        self._answers[query_string] = meeting
        if len(self._answers) > MAX_ANSWERS:
            del self._answers[next(iter(self._answers))]

    def has_sharing_providers(self) -> bool:
        """True if a provider shares its inventory, or if the limit of queries is
        reached."""
        sharing = self.meeting(SHARING.question)
        return sharing is None or bool(sharing.providers)

    def shares(self) -> dict[str, frozenset[str]]:
        """The hosts that share in each sharing provider (trait
        MISC_SHARES_VIA_AGGREGATE), by the UUID of the sharing provider."""
        sharing = self.meeting(SHARING.question)
        if sharing is None:
            return {}

        shares = {}
        for provider in sorted(sharing.providers):
            path = f'/resource_providers/{provider}/aggregates'
            answer = self.queries.get(path, ProviderAggregates)
            if answer and answer.aggregates:
                members = f'in:{",".join(sorted(answer.aggregates))}'
                met = self.meeting(Constraint('aggregates', members).question)
                if met is not None:
                    shares[provider] = met.roots
        return shares

    def inventories(self, host: str) -> Mapping[str, Inventory] | None:
        """The inventories of a compute node by resource class; None if the limit of
        queries or :data:`MAX_INVENTORIES` is reached.

        :param host: the UUID of the compute node.
        """
        if host in self._inventories:
            return self._inventories[host]
        is_last = self.queries.sent >= self.queries.limit
        if is_last or len(self._inventories) >= MAX_INVENTORIES:
            return None

        path = f'/resource_providers/{host}/inventories'
        answer = self.queries.get(path, ProviderInventories)
        if answer is None:
            return None
        return self._inventories.setdefault(host, answer.inventories)

    def base_answer(self, base: Query) -> BaseAnswer | None:
        """The answer to a base query; None if the limit of queries is reached.

        :raises UnusableAnswer: hosts share providers, or the answer has another format.
        """
        began = time.monotonic()
        path = f'/allocation_candidates?{base.string}'
        text = self.queries.get(path, msgspec.Raw)
        if text is None:
            return None
        return BaseAnswer(bytes(text), began)

    def offered(self, queries: Sequence[Query]) -> set[str] | None:
        """The roots of all providers in the allocation candidates of queries; None if
        the limit of queries is reached."""
        roots: set[str] = set()
        for built in queries:
            path = f'/allocation_candidates?{built.unlimited().string}'
            answer = self.queries.get(path, Trees)
            if answer is None:
                return None

            trees = answer.provider_summaries
            for allocation_request in answer.allocation_requests:
                for provider in allocation_request.allocations:
                    if provider in trees:
                        roots.add(trees[provider].root_provider_uuid)
        return roots
