# SPDX-License-Identifier: Apache-2.0
"""Choices, and the check of a choice against the claims of rivals.

Two schedulers may choose a host at the same moment, without knowing of each other. So a
scheduler checks a choice after Placement has made the claim. If the host has no room
for two claims, the claim announced first stays.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from novasched.scheduler.claims.decision_lock import Turn
from novasched.scheduler.claims.groups import with_pending_members
from novasched.scheduler.claims.pending_claims import PendingClaims
from novasched.scheduler.model.candidate import CandidateIndex
from novasched.scheduler.model.claim import ClaimsOfHost, PendingClaim
from novasched.scheduler.pipeline import Pipeline
from novasched.scheduler.scheduling_state import SchedulingState

LOG = logging.getLogger('nova.scheduler.manager')


@dataclass(frozen=True, slots=True)
class Choice:
    """A host chosen for an instance, and not claimed yet.

    :ivar turn: the turn of the choice.
    :ivar beside: the state of the choice. Later choices of a request are made beside
        more pending claims.
    """

    claim: PendingClaim
    turn: Turn
    beside: SchedulingState


def stays(choice: Choice, claims: PendingClaims, pipeline: Pipeline) -> bool:
    """True if a claimed choice fits beside the claims that other schedulers made at the
    same time. An overtaken choice has to fit beside the claims of other requests of
    this process, too."""
    turn = choice.turn
    if claims.peers is not None:
        claims.peers.catch_up(choice.claim)
    elif not turn.was_overtaken:
        return True  # all requests that chose meanwhile have seen this choice

    while turn.was_overtaken or _rivals(choice, claims):
        # No other request chooses within this turn. Earlier choices are seen here, and
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
    """The claims since the ranking of the hosts with precedence over a choice.

    :param with_ours: includes the claims of this process, which were chosen in turns.
    """
    state = choice.beside
    now: Mapping[str, ClaimsOfHost]
    if choice.claim.request.instance_group is None:
        # Only claims on the same host are near.
        uuid = choice.claim.host.uuid
        now = {
            uuid: claims.on_host(
                uuid, state.snapshot, state.own_instances, state.placed
            )
        }
    else:
        now = claims.of(state.snapshot, state.own_instances, state.placed)

    rivals = []
    for uuid, claims_now in now.items():
        claims_before = state.pending.get(uuid, ())
        if claims_now == claims_before:
            continue
        for claim in claims_now:
            if claim in claims_before:
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
    """True if a choice passes the filters beside the claims of the rivals."""
    pending = {**choice.beside.pending}
    for rival in rivals:
        uuid = rival.host.uuid
        pending[uuid] = (*pending.get(uuid, ()), rival)

    # Members of server groups may be among the rivals.
    claim = choice.claim
    state = replace(choice.beside, pending=pending)
    request = state.request.for_instance(claim.request.instance_uuid)
    request = with_pending_members(request, state, claims.ledger)

    uuid = claim.host.uuid
    host = claims.subtract(state.snapshot.hosts[uuid], pending.get(uuid, ()))
    # Only the claimed candidate: with the devices of another candidate the host may
    # fit, but the instance does not get these devices.
    candidates = state.candidates
    if claim.candidate is not None:
        candidates = CandidateIndex([claim.candidate])
    ranking = pipeline.filter([host], request, len(state.placed), candidates)
    return bool(ranking.hosts)
