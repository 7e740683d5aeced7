# SPDX-License-Identifier: Apache-2.0
"""The way from a request to the hosts of its instances, in order.

    request -> prefilters -> Placement's candidates -> hosts
        -> [per instance: filter -> weigh -> choose]
        -> claim -> alternates -> selections

Data flows one way. ``ports.py`` has the interfaces to Placement, to the hosts and to
the notifications.
"""

import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from enum import Enum
from random import Random

from novasched.scheduler.attempt import End, Outcome
from novasched.scheduler.claims.decision_lock import Turn
from novasched.scheduler.claims.groups import (
    newer_members,
    with_hosts_of,
    with_pending_members,
)
from novasched.scheduler.claims.pending_claims import PendingClaims
from novasched.scheduler.claims.rivals import Choice, stays
from novasched.scheduler.decision import (
    ALL_HOSTS,
    ALL_TOGETHER,
    ALTERNATES,
    CLAIM,
    FILTERS,
    HOSTS,
    PLACEMENT,
    PREFILTERS,
    WEIGHERS,
    CandidateCounts,
    PlacementAttempt,
)
from novasched.scheduler.errors import (
    NO_CANDIDATES,
    IncompleteData,
    NoValidHost,
    StaleData,
    Unavailable,
)
from novasched.scheduler.explanation import Explanation
from novasched.scheduler.model.basis import Basis
from novasched.scheduler.model.candidate import Candidate, Candidates
from novasched.scheduler.model.claim import PendingClaim
from novasched.scheduler.model.host import Host, HostSnapshot, Selection
from novasched.scheduler.model.host_list import NO_HOST_LIST, HostList
from novasched.scheduler.model.request import Request
from novasched.scheduler.offered_hosts import OfferedHosts, check_up_to_date
from novasched.scheduler.pipeline import Pipeline
from novasched.scheduler.plugin import Data
from novasched.scheduler.ports import (
    MAX_CLAIMS_PER_HOST,
    Hosts,
    Needs,
    Notifier,
    Placement,
)
from novasched.scheduler.prefilters import Prefilter
from novasched.scheduler.scheduling_state import SchedulingState

LOG = logging.getLogger('nova.scheduler.manager')
CLAIMS = logging.getLogger('nova.scheduler.utils')

MAX_RANKINGS = 100
"""Maximum number of rankings for an instance, if another request is faster each time.
So many other requests have found a host meanwhile: the hosts are full."""


