# SPDX-License-Identifier: Apache-2.0
import json

import pytest

from novasched.placement.candidates import AskedCandidates
from novasched.placement.wire import AllocationRequests, decode
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


def test_the_index_finds_candidates_by_every_provider():
    """The index has the candidates of compute nodes, nested providers and shared
    storage. Amounts, mappings and the body of a claim equal the answer of Placement."""
    answer = decode(json.dumps(NESTED).encode(), AllocationRequests)
    first, second = answer.allocation_requests

    assert CandidateIndex([first, second]) == {
        'root1': [first],
        'gpu1': [first],
        'nfs': [first],
        'root2': [second],
        'gpu2': [second],
    }
    sent = NESTED['allocation_requests'][0]
    assert first.resources()['gpu1'] == {'VGPU': 1}
    assert first.providers_by_group() == sent['mappings']
    assert json.loads(first.body()) == sent


@pytest.mark.parametrize(
    'body', [b'', b'null', b'{}', b'[]', b'{"allocation_requests": 1}', b'<html>']
)
def test_invalid_answers_are_refused(body):
    """An answer without a list of candidates is an error of Placement."""
    with pytest.raises(PlacementUnavailable, match='sends what cannot be read'):
        decode(body, AllocationRequests)


SUMMARIES = [
    '{"host": {"resources": {"VCPU": {"capacity": 16, "used": 6}}}}',
    '{"gpu": {"resources": {"VGPU": {"capacity": 4, "used": 1}, '
    '"X": {"capacity": 0, "used": 0}}}}',
]


@pytest.mark.parametrize(
    ('summaries', 'capacities'),
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
def test_remaining_capacity_comes_from_provider_summaries(summaries, capacities):
    """The remaining capacity of providers comes from the provider summaries."""
    bodies = []
    for summary in summaries:
        bodies.append(b'{"provider_summaries": %s}' % summary.encode())
    index = AskedCandidates([], bodies)

    assert index.capacity_left('host') == capacities[0]
    assert index.capacity_left('gpu') == capacities[1]
    assert index.capacity_left('nobody') == capacities[2]


ONE = a_candidate('h', '1')
TWO = a_candidate('h', '2')
BOTH = a_candidate('h', '1', '2')


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
def test_pending_and_refused_claims_decide_the_chosen_candidate(
    offered, pending, refused, chosen
):
    """The first candidate with enough capacity is chosen, less pending claims. After a
    refusal, a candidate of different providers is chosen, as different from the refused
    candidates as possible. Without summaries, Placement decides."""
    left = {'CUSTOM_X': 3, 'VCPU': 8}
    index = an_index(offered, {'h': left, '1': left, '2': left})

    assert choose(index, 'h', lambda: pending, lambda _: 0, refused) is chosen
    if not refused:
        without_summaries = CandidateIndex(offered)
        first = choose(without_summaries, 'h', lambda: pending, lambda _: 0)
        assert first is offered[0]


def an_index(candidates, left):
    """Make an index with summaries: the remaining amounts by provider and class."""
    summaries = {}
    for provider, amounts in left.items():
        resources = {}
        for name, amount in amounts.items():
            resources[name] = {'capacity': 3 * amount, 'used': 2 * amount}
        summaries[provider] = {'resources': resources}
    body = json.dumps({'provider_summaries': summaries})
    return AskedCandidates(candidates, [body.encode()])


def cards(**amounts):
    """The resources of a candidate: a VCPU of a host, and VGPUs of cards."""
    return {'h': {'VCPU': 1}, **{card: {'VGPU': n} for card, n in amounts.items()}}


def vgpus(**left):
    """The remaining resources of a host and its cards."""
    return {'h': {'VCPU': 9}, **{card: {'VGPU': n} for card, n in left.items()}}


def one_card_each(names, amount=1):
    """Candidates by name, each with an amount of the card of that name."""
    return {name: cards(**{name: amount}) for name in names}


GPU_AND_NIC = {
    'ay': {'a': {'VGPU': 1}, 'y': {'CUSTOM_VF': 1}},
    'az': {'a': {'VGPU': 1}, 'z': {'CUSTOM_VF': 1}},
    'by': {'b': {'VGPU': 1}, 'y': {'CUSTOM_VF': 1}},
    'bz': {'b': {'VGPU': 1}, 'z': {'CUSTOM_VF': 1}},
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
            one_card_each('abc'),
            vgpus(a=8, b=3, c=4),
            {},
            'b c a',
            id='the fullest device',
        ),
        pytest.param(
            one_card_each('cab'),
            vgpus(a=4, b=4, c=4),
            {},
            'c a b',
            id='equal ones',
        ),
        pytest.param(one_card_each('cab'), {}, {}, 'c a b', id='nothing is known'),
        pytest.param(
            one_card_each('ab'),
            vgpus(a=4, b=5),
            {'pending': {'b': {'VGPU': 2}}},
            'b a',
            id='beside pending claims',
        ),
        pytest.param(
            one_card_each('ab', 2),
            vgpus(a=4, b=5),
            {'pending': {'a': {'VGPU': 3}}},
            'b a',
            id='too little beside pending claims',
        ),
        pytest.param(
            {'ab': cards(a=1, b=1), 'ac': cards(a=1, c=1), 'bc': cards(b=1, c=1)},
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
            one_card_each('ab'),
            {'a': {'VGPU': 4, 'X': 0}, 'b': {'VGPU': 3, 'X': 9}},
            {},
            'b a',
            id='classes that are not requested',
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
def test_candidates_with_few_near_and_full_devices_come_first(
    candidates, left, more, order
):
    """Candidates are ordered by the number of devices, then by the distance of the
    devices from the guest, then by the remaining capacity of the devices."""
    remaining = {}
    for name, amounts in candidates.items():
        remaining[name] = a_full_candidate(amounts)
    far = remaining.get(more.get('far'))

    def pending():
        return more.get('pending', {})

    def far_devices(candidate):
        return candidate is far

    names = []
    while remaining:
        index = an_index(remaining.values(), left)
        index['h'] = list(remaining.values())
        best = choose(index, 'h', pending, far_devices)
        [name] = [name for name, value in remaining.items() if value is best]
        names.append(name)
        del remaining[name]

    assert ' '.join(names) == order


def test_a_narrowed_index_keeps_the_remaining_capacity():
    """The narrowed index keeps the remaining capacity of the providers. The original
    index does not change."""
    index = an_index([ONE, TWO], {'1': {'CUSTOM_X': 4}, '2': {'CUSTOM_X': 3}})

    narrowed_index = index.narrowed({'h': [TWO]})

    assert narrowed_index['h'] == [TWO]
    assert narrowed_index['1'] == [ONE]
    assert narrowed_index.capacity_left('1') == {'CUSTOM_X': 4}
    assert narrowed_index.count == 2
    assert index['h'] == [ONE, TWO]
