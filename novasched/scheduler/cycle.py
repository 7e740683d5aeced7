# SPDX-License-Identifier: Apache-2.0
"""Instances get their hosts: the whole story, in order.

    request -> prefilters -> Placement's candidates -> hosts
        -> [per instance: filter -> weigh -> choose]
        -> claim -> alternates -> selections

Data flows one way; the outside comes in through ``ports.py``.
"""

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from random import Random

from novasched.scheduler.assignments import (
    OfferedHosts,
    SchedulingState,
    with_hosts_of,
)
from novasched.scheduler.attempt import End, Outcome
from novasched.scheduler.claims.decision_lock import Turn
from novasched.scheduler.claims.pending_claims import PendingClaims
from novasched.scheduler.decision import (
    ALL_HOSTS,
    ALL_TOGETHER,
    ALTERNATES,
    CLAIM,
    FILTERS,
    HOSTS,
    NEXT_STEP,
    PLACEMENT,
    PREFILTERS,
    WEIGHERS,
    CandidateCounts,
    Decision,
    PlacementAttempt,
    Ranking,
    Step,
    failure_of,
)
from novasched.scheduler.errors import (
    NO_CANDIDATES,
    IncompleteData,
    NoValidHost,
    StaleData,
    Unavailable,
)
from novasched.scheduler.model.basis import Basis
from novasched.scheduler.model.candidate import Candidate, Candidates
from novasched.scheduler.model.claim import ClaimsOfHost, PendingClaim
from novasched.scheduler.model.host import Host, HostSnapshot, Selection, uuid_of
from novasched.scheduler.model.request import Request
from novasched.scheduler.pipeline import Pipeline
from novasched.scheduler.ports import (
    MAX_CLAIMS_PER_HOST,
    Hosts,
    Needs,
    Notifier,
    Placement,
)
from novasched.scheduler.prefilters import Prefilter

LOG = logging.getLogger('nova.scheduler.manager')


@dataclass(frozen=True, slots=True)
class CycleDeps:
    """The dependencies of every try of a request.

    :ivar pipeline: the filters and weighers, made afresh for the request.
    """

    prefilters: Sequence[Prefilter]
    placement: Placement
    hosts: Hosts
    pipeline: Pipeline
    pending_claims: PendingClaims
    offered_hosts: OfferedHosts
    notifier: Notifier | None = None


