# SPDX-License-Identifier: Apache-2.0
"""Hosts that can serve a request in several ways: by one virtual GPU or by another."""

import json

import pytest

from novasched.placement.candidates import AskedCandidates
from novasched.placement.client import parse
from novasched.placement.wire import AllocationRequests
from novasched.scheduler.errors import NoValidHost
from novasched.scheduler.filters.shared import BatchFilter, Verdicts
from novasched.scheduler.memory import MemoryPlacement
from novasched.scheduler.model.basis import FRESH
from tests.lab.builders import a_host, a_request, a_uuid
from tests.lab.memory_schedulers import a_driver


class Cards(MemoryPlacement):
    """Placement, and hosts with cards that have so many virtual GPUs: ``'a': {'a1':
    2}``.

    It offers each card that has one left, the first in front. ``meanwhile`` is called
    between the next answer and whoever reads it; ``claims`` are the cards that were
    asked for.
    """

    def __init__(self, **hosts):
        gpus = {
            card: {'VGPU': n} for cards in hosts.values() for card, n in cards.items()
        }
        super().__init__(gpus | {a_uuid(host): {'VCPU': 99} for host in hosts})
        self.hosts = hosts
        self.claims = []
        self.meanwhile = lambda: None

    def left(self, card):
        """The virtual GPUs that a card has left."""
        return self.free.by_provider[card]['VGPU']

    def candidates(self, request, basis=FRESH):
        summaries = {
            card: {'resources': {'VGPU': {'capacity': n, 'used': n - self.left(card)}}}
            for cards in self.hosts.values()
            for card, n in cards.items()
        }
        offered = [
            {
                'allocations': {
                    a_uuid(host): {'resources': {'VCPU': 1}},
                    card: {'resources': {'VGPU': 1}},
                },
                'mappings': {'': [a_uuid(host), card]},
            }
            for host, cards in self.hosts.items()
            for card in cards
            if self.left(card)
        ]
        body = {'allocation_requests': offered, 'provider_summaries': summaries}
        text = json.dumps(body).encode()
        meanwhile = self.meanwhile
        self.meanwhile = lambda: None
        meanwhile()
        return AskedCandidates(
            parse(text, AllocationRequests).allocation_requests, [text]
        )

    def claim_together(self, wanted, basis=FRESH):
        self.claims += [[*candidate.allocations][1] for _, candidate in wanted]
        return super().claim_together(wanted, basis)


def scheduler(cards, *filters):
    """A scheduler of these hosts, the first with the most memory."""
    return a_driver(map(a_host, cards.hosts), *filters, placement=cards)


def ask(driver, count=1, name='x', **fields):
    """The host and the card that each instance got, and the same of its alternates."""
    names = {a_uuid(host): host for host in driver.deps.placement.hosts}
    uuids = tuple(a_uuid(f'{name}{i}') for i in range(count))
    rows = driver.select_destinations(
        a_request(count=count, instance_uuids=uuids, **fields)
    )
    return [
        [(names[x.compute_node_uuid], [*x.candidate.allocations][1]) for x in row]
        for row in rows
    ]


def test_the_fullest_card_is_filled_up():
    """Cards that are free stay so for those who need all of one, also on alternates."""
    cards = Cards(a={'a1': 9, 'a2': 2}, b={'b1': 9, 'b2': 8})
    driver = scheduler(cards)
    given = [ask(driver, name=name, return_alternates=True) for name in 'xyz']
    assert given == [[[('a', card), ('b', 'b2')]] for card in ('a2', 'a2', 'a1')]
    assert cards.claims == ['a2', 'a2', 'a1']


class NotCard(BatchFilter):
    """Leaves the hosts the other cards."""

    card = 'a2'

    def judge(self, hosts, request, candidates):
        left = {
            host.uuid: [
                x for x in candidates[host.uuid] if self.card not in x.allocations
            ]
            for host in hosts
        }
        return Verdicts([None] * len(hosts), candidates.narrowed(left))


def test_the_best_is_one_of_those_that_filters_leave():
    """What the providers have left is known of these, too."""
    cards = Cards(a={'a1': 9, 'a2': 2, 'a3': 1, 'a4': 3}, b={'b1': 9})
    driver = scheduler(cards, NotCard)
    assert ask(driver, 3) == [[('a', card)] for card in ('a3', 'a4', 'a4')]


def test_what_others_are_about_to_take_is_left_to_them():
    """Where Placement's answer does not know of a claim yet, a card that it fills is
    passed over; nobody is refused. Alternates keep off it, too."""
    cards = Cards(a={'a1': 1, 'a2': 1}, b={'b1': 1, 'b2': 1})
    driver = scheduler(cards)
    cards.meanwhile = lambda: ask(driver, name='y')
    assert ask(driver) == [[('a', 'a2')]]
    assert cards.claims == ['a1', 'a2']

    cards = Cards(a={'a1': 9}, b={'b1': 1, 'b2': 1})
    driver = scheduler(cards)
    cards.meanwhile = lambda: ask(driver, name='y', ignore_hosts=('a',))
    assert ask(driver, return_alternates=True) == [[('a', 'a1'), ('b', 'b2')]]


def test_instances_of_one_request_share_out_the_cards():
    """One claim for all of them, which takes from no card more than it has."""
    cards = Cards(a={'a1': 2, 'a2': 2}, b={'b1': 9})
    assert ask(scheduler(cards), 4) == [
        [('a', card)] for card in ('a1', 'a1', 'a2', 'a2')
    ]
    assert cards.claims == ['a1', 'a1', 'a2', 'a2']


@pytest.mark.parametrize(
    ('lost', 'claims', 'host'),
    [
        ('', ['a1'], 'a'),
        ('a1', ['a1', 'a2'], 'a'),
        ('a1 a2', ['a1', 'a2', 'a3'], 'a'),
        ('a1 a2 a3', ['a1', 'a2', 'a3', 'b1'], 'b'),
        ('a1 a2 a3 a4 b1', ['a1', 'a2', 'a3', 'b1', 'b2'], 'b'),
        ('a1 a2 a3 b1 b2', ['a1', 'a2', 'a3', 'b1', 'b2'], None),
    ],
)
def test_a_refused_card_means_the_next_one(lost, claims, host):
    """Where another scheduler was faster, other cards of the same host are tried, three
    at the most, before the next host."""
    cards = Cards(a=dict.fromkeys(('a1', 'a2', 'a3', 'a4'), 1), b={'b1': 1, 'b2': 1})
    full = {card: {'VGPU': -1} for card in lost.split()}
    cards.meanwhile = lambda: cards.free.by_provider.update(full)
    try:
        ((found, _),) = ask(scheduler(cards))[0]
    except NoValidHost:
        found = None
    assert (found, cards.claims) == (host, claims)
