# SPDX-License-Identifier: Apache-2.0
"""Choices, and the check that a choice fits beside the claims of rivals.

Schedulers that choose at the same moment do not know of each other's choices. So each
scheduler checks a choice once the choice is claimed. Of two claims that do not fit
beside each other, the claim that was announced first stays.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from novasched.scheduler.claims.decision_lock import Turn
from novasched.scheduler.claims.groups import with_pending_members
from novasched.scheduler.claims.hosts_left import changed_hosts
from novasched.scheduler.claims.pending_claims import PendingClaims
from novasched.scheduler.model.candidate import CandidateIndex
from novasched.scheduler.model.claim import PendingClaim
from novasched.scheduler.pipeline import Pipeline
from novasched.scheduler.scheduling_state import SchedulingState

LOG = logging.getLogger('nova.scheduler.manager')


@dataclass(frozen=True, slots=True)
class Choice:
    """A host chosen for an instance, and not claimed yet.

    :ivar turn: the turn in which the host was chosen.
    :ivar beside: the state in which the host was chosen. Later choices of a request are
        made beside more pending claims.
    """

    claim: PendingClaim
    turn: Turn
    beside: SchedulingState


def stays(choice: Choice, claims: PendingClaims, pipeline: Pipeline) -> bool:
    """True if a choice, once it is claimed, fits beside the claims that other
    schedulers made at the same time. If the choice was overtaken, also beside the
    claims of other requests of this process."""
    turn = choice.turn
    if claims.peers is not None:
        claims.peers.catch_up(choice.claim)
    elif not turn.was_overtaken:
        return True  # all requests that chose meanwhile have seen this choice

    while turn.was_overtaken or _rivals(choice, claims):
        # Within a turn no other request chooses. Earlier choices are seen here, and
        # later requests see this choice.
        with claims.turn(choice.beside.request) as next_turn:
            rivals = _rivals(choice, claims, with_ours=turn.was_overtaken)
            if rivals and not _fits_beside(rivals, choice, claims, pipeline):
                claims.given_back += 1
                LOG.info(
                    'Another request was faster on %s for instance %s',
                    choice.claim.host,
                    choice.claim.request.instance_uuid,
                )
                return False
        if not next_turn.was_overtaken:
            return True
        # The check itself took too long: choices that it has not seen may stand.
        turn = next_turn
    return True


def _rivals(
    choice: Choice, claims: PendingClaims, with_ours: bool = False
) -> list[PendingClaim]:
    """The claims since the ranking of the hosts that take precedence over a choice.

    :param with_ours: also the claims of this process, which were chosen in turns.
    """
    state = choice.beside
    before = state.pending
    now = claims.of(state.snapshot, state.own_instances, state.placed)
    rivals = []
    for uuid in changed_hosts(before, now) & now.keys():
        for claim in now[uuid]:
            if claim in before.get(uuid, ()):
                continue
            is_ahead = with_ours
            if not claim.is_ours:
                with claims.ledger as ledger:
                    is_ahead = ledger.is_ahead(claim, choice.claim)
            if is_ahead and claim.is_near(choice.claim):
                rivals.append(claim)
    return rivals


def _fits_beside(
    rivals: Sequence[PendingClaim],
    choice: Choice,
    claims: PendingClaims,
    pipeline: Pipeline,
) -> bool:
    """True if a choice passes the filters when the rivals are counted."""
    pending = {**choice.beside.pending}
    for rival in rivals:
        uuid = rival.host.uuid
        pending[uuid] = (*pending.get(uuid, ()), rival)

    claim = choice.claim
    state = replace(choice.beside, pending=pending)
    request = state.request.for_instance(claim.request.instance_uuid)
    request = with_pending_members(request, state, claims.ledger)
    uuid = claim.host.uuid
    host = claims.subtract(state.snapshot.hosts[uuid], pending.get(uuid, ()))
    # The host may fit with devices of other candidates, which are not claimed.
    candidates = state.candidates
    if claim.candidate is not None:
        candidates = CandidateIndex([claim.candidate])
    ranking = pipeline.filter([host], request, len(state.placed), candidates)
    return bool(ranking.hosts)
