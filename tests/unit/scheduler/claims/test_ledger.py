# SPDX-License-Identifier: Apache-2.0
from novasched.scheduler.claims.ledger import ClaimsLedger
from novasched.scheduler.model.claim import PendingClaim
from tests.lab.builders import a_request, named_hosts

A, B = named_hosts('ab')


def claim_on(host, since, amounts=None):
    return PendingClaim(host, a_request(), None, None, {}, since, amounts or {})


def test_a_shown_claim_counts_in_earlier_reads_after_a_move():
    """A long request has read a host before an instance came. The instance counts on the
    host even after a later request has moved the instance."""
    ledger = ClaimsLedger(60.0)
    ledger.begin_try(0.0)
    there = claim_on(A, 1.0)
    moved = claim_on(B, 3.0)
    ledger.chosen(there)
    ledger.claimed([there], 1.5)
    ledger.shown(there, 2.0, 2.5)
    ledger.chosen(moved)
    ledger.claimed([moved], 3.5)

    assert ledger.counting_at(A.uuid, 0.5) == (there,)
    assert ledger.counting_at(A.uuid, 2.5) == ()
    assert ledger.counting_at(B.uuid, 0.5) == (moved,)


def test_a_claimed_instance_counts_in_earlier_reads_after_a_move():
    """A request has read a host before an instance came, and no reading has shown the
    instance before a later request has moved the instance."""
    ledger = ClaimsLedger(60.0)
    ledger.begin_try(0.0)
    there = claim_on(A, 1.0)
    moved = claim_on(B, 3.0)
    ledger.chosen(there)
    ledger.claimed([there], 1.5)
    ledger.chosen(moved)
    ledger.claimed([moved], 3.5)

    assert ledger.counting_at(A.uuid, 0.5) == (there,)
    assert ledger.counting_at(A.uuid, 3.0) == ()


def test_a_late_announcement_of_an_earlier_claim_counts_in_earlier_reads():
    """Hosts show a later claim of the same instance when another scheduler tells of its
    claim."""
    ledger = ClaimsLedger(60.0)
    later = claim_on(B, 3.0)
    ledger.chosen(later)
    ledger.claimed([later], 3.5)
    ledger.shown(later, 4.0, 4.5)
    earlier = claim_on(A, 1.0)
    ledger.chosen(earlier)
    ledger.claimed([earlier], 1.5)

    assert ledger.counting_at(A.uuid, 2.5) == (earlier,)
    assert ledger.counting_at(A.uuid, 3.0) == ()


def test_placement_tells_whether_a_claim_was_made_once_hosts_show_the_instance():
    """A scheduler dies after its choice of a host. A reading from the moment 2 shows the
    instance. The reading ends at the moment 4, after Placement has answered a query."""
    ledger = ClaimsLedger(60.0)
    amounts = {A.uuid: {'VCPU': 4}}
    claim = claim_on(A, 1.0, amounts)
    ledger.chosen(claim)
    assert ledger.amounts_since(None, 3.0).by_provider == amounts

    ledger.shown(claim, 2.0, 4.0)
    assert ledger.amounts_since(None, 3.0).by_provider == amounts
    assert ledger.amounts_since(None, 5.0).by_provider == {}
