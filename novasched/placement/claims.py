# SPDX-License-Identifier: Apache-2.0
"""Claims: allocations for instances, those of several requests in one POST, and their
deletion.

Claims that come while others are written are the next batch, one POST: of one it takes
40 ms, of ten 22 and of fifty 17 for each. Two batches are in flight at the most, and
have no resource provider in common: writers that collide on one wait in Placement's
database for a second and more. Where Placement refuses the whole, each half is tried by
itself, down to the request, and where the answer to the whole is lost, each request
goes on alone, so that none suffers from another. A request for very many instances
takes several POSTs. If one POST fails, the claims of the other POSTs are deleted.
Instances that move are few, and hold something: each is claimed for by itself, beside
the batches.

Where an answer gets lost, what the instances hold is read. If it is what was claimed,
the claim is made; if not, it is refused, and what comes of it later is deleted if it
can be no other request's.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from novasched.placement.allocations import CLAIM_LIMIT_S, Claim, held_by
from novasched.placement.api import CircuitOpen, OutcomeUnknown, PlacementApi, Response
from novasched.placement.batching import Batches, Order
from novasched.placement.cleanup import (
    FIRST_PAUSE_S,
    AllocationCleanup,
    AllocationDeleter,
)
from novasched.placement.wire import ConsumerAllocations
from novasched.scheduler.errors import ClaimFailed, PlacementUnavailable
from novasched.scheduler.ports import Instances

# Operators search for what this logger of nova's writes.
LOG = logging.getLogger('nova.scheduler.client.report')

ALONE_LIMIT_S = 30.0
"""Seconds after a common POST without an answer in which its requests begin to go on
alone: Placement is asked again after one or two, and claims for a hundred of them in a
few."""


class Claims:
    def __init__(
        self,
        api: PlacementApi,
        instances: Instances | None = None,
        cleanup_pause: float = FIRST_PAUSE_S,
        provider_gone: Callable[[], None] = lambda: None,
    ) -> None:
        """:param instances: see :class:`novasched.placement.cleanup.AllocationDeleter`.
        :param cleanup_pause: seconds between the first tries to delete allocations.
        :param provider_gone: called where a claim is answered by 400: its provider is
            gone.
        """
        self.api = api
        self._provider_gone = provider_gone
        self._deleter = AllocationDeleter(api, instances)
        self.cleanup = AllocationCleanup(
            self._deleter.delete_unless_in_doubt, cleanup_pause
        )
        self._batches = Batches()

    def allocate(self, claims: Sequence[Claim]) -> Sequence[Claim] | None:
        """Make claims for several instances, or none of them: None if they are refused.
        Only then may another candidate be claimed for the same instances.

        One instance may hold allocations already, since it is being evacuated: what it
        has stays, and the candidate is added to it, as nova does until the move is
        over.

        :raises ClaimFailed: another process changes the same instance's allocations.
        :raises PlacementUnavailable: Placement does not answer.
        """
        _check_limit(claims)
        tasks = self.cleanup.take([claim.uuid for claim in claims])
        earlier = [task.claim for task in tasks if not task.in_doubt]
        order = Order(
            [
                replace(x, earlier=tuple(y for y in earlier if y.uuid == x.uuid))
                for x in claims
            ]
        )
        made = None
        try:
            if len(claims) == 1 and claims[0].moves:
                made = self._write_alone(order.claims)
            else:
                while not order.outcome.done():
                    if batch := self._batches.batch_of(order):
                        self._write_batch(batch)
                    if error := order.outcome.exception():
                        order = self._alone(order, error)
                        left = min(
                            order.until - time.monotonic(), _retry_s(order.claims)
                        )
                        if not self.api.breaker.wait_closed(max(0.0, left)):
                            raise PlacementUnavailable(order.lost or '')
                made = order.outcome.result()
            if made:
                made = self._safe_from_deletions(made)
        finally:
            if not made and order.lost is not None:
                for claim in order.claims:
                    self.cleanup.add(claim)
            # What was claimed before may come even now, once the instance is gone.
            by_uuid = {claim.uuid: claim for claim in made or ()}
            tasks = [task.after(by_uuid.get(task.claim.uuid)) for task in tasks]
            self.cleanup.put_back(tasks)
        # What may come of the same claim before may also come once this one is deleted.
        again = {task.claim.uuid for task in tasks if task.successor}
        return made and [
            replace(x, outcome_unknown=True) if x.uuid in again else x for x in made
        ]

    def delete(self, claim: Claim) -> None:
        """Delete the allocations of a claim, now or as soon as Placement lets us; never
        raises. A claim that had a certain answer, and is unchanged, is ours until the
        current request is answered."""
        if claim.outcome_unknown:
            self.cleanup.add(claim)
            return
        try:
            held = self._held(claim)
            if claim.is_made(held):
                self._deleter.delete(claim, held)
        except PlacementUnavailable as error:
            LOG.warning(
                'Unable to delete allocation for instance %s: %s; it is tried again',
                claim.uuid,
                error,
            )
            # Another scheduler may claim for the instance before this claim is deleted.
            self.cleanup.add(replace(claim, outcome_unknown=True))

    def _alone(self, order: Order, error: BaseException) -> Order:
        """The order that goes on without those with whom an answer was lost.

        :raises Exception: the error; it was lost with nobody.
        """
        if order.lost is not None and isinstance(error, CircuitOpen):
            return Order(order.claims, order.lost, order.until)  # lost again meanwhile
        if order.lost is not None or not isinstance(error, OutcomeUnknown):
            raise error
        claims = [replace(claim, outcome_unknown=True) for claim in order.claims]
        return Order(claims, str(error), time.monotonic() + ALONE_LIMIT_S)

    def _write_batch(self, orders: Sequence[Order]) -> None:
        """Write orders together if that goes, or else the first half before the second,
        and see to it that each has its outcome."""
        parts = [orders]
        try:
            while parts:
                part = parts.pop()
                if len(part) > 1:
                    if not self._write_together(part):
                        half = len(part) // 2
                        parts += [part[half:], part[:half]]
                    continue
                order = part[0]
                made = None
                try:
                    if time.monotonic() > order.until:
                        raise PlacementUnavailable(
                            'it takes too long to claim for each by itself'
                        )
                    if order.lost is not None:
                        made = self._made_before(order.claims)
                    if not made and len(order.claims) > self._batches.max_consumers:
                        made = self._write_in_parts(order.claims)
                    elif not made:
                        made = self._write_alone(order.claims)
                    order.outcome.set_result(made)
                except (PlacementUnavailable, ClaimFailed) as error:
                    order.outcome.set_exception(error)
        except BaseException as error:  # whatever it is, those who wait must hear of it
            for order in orders:
                if not order.outcome.done():
                    order.outcome.set_exception(error)
        finally:
            self._batches.end(orders)

    def _write_together(self, orders: Sequence[Order]) -> bool:
        """Write orders in one POST; False if it is refused. Without an answer the error
        is the outcome of each, and each goes on alone."""
        claims = [claim for order in orders for claim in order.claims]
        try:
            with self._batches.measure(len(claims)):
                answer = self.api.send(*_request(claims), retry_s=_retry_s(claims))
            made = _judged(claims, answer)
        except PlacementUnavailable as error:
            for order in orders:
                order.outcome.set_exception(error)
            return True
        if made is None:
            return False
        rest = iter(made)
        for order in orders:
            order.outcome.set_result([*islice(rest, len(order.claims))])
        return True

    def _write_in_parts(self, claims: Sequence[Claim]) -> Sequence[Claim] | None:
        """Make the claims of one request in several POSTs, each as large as a common
        batch. If Placement refuses one POST, the claims of the other POSTs are deleted,
        and the result is None. After an error the claims are deleted, too.

        :raises PlacementUnavailable: Placement does not answer, or answers too slowly.
        """
        made: list[Claim] = []
        try:
            while rest := claims[len(made) :]:
                _check_limit(claims)
                size = self._batches.max_consumers
                if len(rest) == size + 1:
                    # The last claim alone would be a PUT, which keeps other
                    # allocations.
                    size += 1
                part = self._write_alone(rest[:size])
                if part is None:
                    return None
                made += part
        finally:
            if len(made) < len(claims):
                for claim in made:
                    self.delete(claim)
        return made

    def _write_alone(self, claims: Sequence[Claim]) -> Sequence[Claim] | None:
        """Make the claims of one request, even if the answer gets lost; None if
        Placement refuses the claims.

        An instance keeps the allocations that it has. For an instance that moves, the
        allocations are read before the claim, as in nova's ``claim_resources``: an
        evacuated instance has allocations on its source. For another instance they are
        read only if Placement answers that the consumer exists.

        :raises ClaimFailed: another process changes the allocations of the instance.
        """
        is_known = False
        while True:
            if is_known or (claims[0].moves and len(claims) == 1):
                held = self._held(claims[0])
                if claims[0].outcome_unknown and claims[0].is_made(held):
                    return claims
                if is_known or held.allocations:
                    claims = [claims[0].beside(held)]
            try:
                with self._batches.measure(len(claims)):
                    answer = self.api.send(*_request(claims), retry_s=_retry_s(claims))
                conflict = answer.is_generation_conflict and not answer.repeated
                if not conflict or len(claims) > 1:
                    if answer.status_code == 400:
                        self._provider_gone()
                    return _judged(claims, answer)
            except OutcomeUnknown as error:
                return self._looked_up(claims, error)
            if is_known:
                why = 'another process changed the consumer during the claim'
                raise ClaimFailed(claims[0].uuid, why)
            is_known = True

    def _looked_up(
        self, claims: Sequence[Claim], error: OutcomeUnknown
    ) -> Sequence[Claim]:
        """The claims of which nobody knows whether they are made, if they are.

        :raises PlacementUnavailable: this error. What comes of them is deleted.
        """
        claims = [replace(claim, outcome_unknown=True) for claim in claims]
        made = None
        try:
            made = self._made_before(claims)
        except PlacementUnavailable as blind:
            LOG.warning(
                'Unable to see whether allocations were made for %s: %s; it is looked'
                ' at again',
                [claim.uuid for claim in claims],
                blind,
            )
        if not made:
            for claim in claims:
                self.cleanup.add(claim)
            raise PlacementUnavailable(str(error))
        LOG.info('Allocations for %s are made', [claim.uuid for claim in claims])
        return made

    def _made_before(self, claims: Sequence[Claim]) -> Sequence[Claim] | None:
        """The claims if they have been made without an answer."""
        held = map(self._held, claims)
        if all(map(Claim.is_made, claims, held)):
            return claims
        return None

    def _safe_from_deletions(self, claims: Sequence[Claim]) -> Sequence[Claim]:
        """The claims, out of reach of a deletion whose answer was lost: it may be done
        even now, and a consumer that holds something anew begins with the generation
        that it had before. So those of such instances are written once more, in the
        next generation.

        :raises PlacementUnavailable: one of them cannot be; all are deleted.
        """
        self._deleter.forget_old_losses()
        try:
            return [
                self._renewed(x) if x.uuid in self._deleter.lost else x for x in claims
            ]
        except PlacementUnavailable:
            for claim in claims:
                self.cleanup.add(replace(claim, outcome_unknown=True))
            raise

    def _renewed(self, claim: Claim) -> Claim:
        held = self._held(claim)
        if not claim.is_made(held):
            raise PlacementUnavailable(
                f'the claim for {claim.uuid} was undone by a late request'
            )
        body = {**claim.body(), 'consumer_generation': held.generation}
        path = f'/allocations/{claim.uuid}'
        answer = self.api.send('PUT', path, claim.trace_id, body, once=True)
        if answer.status_code != 204:
            raise PlacementUnavailable(f'({answer})')
        return replace(claim, generation=held.generation + 1)

    def _held(self, claim: Claim) -> ConsumerAllocations:
        return held_by(self.api, claim.uuid, claim.trace_id, claim.retry_s)


def _request(claims: Sequence[Claim]) -> tuple[str, str, str | None, Mapping[str, Any]]:
    """Method, path, id and body of the request that makes claims. A POST is for
    instances that hold nothing, and a PUT for one, which may hold something."""
    first = claims[0]
    if len(claims) == 1:
        return 'PUT', f'/allocations/{first.uuid}', first.trace_id, first.body()
    body = {claim.uuid: claim.body() for claim in claims}
    return 'POST', '/allocations', first.trace_id, body


def _retry_s(claims: Sequence[Claim]) -> float:
    return min(claim.retry_s for claim in claims)


def _check_limit(claims: Sequence[Claim]) -> None:
    """:raises PlacementUnavailable: the request has claimed for as long as it may."""
    if time.monotonic() > min(claim.until for claim in claims):
        why = f'it refuses whatever is claimed for {CLAIM_LIMIT_S:.0f} s'
        raise PlacementUnavailable(why)


def _judged(claims: Sequence[Claim], answer: Response) -> Sequence[Claim] | None:
    """The claims if an answer says that they are made, None if it refuses them. A 400
    is for the author of the flavor; others than that and 409 do not depend on the
    candidate.

    :raises OutcomeUnknown: it leaves open what Placement has done.
    :raises PlacementUnavailable: for any candidate it would be the same.
    """
    status = answer.status_code
    if status == 204:
        if not answer.repeated:
            return claims
        return [replace(claim, outcome_unknown=True) for claim in claims]
    text = f'Placement answers a claim by {answer}'
    if answer.repeated or status < 300:
        raise OutcomeUnknown(text)
    if status not in (400, 409):
        raise PlacementUnavailable(text)
    level = logging.WARNING if status == 400 and len(claims) == 1 else logging.DEBUG
    LOG.log(level, 'Claim refused for %s: %s', [x.uuid for x in claims], answer)
    return None
