# SPDX-License-Identifier: Apache-2.0
"""The chosen candidate of a host, against a plain look at all candidates."""

import json
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from novasched.placement.candidates import AskedCandidates
from novasched.placement.local_candidates import LocalCandidates, MatchedHosts
from novasched.scheduler.model.candidate import choose
from novasched.scheduler.model.host import HostSnapshot, HostView
from novasched.scheduler.offered_hosts import OfferedHosts
from tests.lab.builders import a_full_candidate, a_host, a_uuid

CARDS = 'abcd'
ROOM = st.fixed_dictionaries({card: st.integers(1, 6) for card in CARDS})
TAKEN = st.dictionaries(st.sampled_from(CARDS), st.integers(0, 4))
ONE_WAY = st.lists(st.sampled_from(CARDS), min_size=3, max_size=3).map(
    lambda cards: {card: cards.count(card) for card in sorted(cards)}
)
WAYS = st.lists(ONE_WAY, min_size=1, max_size=8)


@given(
    WAYS,
    ROOM,
    TAKEN,
    st.sets(st.integers(0, 7), max_size=2),
    st.sets(st.sampled_from(CARDS)),
)
def test_the_best_fitting_candidate_is_chosen(ways, room, taken, refused, far):
    """The chosen candidate is offered and not refused, and no fitting candidate is
    better."""
    offered = [a_way(way) for way in ways]
    lost = [i for i in refused if i < len(ways)]
    chosen = choose(
        an_index(offered, room),
        'h',
        lambda: vgpus(taken),
        lambda candidate: len(far & candidate.allocations.keys()),
        [offered[i] for i in lost],
    )

    lost_ways = [ways[i].keys() for i in lost]
    lost_cards = set().union(*lost_ways)
    others = []
    fitting = []
    for i, way in enumerate(ways):
        if way.keys() not in lost_ways:
            others.append(i)
            if fits(way, room, taken):
                fitting.append(i)

    def rank(i):
        cards = ways[i].keys()
        left = sum(room[card] - taken.get(card, 0) for card in cards)
        return len(lost_cards & cards), len(cards), len(far & cards), left, i

    best = fitting
    if not best and not lost:
        best = others
    assert (chosen is None) == (not best)
    if best and len(offered) > 1:
        assert chosen is offered[min(best, key=rank)]


def a_way(cards):
    """A candidate of host h, with virtual GPUs of cards."""
    return a_full_candidate({'h': {'VCPU': 1}, **vgpus(cards)})


def vgpus(cards):
    return {card: {'VGPU': number} for card, number in cards.items()}


def fits(way, room, taken):
    """True if all cards have enough virtual GPUs beside pending claims. A card without
    claims always has."""
    for card, number in way.items():
        if card in taken and number + taken[card] > room[card]:
            return False
    return True


def an_index(candidates, room):
    """An offer with the capacity of cards in the provider summaries."""
    summaries = {}
    for card, left in room.items():
        summaries[card] = {'resources': {'VGPU': {'capacity': 9, 'used': 9 - left}}}
    text = json.dumps({'provider_summaries': summaries}).encode()
    return AskedCandidates(candidates, [text])


NAMES = 'hijk'
SIZES = st.fixed_dictionaries(
    {'vcpus_total': st.integers(0, 3), 'total_usable_ram_mb': st.integers(0, 3)}
)
AMOUNTS = st.fixed_dictionaries(
    {'VCPU': st.integers(1, 3)}, optional={'MEMORY_MB': st.integers(1, 3)}
)
REQUEST = st.tuples(
    st.booleans(),  # of another answer than the request before
    st.dictionaries(st.sampled_from(NAMES), SIZES),  # hosts that have come or changed
    st.sets(st.sampled_from(NAMES), max_size=1),  # hosts that are gone
    st.lists(st.booleans(), min_size=len(NAMES), max_size=len(NAMES)),
    AMOUNTS,
)


@given(st.lists(REQUEST, max_size=8))
def test_offered_hosts_do_not_depend_on_earlier_requests(requests):
    """The offered hosts of sufficient size come in the order of the answer. The answers
    and sizes of earlier requests change nothing."""
    uuids = [*map(a_uuid, NAMES)]
    known = {}
    offered_hosts = OfferedHosts()
    for is_another, changed, gone, fits, amounts in requests:
        if is_another:
            uuids = uuids[::-1]
        if changed or gone:
            known = dict(known)
            for name, sizes in changed.items():
                known[a_uuid(name)] = replace(a_host(name), **sizes)
            for name in gone:
                known.pop(a_uuid(name), None)

        expected = []
        for uuid, is_offered in zip(uuids, fits, strict=True):
            if is_offered and uuid in known and is_large(known[uuid], amounts):
                expected.append(known[uuid])
        snapshot = HostSnapshot(HostView(known))
        hosts = offered_hosts.of(remembered(uuids, fits, amounts), snapshot, None)
        assert [*hosts] == expected


def is_large(host, amounts):
    return host.vcpus_total >= amounts[
        'VCPU'
    ] and host.total_usable_ram_mb >= amounts.get('MEMORY_MB', 0)


def remembered(uuids, fits, amounts):
    rows = {uuid: row for row, uuid in enumerate(uuids)}
    kinds = np.zeros(len(uuids), int)
    hosts = MatchedHosts(amounts, uuids, rows, np.array(fits), kinds, [()])
    return LocalCandidates([hosts], 0.0, 0.0)
