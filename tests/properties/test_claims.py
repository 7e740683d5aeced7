# SPDX-License-Identifier: Apache-2.0
"""Claims of several requests made together, against the same made one after another."""

from dataclasses import dataclass, field
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from novasched.placement.api import Answer, Unanswered
from novasched.placement.claims import Claim, Claims, _Order
from tests.builders import a_candidate, a_uuid

OWNER = {'project_id': 'project', 'user_id': 'user'}
PROVIDERS = [a_uuid(name) for name in 'ab']
SOURCE = a_uuid('source')
SERVERS = [a_uuid(f'server {i}') for i in range(8)]


def answer(status, body=None):
    return Answer(status, msgspec.json.encode(body))


def conflict(detail):
    return answer(409, {'errors': [{'code': 'placement.undefined_code', 'detail': detail}]})


@dataclass
class Providers:
    """As much of Placement as there is to claims: each provider has some VCPU, a change is
    made as a whole or not at all, and a server that holds something is at generation 1."""

    room: dict[str, int]
    held: dict[str, dict[str, Any]] = field(default_factory=dict)
    lost: int = -1
    """The number of the change whose answer gets lost; the change is made."""
    changes: int = 0

    def change(self, method, path, body, trace_id):
        text = msgspec.json.decode(msgspec.json.encode(body))
        wanted = text if method == 'POST' else {path.rpartition('/')[2]: text}
        said = self._changed(wanted)
        self.changes += 1
        if self.changes == self.lost:
            raise Unanswered('the line is cut')
        return said

    def _changed(self, wanted):
        for uuid, each in wanted.items():
            if each['consumer_generation'] != (1 if uuid in self.held else None):
                return conflict('consumer generation conflict')
        held = {**self.held, **{uuid: each['allocations'] for uuid, each in wanted.items()}}
        if any(used(held, provider) > room for provider, room in self.room.items()):
            return conflict('no room')
        self.held = held
        return answer(204)

    def call(self, method, path, trace_id=None, microversion='', data=None, patience=0):
        uuid = path.rpartition('/')[2]
        if method == 'DELETE':
            return answer(204 if self.held.pop(uuid, None) else 404)
        has = {'allocations': self.held.get(uuid, {})}
        return answer(200, {**has, 'consumer_generation': 1} if uuid in self.held else has)


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
    expected = [Claims(one_by_one).make(each) for each in wanted]
    settled = settle(together, wanted)
    assert [each.outcome.result(0) for each in settled] == expected
    assert together.held == one_by_one.held


@given(rooms, evacuated, st.lists(a_claim, unique_by=named), st.integers(1, 10))
def test_a_lost_answer_leaves_nothing_behind(room, held, wanted, lost):
    """Whichever answer of Placement gets lost, each server holds what it held before, and
    what was answered, and no more."""
    providers = Providers(dict(room), dict(held), lost)
    orders = [wanted[i : i + 2] for i in range(0, len(wanted), 2)]
    made = [
        claim
        for order in settle(providers, orders)
        if order.outcome.exception(0) is None
        for claim in order.outcome.result(0) or ()
    ]
    expected = {uuid: set(each) for uuid, each in held.items()}
    for claim in made:
        expected.setdefault(claim.uuid, set()).update(claim.candidate.allocations)
    assert {uuid: set(each) for uuid, each in providers.held.items()} == expected


def settle(providers, wanted):
    """The orders, filled as those that come at the same time."""
    orders = [_Order(each) for each in wanted]
    if orders:
        Claims(providers)._settle(orders)
    return orders
