# SPDX-License-Identifier: Apache-2.0
import json

import pytest

from novasched.placement.client import CandidatesOnly, parse
from novasched.scheduler.errors import PlacementUnavailable
from novasched.scheduler.model.candidate import CandidateIndex, choose, narrowed
from tests.lab.builders import a_candidate

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
    """Compute nodes, their nested providers and shared storage all lead to their candidates. Amounts,
    mappings and the body to claim with are what Placement said."""
    first, second = parse(json.dumps(NESTED).encode(), CandidatesOnly).allocation_requests
    assert CandidateIndex([first, second]) == {
        'root1': [first], 'gpu1': [first], 'nfs': [first], 'root2': [second], 'gpu2': [second],
    }  # fmt: skip
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
        parse(body, CandidatesOnly)


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
        (['{"host": {"resources": {"VCPU": {}}}}', *SUMMARIES[1:]], ({}, {'VGPU': 3, 'X': 0}, {})),
    ],
)
def test_room(summaries, room):
    """What providers have left is what the answers to the queries say, if they do."""
    index = CandidateIndex(
        [], [b'{"provider_summaries": %s}' % each.encode() for each in summaries]
    )
    assert tuple(index.capacity_left(name) for name in ('host', 'gpu', 'nobody')) == room


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
    """The first one, unless what is pending leaves it no room; after a refusal one that takes
    from other providers, as far from those of the refused ones as can be. Where nothing is known of
    providers, Placement is left to decide."""
    stock = b'{"resources": {"CUSTOM_X": {"capacity": 4, "used": 1}, "VCPU": {"capacity": 9, "used": 1}}}'
    stocks = b','.join(b'"%s": %s' % (name, stock) for name in (b'h', b'1', b'2'))
    index = CandidateIndex(offered, [b'{"provider_summaries": {%s}}' % stocks])
    assert choose(index, 'h', lambda: pending, refused) is chosen
    assert refused or choose({'h': offered}, 'h', lambda: pending) is offered[0]


def an_index(candidates, left):
    """An offer with a summary of these providers: what they have left by resource class."""
    summaries = {
        rp: {'resources': {name: {'capacity': 3 * n, 'used': 2 * n} for name, n in each.items()}}
        for rp, each in left.items()
    }
    return CandidateIndex(candidates, [json.dumps({'provider_summaries': summaries}).encode()])


def test_narrowed():
    """What filters leave of an offer knows what the providers have; the offer stays as it is."""
    index = an_index([ONE, TWO], {'1': {'CUSTOM_X': 4}, '2': {'CUSTOM_X': 3}})
    left = narrowed(index, {'h': [TWO]})
    assert (left['h'], left['1'], index['h']) == ([TWO], [ONE], [ONE, TWO])
    assert (left.capacity_left('1'), left.count) == ({'CUSTOM_X': 4}, 2)
    assert narrowed({'h': [ONE, TWO]}, {'h': [TWO]}) == {'h': [TWO]}
