# SPDX-License-Identifier: Apache-2.0
"""Claims of several requests in batches, against the same claims one by one."""

from hypothesis import given
from hypothesis import strategies as st

from novasched.placement.allocations import Claim
from novasched.placement.api import PlacementApi
from novasched.placement.batching import Order
from novasched.placement.claims import Claims
from tests.lab.builders import a_candidate, a_uuid, numbered_uuids
from tests.lab.faulty_placement import FaultyPlacement

OWNER = {'project_id': 'project', 'user_id': 'user'}
PROVIDERS = [a_uuid(name) for name in 'abc']
SOURCE = a_uuid('source')
SERVERS = numbered_uuids('server ', 8)


a_claim = st.builds(
    lambda server, provider, vcpus: Claim(
        server, a_candidate(provider, VCPU=vcpus), OWNER
    ),
    st.sampled_from(SERVERS),
    st.sampled_from(PROVIDERS),
    st.integers(1, 3),
)


def named(claim):
    return claim.uuid


orders = st.lists(
    st.lists(a_claim, min_size=1, max_size=5, unique_by=named), max_size=8
)
evacuated = st.dictionaries(
    st.sampled_from(SERVERS),
    st.builds(lambda: [1, {SOURCE: {'VCPU': 1}}]),
    max_size=4,
)
rooms = st.fixed_dictionaries({provider: st.integers(0, 8) for provider in PROVIDERS})


@given(rooms, evacuated, orders, st.booleans(), st.randoms())
def test_batched_claims_have_the_outcome_of_single_claims(
    room, held, wanted, slow, chance
):
    """Batches fill and refuse the same orders, and leave the same allocations in
    Placement. Some orders name an instance twice, and some instances have allocations
    already. Neither the order of the batches in flight matters, nor a Placement so slow
    that a request for several instances is written in parts."""
    one_by_one = FaultyPlacement(dict(held), room)
    together = FaultyPlacement(dict(held), room)
    expected = [Claims(PlacementApi(one_by_one)).allocate(claims) for claims in wanted]

    assert settle(together, wanted, chance, slow) == expected
    assert together.held == one_by_one.held


@given(
    rooms,
    evacuated,
    st.lists(a_claim, unique_by=named),
    st.integers(0, 9),
    st.randoms(),
)
def test_a_lost_answer_leaves_no_stray_allocation(room, held, wanted, lost, chance):
    """After a lost answer of Placement, each instance has the allocations of before and
    of the claims that succeed, and no other allocations."""
    placement = FaultyPlacement(dict(held), room, [None] * lost + ['after 500'])
    orders = [wanted[i : i + 2] for i in range(0, len(wanted), 2)]
    outcomes = settle(placement, orders, chance)

    expected = {uuid: set(providers) for uuid, (_, providers) in held.items()}
    for claims in outcomes:
        for claim in claims or ():
            expected.setdefault(claim.uuid, set()).update(claim.candidate.allocations)
    allocations = placement.resources().items()
    assert {uuid: set(providers) for uuid, providers in allocations} == expected


def settle(placement, wanted, chance, slow=False):
    """The outcomes of orders that arrive at the same time; None for a refused order."""
    claims = Claims(PlacementApi(placement))
    orders = [Order(order_claims) for order_claims in wanted]
    for _ in range(9 * slow):
        claims._batches.took(9.0, 2)
    claims._batches.waiting += orders
    claims._batches.begin()

    while in_flight := [order for order in orders if is_first(order)]:
        first = chance.choice(in_flight)
        claims._write_batch([first, *first.others.result()])
        orders = [retried(claims, order) for order in orders]
    return [outcome(order) for order in orders]


def is_first(order):
    """True if an order is the first of a batch in flight."""
    return (
        not order.written.done()
        and order.others.done()
        and order.others.result() is not None
    )


def retried(claims, order):
    """The order, or its replacement after the answer to the batch is lost."""
    if not (order.written.done() and order.written.result().is_separated):
        return order

    uncertain = [claim.uncertain() for claim in order.claims]
    separate = Order(uncertain, is_separate=True)
    claims._batches.waiting.append(separate)
    claims._batches.begin()
    return separate


def outcome(order):
    return order.written.result(0).made or None
