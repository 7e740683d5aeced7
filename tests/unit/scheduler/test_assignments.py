# SPDX-License-Identifier: Apache-2.0
"""Requests decided beside pending claims of other requests."""

import json
import time

import pytest

from novasched.placement.candidates import AskedCandidates
from novasched.scheduler.filters.affinity import ServerGroupAffinityFilter
from novasched.scheduler.memory import MemoryPlacement
from novasched.scheduler.model.basis import FRESH
from novasched.scheduler.model.claim import PendingClaim
from novasched.scheduler.weighers.ram import RAMWeigher
from tests.lab.builders import a_full_candidate, a_group, a_host, a_request, a_uuid
from tests.lab.memory_schedulers import a_driver, ask

A = a_host('a', ram=4096)
B = a_host('b', ram=3072)
C = a_host('c', ram=2048)
TOGETHER = a_group('affinity')


def claim_of_another_scheduler(driver, host, order, is_claimed=False, candidate=None):
    """Add the pending claim of a member of the group."""
    uuid = a_uuid(f'on its way to {host.host}')
    request = a_request(instance_uuid=uuid, instance_uuids=(uuid,), group=TOGETHER)
    amounts = candidate.resources() if candidate else {}
    since = time.monotonic()
    claim = PendingClaim(
        host, request, candidate, None, {}, since, amounts, is_ours=False
    )
    with driver.pending_claims.ledger as ledger:
        ledger.chosen(claim, order)
    if is_claimed:
        driver.pending_claims.claimed([claim])


@pytest.mark.parametrize(
    ('pending', 'answer'),
    [
        ([(A, 1, False), (C, 2, False)], 'a'),
        ([(A, 2, False), (C, 1, False)], 'c'),
        ([(A, 3, False), (C, 1, False), (B, 2, False)], 'c'),
        ([(A, 1, False), (C, 2, True)], 'c'),
        ([(A, 2, True), (C, 1, False)], 'a'),
        ([(B, 1, True), (C, 2, True), (A, 3, False)], 'b'),
    ],
)
def test_an_affinity_group_follows_the_member_announced_first(pending, answer):
    """Only the first announced member counts, if no member is claimed yet. Claimed
    members stay in any case, so that unclaimed members do not count."""
    driver = a_driver(
        [A, B, C],
        ServerGroupAffinityFilter,
        weighers=[RAMWeigher],
        in_flight_timeout=60.0,
    )
    for claim in pending:
        claim_of_another_scheduler(driver, *claim)
    assert ask(driver, group=TOGETHER) == [[answer]]


def a_candidate_with(card):
    """A candidate of host a with a virtual GPU of a card."""
    return a_full_candidate({A.uuid: {'VCPU': 1}, card: {'VGPU': 1}})


class TwoCards(MemoryPlacement):
    """A Placement that always offers two cards of host a with a virtual GPU each."""

    def candidates(self, request, basis=FRESH):
        stock = {'resources': {'VGPU': {'capacity': 1, 'used': 0}}}
        summaries = {'provider_summaries': dict.fromkeys(('card 1', 'card 2'), stock)}
        offered = [a_candidate_with(card) for card in summaries['provider_summaries']]
        return AskedCandidates(offered, [json.dumps(summaries).encode()])


@pytest.mark.parametrize(
    ('pending', 'is_claimed', 'chosen'),
    [
        ([], False, 'card 1'),
        (['card 2'], False, 'card 1'),
        (['card 1'], False, 'card 2'),
        # Placement answers after this claim, and so has subtracted the claim itself.
        (['card 1'], True, 'card 1'),
    ],
)
def test_a_candidate_is_chosen_beside_pending_claims(pending, is_claimed, chosen):
    """The providers of the chosen candidate have enough free resources beside the
    pending claims that Placement does not have yet."""
    driver = a_driver([A], placement=TwoCards(), in_flight_timeout=60.0)
    for card in pending:
        claim_of_another_scheduler(driver, A, 1, is_claimed, a_candidate_with(card))
    [[selection]] = driver.select_destinations(a_request())
    assert [*selection.candidate.allocations] == [A.uuid, chosen]
