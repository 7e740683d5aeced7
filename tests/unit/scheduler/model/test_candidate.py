# SPDX-License-Identifier: Apache-2.0
import json

import pytest

from novasched.placement.candidates import AskedCandidates
from novasched.placement.client import parse
from novasched.placement.wire import AllocationRequests
from novasched.scheduler.errors import PlacementUnavailable
from novasched.scheduler.model.candidate import CandidateIndex, choose
from tests.lab.builders import a_candidate, a_full_candidate

NESTED = {
    'allocation_requests': [
        {
            'allocations': {
                'root1': {'resources': {'VCPU': 1, 'MEMORY_MB': 512}},
                'gpu1': {'resources': {'VGPU': 1}},
                'nfs': {'resources': {'DISK_GB': 5}},
            },
            'mappings': {'': ['root1', 'nfs'], '_gpu': ['gpu1']},
        },
        {
            'allocations': {
                'root2': {'resources': {'VCPU': 1, 'MEMORY_MB': 512, 'DISK_GB': 5}},
                'gpu2': {'resources': {'VGPU': 1}},
            },
            'mappings': {'': ['root2'], '_gpu': ['gpu2']},
        },
    ],
    'provider_summaries': {'root1': {'resources': {}, 'traits': []}},
}


def test_candidates():
    """Compute nodes, their nested providers and shared storage all lead to their
    candidates. Amounts, mappings and the body to claim with are what Placement said."""
    first, second = parse(
        json.dumps(NESTED).encode(), AllocationRequests
    ).allocation_requests
    assert CandidateIndex([first, second]) == {
        'root1': [first],
        'gpu1': [first],
        'nfs': [first],
        'root2': [second],
        'gpu2': [second],
    }
    given = NESTED['allocation_requests'][0]
    assert first.resources()['gpu1'] == {'VGPU': 1}
    assert first.providers_by_group() == given['mappings']
    assert json.loads(first.body()) == given


@pytest.mark.parametrize(
    'body', [b'', b'null', b'{}', b'[]', b'{"allocation_requests": 1}', b'<html>']
)
def test_other_answers_are_refused(body):
    """What is no list of candidates is an error of Placement's, whatever it is."""
    with pytest.raises(PlacementUnavailable, match='sent no allocation candidates'):
        parse(body, AllocationRequests)


SUMMARIES = [
    '{"host": {"resources": {"VCPU": {"capacity": 16, "used": 6}}}}',
    '{"gpu": {"resources": {"VGPU": {"capacity": 4, "used": 1}, "X": {"capacity": 0, "used": 0}}}}',
]


@pytest.mark.parametrize(
    ('summaries', 'room'),
    [
        (SUMMARIES, ({'VCPU': 10}, {'VGPU': 3, 'X': 0}, {})),
        ([], ({}, {}, {})),
        (['[]'], ({}, {}, {})),
        (
            ['{"host": {"resources": {"VCPU": {}}}}', *SUMMARIES[1:]],
            ({}, {'VGPU': 3, 'X': 0}, {}),
        ),
    ],
)
def test_room(summaries, room):
    """What providers have left is what the answers to the queries say, if they do."""
    index = AskedCandidates(
        [], [b'{"provider_summaries": %s}' % each.encode() for each in summaries]
    )
    assert (
        tuple(index.capacity_left(name) for name in ('host', 'gpu', 'nobody')) == room
    )


ONE, TWO, BOTH = (a_candidate('h', *cards) for cards in ('1', '2', '12'))


@pytest.mark.parametrize(
    ('offered', 'pending', 'refused', 'chosen'),
    [
        ([ONE], {'1': {'CUSTOM_X': 9}}, [], ONE),
        ([ONE, TWO], {}, [], ONE),
        ([ONE, TWO], {'1': {'CUSTOM_X': 2}, 'h': {'VCPU': 1}}, [], ONE),
        ([ONE, TWO], {'1': {'CUSTOM_X': 3}}, [], TWO),
        ([ONE, BOTH, TWO], {'1': {'CUSTOM_X': 3}}, [], TWO),
        ([ONE, TWO], {'1': {'CUSTOM_X': 3}, '2': {'CUSTOM_X': 3}}, [], ONE),
        ([ONE, TWO], {'h': {'VCPU': 99}}, [], ONE),
        ([ONE], {}, [ONE], None),
        ([ONE, TWO], {}, [ONE], TWO),
        ([ONE, BOTH, TWO], {}, [ONE], TWO),
        ([ONE, BOTH], {}, [ONE], BOTH),
        ([ONE, BOTH, TWO], {}, [ONE, TWO], BOTH),
        ([BOTH, ONE, TWO], {}, [BOTH, ONE], TWO),
        ([ONE, TWO], {'2': {'CUSTOM_X': 3}}, [ONE], None),
    ],
)
def test_choose(offered, pending, refused, chosen):
    """The first of equal ones, unless what is pending leaves it no room; after a
    refusal one that takes from other providers, as far from those of the refused ones
    as can be. Where nothing is known of providers, Placement is left to decide."""
    stock = b'{"resources": {"CUSTOM_X": {"capacity": 4, "used": 1}, "VCPU": {"capacity": 9, "used": 1}}}'
    stocks = b','.join(b'"%s": %s' % (name, stock) for name in (b'h', b'1', b'2'))
    index = AskedCandidates(offered, [b'{"provider_summaries": {%s}}' % stocks])
    assert choose(index, 'h', lambda: pending, lambda _: 0, refused) is chosen
    if not refused:
        in_memory = CandidateIndex(offered)
        assert choose(in_memory, 'h', lambda: pending, lambda _: 0) is offered[0]


