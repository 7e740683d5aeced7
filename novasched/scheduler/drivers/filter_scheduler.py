# SPDX-License-Identifier: Apache-2.0
"""filter_scheduler: the cycle as it stands."""

import logging
import math
import secrets
import time
from dataclasses import replace

from novasched.scheduler.assignments import OfferedHosts
from novasched.scheduler.cycle import Cycle
from novasched.scheduler.decision import CandidateCounts, Decision, DecisionTrace
from novasched.scheduler.drivers import Parts
from novasched.scheduler.errors import NoValidHost, PlacementUnavailable, Unavailable
from novasched.scheduler.model.host import Selection
from novasched.scheduler.model.request import Request
from novasched.scheduler.pending_claims import PendingClaims
from novasched.scheduler.pipeline import Pipeline
from novasched.scheduler.ports import Outdated

FIRST_PAUSE_S = 0.1
PAUSE_S = 1.0
"""Seconds before a request is decided anew, at first and in the end."""
MAX_TRIES = 4
"""How often a request is decided where others release what they have chosen
meanwhile."""
LOOK_S = 1.0
"""Seconds between looks of those who wait whether the process is going to end."""
ROOM_S = 2.0
"""Seconds for which requests make room after the last message was left in the broker.
The broker needs a moment to deliver the next messages."""

SLACK_PER_HOST_S = 0.0001
MAX_SLACK_S = 0.25
"""Seconds before its arrival that databases may have been read for others, where a
request is one of several: the more hosts, the more their reading costs."""

LOG = logging.getLogger('nova.scheduler.manager')


