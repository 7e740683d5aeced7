# SPDX-License-Identifier: Apache-2.0
"""The candidate that is chosen of a host, against a plain look at all that there are."""

import json

from hypothesis import given
from hypothesis import strategies as st

from novasched.scheduler.model.candidate import CandidateIndex, choose
from tests.lab.builders import a_full_candidate

CARDS = 'abcd'
ROOM = st.fixed_dictionaries({card: st.integers(1, 6) for card in CARDS})
TAKEN = st.dictionaries(st.sampled_from(CARDS), st.integers(0, 4))
ONE_WAY = st.lists(st.sampled_from(CARDS), min_size=3, max_size=3).map(
    lambda cards: {card: cards.count(card) for card in sorted(cards)}
)
WAYS = st.lists(ONE_WAY, min_size=1, max_size=8)


@given(WAYS, ROOM, TAKEN, st.sets(st.integers(0, 7), max_size=2), st.sets(st.sampled_from(CARDS)))
def test_the_best_of_what_is_offered(ways, room, taken, refused, far):
    """One that is offered, and was not refused; of those that fit none stands before it."""
    offered = [
        a_full_candidate({'h': {'VCPU': 1}, **{card: {'VGPU': n} for card, n in way.items()}})
        for way in ways
    ]
    lost = [i for i in refused if i < len(ways)]
    chosen = choose(
        an_index(offered, room),
        'h',
        lambda: {card: {'VGPU': n} for card, n in taken.items()},
        lambda candidate: len(far & candidate.allocations.keys()),
        [offered[i] for i in lost],
    )
    others = [i for i, way in enumerate(ways) if all(way.keys() != ways[x].keys() for x in lost)]
    cards_lost = {card for i in lost for card in ways[i]}

    def fits(way):
        return all(card not in taken or n + taken[card] <= room[card] for card, n in way.items())

    def rank(i):
        left = sum(room[card] - taken.get(card, 0) for card in ways[i])
        return len(cards_lost & ways[i].keys()), len(ways[i]), len(far & ways[i].keys()), left, i

    best = [i for i in others if fits(ways[i])] or ([] if lost else others)
    assert chosen is (offered[min(best, key=rank)] if best and len(offered) > 1 else chosen)
    assert (chosen is None) == (not best)


def an_index(candidates, room):
    resources = {
        card: {'resources': {'VGPU': {'capacity': 9, 'used': 9 - n}}} for card, n in room.items()
    }
    return CandidateIndex(candidates, [json.dumps({'provider_summaries': resources}).encode()])