def an_index(candidates, left):
    """An offer with a summary of these providers: what they have left by resource
    class."""
    summaries = {
        rp: {
            'resources': {
                name: {'capacity': 3 * n, 'used': 2 * n} for name, n in each.items()
            }
        }
        for rp, each in left.items()
    }
    return AskedCandidates(
        candidates, [json.dumps({'provider_summaries': summaries}).encode()]
    )


def cards(**amounts):
    """What a candidate takes of a host and of cards."""
    return {'h': {'VCPU': 1}, **{card: {'VGPU': n} for card, n in amounts.items()}}


def vgpus(**left):
    """What a host and its cards have left."""
    return {'h': {'VCPU': 9}, **{card: {'VGPU': n} for card, n in left.items()}}


GPU_AND_NIC = {
    f'{gpu}{nic}': {gpu: {'VGPU': 1}, nic: {'CUSTOM_VF': 1}}
    for gpu in 'ab'
    for nic in 'yz'
}
LOCAL = {'h': {'VCPU': 1, 'DISK_GB': 5}}
SHARED = {'h': {'VCPU': 1}, 'nfs': {'DISK_GB': 5}}
FALLBACK = {'h': {'VCPU': 1, 'VGPU': 1}}
PINNED = {'h': {'PCPU': 1}, 'a': {'VGPU': 1}}


@pytest.mark.parametrize(
    ('candidates', 'left', 'more', 'order'),
    [
        pytest.param(
            {'2': cards(a=1, b=1), '1': cards(c=2)},
            vgpus(a=1, b=1, c=9),
            {},
            '1 2',
            id='fewest devices',
        ),
        pytest.param(
            {'shared': SHARED, 'local': LOCAL},
            {'h': {'DISK_GB': 99}, 'nfs': {'DISK_GB': 9}},
            {},
            'local shared',
            id='local disk',
        ),
        pytest.param(
            {'a': cards(a=1), 'b': cards(b=1)},
            vgpus(a=1, b=9),
            {'far': 'a'},
            'b a',
            id='near the guest',
        ),
        pytest.param(
            {'2': cards(a=1, b=1), '1': cards(c=2)},
            {},
            {'far': '1'},
            '1 2',
            id='fewest devices before near ones',
        ),
        pytest.param(
            {x: cards(**{x: 1}) for x in 'abc'},
            vgpus(a=8, b=3, c=4),
            {},
            'b c a',
            id='the fullest device',
        ),
        pytest.param(
            {x: cards(**{x: 1}) for x in 'cab'},
            vgpus(a=4, b=4, c=4),
            {},
            'c a b',
            id='equal ones',
        ),
        pytest.param(
            {x: cards(**{x: 1}) for x in 'cab'}, {}, {}, 'c a b', id='nothing is known'
        ),
        pytest.param(
            {x: cards(**{x: 1}) for x in 'ab'},
            vgpus(a=4, b=5),
            {'pending': {'b': {'VGPU': 2}}},
            'b a',
            id='beside pending claims',
        ),
        pytest.param(
            {x: cards(**{x: 2}) for x in 'ab'},
            vgpus(a=4, b=5),
            {'pending': {'a': {'VGPU': 3}}},
            'b a',
            id='it suffices no more',
        ),
        pytest.param(
            {x: cards(**dict.fromkeys(x, 1)) for x in ('ab', 'ac', 'bc')},
            vgpus(a=9, b=2, c=3),
            {},
            'bc ab ac',
            id='two devices',
        ),
        pytest.param(
            GPU_AND_NIC,
            {
                'a': {'VGPU': 4},
                'b': {'VGPU': 3},
                'y': {'CUSTOM_VF': 70},
                'z': {'CUSTOM_VF': 60},
            },
            {},
            'bz az by ay',
            id='devices of two kinds',
        ),
        pytest.param(
            {x: cards(**{x: 1}) for x in 'ab'},
            {'a': {'VGPU': 4, 'X': 0}, 'b': {'VGPU': 3, 'X': 9}},
            {},
            'b a',
            id='what is not asked for',
        ),
        pytest.param(
            {'pinned': PINNED, 'fallback': FALLBACK},
            {},
            {},
            'pinned fallback',
            id='a fallback comes last',
        ),
    ],
)
def test_the_best_candidate_of_a_host(candidates, left, more, order):
    """Fewest devices, then those near the guest, then those that have the least
    left."""
    names = {name: a_full_candidate(amounts) for name, amounts in candidates.items()}
    found = []
    while names:
        pending = more.get('pending', {})
        far = names.get(more.get('far'))
        index = an_index(names.values(), left)
        index['h'] = [*names.values()]
        best = choose(
            index, 'h', lambda taken=pending: taken, lambda x, it=far: x is it
        )
        found.append(next(name for name, each in names.items() if each is best))
        del names[found[-1]]
    assert ' '.join(found) == order


def test_narrowed():
    """What filters leave of an offer knows what the providers have; the offer stays as
    it is."""
    index = an_index([ONE, TWO], {'1': {'CUSTOM_X': 4}, '2': {'CUSTOM_X': 3}})
    left = index.narrowed({'h': [TWO]})
    assert (left['h'], left['1'], index['h']) == ([TWO], [ONE], [ONE, TWO])
    assert (left.capacity_left('1'), left.count) == ({'CUSTOM_X': 4}, 2)
    assert index.narrowed({}) is index
    in_memory = CandidateIndex([ONE, TWO])
    assert in_memory.narrowed({'h': [TWO]})['h'] == [TWO]
    assert in_memory['h'] == [ONE, TWO]