class ClaimEnd(Enum):
    """The end of a claim.

    MADE: Placement has made the claim. REFUSED: Placement has refused the claim.
    OVERTAKEN: the choice does not fit beside the claim of a faster request.
    """

    MADE = 'made'
    REFUSED = 'refused'
    OVERTAKEN = 'overtaken'


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

    :ivar explanation: notes steps and attempts. No note influences a decision.
    """

    def __init__(self, deps: CycleDeps, basis: Basis, seed: int) -> None:
        self.deps = deps
        self.basis = basis
        self.seed = seed
        self.explanation = Explanation(seed, deps.pipeline.clock)
        self._claims: PendingClaims
        self._candidates: Candidates | None = None
        self._is_announced = False

    def decide(self, request: Request, is_announced: bool = False) -> Outcome:
        """Claim a host for each instance, and add alternates. After a refusal or an
        error, nothing stays claimed.

        :param is_announced: an earlier try has sent the notification
            ``scheduler.select_destinations.start``.
        """
        self.explanation.begin(request)
        self._is_announced = is_announced
        ledger = self.deps.pending_claims.ledger
        try:
            with ledger.keeping(self.basis.read_since):
                if request.is_rebuild:
                    request = self._without_false_hint(request)
                    self.explanation.request = request

                self._claims = self.deps.pending_claims.for_request(request)
                if not request.is_rebuild:
                    request, self._candidates = self._ask_placement(request)
                # nova sends the notification after Placement's answer, as well.
                if self.deps.notifier is not None and not self._is_announced:
                    self._is_announced = True
                    self.deps.notifier.started(request)

                state = self._read_hosts(request, self._candidates)
                selections = self._place(state)

            return self._outcome(End.PLACED, selections=selections)
        except NoValidHost as refusal:
            return self._outcome(self._end_of_refusal(), refusal)
        except IncompleteData as incomplete:
            return self._outcome(End.INCOMPLETE, incomplete)
        except StaleData as stale:
            return self._outcome(End.STALE, stale)
        except Unavailable as unavailable:
            return self._outcome(End.UNAVAILABLE, unavailable)
        except Exception as unexpected:
            # A plugin raised, or there is a bug. The decision is recorded like any
            # other, and the driver raises the error again.
            return self._outcome(End.FAILED, unexpected)

    def _outcome(
        self,
        end: End,
        error: Exception | None = None,
        selections: list[list[Selection]] | None = None,
    ) -> Outcome:
        """The outcome of the try, with its decision."""
        outdated = None
        if end is End.STALE and is_remembered(self._candidates):
            outdated = reason_of(error) or 'no host is left'
        decision = self.explanation.decision(
            self.basis,
            error,
            is_whole=end in (End.PLACED, End.REFUSED),
            outdated=outdated,
            selections=selections or [],
        )
        if error is not None and end is not End.FAILED:
            # A traceback keeps frames in memory, and the frames keep the error and the
            # hosts. Only an unexpected error needs the traceback.
            error = error.with_traceback(None)
        candidates = None
        if end is End.REFUSED:
            candidates = self._candidates
        return Outcome(end, decision, error, self._is_announced, candidates)

    def _end_of_refusal(self) -> End:
        """The end of a try without a valid host."""
        if is_remembered(self._candidates) or self.basis.read_since < self.basis.began:
            # An earlier answer of Placement, or an earlier reading of the databases,
            # may accept a request. Only fresh data may refuse a request.
            return End.STALE

        # ``[placement] max_allocation_candidates`` cuts an answer about all hosts
        # without a sign, and ``min_unit`` of an inventory hides a host from a query for
        # 1 of a resource class.
        counts = self.explanation.counts
        is_about_all = counts is not None and counts.source == ALL_HOSTS
        if is_about_all and not self.basis.own_query:
            return End.INCOMPLETE
        return End.REFUSED

    def _without_false_hint(self, request: Request) -> Request:
        """The request without the hint of a rebuild, unless nova-api has set the hint.

        nova-api forces the host of the instance as well. Before the fixes of LP 2151252
        in 34.0.0, 33.0.2, 32.2.1 and 31.3.1, a user could set the hint, and nova keeps
        the hint for later moves of the instance.

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
        """The request after the prefilters, and Placement's candidates.

        :raises NoValidHost: a prefilter refuses, or Placement offers no candidate.
        """
        deps = self.deps
        # The databases are read while the prefilters and Placement work.
        deps.hosts.prefetch(self.basis.read_since)
        deps.placement.announce_arrival(self.basis)
        version = deps.hosts.minimum_version(self.basis.read_since)
        self.basis = replace(self.basis, minimum_version=version)

        # A prefilter with keys has work only for a request with one of the keys.
        keys = {*request.flavor.extra_specs, *request.requirements.properties}
        for prefilter in deps.prefilters:
            if not prefilter.keys or not prefilter.keys.isdisjoint(keys):
                request = prefilter(request, self.basis)
        request = deps.hosts.with_requested_destination(request)
        self.explanation.prefiltered = request
        self.explanation.end_step(PREFILTERS)

        candidates = deps.placement.candidates(request, self.basis)
        self.explanation.counts = CandidateCounts.of(candidates)
        self.explanation.end_step(PLACEMENT)
        if not candidates:
            LOG.info(NO_CANDIDATES)
            raise NoValidHost()
        return request, candidates

    def _read_hosts(
        self, request: Request, candidates: Candidates | None
    ) -> SchedulingState:
        """The state before the first instance is placed, with the hosts of the
        candidates. A rebuild, which needs no candidates, considers every host.

        :raises StaleData: Placement may not offer the remembered candidates any more.
        """
        deps = self.deps
        if candidates is None:
            # Requests with candidates have begun to read in :meth:`_ask_placement`.
            deps.hosts.prefetch(self.basis.read_since)

        needs = deps.pipeline.needs(request)
        if request.instance_group is None:
            snapshot = deps.hosts.read(candidates, request, needs, self.basis)
        else:
            request, snapshot = self._read_for_group(request, candidates, needs)

        if Data.USUAL_GUESTS in needs.data:
            request = replace(request, usual_guests=deps.hosts.usual_guests())
        if candidates is not None and candidates.is_remembered:
            check_up_to_date(candidates, snapshot, request, self.basis.is_only_request)
        hosts = deps.offered_hosts.of(candidates, snapshot, self._claims.peers)

        counts = self.explanation.counts or CandidateCounts(asked=False)
        counts = counts.with_hosts(candidates, snapshot, len(hosts))
        self.explanation.counts = counts
        self.explanation.end_step(HOSTS)
        return SchedulingState(request, self.basis, snapshot, hosts, candidates)

    def _read_for_group(
        self,
        request: Request,
        candidates: Candidates | None,
        needs: Needs,
    ) -> tuple[Request, HostSnapshot]:
        """The request with the members of the server group that are new to the caller,
        and the hosts.

        :param needs: the data for the request without these members.
        """
        deps = self.deps
        ledger = self._claims.ledger
        with_members = request
        newer = newer_members(request, ledger)
        # Another reading only where a member was claimed during the last reading.
        while True:
            if newer:
                with_members = request.with_members(newer)
                needs = deps.pipeline.needs(with_members)
                needs = replace(needs, named={*needs.named, *newer})

            snapshot = deps.hosts.read(candidates, with_members, needs, self.basis)

            # A member that was claimed during the reading is among the pending claims,
            # unless the hosts show the member already.
            shown = newer_members(request, ledger, snapshot)
            if shown.keys() <= newer.keys():
                return with_hosts_of(newer, with_members, snapshot), snapshot
            newer = {**newer, **shown}

    def _place(self, state: SchedulingState) -> list[list[Selection]]:
        """Place every instance, and make the selections of the answer."""
        random = Random(self.seed)
        is_single = state.request.claims and state.request.count == 1
        with ExitStack() as undo:
            # Only several instances have a claim in common.
            if is_single:
                [uuid] = state.instance_uuids
                state = self._place_one(state, uuid, random, undo)
            else:
                state = self._place_together(state, random, undo)

            selections = self._with_alternates(state, random)
            self.explanation.end_step(ALTERNATES)
            # The answer is complete: from here on nothing is undone.
            undo.pop_all()

        self._claims.claimed(state.placed)
        if self.deps.notifier is not None:
            self.deps.notifier.ended(state.request, state.placed)
        return selections

    def _place_together(
        self, begun: SchedulingState, random: Random, undo: ExitStack
    ) -> SchedulingState:
        """Choose the best host for each instance beside the instances before, and claim
        all choices at once. If Placement refuses, place the instances in turn."""
        state = begun
        choices: list[Choice] = []
        # Other requests may decide between two instances. zip() asks for the next turn
        # only if an instance is left.
        with closing(self._claims.turns(state.request)) as turns:
            for uuid, turn in zip(state.instance_uuids, turns, strict=False):
                request = state.request.for_instance(uuid)
                state, _ = self._rank(state, request, random)
                choice = self._choose(state, request, turn, undo)
                # Without the ranked hosts: the states wait in memory for the claim.
                beside = replace(state, hosts=NO_HOST_LIST)
                choices.append(replace(choice, beside=beside))
                state = state.with_one_more(request, choice.claim)
        if not state.request.claims:
            # A rebuild in place, or a caller that claims the resources itself.
            self.explanation.end_step(CLAIM)
            return state

        claims = self._claim_together(state, undo)
        if claims is not None and self._all_stay(choices):
            self.explanation.end_step(CLAIM)
            return state

        self.explanation.attempts.clear()
        self.explanation.together_refused = claims is None
        self.explanation.end_step(CLAIM, refused=None if claims else ALL_TOGETHER)
        # The instances are ranked anew, and their first choices must not count then.
        undo.close()
        if claims is None:
            state.check_claim_refusal(1)
        return self._place_in_turn(begun, random, undo)

    def _all_stay(self, choices: Sequence[Choice]) -> bool:
        """True if every choice of a request fits beside the claims that other requests
        made at the same time."""
        pipeline = self.deps.pipeline
        return all(stays(choice, self._claims, pipeline) for choice in choices)

    def _claim_together(
        self, state: SchedulingState, undo: ExitStack
    ) -> Sequence[object] | None:
        """Claim the candidates of all instances at once. None if Placement refuses.

        :param undo: deletes the allocations unless the request is answered.
        """
        placement = self.deps.placement
        wanted = [(x.request, x.candidate) for x in state.placed if x.candidate]
        claims = placement.claim_together(wanted, self._claiming())
        for claim in claims or ():
            undo.callback(placement.delete_allocations, claim)
        return claims

    def _place_in_turn(
        self, state: SchedulingState, random: Random, undo: ExitStack
    ) -> SchedulingState:
        """Claim each instance before the hosts are ranked for the next instance."""
        for uuid in state.instance_uuids[len(state.placed) :]:
            state = self._place_one(state, uuid, random, undo)
        return state

    def _place_one(
        self,
        state: SchedulingState,
        uuid: str | None,
        random: Random,
        undo: ExitStack,
    ) -> SchedulingState:
        """Claim the next instance, on the best host with a successful claim. If another
        request was faster on the host, rank the hosts anew beside the faster claim.

        :raises NoValidHost: no host is left, or other requests were faster each time.
        """
        request = state.request.for_instance(uuid)
        for _ in range(MAX_RANKINGS):
            with self._claims.turn(request) as turn:
                ranked, attempt = self._rank(state, request, random)
                best = self._choose(ranked, request, turn, undo)

            for choice in self._choices(best, request, attempt, undo):
                end = self._claim(choice, undo)
                if end is ClaimEnd.MADE:
                    self.explanation.end_step(CLAIM)
                    return ranked.with_one_more(request, choice.claim)

                self._claims.release(choice.claim)
                host = choice.claim.host
                if end is ClaimEnd.OVERTAKEN:
                    attempt.unfit += (host.host,)
                    break
                attempt.refused += (host.key,)
                self.explanation.end_step(CLAIM, refused=host.host)
                ranked.check_claim_refusal(len(attempt.refused))
            else:
                LOG.debug('Unable to successfully claim against any host.')
                raise ranked.not_enough()
        LOG.warning('Other requests were faster %d times for %s', MAX_RANKINGS, uuid)
        raise state.not_enough()

    def _claim(self, choice: Choice, undo: ExitStack) -> ClaimEnd:
        """Claim the candidate of a choice.

        :param undo: deletes the allocations unless the request is answered.
        """
        placement = self.deps.placement
        claim = None
        if choice.claim.candidate is not None:
            request = choice.claim.request
            basis = self._claiming()
            claim = placement.claim(request, choice.claim.candidate, basis)
        if not claim:
            return ClaimEnd.REFUSED

        with ExitStack() as undo_claim:
            undo_claim.callback(placement.delete_allocations, claim)
            # The check comes after the claim: the announcements of other schedulers
            # arrive while Placement works.
            if stays(choice, self._claims, self.deps.pipeline):
                undo.push(undo_claim.pop_all())
                return ClaimEnd.MADE
        return ClaimEnd.OVERTAKEN

    def _claiming(self) -> Basis:
        """The basis of the try, after the begin of the time for claims."""
        if self.basis.first_claim == math.inf:
            now = self._claims.ledger.clock()
            self.basis = replace(self.basis, first_claim=now)
        return self.basis

    def _rank(
        self, state: SchedulingState, request: Request, random: Random
    ) -> tuple[SchedulingState, PlacementAttempt]:
        """The state with the ranked hosts for the current instance, less the pending
        claims.

        :raises NoValidHost: no host passes the filters, or no host has a candidate.
        """
        pipeline = self.deps.pipeline
        state = self._claims.beside(state)
        index = len(state.placed)
        request = with_pending_members(request, state, self._claims.ledger)

        ranking = pipeline.filter(state.hosts, request, index, state.candidates)
        attempt = self.explanation.begin_attempt(request, state, ranking)
        self.explanation.end_step(FILTERS, attempt)
        state = replace(state, candidates=ranking.candidates)
        if not ranking.hosts:
            if ranking.refusal:
                raise NoValidHost(ranking.refusal)
            raise state.not_enough()

        ranking = pipeline.weigh(ranking, request, index, random)
        attempt.ranking = ranking.explained(with_hosts=attempt.index == 0)
        self.explanation.end_step(WEIGHERS, attempt)
        state = replace(state, hosts=HostList.of(ranking.hosts))
        # Candidates in the tree of a host are searched on demand, mostly for the best
        # host alone. A search may be given up without a candidate.
        if state.candidates is not None and not state.candidates[state.hosts[0].uuid]:
            state = state.with_candidates_alone()
        return state, attempt

    def _choose(
        self, state: SchedulingState, request: Request, turn: Turn, undo: ExitStack
    ) -> Choice:
        """Choose the best of the ranked hosts for the current instance, in a turn."""
        best = state.hosts[0]
        candidate = self._claims.best_candidate(state, best)
        claim = self._assign(best, request, candidate, undo)
        return Choice(claim, turn, state)

    def _choices(
        self,
        best: Choice,
        request: Request,
        attempt: PlacementAttempt,
        undo: ExitStack,
    ) -> Iterator[Choice]:
        """Choices to claim, one after the other, until a claim succeeds.

        First the best choice, then further candidates of the same host, then the
        candidates of the next hosts. Hosts without room are left out: other requests
        may have chosen such a host meanwhile.
        """
        yield best
        ranked = best.beside
        if ranked.candidates is None:
            return

        # The candidates of the current host that Placement has refused.
        refused = [best.claim.candidate] if best.claim.candidate else []
        for host in ranked.hosts:
            while len(refused) < MAX_CLAIMS_PER_HOST:
                choice = self._choose_on(host, ranked, request, refused, undo)
                if choice is None:
                    if not refused:
                        attempt.unfit += (host.host,)
                    break

                yield choice
                # The caller asks for another choice only after a refusal.
                assert choice.claim.candidate is not None
                refused.append(choice.claim.candidate)
            refused = []

    def _choose_on(
        self,
        host: Host,
        ranked: SchedulingState,
        request: Request,
        refused: Sequence[Candidate],
        undo: ExitStack,
    ) -> Choice | None:
        """Choose a host for the current instance, in a turn. None if the host has no
        room any more, or no further candidate.

        :param ranked: the state of the ranking.
        :param refused: the candidates of the host that Placement has refused.
        """
        pipeline = self.deps.pipeline
        claims = self._claims
        with claims.turn(request) as turn:
            beside = claims.beside(replace(ranked, hosts=HostList.of([host])))
            now = beside
            if refused:
                now = beside.avoiding(host, refused)

            # The verdicts of the ranking hold unless claims or candidates differ.
            if now is not beside or not now.is_as_before(ranked, host):
                ranking = pipeline.filter(
                    now.hosts,
                    with_pending_members(request, now, claims.ledger),
                    len(now.placed),
                    now.candidates,
                )
                hosts = HostList.of(ranking.hosts)
                now = replace(now, hosts=hosts, candidates=ranking.candidates)
            if not now.hosts:
                return None

            [host] = now.hosts
            candidate = claims.best_candidate(now, host, refused)
            if candidate is None:
                return None

            claim = self._assign(host, request, candidate, undo)
            return Choice(claim, turn, beside)

    def _assign(
        self,
        host: Host,
        request: Request,
        candidate: Candidate | None,
        undo: ExitStack,
    ) -> PendingClaim:
        """Enter a pending claim for the current instance on a host, in a turn. From now
        on other requests count the claim.

        :param undo: releases the claim unless the request is answered.
        """
        claims = self._claims
        assert claims.decision_lock.is_in_turn(), 'chosen without a turn'
        if candidate is not None:
            CLAIMS.debug(
                'Attempting to claim resources in the placement API for instance %s',
                request.instance_uuid,
            )
        limits = self.deps.pipeline.limits(host, request)
        claim = claims.choose(host, request, candidate, limits)
        undo.callback(claims.release, claim)
        return claim

    def _with_alternates(
        self, state: SchedulingState, random: Random
    ) -> list[list[Selection]]:
        """The chosen hosts, each followed by the best spare hosts of the same cell."""
        pipeline = self.deps.pipeline
        number = 0
        if state.request.return_alternates:
            number = pipeline.settings.max_attempts - 1

        if number and len(state.placed) > 1:
            # The last ranking is from before the choice for the last instance.
            state = self._claims.beside(state)
            ranking = pipeline.rank(
                state.hosts,
                with_pending_members(state.request, state, self._claims.ledger),
                len(state.placed) - 1,
                random,
                state.candidates,
            )
            hosts = HostList.of(ranking.hosts)
            state = replace(state, hosts=hosts, candidates=ranking.candidates)

        spare: Sequence[Host] = ()
        if number:
            spare = state.hosts
        return self._selections(state, spare, number)

    def _selections(
        self, state: SchedulingState, spare: Sequence[Host], number: int
    ) -> list[list[Selection]]:
        """The chosen hosts, each followed by alternates: spare hosts of the same cell.

        :param number: the maximum number of alternates.
        """
        pipeline = self.deps.pipeline
        zone = pipeline.settings.default_availability_zone
        chosen = {claim.host.uuid for claim in state.placed}
        selections = []
        for claim in state.placed:
            host = claim.host
            uuid = claim.request.instance_uuid
            LOG.debug('Selected host: %s', host, extra={'instance_uuid': uuid})

            row = [Selection.of(host, claim.candidate, zone, claim.limits)]
            for other in spare:
                if len(row) > number:
                    break

                # nova-conductor tries alternates within the cell of the instance.
                is_spare = other.uuid not in chosen and state.has_candidate(other)
                if is_spare and other.cell_uuid == host.cell_uuid:
                    candidate = self._claims.best_candidate(state, other)
                    limits = pipeline.limits(other, state.request)
                    row.append(Selection.of(other, candidate, zone, limits))
            selections.append(row)
        return selections


def is_remembered(candidates: Candidates | None) -> bool:
    """True for candidates from an earlier answer of Placement."""
    return candidates is not None and candidates.is_remembered


def reason_of(error: Exception | None) -> str:
    """The reason of a refusal without nova's standard text, or the text of an error."""
    if isinstance(error, NoValidHost):
        return error.reason
    return str(error or '')
