# SPDX-License-Identifier: Apache-2.0
"""Claims: allocations for servers, those of several requests in one go, and their undoing.

One claim at a time is written. Those that come meanwhile are the next one: Placement takes
several servers in one POST as it takes one, and writers that collide in its database wait
for a second and more. Where Placement refuses the whole, each half is tried by itself, down
to the request, so that none suffers from another.

Where an answer gets lost, what the servers hold is looked at. If it is what was claimed, the
claim is made; if not, it is refused, and whatever comes of it later is given back.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any

import msgspec

from novasched.errors import ClaimFailed, PlacementUnavailable
from novasched.model.candidate import Candidate
from novasched.model.request import Request
from novasched.placement.api import (
    READ_MICROVERSION,
    Answer,
    Api,
    Unanswered,
    decode,
    detail,
    is_generation_conflict,
)
from novasched.placement.undoing import Task, Undoing
from novasched.turns import Turns

# Operators search for what these loggers of nova's write.
LOG = logging.getLogger('nova.scheduler.client.report')
MANAGER = logging.getLogger('nova.scheduler.manager')

LONGEST = 600.0
"""Seconds after a request's arrival in which it may still claim: Placement may refuse each of
very many candidates, slowly."""

Body = Mapping[str, Any]
Resources = Mapping[str, Mapping[str, int]]
"""Provider UUID to resource class to amount."""


class _Held(msgspec.Struct):
    resources: dict[str, int]


class Allocations(msgspec.Struct):
    """What a server has, and its generation if it has something."""

    allocations: dict[str, _Held]
    consumer_generation: int | None = None

    @property
    def resources(self) -> Resources:
        """The amounts alone."""
        return {provider: each.resources for provider, each in self.allocations.items()}


@dataclass(frozen=True, slots=True)
class Claim:
    """Allocations for a server; ``before`` is what it held, None for nothing.

    What a server that ``moves`` held is put back by whoever wanted it moved, as soon as that
    is refused. One that is ``doubtful`` was perhaps asked for more than once, so that it may
    come again when it is given back; ``earlier`` is what may come of claims before it.
    """

    uuid: str
    candidate: Candidate
    owner: Mapping[str, str | None]
    trace_id: str | None = None
    before: Resources | None = None
    moves: bool = False
    doubtful: bool = False
    earlier: Sequence[Task] = ()
    until: float = math.inf

    @classmethod
    def of(cls, request: Request, candidate: Candidate) -> Claim:
        """A candidate for the server in hand."""
        owner = {'project_id': request.project_id, 'user_id': request.user_id}
        aim = request.requested_destination
        return cls(
            str(request.instance_uuid),
            candidate,
            owner,
            request.trace_id,
            # nova keeps to a server's cell, which only one that is there already has.
            moves=bool(aim and aim.cell_uuid),
            until=request.arrived + LONGEST,
        )

    def after(self, tasks: Sequence[Task]) -> Claim:
        """The same, with those of the tasks that are about its server."""
        return replace(self, earlier=[task for task in tasks if task.server == self.uuid])

    def wanted(self) -> Resources:
        """What the server holds once this is claimed. A provider that serves both source and
        destination of a move, such as shared storage, is not taken from twice."""
        return {**self.candidate.resources(), **(self.before or {})}


@dataclass(frozen=True, slots=True)
class _Order:
    """What a request wants claimed, all or nothing; the outcome is None if it is refused."""

    claims: Sequence[Claim]
    outcome: Future[Sequence[Claim] | None] = field(default_factory=Future)


class Claims:
    """Makes claims and gives them back."""

    def __init__(self, api: Api, undoing: Undoing | None = None) -> None:
        self.api = api
        self._undoing = undoing or Undoing()
        self._lock = threading.Lock()
        self._orders: list[_Order] = []
        self._turns = Turns(self._fill)

    @property
    def pending(self) -> int:
        """How many are still to be given back."""
        return self._undoing.pending

    def make(self, wanted: Sequence[Claim]) -> Sequence[Claim] | None:
        """Allocate to each server what is wanted for it, or to none: None if it is refused.
        Only then may another candidate be claimed for the same servers.

        One server may hold allocations already, since it is being evacuated: what it has
        stays, and the candidate is added to it, as nova does until the move is over.

        :raises ClaimFailed: somebody else changes the same server's allocations.
        :raises PlacementUnavailable: Placement does not answer.
        """
        if time.monotonic() > min(claim.until for claim in wanted):
            raise PlacementUnavailable(f'it refuses whatever is claimed for {LONGEST:.0f} s')
        earlier = self._undoing.settle([claim.uuid for claim in wanted])
        order = _Order(wanted)
        with self._lock:
            self._orders.append(order)
        self._turns.since()
        made = None
        try:
            made = order.outcome.result()
        finally:
            if made is None:
                self._undoing.restore(earlier)
        return [claim.after(earlier) for claim in made] if made and earlier else made

    def give_back(self, claim: Claim) -> None:
        """Undo a claim, now or as soon as Placement lets us; never raises."""
        MANAGER.debug('Cleaning up allocations for %s', [claim.uuid])
        path = f'/allocations/{claim.uuid}'
        try:
            if claim.before is not None:
                self._undo(claim)
            elif self.api.call('DELETE', path, claim.trace_id).status_code == 204:
                LOG.info('Deleted allocations for instance %s', claim.uuid)
            else:
                self._undo(claim)  # if somebody else has not
        except PlacementUnavailable as error:
            LOG.warning(
                'Unable to delete allocation for instance %s: %s; it is tried again',
                claim.uuid,
                error,
            )
            self._undo_later(claim)
        else:
            if claim.doubtful:
                self._undo_later(claim)
        self._undoing.restore(claim.earlier)

    def _undo_later(self, claim: Claim) -> None:
        may_come = claim.doubtful and not claim.moves
        self._undoing.add(claim.uuid, partial(self._undo, claim), may_come)

    def close(self, seconds: float) -> None:
        """Undo what is still to be undone, within so many seconds."""
        self._undoing.close(seconds)

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
        each = iter(made)
        for order in orders:
            order.outcome.set_result([*islice(each, len(order.claims))])
        return True

    def _post(self, claims: Sequence[Claim]) -> Sequence[Claim] | None:
        """Claim for several servers that hold nothing, or for none of them."""
        body = {claim.uuid: _new(claim) for claim in claims}
        try:
            answer = self.api.change('POST', '/allocations', body, claims[0].trace_id)
        except Unanswered as error:
            return self._seen(claims, error)
        return self._judged(claims, answer)

    def _one(self, claim: Claim) -> Sequence[Claim] | None:
        """Claim for one server, which may hold something."""
        try:
            answer = self._put(claim, _new(claim))
        except Unanswered as error:
            return self._seen([claim], error)
        if is_generation_conflict(answer) and not answer.repeated:
            return self._add(claim)
        return self._judged([claim], answer)

    def _add(self, claim: Claim) -> Sequence[Claim] | None:
        """Claim for a server that Placement knows, beside what it holds."""
        held = self._held(claim)
        added = replace(claim, before=held.resources)
        both = {**claim.candidate.allocations, **_plain(held.resources)}
        try:
            answer = self._put(added, _over(added, both, held))
        except Unanswered as error:
            return self._seen([added], error)
        if is_generation_conflict(answer) and not answer.repeated:
            raise ClaimFailed(f'another process changed the consumer {claim.uuid} during the claim')
        return self._judged([added], answer)

    def _judged(self, claims: Sequence[Claim], answer: Answer) -> Sequence[Claim] | None:
        """What an answer means for claims. A 400 is for whoever wrote the flavor; others than
        that and 409 do not depend on the candidate.

        :raises PlacementUnavailable: for any candidate it would be the same.
        """
        status = answer.status_code
        if status == 204:
            return _doubtful(claims) if answer.repeated else claims
        why = detail(answer)
        said = PlacementUnavailable(f'Placement answers a claim by {status} {why}')
        if answer.repeated or status < 300:
            return self._seen(claims, said)
        if status not in (400, 409):
            raise said
        level = logging.WARNING if status == 400 and len(claims) == 1 else logging.DEBUG
        LOG.log(level, 'Claim refused for %s: %s %s', [each.uuid for each in claims], status, why)
        return None

    def _seen(self, claims: Sequence[Claim], error: PlacementUnavailable) -> Sequence[Claim]:
        """The claims of which nobody knows whether they are made, if they are.

        :raises PlacementUnavailable: this error. Whatever comes of them is given back.
        """
        made = False
        try:
            made = all(self._is_made(claim) for claim in claims)
        except PlacementUnavailable as blind:
            LOG.warning(
                'Unable to see whether allocations were made for %s: %s; it is looked at again',
                [claim.uuid for claim in claims],
                blind,
            )
        doubtful = _doubtful(claims)
        if not made:
            for claim in doubtful:
                self._undo_later(claim)
            raise error
        LOG.info('Allocations for %s are made', [claim.uuid for claim in claims])
        return doubtful

    def _is_made(self, claim: Claim) -> bool:
        return self._held(claim).resources == claim.wanted()

    def _undo(self, claim: Claim) -> None:
        """Give back a claim if it is what the server holds, whose generation keeps us from
        overwriting what somebody else gives it meanwhile."""
        held = self._held(claim)
        if held.resources == claim.wanted():
            answer = self._put(claim, _over(claim, _plain(claim.before or {}), held))
            if answer.status_code != 204:
                raise PlacementUnavailable(f'({answer.status_code} {detail(answer)})')
            LOG.info('Deleted allocations for instance %s', claim.uuid)

    def _put(self, claim: Claim, body: Body) -> Answer:
        return self.api.change('PUT', f'/allocations/{claim.uuid}', body, claim.trace_id)

    def _held(self, claim: Claim) -> Allocations:
        path = f'/allocations/{claim.uuid}'
        return decode(self.api.call('GET', path, claim.trace_id, READ_MICROVERSION), Allocations)


def _doubtful(claims: Sequence[Claim]) -> Sequence[Claim]:
    return [replace(claim, doubtful=True) for claim in claims]


def _new(claim: Claim) -> Body:
    """The allocations of a server that has none yet."""
    return {
        'allocations': claim.candidate.allocations,
        'mappings': claim.candidate.mappings,
        'consumer_generation': None,
        **claim.owner,
    }


def _over(claim: Claim, allocations: Mapping[str, Any], held: Allocations) -> Body:
    """The allocations of a server that has some; or that has none, and is known nevertheless:
    Placement leaves such consumers where a provider of a claim is gone, in their first
    generation, which it does not tell."""
    generation = held.consumer_generation if held.resources else 0
    return {'allocations': allocations, 'consumer_generation': generation, **claim.owner}


def _plain(resources: Resources) -> dict[str, Any]:
    """Amounts as a PUT takes them."""
    return {provider: {'resources': amounts} for provider, amounts in resources.items()}
