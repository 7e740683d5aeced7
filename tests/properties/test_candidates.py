# SPDX-License-Identifier: Apache-2.0
"""The chosen candidate of a host, against a plain look at all candidates."""

import json
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from novasched.placement.candidates import (
    AskedCandidates,
    MatchedHosts,
    RememberedCandidates,
)
from novasched.scheduler.assignments import OfferedHosts
from novasched.scheduler.model.basis import FRESH
from novasched.scheduler.model.candidate import choose
from novasched.scheduler.model.host import HostSnapshot
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
def test_the_best_of_what_is_offered(ways, room, taken, refused, far):
    """The chosen candidate is offered and not refused, and no fitting candidate is
    better."""
    offered = [
        a_full_candidate(
            {'h': {'VCPU': 1}, **{card: {'VGPU': n} for card, n in way.items()}}
        )
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
    others = [
        i
        for i, way in enumerate(ways)
        if all(way.keys() != ways[x].keys() for x in lost)
    ]
    cards_lost = {card for i in lost for card in ways[i]}

    def fits(way):
        return all(
            card not in taken or n + taken[card] <= room[card]
            for card, n in way.items()
        )

    def rank(i):
        left = sum(room[card] - taken.get(card, 0) for card in ways[i])
        return (
            len(cards_lost & ways[i].keys()),
            len(ways[i]),
            len(far & ways[i].keys()),
            left,
            i,
        )

    best = [i for i in others if fits(ways[i])] or ([] if lost else others)
    assert chosen is (
        offered[min(best, key=rank)] if best and len(offered) > 1 else chosen
    )
    assert (chosen is None) == (not best)


def an_index(candidates, room):
    resources = {
        card: {'resources': {'VGPU': {'capacity': 9, 'used': 9 - n}}}
        for card, n in room.items()
    }
    return AskedCandidates(
        candidates, [json.dumps({'provider_summaries': resources}).encode()]
    )


NAMES = 'hijk'
SIZES = st.fixed_dictionaries(
    {'vcpus_total': st.integers(0, 3), 'total_usable_ram_mb': st.integers(0, 3)}
)
AMOUNTS = st.fixed_dictionaries(
    {'VCPU': st.integers(1, 3)}, optional={'MEMORY_MB': st.integers(1, 3)}
)
REQUEST = st.tuples(
    st.booleans(),  # of another answer than the one before
    st.dictionaries(st.sampled_from(NAMES), SIZES),  # hosts that have come or changed
    st.sets(st.sampled_from(NAMES), max_size=1),  # those that are gone
    st.lists(st.booleans(), min_size=len(NAMES), max_size=len(NAMES)),
    AMOUNTS,
)


@given(st.lists(REQUEST, max_size=8))
def test_hosts_of_what_is_remembered(requests):
    """The offered hosts of sufficient size, in the order of the answer, whatever the
    answers and sizes of earlier requests."""
    uuids = [a_uuid(name) for name in NAMES]
    known = {}
    kept = OfferedHosts()
    for is_another, changed, gone, fits, amounts in requests:
        uuids = uuids[::-1] if is_another else uuids
        if changed or gone:
            anew = [replace(a_host(name), **sizes) for name, sizes in changed.items()]
            known = {**known, **{host.uuid: host for host in anew}}
            known = {
                uuid: host
                for uuid, host in known.items()
                if uuid not in map(a_uuid, gone)
            }
        rows = {uuid: row for row, uuid in enumerate(uuids)}
        hosts = MatchedHosts(
            amounts, uuids, rows, np.array(fits), np.zeros(len(uuids), int), [()]
        )
        candidates = RememberedCandidates([hosts], 0.0, 0.0)
        assert kept.of(candidates, HostSnapshot(known), FRESH, None) == [
            known[uuid]
            for uuid, is_offered in zip(uuids, fits, strict=True)
            if is_offered
            and uuid in known
            and known[uuid].vcpus_total >= amounts['VCPU']
            and known[uuid].total_usable_ram_mb >= amounts.get('MEMORY_MB', 0)
        ]