class Cycle:
    """One try to place the instances of a request; a further try is another cycle.

    Attempts and steps explain the decision, also where an error ends the try. The cycle
    decides nothing by them.

    :ivar prefiltered: the request as the prefilters left it, once they have run.
    :ivar counts: the size of Placement's offer, once Placement has answered.
    :ivar attempts: the search of a host for each instance so far.
    :ivar steps: the steps that have ended.
    :ivar together_refused: Placement refused to claim for all instances at once.
    """

    def __init__(self, deps: CycleDeps, basis: Basis, seed: int) -> None:
        self.deps = deps
        self.basis = basis
        self.seed = seed
        self.prefiltered: Request | None = None
        self.counts: CandidateCounts | None = None
        self.attempts: list[PlacementAttempt] = []
        self.steps: list[Step] = []
        self.together_refused = False
        self._host_uuids: set[str] = set()

    def decide(self, request: Request, is_announced: bool = False) -> Outcome:
        """A host for each instance, claimed, with its alternates behind it; or why
        there is no host, and then nothing stays claimed.

        :param is_announced: an earlier try has sent the notification that hosts are
            being selected.
        """
        began = self.deps.pipeline.clock()
        candidates: Candidates | None = None
        selections: list[list[Selection]] = []
        error: Exception | None = None
        ledger = self.deps.pending_claims.ledger
        try:
            with ledger.keeping(self.basis.read_since):
                if request.is_rebuild:
                    request = self._without_false_hint(request)
                asked = request
                if not request.is_rebuild:
                    asked, candidates = self._ask_placement(request)
                if self.deps.notifier is not None and not is_announced:
                    is_announced = True
                    self.deps.notifier.started(asked)
                state = self._read_hosts(asked, candidates)
                selections = self._place(state)
                end = End.PLACED
        except NoValidHost as refusal:
            error = refusal
            end = End.STALE if self._may_be_stale(candidates) else End.REFUSED
            if end is End.REFUSED and self._may_be_incomplete():
                end = End.INCOMPLETE
        except IncompleteData as incomplete:
            error = incomplete
            end = End.INCOMPLETE
        except StaleData as stale:
            error = stale
            end = End.STALE
        except Unavailable as unavailable:
            error = unavailable
            end = End.UNAVAILABLE
        except Exception as unexpected:
            # A plugin raised, or there is a bug. The decision is recorded like any
            # other, and the driver raises the error again.
            error = unexpected
            end = End.FAILED

        outdated = None
        if end is End.STALE and is_remembered(candidates):
            outdated = reason_of(error) or 'no host is left'
        failure = failure_of(error)
        ends_with_step = end in (End.PLACED, End.REFUSED) and failure is None
        if not ends_with_step or not self.steps:
            self._end_step(self._step_in_progress(request))

        decision = Decision(
            request=request,
            seed=self.seed,
            began=began,
            ended=self.deps.pipeline.clock(),
            basis=self.basis,
            steps=tuple(self.steps),
            prefiltered=self.prefiltered,
            counts=self.counts,
            attempts=tuple(self.attempts),
            together_refused=self.together_refused,
            outdated=outdated,
            selections=selections,
            refusal=error.reason if isinstance(error, NoValidHost) else None,
            failure=failure,
        )
        if error is not None and end is not End.FAILED:
            # A traceback refers to frames, which refer to the error and to the hosts.
            # Only an unexpected error needs its traceback.
            error = error.with_traceback(None)
        return Outcome(end, decision, error, is_announced)

    def _without_false_hint(self, request: Request) -> Request:
        """The request without the hint of a rebuild, unless nova-api has set the hint.

        nova-api forces the host of the instance. A user could set the hint before
        LP 2151252 was fixed in 34.0.0, 33.0.2, 32.2.1 and 31.3.1, and nova keeps the
        hint for later moves of the instance.

        :raises Unavailable: the cell of the forced host does not answer.
        """
        if self.deps.hosts.is_on_forced_host(request):
            return request

        LOG.warning(
            'Instances %s: a user has set the scheduler hint _nova_check_type = rebuild'
            ', which has no effect, since the instance is not on a host that the'
            ' request forces',
            request.instance_uuids,
        )
        return request.without_false_hint()

    def _ask_placement(self, request: Request) -> tuple[Request, Candidates]:
        """The request as the prefilters narrow it, and Placement's candidates.

        :raises NoValidHost: a prefilter refuses, or Placement offers no candidate.
        """
        deps = self.deps
        deps.hosts.prefetch(self.basis.read_since)
        deps.placement.announce_arrival(self.basis.began)
        version = deps.hosts.minimum_version(self.basis.read_since)
        self.basis = replace(self.basis, minimum_version=version)

        keys = {*request.flavor.extra_specs, *request.requirements.properties}
        for prefilter in deps.prefilters:
            if not prefilter.keys or not prefilter.keys.isdisjoint(keys):
                request = prefilter(request, self.basis)
        request = deps.hosts.with_requested_destination(request)
        self.prefiltered = request
        self._end_step(PREFILTERS)

        candidates = deps.placement.candidates(request, self.basis)
        self.counts = CandidateCounts.of(candidates)
        self._end_step(PLACEMENT)
        if not candidates:
            LOG.info(NO_CANDIDATES)
            raise NoValidHost()
        return request, candidates

    def _read_hosts(
        self, request: Request, candidates: Candidates | None
    ) -> SchedulingState:
        """The candidates' hosts; a rebuild, for which Placement is not asked, considers
        every host."""
        deps = self.deps
        if candidates is None:
            deps.hosts.prefetch(self.basis.read_since)
        claims = deps.pending_claims.for_request(request)
        needs = deps.pipeline.needed_instances(request)
        if request.instance_group is None:
            snapshot = deps.hosts.read(candidates, request, needs, self.basis)
        else:
            request, snapshot = self._read_for_group(request, candidates, needs, claims)
        if needs.usual_guests:
            request = replace(request, usual_guests=deps.hosts.usual_guests())
        hosts = deps.offered_hosts.of(candidates, snapshot, self.basis, claims.peers)

        counts = self.counts or CandidateCounts(asked=False)
        self.counts = counts.with_hosts(candidates, snapshot, len(hosts))
        self._end_step(HOSTS)
        return SchedulingState(request, self.basis, snapshot, hosts, candidates, claims)

    def _read_for_group(
        self,
        request: Request,
        candidates: Candidates | None,
        needs: Needs,
        claims: PendingClaims,
    ) -> tuple[Request, HostSnapshot]:
        """The request with the members of its server group that the caller may not
        know, and the hosts.

        :param needs: the instances that the request needs without these members.
        """
        deps = self.deps
        asked = request
        newer = claims.newer_members(request)
        while True:
            if newer:
                asked = request.with_members(newer)
                needs = deps.pipeline.needed_instances(asked)
                needs = replace(needs, named={*needs.named, *newer})
            snapshot = deps.hosts.read(candidates, asked, needs, self.basis)

            # A member that was claimed while the hosts were read is among the pending
            # claims, unless the hosts show it already.
            shown = claims.newer_members(request, snapshot)
            if shown.keys() <= newer.keys():
                return with_hosts_of(newer, asked, snapshot), snapshot
            newer = {**newer, **shown}

    def _place(self, state: SchedulingState) -> list[list[Selection]]:
        """Place every instance, and make the selections of the answer."""
        random = Random(self.seed)
        is_alone = state.request.claims and state.request.count == 1
        with ExitStack() as undo:
            if is_alone:
                state = self._place_in_turn(state, random, undo)
            else:
                state = self._place_together(state, random, undo)
            selections = self._with_alternates(state, random)
            self._end_step(ALTERNATES)
            undo.pop_all()

        state.pending_claims.claimed(state.placed)
        if self.deps.notifier is not None:
            self.deps.notifier.ended(state.request, state.placed)
        return selections

    def _place_together(
        self, begun: SchedulingState, random: Random, undo: ExitStack
    ) -> SchedulingState:
        """Every instance on the best host that the instances before it leave, in one
        claim; in turn where Placement refuses that claim."""
        state = begun
        made: list[tuple[SchedulingState, PendingClaim, Turn]] = []
        with ExitStack() as choices:
            # Others may decide between two instances. zip() asks for a turn only if
            # another instance is left.
            with closing(state.turns()) as turns:
                for uuid, turn in zip(state.instance_uuids, turns, strict=False):
                    request = state.request.for_instance(uuid)
                    state, _ = self._rank(state, request, random)
                    choice = self._choose(state, request, choices)
                    # Without the ranked hosts: the states wait in memory for the
                    # claim.
                    made.append((replace(state, hosts=()), choice, turn))
                    state = state.with_one_more(request, choice)

            if state.request.claims:
                wanted = [(x.request, x.candidate) for x in state.placed if x.candidate]
                basis = self._claiming(state)
                claims = self.deps.placement.claim_together(wanted, basis)
                for claim in claims or ():
                    choices.callback(self.deps.placement.delete_allocations, claim)
                if claims is None or not self._all_stay(made):
                    self.attempts.clear()
                    self.together_refused = claims is None
                    self._end_step(CLAIM, refused=ALL_TOGETHER if not claims else None)
                    choices.close()
                    if claims is None:
                        state.check_claim_refusal(1)
                    return self._place_in_turn(begun, random, undo)
            undo.push(choices.pop_all())

        self._end_step(CLAIM)
        return state

    def _place_in_turn(
        self, state: SchedulingState, random: Random, undo: ExitStack
    ) -> SchedulingState:
        """Each instance claimed, on the best host on which Placement allows the claim,
        before the next instance is ranked."""
        placement = self.deps.placement
        for uuid in state.instance_uuids[len(state.placed) :]:
            before = state
            request = state.request.for_instance(uuid)
            with state.turn() as first_turn:
                state, attempt = self._rank(state, request, random)
                best = self._choose(state, request, undo)

            for choice, turn, chosen_in in self._choices(
                best, first_turn, request, state, attempt, undo
            ):
                claim = None
                if choice.candidate is not None:
                    basis = self._claiming(state)
                    claim = placement.claim(request, choice.candidate, basis)
                with ExitStack() as made:
                    if claim:
                        made.callback(placement.delete_allocations, claim)
                        if chosen_in.stays(choice, turn, self.deps.pipeline):
                            undo.push(made.pop_all())
                            state = state.with_one_more(request, choice)
                            self._end_step(CLAIM)
                            break

                state.pending_claims.release(choice)
                if claim:
                    # Another request was faster. The instance is ranked anew beside
                    # that request's claim.
                    attempt.unfit += (choice.host.host,)
                    return self._place_in_turn(before, random, undo)
                attempt.refused += (choice.host.key,)
                self._end_step(CLAIM, refused=choice.host.host)
                state.check_claim_refusal(len(attempt.refused))
            else:
                LOG.debug('Unable to successfully claim against any host.')
                raise state.not_enough()
        return state

    def _claiming(self, state: SchedulingState) -> Basis:
        """The basis of the try, in which the time for claims has begun."""
        if self.basis.first_claim == math.inf:
            now = state.pending_claims.ledger.clock()
            self.basis = replace(self.basis, first_claim=now)
        return self.basis

    def _rank(
        self, state: SchedulingState, request: Request, random: Random
    ) -> tuple[SchedulingState, PlacementAttempt]:
        """The state with the hosts for the current instance, best first, less the
        pending claims.

        :raises NoValidHost: no host passes the filters, or none has a candidate.
        """
        pipeline = self.deps.pipeline
        state = state.now()
        index = len(state.placed)
        request = state.with_pending_members(request)

        ranking = pipeline.filter(state.hosts, request, index, state.candidates)
        attempt = self._begin_attempt(request, state, ranking)
        self._end_step(FILTERS, attempt)
        state = replace(state, candidates=ranking.candidates)
        if not ranking.hosts:
            if ranking.refusal:
                raise NoValidHost(ranking.refusal)
            raise state.not_enough()

        ranking = pipeline.weigh(ranking, request, index, random)
        attempt.ranking = ranking.explained(with_hosts=attempt.index == 0)
        self._end_step(WEIGHERS, attempt)
        state = replace(state, hosts=ranking.hosts)
        if state.candidates is not None and not state.candidates[state.hosts[0].uuid]:
            state = state.with_candidates_alone()
        return state, attempt

    def _choose(
        self, state: SchedulingState, request: Request, undo: ExitStack
    ) -> PendingClaim:
        """Assign the current instance to the best of the ranked hosts, in a turn."""
        best = state.hosts[0]
        candidate = state.candidate(best)
        return state.assign(request, best, candidate, self.deps.pipeline.limits, undo)

    def _all_stay(
        self, made: Sequence[tuple[SchedulingState, PendingClaim, Turn]]
    ) -> bool:
        """True if every choice of a request fits beside the claims made at the same
        time."""
        pipeline = self.deps.pipeline
        return all(state.stays(choice, turn, pipeline) for state, choice, turn in made)

    def _choices(
        self,
        best: PendingClaim,
        turn: Turn,
        request: Request,
        state: SchedulingState,
        attempt: PlacementAttempt,
        undo: ExitStack,
    ) -> Iterator[tuple[PendingClaim, Turn, SchedulingState]]:
        """Choices to claim, one after the other, until a claim succeeds.

        The best choice comes first, then choices of the other candidates of the same
        host, then the candidates of the hosts behind it, each with the turn in which
        the choice was made, and with the state of that turn: later choices were made
        beside more pending claims. A host is left out if it no longer fits: other
        requests may have chosen it meanwhile.
        """
        yield best, turn, state
        if state.candidates is None:
            return
        refused = [best.candidate] if best.candidate else []
        for host in state.hosts:
            while len(refused) < MAX_CLAIMS_PER_HOST:
                with state.turn() as turn:
                    now = replace(state, hosts=[host]).now()
                    choice = self._choice_on(host, state, now, request, refused, undo)
                if choice is None:
                    if not refused:
                        attempt.unfit += (host.host,)
                    break
                yield choice, turn, now
                assert choice.candidate is not None
                refused.append(choice.candidate)
            refused = []

    def _choice_on(
        self,
        host: Host,
        state: SchedulingState,
        now: SchedulingState,
        request: Request,
        refused: Sequence[Candidate],
        undo: ExitStack,
    ) -> PendingClaim | None:
        """Assign the current instance to a host, if it still fits, with a candidate
        that was not refused; within a turn.

        :param state: the state in which the hosts were ranked.
        :param now: the present state of the host alone.
        """
        pipeline = self.deps.pipeline
        is_as_before = now.is_as_before(state, host)
        if refused:
            avoiding = now.avoiding(host, refused)
            is_as_before = is_as_before and avoiding is now
            now = avoiding

        if not is_as_before:
            ranking = pipeline.filter(
                now.hosts,
                now.with_pending_members(request),
                len(state.placed),
                now.candidates,
            )
            now = replace(now, hosts=ranking.hosts, candidates=ranking.candidates)
        if not now.hosts:
            return None
        candidate = now.candidate(now.hosts[0], refused)
        if candidate is None:
            return None
        return now.assign(request, now.hosts[0], candidate, pipeline.limits, undo)

    def _with_alternates(
        self, state: SchedulingState, random: Random
    ) -> list[list[Selection]]:
        """Behind each chosen host, the best hosts of its cell that were not chosen."""
        pipeline = self.deps.pipeline
        number = 0
        if state.request.return_alternates:
            number = pipeline.settings.max_attempts - 1
        if number and len(state.placed) > 1:
            # The ranking of the last instance counts that instance on no host yet.
            state = state.now()
            ranking = pipeline.rank(
                state.hosts,
                state.with_pending_members(state.request),
                len(state.placed) - 1,
                random,
                state.candidates,
            )
            state = replace(state, hosts=ranking.hosts, candidates=ranking.candidates)

        zone = pipeline.settings.default_availability_zone
        spare_hosts = state.hosts if number else ()
        return state.selections(spare_hosts, number, zone, pipeline.limits)

    def _begin_attempt(
        self, request: Request, state: SchedulingState, ranking: Ranking
    ) -> PlacementAttempt:
        """The attempt to place the current instance, with the filters' verdicts. It
        takes the place of an earlier attempt for the same instance."""
        uuid = request.instance_uuid if request.instance_uuids else None
        earlier = None
        last_uuid = self.attempts[-1].instance_uuid if self.attempts else None
        if uuid is not None and uuid == last_uuid:
            earlier = self.attempts.pop()

        index = len(self.attempts)
        attempt = PlacementAttempt(
            instance_uuid=uuid,
            index=index,
            start=len(state.hosts),
            pending=self._count_pending(state.hosts, state.pending),
            ranking=ranking.explained(with_hosts=index == 0),
            refused=earlier.refused if earlier else (),
            unfit=earlier.unfit if earlier else (),
            passed=len(ranking.hosts),
        )
        self.attempts.append(attempt)
        for result in ranking.filters:
            self._host_uuids.difference_update(map(uuid_of, result.rejected_hosts))
        return attempt

    def _count_pending(
        self, hosts: Sequence[Host], pending: Mapping[str, ClaimsOfHost]
    ) -> int:
        """The number of hosts with pending claims.

        The UUIDs of the hosts are collected once for a request: to collect them for
        each instance takes a tenth of the time of a decision. The hosts of an instance
        are the hosts of the instance before, less the rejected hosts.
        """
        if not pending:
            return 0
        if len(self._host_uuids) != len(hosts):
            self._host_uuids = set(map(uuid_of, hosts))
        return len(self._host_uuids.intersection(pending))

    def _end_step(
        self,
        name: str,
        attempt: PlacementAttempt | None = None,
        refused: str | None = None,
    ) -> None:
        """Note the end of a step."""
        now = self.deps.pipeline.clock()
        self.steps.append(Step(name, now, attempt, refused))

    def _step_in_progress(self, request: Request) -> str:
        """The step in which an error ends the try."""
        if self.steps:
            return NEXT_STEP[self.steps[-1].name]
        return HOSTS if request.is_rebuild else PREFILTERS

    def _may_be_stale(self, candidates: Candidates | None) -> bool:
        """True if the try rests on an earlier answer of Placement, or on a reading of
        the databases from before the try: then a refusal proves nothing."""
        return is_remembered(candidates) or self.basis.read_since < self.basis.began

    def _may_be_incomplete(self) -> bool:
        """True if the try rests on an answer of Placement about all hosts: then a
        refusal proves nothing. ``[placement] max_allocation_candidates`` cuts such an
        answer without a sign, and ``min_unit`` of an inventory hides a host from a
        query for 1 of a resource class."""
        is_worked_out = self.counts is not None and self.counts.source == ALL_HOSTS
        return is_worked_out and not self.basis.own_query


def is_remembered(candidates: Candidates | None) -> bool:
    """True for candidates of an earlier answer of Placement."""
    return candidates is not None and candidates.is_remembered


def reason_of(error: Exception | None) -> str:
    """The reason of a refusal without nova's standard text, or an error's text."""
    if isinstance(error, NoValidHost):
        return error.reason
    return str(error or '')
