# SPDX-License-Identifier: Apache-2.0
"""Claims: allocations for instances, several requests in one POST, and their deletion.

Claims that come during a POST form the next batch, which is a single POST. A claim
takes 40 ms alone, 22 ms in a POST of ten and 17 ms in a POST of fifty. At most
two batches are in flight, without a common resource provider: writers that collide on a
provider wait in Placement's database for a second and more.

No request suffers from another request. After a refusal of a batch, the halves are
tried separately, down to the single request. After a lost answer, the requests of the
batch go on alone. A request for very many instances takes several POSTs; after a
failure, all claims of the request are deleted. Instances that move are few and have
allocations already: such claims are written separately, beside the batches.

After a lost answer the allocations of the instances are read. The claim counts as made
if the allocations are equal. If not, the claim counts as refused, and later allocations
by the claim are deleted, unless another request may own the allocations.
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
    PROXY_PATIENCE_S,
    AllocationCleanup,
    AllocationDeleter,
    CleanupTask,
    Instances,
)
from novasched.placement.wire import ConsumerAllocations
from novasched.scheduler.errors import ClaimFailed, PlacementUnavailable

# Operators search for what this logger of nova's writes.
LOG = logging.getLogger('nova.scheduler.client.report')

MAX_CONFLICTS = 2
"""Answers after which a claim fails whose consumer changes all the time."""
ALONE_LIMIT_S = 30.0
"""Seconds after a batch without an answer in which its requests may begin to go on
alone. Placement is asked again after one or two seconds, and claims for a hundred
requests in a few."""


class Claims:
    """Makes and deletes claims, from the threads of all requests.

    :ivar cleanup: deletes claims whose outcome is unknown, in the background.
    """

    def __init__(
        self,
        api: PlacementApi,
        instances: Instances | None = None,
        cleanup_pause: float = FIRST_PAUSE_S,
        provider_gone: Callable[[], None] = lambda: None,
    ) -> None:
        """:param instances: see :class:`novasched.placement.cleanup.AllocationDeleter`.
        :param cleanup_pause: seconds between the first attempts to delete allocations.
        :param provider_gone: called after Placement has answered a claim by 400: its
            provider is gone.
        """
        self.api = api
        self._provider_gone = provider_gone
        self._deleter = AllocationDeleter(api, instances)
        self.cleanup = AllocationCleanup(
            self._deleter.delete_unless_in_doubt, cleanup_pause
        )
        self._batches = Batches()

    def allocate(self, claims: Sequence[Claim]) -> Sequence[Claim] | None:
        """Make claims for several instances, all or nothing.

        An instance that is being evacuated keeps its allocations beside the candidate.
        nova does the same until the move is over.

        :returns: the claims as they were made; None if Placement refuses them. Only
            then may the caller claim another candidate for the same instances.
        :raises ClaimFailed: another process changes the allocations of the instance.
        :raises PlacementUnavailable: Placement does not answer.
        """
        _check_limit(claims)
        tasks = self.cleanup.take([claim.uuid for claim in claims])
        if tasks:
            claims = _with_earlier(claims, tasks)
        order = Order(claims)
        made = None

        # A move reads allocations first, so that a common POST does not suit it.
        try:
            if len(claims) == 1 and claims[0].moves:
                made = self._write_one(claims[0])
            else:
                while not order.outcome.done():
                    if batch := self._batches.batch_of(order):
                        self._write_batch(batch)
                    if error := order.outcome.exception():
                        order = self._alone(order, error)
                        self._wait_for_placement(order)
                made = order.outcome.result()

            if made:
                made = self._safe_from_deletions(made)
        finally:
            if not made and order.lost is not None:
                for claim in order.claims:
                    self.cleanup.add(claim)
            # Placement may make earlier claims even now, once the instance is gone.
            by_uuid = {claim.uuid: claim for claim in made or ()}
            tasks = [task.after(by_uuid.get(task.claim.uuid)) for task in tasks]
            self.cleanup.put_back(tasks)

        if not made:
            return made

        for claim in made:
            if claim.is_uncertain:
                self.cleanup.watch(claim)
        # Placement may make an equal earlier claim after this one is deleted.
        repeatable = {task.claim.uuid for task in tasks if task.successor}
        result = []
        for claim in made:
            if claim.uuid in repeatable:
                claim = claim.uncertain()
            result.append(claim)
        return result

    def delete(self, claim: Claim) -> None:
        """Delete the allocations of a claim, now or as soon as Placement answers. Never
        raises.

        Until the current request is answered, a claim with a certain outcome belongs to
        this process as long as it is unchanged.
        """
        if claim.is_uncertain:
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
            self.cleanup.add(claim.uncertain())

    def _alone(self, order: Order, error: BaseException) -> Order:
        """The order for the claims of a batch whose answer was lost, to go on alone.

        :raises Exception: the error, if the claims were alone already, or if the error
            is certain.
        """
        if order.lost is not None and isinstance(error, CircuitOpen):
            # The answer to another request was lost meanwhile.
            return Order(order.claims, order.lost, order.until)
        if order.lost is not None or not isinstance(error, OutcomeUnknown):
            raise error
        claims = [claim.uncertain() for claim in order.claims]
        return Order(claims, str(error), time.monotonic() + ALONE_LIMIT_S)

    def _wait_for_placement(self, order: Order) -> None:
        """Wait until Placement answers again, as long as an order that goes on alone
        may.

        :raises PlacementUnavailable: it does not answer in time.
        """
        seconds = min(order.until - time.monotonic(), _retry_s(order.claims))
        if not self.api.breaker.wait_closed(max(0.0, seconds)):
            raise PlacementUnavailable(order.lost or '')

    def _write_batch(self, orders: Sequence[Order]) -> None:
        """Write orders in a single POST, or else the first half before the second half,
        and set the outcome of all orders."""
        parts = [orders]
        try:
            while parts:
                part = parts.pop()
                if len(part) > 1:
                    if not self._write_together(part):
                        # The last part is next: the first half goes first.
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
                    if made is None and len(order.claims) == 1:
                        made = self._write_one(order.claims[0])
                    elif made is None:
                        made = self._write_in_parts(order.claims)
                    order.outcome.set_result(made)
                except (PlacementUnavailable, ClaimFailed) as error:
                    order.outcome.set_exception(error)
        except BaseException as error:
            # The threads of all orders wait for an outcome, whatever happens here.
            for order in orders:
                if not order.outcome.done():
                    order.outcome.set_exception(error)
        finally:
            self._batches.end(orders)

    def _write_together(self, orders: Sequence[Order]) -> bool:
        """Write orders in a single POST; False after a refusal.

        After a lost answer the error is the outcome of all orders, and the orders go on
        alone.
        """
        claims: list[Claim] = []
        for order in orders:
            claims += order.claims

        began = time.monotonic()
        try:
            with self._batches.measure(len(claims)):
                answer = self.api.send(*_request(claims), retry_s=_retry_s(claims))
            is_slow = time.monotonic() - began > PROXY_PATIENCE_S
            if answer.is_generation_conflict and is_slow:
                # A proxy may have sent the claims twice, so that they are made.
                raise OutcomeUnknown(f'Placement answers claims by {answer}')
            made = self._judged(claims, answer)
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
        """Make the claims of a request in several POSTs of the size of a batch.

        After a refusal, the claims of earlier POSTs are deleted, and the result is
        None. After an error the claims are deleted as well.

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
                part = self._write_several(rest[:size])
                if part is None:
                    return None
                made += part
        finally:
            if len(made) < len(claims):
                for claim in made:
                    self.delete(claim)
        return made

    def _write_several(self, claims: Sequence[Claim]) -> Sequence[Claim] | None:
        """Make claims for several instances of a request in one POST, even if the
        answer gets lost; None after a refusal."""
        try:
            with self._batches.measure(len(claims)):
                answer = self.api.send(*_request(claims), retry_s=_retry_s(claims))
            if answer.is_generation_conflict and not answer.repeated:
                return self._made_by_proxy(claims)
            return self._judged(claims, answer)
        except OutcomeUnknown as error:
            return self._looked_up(claims, error)

    def _write_one(self, claim: Claim) -> Sequence[Claim] | None:
        """Make the claim for an instance in a PUT, even if the answer gets lost; None
        after a refusal.

        An instance keeps its allocations. For an instance that moves, the allocations
        are read before the claim, as in nova's ``claim_resources``: an evacuated
        instance has allocations on its source. For another instance they are read only
        if Placement answers that the consumer exists.

        :raises ClaimFailed: another process changes the allocations of the instance.
        """
        conflicts = 0
        while True:
            if claim.moves or conflicts:
                held = self._held_before(claim, conflicts)
                may_be_made = claim.is_uncertain or conflicts > 0
                if may_be_made and claim.is_made(held):
                    return [claim.uncertain()]
                if conflicts == MAX_CONFLICTS:
                    why = 'another process changed the consumer during the claim'
                    raise ClaimFailed(claim.uuid, why)
                if held.allocations or conflicts:
                    # The consumer exists: claim beside its allocations.
                    claim = claim.beside(held)

            try:
                with self._batches.measure(1):
                    answer = self.api.send(*_request([claim]), retry_s=claim.retry_s)
                if not answer.is_generation_conflict or answer.repeated:
                    return self._judged([claim], answer)
            except OutcomeUnknown as error:
                return self._looked_up([claim], error)
            conflicts += 1

    def _held_before(self, claim: Claim, conflicts: int) -> ConsumerAllocations:
        """The allocations of an instance before a claim.

        :param conflicts: how often Placement has answered that the consumer has
            changed. Then a proxy may have sent the claim to a second Placement, so that
            the first one has made the claim.
        :raises PlacementUnavailable: Placement does not answer. Allocations by the
            claim are deleted.
        """
        try:
            return self._held(claim)
        except PlacementUnavailable as error:
            if not conflicts:
                raise
            why = str(error)
        # Not the same error: an order goes on alone after a lost answer, and the claim
        # that is found made would then be deleted.
        self.cleanup.add(claim.uncertain())
        raise PlacementUnavailable(why)

    def _made_by_proxy(self, claims: Sequence[Claim]) -> Sequence[Claim] | None:
        """The claims if they are made, although Placement answers that a consumer
        exists: a proxy may have sent the claims to a second Placement. None if they are
        refused.

        :raises PlacementUnavailable: Placement does not answer. Allocations by the
            claims are deleted.
        """
        claims = [claim.uncertain() for claim in claims]
        try:
            return self._made_before(claims)
        except PlacementUnavailable as error:
            why = str(error)
        # Not the same error, as in _held_before().
        for claim in claims:
            self.cleanup.add(claim)
        raise PlacementUnavailable(why)

    def _judged(
        self, claims: Sequence[Claim], answer: Response
    ) -> Sequence[Claim] | None:
        """The claims after a success; None after a refusal.

        400 and 409 are refusals of the candidate; 400 may come from a mistake in the
        flavor. After another status, claims of all candidates fail alike.

        :raises OutcomeUnknown: the claims may be made.
        :raises PlacementUnavailable: Placement refuses all candidates.
        """
        status = answer.status_code
        if status == 204:
            if not answer.repeated:
                return claims
            return [claim.uncertain() for claim in claims]

        if status == 400:
            self._provider_gone()
        text = f'Placement answers a claim by {answer}'
        if answer.repeated or status < 300:
            raise OutcomeUnknown(text)
        if status not in (400, 409):
            raise PlacementUnavailable(text)

        level = logging.DEBUG
        if status == 400 and len(claims) == 1:
            level = logging.WARNING
        uuids = [claim.uuid for claim in claims]
        LOG.log(level, 'Claim refused for %s: %s', uuids, answer)
        return None

    def _looked_up(
        self, claims: Sequence[Claim], error: OutcomeUnknown
    ) -> Sequence[Claim]:
        """The claims after a lost answer, if Placement has made them.

        :raises PlacementUnavailable: Placement has not, or does not answer. Later
            allocations by the claims are deleted.
        """
        claims = [claim.uncertain() for claim in claims]
        uuids = [claim.uuid for claim in claims]
        made = None

        try:
            made = self._made_before(claims)
        except PlacementUnavailable as second_error:
            LOG.warning(
                'Unable to see whether allocations were made for %s: %s; it is looked'
                ' at again',
                uuids,
                second_error,
            )

        if not made:
            for claim in claims:
                self.cleanup.add(claim)
            raise PlacementUnavailable(str(error))
        LOG.info('Allocations for %s are made', uuids)
        return made

    def _made_before(self, claims: Sequence[Claim]) -> Sequence[Claim] | None:
        """The claims if Placement has made all; else None."""
        held = map(self._held, claims)
        if all(map(Claim.is_made, claims, held)):
            return claims
        return None

    def _safe_from_deletions(self, claims: Sequence[Claim]) -> Sequence[Claim]:
        """Protect claims from deletions with lost answers.

        Placement may do such a deletion even now: a consumer with new allocations
        begins with the generation in the deletion. So claims for these instances are
        written once more, in the next generation.

        :raises PlacementUnavailable: a claim cannot be written again. All claims are
            deleted.
        """
        self._deleter.forget_old_losses()
        safe = []

        try:
            for claim in claims:
                if claim.uuid in self._deleter.lost:
                    claim = self._renewed(claim)
                safe.append(claim)
        except PlacementUnavailable:
            for claim in claims:
                self.cleanup.add(claim.uncertain())
            raise
        return safe

    def _renewed(self, claim: Claim) -> Claim:
        """Write a claim once more, in the next generation of the consumer.

        :raises PlacementUnavailable: Placement does not answer, refuses the claim, or
            has deleted it.
        """
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


def _with_earlier(
    claims: Sequence[Claim], tasks: Sequence[CleanupTask]
) -> Sequence[Claim]:
    """Claims with the earlier claims for their instances that Placement may make even
    now."""
    result = []
    for claim in claims:
        earlier = []
        for task in tasks:
            if task.claim.uuid == claim.uuid and not task.in_doubt:
                earlier.append(task.claim)
        result.append(replace(claim, earlier=tuple(earlier)))
    return result


def _request(claims: Sequence[Claim]) -> tuple[str, str, str | None, Mapping[str, Any]]:
    """Method, path, request ID and body of the request that makes claims.

    A POST is for instances without allocations. A PUT is for a single instance, which
    may have allocations.
    """
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
