# SPDX-License-Identifier: Apache-2.0
"""Instances get their hosts: the whole story, in order.

    request -> prefilters -> Placement's candidates -> hosts
        -> [per instance: filter -> weigh -> choose]
        -> claim -> alternates -> selections

Data flows one way; the outside comes in through ``ports.py``.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from random import Random

from novasched.scheduler.assignments import OfferedHosts, SchedulingState
from novasched.scheduler.decision import ALTERNATES, CLAIM, Decision, DecisionTrace
from novasched.scheduler.decision_lock import Turn
from novasched.scheduler.errors import NO_CANDIDATES, NoValidHost
from novasched.scheduler.model.candidate import Candidates
from novasched.scheduler.model.claim import PendingClaim
from novasched.scheduler.model.host import Selection
from novasched.scheduler.model.request import Request
from novasched.scheduler.pending_claims import PendingClaims
from novasched.scheduler.pipeline import Pipeline
from novasched.scheduler.ports import MAX_CLAIMS_PER_HOST, Hosts, Notifier, Placement
from novasched.scheduler.prefilters import Prefilter

LOG = logging.getLogger('nova.scheduler.manager')


@dataclass(eq=False, slots=True)
class Cycle:
    """Places the instances of one request, once."""

    prefilters: Sequence[Prefilter]
    placement: Placement
    hosts: Hosts
    pipeline: Pipeline
    pending_claims: PendingClaims
    offered_hosts: OfferedHosts
    notifier: Notifier | None
    trace: DecisionTrace = field(init=False)

    def decide(self, request: Request, trace: DecisionTrace) -> Decision:
        """A host for each instance, claimed, with its alternates behind it.

        :param trace: collects the parts of the decision, and has the seed of every
            draw. It makes the decision for an error, too
            (:meth:`DecisionTrace.failed`).
        :raises NoValidHost: not every instance found a host; nothing stays claimed.
        """
        self.trace = trace
        random = Random(trace.seed)
        candidates = None
        self.hosts.prepare(request.read_since)
        if not request.is_rebuild:
            self.placement.expect(request.arrived)
            keys = {*request.flavor.extra_specs, *request.requirements.properties}
            for prefilter in self.prefilters:
                if not (prefilter.keys and prefilter.keys.isdisjoint(keys)):
                    request = prefilter(request)
            request = self.hosts.aimed(request)
            trace.prefiltered(request)
            candidates = self.placement.candidates(request)
            trace.offered(candidates)
            if not candidates:
                LOG.info(NO_CANDIDATES)
                raise NoValidHost()
        if self.notifier is not None and not trace.is_announced:
            trace.is_announced = True
            self.notifier.started(request)
        state = self._read(request, candidates)
        alone = request.claims and request.count == 1
        with ExitStack() as undo:
            place = self._place_in_turn if alone else self._place_together
            state = place(state, random, undo)
            selections = self._with_alternates(state, random)
            trace.step(ALTERNATES)
            undo.pop_all()
        state.pending_claims.settle(state.placed)
        if self.notifier is not None:
            self.notifier.ended(state.request, state.placed)
        return trace.decision(selections=selections)

    def _read(self, request: Request, candidates: Candidates | None) -> SchedulingState:
        """The candidates' hosts; a rebuild considers every host."""
        snapshot = self.hosts.read(
            candidates, request, *self.pipeline.needed_instances(request)
        )
        pending_claims = self.pending_claims.for_request(request)
        hosts = self.offered_hosts.of(
            candidates, snapshot, request, pending_claims.peers
        )
        self.trace.read(snapshot, len(hosts), candidates)
        return SchedulingState(request, snapshot, hosts, candidates, pending_claims)

    def _place_together(
        self, begun: SchedulingState, random: Random, undo: ExitStack
    ) -> SchedulingState:
        """Every instance on the best host that those before it leave, in one claim; in
        turn where any of them cannot be had."""
        state = begun
        made: list[tuple[SchedulingState, PendingClaim, Turn]] = []
        with ExitStack() as choices:
            for uuid in state.instance_uuids:
                # Other requests decide between two instances of this one.
                with state.pending_claims.decision_lock.turn() as turn:
                    request = state.request.for_instance(uuid)
                    state = self._rank(state, request, random)
                    choice = self._choose(state, request, choices)
                # Without the ranked hosts: the states wait in memory for the claim.
                made.append((replace(state, hosts=()), choice, turn))
                state = state.with_one_more(request, choice)
            if state.request.claims:
                wanted = [(x.request, x.candidate) for x in state.placed if x.candidate]
                claims = self.placement.claim_together(wanted)
                for claim in claims or ():
                    choices.callback(self.placement.delete_allocations, claim)
                if claims is None or not self._all_stay(made):
                    self.trace.placed_apart(refused=claims is None)
                    choices.close()
                    if claims is None:
                        state.refused()
                    return self._place_in_turn(begun, random, undo)
            undo.push(choices.pop_all())
        self.trace.step(CLAIM)
        return state

    def _place_in_turn(
        self, state: SchedulingState, random: Random, undo: ExitStack
    ) -> SchedulingState:
        """Each instance claimed on the best host that lets us, before the next is
        ranked."""
        for uuid in state.instance_uuids[len(state.placed) :]:
            before = state
            request = state.request.for_instance(uuid)
            with state.pending_claims.decision_lock.turn() as first_turn:
                state = self._rank(state, request, random)
                best = self._choose(state, request, undo)
            for choice, turn in self._choices(best, first_turn, request, state, undo):
                claim = choice.candidate and self.placement.claim(
                    request, choice.candidate
                )
                with ExitStack() as made:
                    if claim:
                        made.callback(self.placement.delete_allocations, claim)
                        if state.stays(choice, turn, self.pipeline):
                            undo.push(made.pop_all())
                            state = state.with_one_more(request, choice)
                            self.trace.step(CLAIM)
                            break
                state.pending_claims.drop(choice)
                if claim:
                    self.trace.became_unfit(choice.host)
                    return self._place_in_turn(before, random, undo)
                self.trace.claim_refused(choice.host)
                state.refused()
            else:
                LOG.debug('Unable to successfully claim against any host.')
                raise state.not_enough()
        return state

    def _rank(
        self, state: SchedulingState, request: Request, random: Random
    ) -> SchedulingState:
        """The state with the hosts for the current instance, best first, less pending
        claims."""
        state, index = state.now(), len(state.placed)
        request = state.joined(request) if request.instance_group else request
        ranking = self.pipeline.filter(state.hosts, request, index, state.candidates)
        self.trace.filtered(request, state.hosts, state.pending, ranking)
        state = replace(state, candidates=ranking.candidates)
        if not ranking.hosts:
            raise (
                NoValidHost(ranking.refusal) if ranking.refusal else state.not_enough()
            )
        ranking = self.pipeline.weigh(ranking, request, index, random)
        self.trace.weighed(ranking)
        return replace(state, hosts=ranking.hosts)

    def _choose(
        self,
        state: SchedulingState,
        request: Request,
        undo: ExitStack,
    ) -> PendingClaim:
        """Assign the current instance to the best of the ranked hosts, within a
        turn."""
        best = state.hosts[0]
        candidate = state.candidate(best)
        return state.assign(request, best, candidate, self.pipeline.limits, undo)

    def _all_stay(
        self,
        made: Sequence[tuple[SchedulingState, PendingClaim, Turn]],
    ) -> bool:
        """True if every choice of a request fits beside the claims made at the same
        time."""
        pipeline = self.pipeline
        return all(state.stays(choice, turn, pipeline) for state, choice, turn in made)

    def _choices(
        self,
        best: PendingClaim,
        turn: Turn,
        request: Request,
        state: SchedulingState,
        undo: ExitStack,
    ) -> Iterator[tuple[PendingClaim, Turn]]:
        """The best choice, then choices of the other candidates of its host, then of
        the candidates of the hosts behind it, each with the turn in which it was made.
        A host counts only if it still fits: other requests may have chosen it
        meanwhile."""
        yield best, turn
        pipeline = self.pipeline
        index = len(state.placed)
        offered = state.candidates or {}
        refused = [best.candidate] if best.candidate else []
        for host in state.hosts:
            while len(refused) < min(MAX_CLAIMS_PER_HOST, len(offered[host.uuid])):
                with state.pending_claims.decision_lock.turn() as turn:
                    now = replace(state, hosts=[host]).now()
                    if not now.is_as_before(state, host):
                        anew = now.joined(request)
                        ranking = pipeline.filter(
                            now.hosts, anew, index, now.candidates
                        )
                        now = replace(
                            now, hosts=ranking.hosts, candidates=ranking.candidates
                        )
                    if now.hosts:
                        candidate = now.candidate(now.hosts[0], refused)
                    else:
                        candidate = None
                    if candidate is None:
                        if not refused:
                            self.trace.became_unfit(host)
                        break
                    choice = now.assign(
                        request, now.hosts[0], candidate, pipeline.limits, undo
                    )
                yield choice, turn
                refused.append(candidate)
            refused = []

    def _with_alternates(
        self, state: SchedulingState, random: Random
    ) -> list[list[Selection]]:
        """Behind each chosen host, the best of its cell that were not chosen."""
        if state.request.return_alternates:
            number = self.pipeline.settings.max_attempts - 1
        else:
            number = 0
        if number and len(state.placed) > 1:
            state, index = state.now(), len(state.placed) - 1
            request = state.joined(state.request)
            ranking = self.pipeline.rank(
                state.hosts, request, index, random, state.candidates
            )
            state = replace(state, hosts=ranking.hosts, candidates=ranking.candidates)
        zone = self.pipeline.settings.default_availability_zone
        limits = self.pipeline.limits
        return state.selections(state.hosts if number else (), number, zone, limits)
