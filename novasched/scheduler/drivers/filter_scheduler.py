# SPDX-License-Identifier: Apache-2.0
"""filter_scheduler: decides a request in tries, and records the decision."""

import logging
import secrets
import time
from dataclasses import replace

from novasched.scheduler.attempt import End, Outcome, next_basis
from novasched.scheduler.claims.pending_claims import PendingClaims
from novasched.scheduler.cycle import Cycle, CycleDeps
from novasched.scheduler.decision import Decision
from novasched.scheduler.drivers import Driver, SchedulerDeps
from novasched.scheduler.errors import NoValidHost, Unavailable
from novasched.scheduler.model.basis import FRESH, Basis, RequestId
from novasched.scheduler.model.host import Selection
from novasched.scheduler.model.request import Request
from novasched.scheduler.offered_hosts import OfferedHosts
from novasched.scheduler.patience import Patience
from novasched.scheduler.pipeline import Pipeline

MAX_TRIES = 4
"""Maximum number of tries without a valid host. Another try follows only if another
request has released a claim meanwhile."""

SLACK_PER_HOST_S = 0.0001
MAX_SLACK_S = 0.5
"""Maximum age of a reading of the databases for other requests, in seconds before the
begin of a try, while several requests are decided. Reading more hosts costs more."""

LOG = logging.getLogger('nova.scheduler.manager')


class FilterScheduler(Driver):
    """Decides by filters and weighers."""

    def __init__(self, deps: SchedulerDeps) -> None:
        super().__init__(deps)
        self.pipeline = self.make_pipeline(deps)
        self.pending_claims = deps.pending_claims or PendingClaims(deps.settings)
        self._patience = Patience(deps.settings)
        self._offered_hosts = OfferedHosts()
        self._deciding: set[RequestId] = set()
        self._total_hosts = 0

    def make_pipeline(self, deps: SchedulerDeps) -> Pipeline:
        """Make the pipeline; a driver that ranks hosts differently overrides it."""
        return Pipeline(deps.settings, deps.filters, deps.weighers, clock=deps.clock)

    def select_destinations(self, request: Request) -> list[list[Selection]]:
        """Decide a request, and record the decision.

        The seed of the draws is logged, so that a decision can be repeated. A request
        waits for a while for Placement, and for databases.
        """
        began = time.monotonic()
        request = replace(request, received=min(request.received, began))
        seed = secrets.randbits(32)
        LOG.debug(
            'Seed of the draws for instances %s: %d', request.instance_uuids, seed
        )

        request_id = RequestId()
        self._deciding.add(request_id)
        try:
            outcome = self._decide_patiently(request, seed, request_id)
        finally:
            self._deciding.discard(request_id)

        decision = outcome.decision
        try:
            explain = self.deps.explain
            if isinstance(outcome.error, NoValidHost) and explain is not None:
                reason = f'{outcome.error.reason} {explain(decision)}'.lstrip()
                raise NoValidHost(reason) from outcome.error
            if outcome.error is not None:
                raise outcome.error
        finally:
            if self.deps.recorder is not None:
                self.deps.recorder(decision)
            # The traceback of the error refers to this frame. So this frame must not
            # refer to the error: circular references keep the decision in memory.
            del outcome
        return decision.selections

    def decide(self, request: Request, seed: int, basis: Basis = FRESH) -> Decision:
        """Decide a request without waiting, also if there is no valid host.

        :raises NovaschedError: a service for the request fails.
        """
        while True:
            outcome = self._cycle(basis, seed).decide(request)
            if outcome.end in (End.PLACED, End.REFUSED):
                return outcome.decision
            following = next_basis(basis, outcome, basis.began)
            if following is None:
                assert outcome.error is not None
                raise outcome.error
            request = outcome.decision.request
            basis = following

    def stop(self, seconds: float) -> None:
        self._patience.stop(seconds)

    def make_room(self) -> None:
        self._patience.make_room()

    def _decide_patiently(
        self, request: Request, seed: int, request_id: RequestId
    ) -> Outcome:
        """Try to decide a request until there is an answer.

        While a service fails, there is a pause before the next try.
        """
        settings = self.deps.settings
        began = time.monotonic()
        basis = Basis(
            request_id=request_id,
            began=began,
            read_since=began,
            from_memory=settings.candidates_max_age != 0,
            deadline=request.received + settings.placement_patience,
        )
        earlier: Decision | None = None
        is_announced = False
        tries_left = MAX_TRIES
        failed_tries = 0

        while True:
            basis = self._beside_others(basis)
            outcome = self._cycle(basis, seed).decide(request, is_announced)
            decision = outcome.decision.after(earlier)
            # Without a false hint, which the log names once.
            request = decision.request
            is_announced = outcome.is_announced
            self._patience.note(outcome)
            if outcome.end is End.PLACED and decision.counts is not None:
                self._total_hosts = decision.counts.total

            may_fit_now = False
            may_wait = False
            if outcome.end in (End.STALE, End.INCOMPLETE):
                LOG.debug(
                    'Instances %s are decided anew: %s',
                    request.instance_uuids,
                    outcome.error,
                )
            elif outcome.end is End.REFUSED:
                tries_left -= 1
                may_fit_now = tries_left > 0 and self.pending_claims.may_fit_now(
                    request, basis.began, outcome.candidates
                )
            elif isinstance(outcome.error, Unavailable):
                failed_tries += 1
                may_wait = self._patience.wait(request, outcome.error, failed_tries)

            following = next_basis(
                basis,
                outcome,
                time.monotonic(),
                may_fit_now=may_fit_now,
                may_wait=may_wait,
            )
            if following is None:
                return replace(outcome, decision=decision)
            basis = following
            earlier = decision

    def _beside_others(self, basis: Basis) -> Basis:
        """The basis of a try, after a look at the requests that are decided at the same
        time.

        If an earlier answer of Placement may serve, a slightly earlier reading of the
        databases for another request serves, too.
        """
        if not basis.from_memory:
            return basis
        is_only_request = self._deciding == {basis.request_id}
        slack = 0.0
        if not is_only_request:
            slack = min(MAX_SLACK_S, SLACK_PER_HOST_S * self._total_hosts)
        return replace(
            basis,
            is_only_request=is_only_request,
            read_since=basis.began - slack,
        )

    def _cycle(self, basis: Basis, seed: int) -> Cycle:
        """A cycle for one try. Plugins with a state start afresh."""
        deps = CycleDeps(
            self.deps.prefilters,
            self.deps.placement,
            self.deps.hosts,
            self.pipeline.for_request(),
            self.pending_claims,
            self._offered_hosts,
            self.deps.notifier,
        )
        return Cycle(deps, basis, seed)
