# SPDX-License-Identifier: Apache-2.0
"""Claims of several requests made together, against the same made one after another."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from novasched.placement.allocations import Claim
from novasched.placement.api import OutcomeUnknown, Response
from novasched.placement.batching import Order
from novasched.placement.claims import Claims
from novasched.scheduler.errors import ClaimFailed, PlacementUnavailable
from tests.lab.builders import a_candidate, a_uuid

OWNER = {'project_id': 'project', 'user_id': 'user'}
PROVIDERS = [a_uuid(name) for name in 'ab']
SOURCE = a_uuid('source')
SERVERS = [a_uuid(f'server {i}') for i in range(8)]


def answer(status, body=None):
    return Response(status, msgspec.json.encode(body))


def conflict(detail):
    return answer(409, {'errors': [{'code': 'placement.undefined_code', 'detail': detail}]})


@dataclass
class Providers:
    """As much of Placement as there is to claims: each provider has some VCPU, a change is
    made as a whole or not at all, and adds one to the generations of the servers in it."""

    room: dict[str, int]
    held: dict[str, dict[str, Any]] = field(default_factory=dict)
    lost: int = -1
    """The number of the change whose answer gets lost; the change is made."""
    changes: int = 0

    def __post_init__(self):
        self.breaker = SimpleNamespace(wait_closed=lambda seconds: True)
        self.generations = dict.fromkeys(self.held, 1)

    def send(
        self, method, path, trace_id=None, body=None, microversion='', retry_s=None, once=False
    ):
        uuid = path.rpartition('/')[2]
        if method == 'GET':
            held = {'allocations': self.held.get(uuid, {})}
            return answer(200, held | {'consumer_generation': self.generations.get(uuid)})
        text = msgspec.json.decode(msgspec.json.encode(body))
        wanted = text if method == 'POST' else {uuid: text}
        said = self._changed(wanted)
        self.changes += 1
        if self.changes == self.lost:
            raise OutcomeUnknown('the line is cut')
        return said

    def _changed(self, wanted):
        for uuid, each in wanted.items():
            if each['consumer_generation'] != self.generations.get(uuid):
                return conflict('consumer generation conflict')
        held = {**self.held, **{uuid: each['allocations'] for uuid, each in wanted.items()}}
        if any(used(held, provider) > room for provider, room in self.room.items()):
            return conflict('no room')
        self.held = held
        self.generations |= {uuid: self.generations.get(uuid, 0) + 1 for uuid in wanted}
        return answer(204)


def used(held, provider):
    return sum(each.get(provider, {}).get('resources', {}).get('VCPU', 0) for each in held.values())


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
    lambda servers: {each: {SOURCE: {'resources': {'VCPU': 1}}} for each in servers}
)
rooms = st.fixed_dictionaries({provider: st.integers(0, 8) for provider in PROVIDERS})


@given(rooms, evacuated, orders)
def test_together_is_as_one_after_another(room, held, wanted):
    """The same orders are filled and refused, and Placement holds the same: those of which a
    server is named twice, or holds something already, included."""
    one_by_one, together = (Providers(dict(room), dict(held)) for _ in range(2))
    expected = [Claims(one_by_one).allocate(each) for each in wanted]
    assert settle(together, wanted) == expected
    assert together.held == one_by_one.held


@given(rooms, evacuated, st.lists(a_claim, unique_by=named), st.integers(1, 10))
def test_a_lost_answer_leaves_nothing_behind(room, held, wanted, lost):
    """Whichever answer of Placement gets lost, each server holds what it held before, and
    what was answered, and no more."""
    providers = Providers(dict(room), dict(held), lost)
    orders = [wanted[i : i + 2] for i in range(0, len(wanted), 2)]
    made = [claim for each in settle(providers, orders) for claim in each or ()]
    expected = {uuid: set(each) for uuid, each in held.items()}
    for claim in made:
        expected.setdefault(claim.uuid, set()).update(claim.candidate.allocations)
    assert {uuid: set(each) for uuid, each in providers.held.items()} == expected


def settle(providers, wanted):
    """What comes of orders that are filled as those that come at the same time; None of one
    that is refused for whatever reason."""
    claims, orders = Claims(providers), [Order(each) for each in wanted]
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
