# SPDX-License-Identifier: Apache-2.0
"""The Placement service over HTTP: the only module that talks to it.

Sessions, tokens and connection reuse are keystoneauth1's. A claim is one PUT; the
consumer is read only when Placement says that it exists already.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import tenacity
from keystoneauth1 import adapter
from keystoneauth1 import exceptions as ks_exc

from novasched.errors import ClaimFailed, PlacementUnauthorized, PlacementUnavailable
from novasched.model.candidate import Candidate
from novasched.model.request import Request
from novasched.model.settings import Settings
from novasched.placement import query
from novasched.placement.candidates import Candidates, by_provider, parse
from novasched.turns import Turns

LOG = logging.getLogger('nova.scheduler.client.report')

MICROVERSION = '1.36'
READ_MICROVERSION = '1.28'
CONCURRENT_UPDATE = 'placement.concurrent_update'
ATTEMPTS = 4


Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Claim:
    """Allocations made for a server; ``before`` is what it held, None for nothing."""

    uuid: str
    owner: Mapping[str, str | None]
    trace_id: str | None = None
    before: Mapping[str, Any] | None = None


class PlacementClient:
    """Candidates, claims and their undoing."""

    def __init__(self, settings: Settings, http: adapter.Adapter) -> None:
        self.settings = settings
        self.http = http
        self._queries: dict[str, Turns[Sequence[Candidate]]] = {}
        self._lock = threading.Lock()

    def check(self) -> None:
        """See that Placement is there and knows us.

        :raises PlacementUnauthorized: it does not accept the credentials.
        :raises PlacementUnavailable: it cannot be reached.
        """
        response = self._call('GET', '/resource_providers?limit=1&name=novasched')
        if response.status_code in (401, 403):
            raise PlacementUnauthorized(f'Placement answers {response.status_code}')

    def aggregates(self, provider: str) -> frozenset[str]:
        """The aggregates of a provider; none also where there is no such provider.

        :raises PlacementUnavailable: Placement does not answer.
        """
        path = f'/resource_providers/{provider}/aggregates'
        response = self._call('GET', path, microversion=READ_MICROVERSION)
        if response.status_code == 404:
            return frozenset()
        if response.status_code != 200:
            raise PlacementUnavailable(f'Placement answers {response.status_code}')
        return frozenset(response.json()['aggregates'])

    def candidates(self, request: Request) -> Candidates:
        """See :class:`novasched.ports.Placement`.

        :raises PlacementUnavailable: no answer, or one that is no list of candidates.
        """
        found = self._ask(query.build(request, self.settings), request)
        if query.has_fallback(request) and not self.settings.disable_fallback_pcpu_query:
            LOG.debug('Requesting fallback allocation candidates with VCPU instead of PCPU')
            found = [*found, *self._ask(query.build(request, self.settings, pinned=False), request)]
        return by_provider(found)

    def _ask(self, what: query.Query, request: Request) -> Sequence[Candidate]:
        """The answer to a query, which requests share that ask the same, unless it was sent
        before they came."""
        for warning in what.warnings:
            LOG.warning(warning)
        with self._lock:
            turns = self._queries.get(what.string)
            if turns is None:
                turns = Turns(functools.partial(self._get, what, request.trace_id))
                self._queries[what.string] = turns
        try:
            return turns.since(request.arrived)
        finally:
            with self._lock:
                if turns.idle and self._queries.get(what.string) is turns:
                    del self._queries[what.string]

    def _get(self, what: query.Query, trace_id: str | None) -> Sequence[Candidate]:
        response = self._call('GET', f'/allocation_candidates?{what.string}', trace_id)
        if response.status_code == 400:
            # The query is at fault: an extra spec may name what Placement does not know.
            LOG.warning('Placement refuses the query %s: %s', what.string, _detail(response))
            return []
        if response.status_code != 200:
            raise PlacementUnavailable(
                f'Failed to retrieve allocation candidates from placement API for {what.string}: '
                f'{response.status_code} {_detail(response)}'
            )
        try:
            return parse(response.content)
        except ValueError as error:
            raise PlacementUnavailable(
                f'Placement sent no allocation candidates: {error}'
            ) from None

    def claim(self, request: Request, candidate: Candidate) -> Claim | None:
        """See :class:`novasched.ports.Placement`.

        A server that holds allocations already is being evacuated: what it has stays,
        and the candidate is added to it, as nova does until the move is over.

        :raises ClaimFailed: somebody else changes the same server's allocations.
        :raises PlacementUnavailable: Placement does not answer.
        """
        uuid, owner = str(request.instance_uuid), _owner(request)
        claim = Claim(uuid, owner, request.trace_id)
        response = self._put(claim, _new(claim, candidate))
        if _is_generation_conflict(response):
            held = self._held(claim)
            claim = Claim(uuid, owner, request.trace_id, before=held['allocations'])
            both = {**candidate.allocations, **_plain(held)}
            response = self._put(claim, _over(claim, both, held))
            if _is_generation_conflict(response):
                raise ClaimFailed(f'another process changed the consumer {uuid} during the claim')
        if response.status_code == 204:
            return claim
        LOG.debug('Claim refused: %s %s', response.status_code, _detail(response))
        return None

    def claim_together(self, wanted: Sequence[tuple[Request, Candidate]]) -> Sequence[Claim] | None:
        """See :class:`novasched.ports.Placement`.

        :raises PlacementUnavailable: Placement does not answer; nothing stays claimed.
        """
        claims = [
            Claim(str(request.instance_uuid), _owner(request), request.trace_id)
            for request, _ in wanted
        ]
        body = {
            claim.uuid: _new(claim, candidate)
            for claim, (_, candidate) in zip(claims, wanted, strict=True)
        }
        try:
            response = self._change('POST', '/allocations', body, claims[0].trace_id)
        except PlacementUnavailable:
            for claim in claims:
                self.give_back(claim)
            raise
        if response.status_code == 204:
            return claims
        LOG.debug('Claims refused: %s %s', response.status_code, _detail(response))
        return None

    def give_back(self, claim: Claim) -> None:
        """See :class:`novasched.ports.Placement`."""
        LOG.debug('Cleaning up allocations for %s', claim.uuid)
        try:
            if claim.before is None:
                response = self._call('DELETE', f'/allocations/{claim.uuid}', claim.trace_id)
            else:
                held = self._held(claim)
                before = _plain({'allocations': claim.before})
                response = self._put(claim, _over(claim, before, held))
        except PlacementUnavailable as error:
            LOG.warning('Unable to delete allocation for instance %s: %s', claim.uuid, error)
            return
        if response.status_code == 204:
            LOG.info('Deleted allocations for instance %s', claim.uuid)
        elif response.status_code != 404:
            LOG.warning(
                'Unable to delete allocation for instance %s: (%s %s)',
                claim.uuid,
                response.status_code,
                _detail(response),
            )

    def _put(self, claim: Claim, body: Body) -> Any:
        return self._change('PUT', f'/allocations/{claim.uuid}', body, claim.trace_id)

    def _change(self, method: str, path: str, body: Body, trace_id: str | None) -> Any:
        """Write allocations; again, with back-off, while others write to the same
        providers. The last answer counts, so that another host is tried then."""
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_result(_is_contended),
            stop=tenacity.stop_after_attempt(ATTEMPTS),
            wait=tenacity.wait_random_exponential(multiplier=0.05, max=1),
            retry_error_callback=_last_answer,
        )
        return retrying(self._call, method, path, trace_id, data=msgspec.json.encode(body))

    def _held(self, claim: Claim) -> dict[str, Any]:
        """What a server has: its allocations by provider, and its generation if any."""
        response = self._call(
            'GET', f'/allocations/{claim.uuid}', claim.trace_id, READ_MICROVERSION
        )
        if response.status_code != 200:
            raise PlacementUnavailable(f'Placement answers {response.status_code}')
        held: dict[str, Any] = response.json()
        return held

    def _call(
        self,
        method: str,
        path: str,
        trace_id: str | None = None,
        microversion: str = MICROVERSION,
        data: bytes | None = None,
    ) -> Any:
        headers = {'Content-Type': 'application/json'} if data else {}
        if trace_id:
            headers['X-Openstack-Request-Id'] = trace_id
        try:
            return self.http.request(
                path,
                method,
                data=data,
                headers=headers,
                microversion=microversion,
                raise_exc=False,
            )
        except (ks_exc.Unauthorized, ks_exc.MissingAuthPlugin) as error:
            raise PlacementUnauthorized(str(error)) from None
        except ks_exc.ClientException as error:
            raise PlacementUnavailable(str(error)) from None


def _owner(request: Request) -> Mapping[str, str | None]:
    return {'project_id': request.project_id, 'user_id': request.user_id}


def _new(claim: Claim, candidate: Candidate) -> Body:
    """The allocations of a server that has none yet."""
    return {
        'allocations': candidate.allocations,
        'mappings': candidate.mappings,
        'consumer_generation': None,
        **claim.owner,
    }


def _over(claim: Claim, allocations: Mapping[str, Any], held: Mapping[str, Any]) -> Body:
    """The allocations of a server that has some."""
    generation = held.get('consumer_generation')
    return {'allocations': allocations, 'consumer_generation': generation, **claim.owner}


def _plain(held: Mapping[str, Any]) -> dict[str, Any]:
    """Allocations as a PUT takes them: without the generations that a GET adds.

    On a move they go over the candidate's: a provider that serves source and
    destination alike, such as shared storage, is not taken from twice.
    """
    return {rp: {'resources': each['resources']} for rp, each in held['allocations'].items()}


def _last_answer(state: tenacity.RetryCallState) -> Any:
    return state.outcome.result() if state.outcome else None


def _is_contended(response: Any) -> bool:
    return _code(response) == CONCURRENT_UPDATE and not _is_generation_conflict(response)


def _code(response: Any) -> str | None:
    """The error code in Placement's answer (microversion 1.23)."""
    if response.status_code != 409:
        return None
    return _first_error(response).get('code')


def _is_generation_conflict(response: Any) -> bool:
    detail = _first_error(response).get('detail', '') if response.status_code == 409 else ''
    return 'consumer generation conflict' in detail


def _detail(response: Any) -> str:
    """What Placement has to say, on one line."""
    text = _first_error(response).get('detail') or response.reason or ''
    return ' '.join(str(text).split())


def _first_error(response: Any) -> dict[str, str]:
    try:
        errors = response.json()['errors']
    except (ValueError, KeyError, TypeError):
        return {}
    return errors[0] if isinstance(errors, list) and errors and isinstance(errors[0], dict) else {}
