# SPDX-License-Identifier: Apache-2.0
"""Claims: allocations for instances, several requests in one POST, and their deletion.

Claims that come during a POST form the next batch, which is a single POST. A claim
takes 40 ms alone, 22 ms in a POST of ten and 17 ms in a POST of fifty. At most
two batches are in flight, without a common resource provider: writers that collide on a
provider wait in Placement's database for a second and more.

No request suffers from another request. After a refusal of a batch, the halves are
tried separately, down to the single request. After a lost answer, the requests of the
batch go on separately. A request for very many instances takes several POSTs; after a
failure, all claims of the request are deleted. Few instances move, and an instance that
moves has allocations already: such claims are written separately, beside the batches.

``claim_protocol.py`` has the step after each answer of Placement. The steps are carried
out here.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from novasched.placement.allocations import CLAIM_LIMIT_S, Claim, held_by, tree_of
from novasched.placement.api import CircuitOpen, OutcomeUnknown, PlacementApi
from novasched.placement.batching import Batches, Order
from novasched.placement.claim_protocol import (
    NEXT,
    Answer,
    ReadFirst,
    Step,
    Way,
    Written,
    is_final,
    uncertain,
)
from novasched.placement.cleanup import (
    FIRST_PAUSE_S,
    AllocationCleanup,
    AllocationDeleter,
    Instances,
)
from novasched.placement.cleanup_task import CleanupTask
from novasched.placement.wire import ConsumerAllocations
from novasched.scheduler.errors import PlacementUnavailable

# Operators search for what this logger of nova's writes.
LOG = logging.getLogger('nova.scheduler.client.report')

SEPARATE_LIMIT_S = 30.0
"""Seconds after a batch without an answer in which its requests may begin to go on
separately. Placement is asked again after one or two seconds, and claims for a hundred
requests in a few."""


@dataclass(frozen=True, slots=True)
class _Reply:
    """An answer of Placement.

    :ivar claims: the claims, uncertain if Placement may carry out an attempt even now.
    :ivar error: the error for the caller of claims that are uncertain or FAILED.
    """

    answer: Answer
    claims: Sequence[Claim]
    error: PlacementUnavailable | None = None


class Claims:
    """Makes and deletes claims, from the threads of all requests.

    :ivar cleanup: deletes the allocations of uncertain claims, in the background.
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
        if error := _too_late(claims):
            raise error
        # An earlier claim for the same instance may be without an answer.
        tasks = self.cleanup.take([claim.uuid for claim in claims])
        if tasks:
            claims = _with_earlier(claims, tasks)

        written = Written()
        try:
            # A move reads allocations first, so that a batch does not suit a move.
            if len(claims) == 1 and claims[0].moves:
                written = self._write_move(claims[0])
            else:
                written = self._write_in_batch(Order(claims))
            # In this thread, so that no request waits for the separate claims of other
            # requests.
            if written.is_separated:
                written = self._write_separately(claims, str(written.error))
            if written.made and (self._deleter.lost or claims[0].moves):
                written = self._renew_where_deleted(written.made)
        finally:
            for claim in written.lost:
                self.cleanup.add(claim)
            # Placement may make earlier claims even now, once the instance is gone.
            by_uuid = {claim.uuid: claim for claim in written.made}
            tasks = [task.after(by_uuid.get(task.claim.uuid)) for task in tasks]
            if tasks:
                self.cleanup.put_back(tasks)

        if written.error is not None:
            raise written.error
        if not written.made:
            return None

        # Placement may make an equal earlier claim after this claim is deleted.
        succeeded = {task.claim.uuid for task in tasks if task.successor}
        made = []
        for claim in written.made:
            if claim.is_uncertain:
                self.cleanup.watch(claim)
            elif claim.uuid in succeeded:
                claim = claim.uncertain()
            made.append(claim)
        return made

    def delete(self, claim: Claim) -> None:
        """Delete the allocations of a claim, now or as soon as Placement answers. Never
        raises.

        Until the current request is answered, a certain claim belongs to this process
        as long as it is unchanged.
        """
        # A single deletion is not enough: Placement may make the claim afterwards.
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

    def _write_move(self, claim: Claim) -> Written:
        """Write the claim for an instance that moves, beside the allocations of the
        instance.

        The allocations are read before the claim, as in nova's ``claim_resources``: an
        evacuated instance has allocations on its source.
        """
        try:
            held = self._held(claim)
            if held.allocations:
                claim = self._beside(claim, held)
        except PlacementUnavailable as error:
            return Written(error=error)
        return self._write_request([claim])

    def _write_in_batch(self, order: Order) -> Written:
        """Write an order, together with the orders that wait at the same time."""
        if batch := self._batches.batch_of(order):
            self._write_batch(batch)
        return order.written.result()

    def _write_separately(self, claims: Sequence[Claim], why: str) -> Written:
        """Write the claims of a request separately after a batch without an answer, as
        soon as Placement answers again.

        :param why: the error of the batch.
        """
        claims = uncertain(claims)
        until = time.monotonic() + SEPARATE_LIMIT_S
        while True:
            # All claims of a request have the same patience.
            seconds = min(until - time.monotonic(), claims[0].retry_s)
            if not self.api.breaker.wait_closed(max(0.0, seconds)):
                return Written(lost=claims, error=PlacementUnavailable(why))

            written = self._write_in_batch(Order(claims, is_separate=True, until=until))
            # While the circuit is open, the answer to another request was lost.
            if not isinstance(written.error, CircuitOpen):
                break

        if written.made:
            return written
        # Placement may carry out the batch even now, also after a refusal.
        return replace(written, lost=claims)

    def _write_batch(self, orders: Sequence[Order]) -> None:
        """Write orders in a single POST, and end all orders. After a refusal, write the
        first half, then the second half."""
        parts = [orders]
        try:
            while parts:
                part = parts.pop()
                if len(part) == 1:
                    [order] = part
                    order.written.set_result(self._write_order(order))
                elif not self._write_together(part):
                    # The last part is next: the first half goes first.
                    half = len(part) // 2
                    parts += [part[half:], part[:half]]
        except BaseException as error:
            # The threads of all orders wait for the end, also after a bug. Orders with
            # an end keep their claims.
            for order in orders:
                if not order.written.done():
                    order.written.set_exception(error)
        finally:
            self._batches.end(orders)

    def _write_together(self, orders: Sequence[Order]) -> bool:
        """Write orders in a single POST, and end the orders. False if the halves are to
        be written separately."""
        claims: list[Claim] = []
        for order in orders:
            claims += order.claims

        reply = self._send(claims)
        step = NEXT[Way.BATCH][reply.answer]
        assert isinstance(step, Step), 'nothing is read for several requests'
        # Placement may have made all claims: then each half is a conflict, too.
        if step is not Step.KEEP and reply.claims[0].is_uncertain:
            step = Step.SEPARATE
        if step is Step.HALVE:
            return False

        written = Written.of(step, reply.claims, reply.error)
        # The claims are in the order of the orders.
        made = iter(written.made)
        for order in orders:
            of_order = [*islice(made, len(order.claims))]
            order.written.set_result(replace(written, made=of_order))
        return True

    def _write_order(self, order: Order) -> Written:
        """Write the claims of a request, in POSTs of at most the size of a batch. After
        a failure, delete the claims of earlier POSTs."""
        claims = order.claims
        if time.monotonic() > order.until:
            why = 'it takes too long to claim for each by itself'
            return Written(error=PlacementUnavailable(why))
        if order.is_separate:
            # Placement may have made the claims by the batch without an answer.
            try:
                if self._first_without_claim(claims) is None:
                    return Written(claims)
            except PlacementUnavailable as error:
                return Written(error=error)

        made: list[Claim] = []
        try:
            while rest := claims[len(made) :]:
                if too_late := _too_late(claims):
                    return Written(error=too_late)

                size = self._batches.max_consumers
                if len(rest) == size + 1:
                    # The last claim alone would be a PUT, which keeps other
                    # allocations.
                    size += 1

                written = self._write_request(rest[:size])
                if not written.made:
                    return written
                made += written.made
        finally:
            if len(made) < len(claims):
                for claim in made:
                    self.delete(claim)
        return Written(made)

    def _write_request(self, claims: Sequence[Claim]) -> Written:
        """Write claims of a request in a single PUT or POST, and carry out the steps
        after each answer."""
        way = Way.POST
        if len(claims) == 1:
            way = Way.PUT

        while True:
            reply = self._send(claims)
            claims = reply.claims
            step = NEXT[way][reply.answer]
            error = reply.error
            held = None
            if isinstance(step, ReadFirst):
                try:
                    held = self._first_without_claim(claims)
                except PlacementUnavailable as unreadable:
                    LOG.warning(
                        'Unable to see whether allocations were made for %s: %s; it is'
                        ' looked at again',
                        [claim.uuid for claim in claims],
                        unreadable,
                    )
                    step = Step.LOSE
                    error = error or unreadable
                else:
                    step = Step.WATCH if held is None else step.otherwise

            # Another PUT follows at most once: no answer to a PUT_BESIDE leads to one.
            if step is not Step.WRITE_BESIDE:
                return Written.of(step, claims, error)
            assert held is not None, 'claimed beside unknown allocations'
            try:
                claims = [self._beside(claims[0], held)]
            except PlacementUnavailable as unreadable:
                return Written.of(Step.FAIL, claims, unreadable)
            way = Way.PUT_BESIDE

    def _send(self, claims: Sequence[Claim]) -> _Reply:
        """Send the request that makes claims."""
        retry_s = min(claim.retry_s for claim in claims)
        began = time.monotonic()
        try:
            response = self.api.send(*_request(claims), retry_s=retry_s)
        except OutcomeUnknown as error:
            self._batches.took(time.monotonic() - began, len(claims))
            return _Reply(Answer.LOST, uncertain(claims), error)
        except PlacementUnavailable as error:
            return _Reply(Answer.FAILED, claims, error)

        seconds = time.monotonic() - began
        self._batches.took(seconds, len(claims))
        answer = Answer.of(response)
        is_bad_request = response.status_code == 400
        if is_bad_request:
            # Remembered candidates with this provider would be refused again and again.
            self._provider_gone()

        if answer is Answer.REFUSED:
            level = logging.DEBUG
            if is_bad_request and len(claims) == 1:
                # Perhaps a mistake in the flavor.
                level = logging.WARNING
            uuids = [claim.uuid for claim in claims]
            LOG.log(level, 'Claim refused for %s: %s', uuids, response)

        may_come = answer is Answer.LOST or not is_final(response, seconds)
        if may_come:
            claims = uncertain(claims)
        failure = None
        if may_come or answer is Answer.FAILED:
            text = f'Placement answers a claim by {response}'
            failure = PlacementUnavailable(text)
        return _Reply(answer, claims, failure)

    def _first_without_claim(
        self, claims: Sequence[Claim]
    ) -> ConsumerAllocations | None:
        """The allocations of the first instance without its claim; None if Placement
        has made all claims.

        :raises PlacementUnavailable: Placement does not answer.
        """
        for claim in claims:
            held = self._held(claim)
            if not claim.is_made(held):
                return held
        LOG.info('Allocations for %s are made', [claim.uuid for claim in claims])
        return None

    def _renew_where_deleted(self, claims: Sequence[Claim]) -> Written:
        """Protect claims from deletions with lost answers.

        Placement may carry out such a deletion even now: new allocations of a consumer
        begin with the generation in the deletion. So claims for these instances are
        written once more, and get the next generation.

        This scheduler does not know the deletions of other schedulers. After such a
        deletion and a failed build, the instance is in a cell and has no allocations,
        like a shelved instance. So the claims for all such instances are written once
        more.
        """
        self._deleter.forget_old_losses()
        renewed = []
        try:
            for claim in claims:
                has_none = claim.moves and claim.before is None
                if has_none or claim.uuid in self._deleter.lost:
                    claim = self._renewed(claim)
                renewed.append(claim)
        except PlacementUnavailable as error:
            return Written(lost=uncertain(claims), error=error)
        return Written(renewed)

    def _renewed(self, claim: Claim) -> Claim:
        """Write a claim once more, for the next generation of the consumer.

        :raises PlacementUnavailable: Placement does not answer, refuses the claim, or
            has deleted the allocations.
        """
        held = self._held(claim)
        if not claim.is_made(held):
            raise PlacementUnavailable(
                f'the claim for {claim.uuid} was undone by a late request'
            )

        # Once, since a repetition after a lost answer would meet the next generation.
        body = {**claim.body(), 'consumer_generation': held.generation}
        path = f'/allocations/{claim.uuid}'
        answer = self.api.send('PUT', path, claim.trace_id, body, once=True)
        if answer.status_code != 204:
            raise PlacementUnavailable(f'({answer})')
        return replace(claim, generation=held.generation + 1)

    def _beside(self, claim: Claim, held: ConsumerAllocations) -> Claim:
        """The claim beside the allocations of the instance.

        An instance that moves to a host has no devices there yet. Further devices on
        the host of the claim are left of a lost claim, perhaps of another scheduler:
        then nothing is kept on this host.

        :raises PlacementUnavailable: Placement does not answer.
        """
        wanted = claim.candidate.allocations.keys()
        further = held.resources.keys() - wanted
        if not further:
            return claim.beside(held)

        without: set[str] = set()
        for provider in held.resources.keys() & wanted:
            tree = tree_of(self.api, provider, claim.trace_id, claim.retry_s)
            if not further.isdisjoint(tree):
                without |= tree
        return claim.beside(held, without)

    def _held(self, claim: Claim) -> ConsumerAllocations:
        return held_by(self.api, claim.uuid, claim.trace_id, claim.retry_s)


def _with_earlier(
    claims: Sequence[Claim], tasks: Sequence[CleanupTask]
) -> Sequence[Claim]:
    """Claims with the earlier claims for the same instances that Placement may make
    even now."""
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


def _too_late(claims: Sequence[Claim]) -> PlacementUnavailable | None:
    """The error of a request after the time for claims; None before."""
    if time.monotonic() <= min(claim.until for claim in claims):
        return None
    return PlacementUnavailable(
        f'it refuses whatever is claimed for {CLAIM_LIMIT_S:.0f} s'
    )
