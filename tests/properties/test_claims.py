# SPDX-License-Identifier: Apache-2.0
"""Claims of several requests made together, against the same made one after another."""

from hypothesis import given
from hypothesis import strategies as st

from novasched.placement.allocations import Claim
from novasched.placement.api import OutcomeUnknown, PlacementApi
from novasched.placement.batching import Order
from novasched.placement.claims import Claims
from novasched.scheduler.errors import ClaimFailed, PlacementUnavailable
from tests.lab.books import Books
from tests.lab.builders import a_candidate, a_uuid

OWNER = {'project_id': 'project', 'user_id': 'user'}
PROVIDERS = [a_uuid(name) for name in 'ab']
SOURCE = a_uuid('source')
SERVERS = [a_uuid(f'server {i}') for i in range(8)]


a_claim = st.builds(
    lambda server, provider, vcpus: Claim(server, a_candidate(provider, VCPU=vcpus), OWNER),
    st.sampled_from(SERVERS),
    st.sampled_from(PROVIDERS),
    st.integers(1, 3),
)


def named(claim):
    return claim.uuid


orders = st.lists(st.lists(a_claim, min_size=1, max_size=3, unique_by=named), max_size=8)
evacuated = st.sets(st.sampled_from(SERVERS), max_size=4).map(
    lambda servers: {each: [1, {SOURCE: {'VCPU': 1}}] for each in servers}
)
rooms = st.fixed_dictionaries({provider: st.integers(0, 8) for provider in PROVIDERS})


@given(rooms, evacuated, orders)
def test_together_is_as_one_after_another(room, held, wanted):
    """The same orders are filled and refused, and Placement holds the same: those of which a
    server is named twice, or holds something already, included."""
    one_by_one, together = (Books(dict(held), room) for _ in range(2))
    expected = [Claims(PlacementApi(one_by_one)).allocate(each) for each in wanted]
    assert settle(together, wanted) == expected
    assert together.held == one_by_one.held


@given(rooms, evacuated, st.lists(a_claim, unique_by=named), st.integers(0, 9))
def test_a_lost_answer_leaves_nothing_behind(room, held, wanted, lost):
    """Whichever answer of Placement gets lost, each server holds what it held before, and
    what was answered, and no more."""
    books = Books(dict(held), room, [None] * lost + ['after 500'])
    orders = [wanted[i : i + 2] for i in range(0, len(wanted), 2)]
    made = [claim for each in settle(books, orders) for claim in each or ()]
    expected = {uuid: set(each) for uuid, (_, each) in held.items()}
    for claim in made:
        expected.setdefault(claim.uuid, set()).update(claim.candidate.allocations)
    assert {uuid: set(each) for uuid, each in books.resources().items()} == expected


def settle(books, wanted):
    """What comes of orders that are filled as those that come at the same time; None of one
    that is refused for whatever reason."""
    claims, orders = Claims(PlacementApi(books)), [Order(each) for each in wanted]
    for order in orders:
        claims._batches.add(order)
    return [outcome(claims, order) for order in orders]


def outcome(claims, order):
    while not order.outcome.done():
        claims._write_batch(order)
    try:
        return order.outcome.result(0)
    except OutcomeUnknown as error:
        return outcome(claims, again(claims, order, error))
    except (PlacementUnavailable, ClaimFailed):
        return None


def again(claims, order, error):
    alone = claims._alone(order, error)
    claims._batches.add(alone)
    return alone
