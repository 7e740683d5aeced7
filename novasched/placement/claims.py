# SPDX-License-Identifier: Apache-2.0
"""Claims: allocations for servers, those of several requests in one go, and their undoing.

One claim at a time is written. Those that come meanwhile are the next one: Placement takes
several servers in one POST as it takes one, and writers that collide in its database wait
for a second and more. Where Placement refuses the whole, each half is tried by itself, down
to the request, so that none suffers from another.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from novasched.errors import ClaimFailed, PlacementUnavailable
from novasched.model.candidate import Candidate
from novasched.model.request import Request
from novasched.placement.api import READ_MICROVERSION, Api, detail, is_generation_conflict
from novasched.turns import Turns

# Operators search for what these loggers of nova's write.
LOG = logging.getLogger('nova.scheduler.client.report')
MANAGER = logging.getLogger('nova.scheduler.manager')

Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Claim:
    """Allocations for a server; ``before`` is what it held, None for nothing."""

    uuid: str
    candidate: Candidate
    owner: Mapping[str, str | None]
    trace_id: str | None = None
    before: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, request: Request, candidate: Candidate) -> Claim:
        """A candidate for the server in hand."""
        owner = {'project_id': request.project_id, 'user_id': request.user_id}
        return cls(str(request.instance_uuid), candidate, owner, request.trace_id)


@dataclass(frozen=True, slots=True)
class _Order:
    """What a request wants claimed, all or nothing; the outcome is None if it is refused."""

    claims: Sequence[Claim]
    outcome: Future[Sequence[Claim] | None] = field(default_factory=Future)


class Claims:
    """Makes claims and gives them back."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self._lock = threading.Lock()
        self._orders: list[_Order] = []
        self._turns = Turns(self._fill)

    def make(self, wanted: Sequence[Claim]) -> Sequence[Claim] | None:
        """Allocate to each server what is wanted for it, or to none: None if it is refused.

        One server may hold allocations already, since it is being evacuated: what it has
        stays, and the candidate is added to it, as nova does until the move is over.

        :raises ClaimFailed: somebody else changes the same server's allocations.
        :raises PlacementUnavailable: Placement does not answer.
        """
        order = _Order(wanted)
        with self._lock:
            self._orders.append(order)
        self._turns.since()
        return order.outcome.result()

    def give_back(self, claim: Claim) -> None:
        """Undo a claim; never raises."""
        MANAGER.debug('Cleaning up allocations for %s', [claim.uuid])
        try:
            if claim.before is None:
                response = self.api.call('DELETE', f'/allocations/{claim.uuid}', claim.trace_id)
            else:
                held = self._held(claim)
                response = self._put(claim, _over(claim, _plain(claim.before), held))
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
                detail(response),
            )

    def _fill(self) -> None:
        """One turn: whatever has been ordered."""
        with self._lock:
            orders, self._orders = self._orders, []
        try:
            self._settle(orders)
        except BaseException as error:  # whatever it is, those who wait must hear of it
            for order in orders:
                if not order.outcome.done():
                    order.outcome.set_exception(error)

    def _settle(self, orders: Sequence[_Order]) -> None:
        """Fill orders together if that goes, or else the first half before the second."""
        if len(orders) == 1:
            self._fill_alone(orders[0])
        elif orders and not self._fill_together(orders):
            half = len(orders) // 2
            self._settle(orders[:half])
            self._settle(orders[half:])

    def _fill_alone(self, order: _Order) -> None:
        several = len(order.claims) > 1
        try:
            made = self._post(order.claims) if several else self._one(order.claims[0])
        except (PlacementUnavailable, ClaimFailed) as error:
            order.outcome.set_exception(error)
        else:
            order.outcome.set_result(made)

    def _fill_together(self, orders: Sequence[_Order]) -> bool:
        claims = [claim for order in orders for claim in order.claims]
        if len({claim.uuid for claim in claims}) < len(claims):
            return False  # a caller asks twice for the same server
        try:
            made = self._post(claims)
        except PlacementUnavailable as error:
            for order in orders:
                order.outcome.set_exception(error)
            return True
        if made is None:
            return False
        for order in orders:
            order.outcome.set_result(order.claims)
        return True

    def _post(self, claims: Sequence[Claim]) -> Sequence[Claim] | None:
        """Claim for several servers that hold nothing, or for none of them."""
        body = {claim.uuid: _new(claim) for claim in claims}
        try:
            response = self.api.change('POST', '/allocations', body, claims[0].trace_id)
        except PlacementUnavailable:
            for claim in claims:
                self._give_back_if_made(claim)
            raise
        if response.status_code == 204:
            return claims
        LOG.debug('Claims refused: %s %s', response.status_code, detail(response))
        return None

    def _one(self, claim: Claim) -> Sequence[Claim] | None:
        """Claim for one server, which may hold something."""
        try:
            response = self._put(claim, _new(claim))
        except PlacementUnavailable:
            self._give_back_if_made(claim)
            raise
        if is_generation_conflict(response):
            return self._add(claim)
        return self._answer(claim, response)

    def _add(self, claim: Claim) -> Sequence[Claim] | None:
        """Claim for a server beside what it holds."""
        held = self._held(claim)
        added = Claim(
            claim.uuid, claim.candidate, claim.owner, claim.trace_id, before=held['allocations']
        )
        both = {**claim.candidate.allocations, **_plain(held['allocations'])}
        try:
            response = self._put(added, _over(added, both, held))
        except PlacementUnavailable:
            self.give_back(added)
            raise
        if is_generation_conflict(response):
            raise ClaimFailed(f'another process changed the consumer {claim.uuid} during the claim')
        return self._answer(added, response)

    @staticmethod
    def _answer(claim: Claim, response: Any) -> Sequence[Claim] | None:
        if response.status_code == 204:
            return [claim]
        LOG.debug('Claim refused: %s %s', response.status_code, detail(response))
        return None

    def _give_back_if_made(self, claim: Claim) -> None:
        """Undo what Placement may have done before its answer was lost, but let a server
        keep what it held before."""
        try:
            held = self._held(claim)
        except PlacementUnavailable as error:
            LOG.warning('Unable to see whether %s was claimed for: %s', claim.uuid, error)
            return
        has = {rp: each['resources'] for rp, each in held['allocations'].items()}
        if has == claim.candidate.resources():
            self.give_back(claim)

    def _put(self, claim: Claim, body: Body) -> Any:
        return self.api.change('PUT', f'/allocations/{claim.uuid}', body, claim.trace_id)

    def _held(self, claim: Claim) -> dict[str, Any]:
        """What a server has: its allocations by provider, and its generation if any."""
        path = f'/allocations/{claim.uuid}'
        response = self.api.call('GET', path, claim.trace_id, READ_MICROVERSION)
        if response.status_code != 200:
            raise PlacementUnavailable(f'Placement answers {response.status_code}')
        held: dict[str, Any] = response.json()
        return held


def _new(claim: Claim) -> Body:
    """The allocations of a server that has none yet."""
    return {
        'allocations': claim.candidate.allocations,
        'mappings': claim.candidate.mappings,
        'consumer_generation': None,
        **claim.owner,
    }


def _over(claim: Claim, allocations: Mapping[str, Any], held: Mapping[str, Any]) -> Body:
    """The allocations of a server that has some."""
    generation = held.get('consumer_generation')
    return {'allocations': allocations, 'consumer_generation': generation, **claim.owner}


def _plain(allocations: Mapping[str, Any]) -> dict[str, Any]:
    """Allocations as a PUT takes them: without the generations that a GET adds.

    On a move they go over the candidate's: a provider that serves source and
    destination alike, such as shared storage, is not taken from twice.
    """
    return {rp: {'resources': each['resources']} for rp, each in allocations.items()}
