# SPDX-License-Identifier: Apache-2.0
"""Hosts with several candidates for a request: one for each card with virtual GPUs."""

import json

import pytest

from novasched.placement.candidates import AskedCandidates
from novasched.placement.wire import AllocationRequests, decode
from novasched.scheduler.errors import NoValidHost
from novasched.scheduler.filters.shared import BatchFilter, Verdicts
from novasched.scheduler.memory import MemoryPlacement
from novasched.scheduler.model.basis import FRESH
from tests.lab.builders import a_host, a_request, a_uuid, numbered_uuids
from tests.lab.memory_schedulers import a_driver


class Cards(MemoryPlacement):
    """Placement, and hosts with cards: host to card to number of virtual GPUs.

    Placement offers each card with a free virtual GPU, in the given order.

    :ivar claims: the cards of all claims.
    :ivar meanwhile: called once, before the next answer is read.
    """

    def __init__(self, **hosts):
        resources = {}
        for host, cards in hosts.items():
            resources[a_uuid(host)] = {'VCPU': 99}
            for card, count in cards.items():
                resources[card] = {'VGPU': count}
        super().__init__(resources)
        self.hosts = hosts
        self.claims = []
        self.meanwhile = lambda: None

    def free_gpus(self, card):
        """The number of free virtual GPUs of a card."""
        return self.free.by_provider[card]['VGPU']

    def candidates(self, request, basis=FRESH):
        allocation_requests = []
        summaries = {}
        for host, cards in self.hosts.items():
            for card, count in cards.items():
                free = self.free_gpus(card)
                vgpu = {'capacity': count, 'used': count - free}
                summaries[card] = {'resources': {'VGPU': vgpu}}
                if free:
                    allocation_requests.append(allocation_request(a_uuid(host), card))
        body = {
            'allocation_requests': allocation_requests,
            'provider_summaries': summaries,
        }
        text = json.dumps(body).encode()

        meanwhile = self.meanwhile
        self.meanwhile = lambda: None
        meanwhile()
        return AskedCandidates(
            decode(text, AllocationRequests).allocation_requests, [text]
        )

    def claim_together(self, wanted, basis=FRESH):
        self.claims += [card_of(candidate) for _, candidate in wanted]
        return super().claim_together(wanted, basis)


def allocation_request(host_uuid, card):
    """An allocation request for a CPU of a host and a virtual GPU of a card."""
    return {
        'allocations': {
            host_uuid: {'resources': {'VCPU': 1}},
            card: {'resources': {'VGPU': 1}},
        },
        'mappings': {'': [host_uuid, card]},
    }


def card_of(candidate):
    """The card of a candidate."""
    _, card = candidate.allocations
    return card


def scheduler(cards, *filters):
    """A scheduler of the hosts with cards. The first host has the most memory."""
    return a_driver(map(a_host, cards.hosts), *filters, placement=cards)


def ask(driver, count=1, name='x', **fields):
    """For each instance, the (host, card) of the destination and of the alternates."""
    names = {a_uuid(host): host for host in driver.deps.placement.hosts}
    uuids = tuple(numbered_uuids(name, count))
    selections = driver.select_destinations(
        a_request(count=count, instance_uuids=uuids, **fields)
    )

    places = []
    for of_instance in selections:
        places.append([])
        for selection in of_instance:
            host = names[selection.compute_node_uuid]
            places[-1].append((host, card_of(selection.candidate)))
    return places


def test_the_fullest_card_is_filled_up():
    """Free cards stay free for requests that need a whole card, on alternates too."""
    cards = Cards(a={'a1': 9, 'a2': 2}, b={'b1': 9, 'b2': 8})
    driver = scheduler(cards)

    places = [ask(driver, name=name, return_alternates=True) for name in 'xyz']

    assert places == [
        [[('a', 'a2'), ('b', 'b2')]],
        [[('a', 'a2'), ('b', 'b2')]],
        [[('a', 'a1'), ('b', 'b2')]],
    ]
    assert cards.claims == ['a2', 'a2', 'a1']


class NotCard(BatchFilter):
    """A filter that rejects the candidates of a card."""

    card = 'a2'

    def judge(self, hosts, request, candidates):
        passed = {}
        for host in hosts:
            passed[host.uuid] = []
            for candidate in candidates[host.uuid]:
                if self.card not in candidate.allocations:
                    passed[host.uuid].append(candidate)
        return Verdicts([None] * len(hosts), candidates.narrowed(passed))


def test_the_best_candidate_that_passes_the_filters_is_chosen():
    """The free resources of the candidates that pass the filters decide."""
    cards = Cards(a={'a1': 9, 'a2': 2, 'a3': 1, 'a4': 3}, b={'b1': 9})
    driver = scheduler(cards, NotCard)
    assert ask(driver, 3) == [[('a', 'a3')], [('a', 'a4')], [('a', 'a4')]]


def test_a_card_that_a_pending_claim_fills_is_passed_over():
    """A card that a pending claim fills is passed over, although Placement's answer
    does not show the claim. No request is refused."""
    cards = Cards(a={'a1': 1, 'a2': 1}, b={'b1': 1, 'b2': 1})
    driver = scheduler(cards)
    cards.meanwhile = lambda: ask(driver, name='y')

    assert ask(driver) == [[('a', 'a2')]]
    assert cards.claims == ['a1', 'a2']


def test_alternates_avoid_cards_that_pending_claims_fill():
    cards = Cards(a={'a1': 9}, b={'b1': 1, 'b2': 1})
    driver = scheduler(cards)
    cards.meanwhile = lambda: ask(driver, name='y', ignore_hosts=('a',))

    assert ask(driver, return_alternates=True) == [[('a', 'a1'), ('b', 'b2')]]


def test_instances_of_a_request_share_the_cards_of_a_host():
    """A single claim serves all instances, within the free virtual GPUs of each
    card."""
    cards = Cards(a={'a1': 2, 'a2': 2}, b={'b1': 9})

    places = ask(scheduler(cards), 4)

    assert places == [[('a', 'a1')], [('a', 'a1')], [('a', 'a2')], [('a', 'a2')]]
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
def test_a_refused_card_is_followed_by_the_next_candidate(lost, claims, host):
    """If another scheduler was faster, up to three cards of the same host are tried
    before the next host."""
    cards = Cards(a=dict.fromkeys(('a1', 'a2', 'a3', 'a4'), 1), b={'b1': 1, 'b2': 1})
    full = {card: {'VGPU': -1} for card in lost.split()}
    cards.meanwhile = lambda: cards.free.by_provider.update(full)

    try:
        ((chosen_host, _),) = ask(scheduler(cards))[0]
    except NoValidHost:
        chosen_host = None

    assert (chosen_host, cards.claims) == (host, claims)
