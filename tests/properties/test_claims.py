# SPDX-License-Identifier: Apache-2.0
"""Claims of several requests made together, against the same made one after another."""

from hypothesis import given
from hypothesis import strategies as st

from novasched.placement.allocations import Claim
from novasched.placement.api import OutcomeUnknown, PlacementApi
from novasched.placement.batching import Order
from novasched.placement.claims import Claims
from novasched.scheduler.errors import ClaimFailed, PlacementUnavailable
from tests.lab.builders import a_candidate, a_uuid
from tests.lab.faulty_placement import FaultyPlacement

OWNER = {'project_id': 'project', 'user_id': 'user'}
PROVIDERS = [a_uuid(name) for name in 'abc']
SOURCE = a_uuid('source')
SERVERS = [a_uuid(f'server {i}') for i in range(8)]


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
evacuated = st.sets(st.sampled_from(SERVERS), max_size=4).map(
    lambda servers: {each: [1, {SOURCE: {'VCPU': 1}}] for each in servers}
)
rooms = st.fixed_dictionaries({provider: st.integers(0, 8) for provider in PROVIDERS})


@given(rooms, evacuated, orders, st.booleans(), st.randoms())
def test_together_is_as_one_after_another(room, held, wanted, slow, chance):
    """The same orders are filled and refused, and Placement holds the same: those of
    which a server is named twice, or holds something already, included. Of batches that
    are in flight at once it does not matter which is written first, nor whether
    Placement is so slow that a request for several instances is written in parts."""
    one_by_one, together = (FaultyPlacement(dict(held), room) for _ in range(2))
    expected = [Claims(PlacementApi(one_by_one)).allocate(each) for each in wanted]
    assert settle(together, wanted, chance, slow) == expected
    assert together.held == one_by_one.held


@given(
    rooms,
    evacuated,
    st.lists(a_claim, unique_by=named),
    st.integers(0, 9),
    st.randoms(),
)
def test_a_lost_answer_leaves_nothing_behind(room, held, wanted, lost, chance):
    """Whichever answer of Placement gets lost, each server holds what it held before,
    and what was answered, and no more."""
    placement = FaultyPlacement(dict(held), room, [None] * lost + ['after 500'])
    orders = [wanted[i : i + 2] for i in range(0, len(wanted), 2)]
    made = [claim for each in settle(placement, orders, chance) for claim in each or ()]
    expected = {uuid: set(each) for uuid, (_, each) in held.items()}
    for claim in made:
        expected.setdefault(claim.uuid, set()).update(claim.candidate.allocations)
    assert {uuid: set(each) for uuid, each in placement.resources().items()} == expected


def settle(placement, wanted, chance, slow=False):
    """What comes of orders that are filled as those that come at the same time; None of
    one that is refused for whatever reason."""
    claims = Claims(PlacementApi(placement))
    orders = [Order(each) for each in wanted]
    for _ in range(9 * slow):
        claims._batches.took(9.0, 2)
    claims._batches.waiting += orders
    claims._batches.begin()
    while in_flight := [order for order in orders if is_first(order)]:
        first = chance.choice(in_flight)
        claims._write_batch([first, *first.others.result()])
        orders = [again(claims, order) for order in orders]
    return [outcome(order) for order in orders]


def is_first(order):
    """True if an order is the first of a batch in flight."""
    return (
        not order.outcome.done()
        and order.others.done()
        and order.others.result() is not None
    )


def again(claims, order):
    """The order, or what takes its place after the answer to its batch is lost."""
    error = order.outcome.exception() if order.outcome.done() else None
    if order.lost is not None or not isinstance(error, OutcomeUnknown):
        return order
    alone = claims._alone(order, error)
    claims._batches.waiting.append(alone)
    claims._batches.begin()
    return alone


def outcome(order):
    try:
        return order.outcome.result(0)
    except (PlacementUnavailable, ClaimFailed):
        return None