class FilterScheduler:
    """Implements :class:`novasched.scheduler.drivers.Driver`."""

    def __init__(self, parts: Parts) -> None:
        self.prefilters = parts.prefilters
        self.placement = parts.placement
        self.hosts = parts.hosts
        self.pending_claims = parts.pending_claims or PendingClaims(parts.settings)
        self.notifier = parts.notifier
        self.recorder = parts.recorder
        self.explain = parts.explain
        self.clock = parts.clock
        self.settings = parts.settings
        self._end = math.inf
        self._failing_since = math.inf
        self._full_at = -math.inf
        self._deciding: set[int] = set()  # requests
        self._total = 0  # hosts
        self._offered_hosts = OfferedHosts()
        self.pipeline = self.make_pipeline(parts)

    def make_pipeline(self, parts: Parts) -> Pipeline:
        """Make the pipeline; a driver that ranks hosts differently overrides it."""
        return Pipeline(
            parts.settings, parts.filters, parts.weighers, clock=parts.clock
        )

    def select_destinations(self, request: Request) -> list[list[Selection]]:
        """Log the seed of every draw, so that a decision can be repeated. A request
        waits for a while for Placement or a database that it cannot do without."""
        began = time.monotonic()
        received = min(request.received, began)
        request = replace(
            request,
            received=received,
            arrived=began,
            read_since=began,
            retry_until=received + self.settings.placement_patience,
            from_memory=self.settings.candidates_max_age != 0,
        )
        trace = DecisionTrace(request, secrets.randbits(32), self.clock, self.clock())
        LOG.debug(
            'Seed of the draws for instances %s: %d', request.instance_uuids, trace.seed
        )
        decision = None
        self._deciding.add(id(trace))
        try:
            decision = self._decide_patiently(request, trace)
        except Exception as error:
            decision = trace.failed(error)
            if isinstance(error, NoValidHost) and self.explain is not None:
                reason = f'{error.reason} {self.explain(decision)}'.lstrip()
                raise NoValidHost(reason) from error
            raise
        finally:
            self._deciding.discard(id(trace))
            if self.recorder is not None and decision is not None:
                self.recorder(decision)
        return decision.selections

    def stop(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def make_room(self) -> None:
        self._full_at = time.monotonic()

    def _decide_patiently(self, request: Request, trace: DecisionTrace) -> Decision:
        """The decision. While something fails, all is decided anew after each pause,
        since hosts and candidates change meanwhile.

        :raises Unavailable: the request has waited for as long as it may.
        """
        pause = FIRST_PAUSE_S
        waits = False
        tries = MAX_TRIES
        while True:
            try:
                if request.from_memory:
                    alone = self._deciding == {id(trace)}
                    if alone:
                        slack = 0.0
                    else:
                        slack = min(MAX_SLACK_S, SLACK_PER_HOST_S * self._total)
                    request = replace(
                        request, alone=alone, read_since=request.arrived - slack
                    )
                decision = self._cycle().decide(request, trace)
                self._total = decision.counts.total if decision.counts else 0
                self._note_answer(decision.counts)
                return decision
            except NoValidHost as error:
                # What is remembered, or was read a little before, is never a reason to
                # refuse.
                is_remembered = (
                    trace.counts is not None and trace.counts.age is not None
                )
                was_read_before = request.read_since < request.arrived
                if not is_remembered and not was_read_before:
                    self._note_answer(trace.counts)
                    tries -= 1
                    if tries == 0 or not self.pending_claims.came_free(request):
                        raise
                if is_remembered:
                    trace.outdated = error.reason or 'no host is left'
                now = time.monotonic()
                request = replace(
                    request, arrived=now, read_since=now, from_memory=False
                )
                trace.restart(request)
                continue
            except Outdated as error:
                LOG.debug(
                    'Instances %s are decided anew: %s', request.instance_uuids, error
                )
                trace.restart(request)
                continue
            except Unavailable as error:
                self._failing_since = min(self._failing_since, time.monotonic())
                patience = self.settings.database_patience
                if isinstance(error, PlacementUnavailable):
                    patience = self.settings.placement_patience
                if self._left(request, patience) <= 0:
                    raise
                why = str(error)
                is_over = error.is_over
            # Past the handler: in there, oslo.log adds the error in hand to what is
            # logged.
            if not waits:
                LOG.warning(
                    'Instances %s wait, for %.0f s at the most: %s',
                    request.instance_uuids,
                    self._left(request, patience),
                    why,
                )
            waits = True
            if is_over(0.0):  # nothing tells when to ask again, as an open circuit does
                time.sleep(min(pause, max(0.0, self._left(request, patience))))
            while (left := self._left(request, patience)) > 0:
                # In short looks, since the process may be told to end.
                if is_over(min(LOOK_S, left)):
                    break
            now = time.monotonic()
            pause = min(2 * pause, PAUSE_S)
            request = replace(request, arrived=now, read_since=now)
            trace.restart(request)

    def _note_answer(self, counts: CandidateCounts | None) -> None:
        """Note that Placement and the databases answer again, unless Placement was not
        asked for the request: a rebuild does not need Placement."""
        if counts is not None and counts.asked:
            self._failing_since = math.inf

    def _left(self, request: Request, patience: float) -> float:
        """Seconds that a request may still wait for the end of an outage.

        While this process has no room for more messages, the broker keeps them, and
        their callers get no heartbeats. Then the patience of a request counts from the
        beginning of the outage, if the outage began before the request arrived, so that
        the request leaves its thread to the next one.
        """
        now = time.monotonic()
        since = request.received
        if now < self._full_at + ROOM_S:
            since = min(since, self._failing_since)
        return min(since + patience, self._end) - now

    def decide(self, request: Request, seed: int) -> Decision:
        """The decision as things are now, also where there is no valid host.

        :raises NovaschedError: what the request cannot do without fails.
        """
        trace = DecisionTrace(request, seed, self.clock, self.clock())
        try:
            return self._cycle().decide(request, trace)
        except NoValidHost as error:
            return trace.failed(error)
        except Outdated:
            return self.decide(request, seed)

    def _cycle(self) -> Cycle:
        pipeline = self.pipeline.for_request()
        pending_claims = self.pending_claims
        return Cycle(
            self.prefilters,
            self.placement,
            self.hosts,
            pipeline,
            pending_claims,
            self._offered_hosts,
            self.notifier,
        )
