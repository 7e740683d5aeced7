# SPDX-License-Identifier: Apache-2.0
import json

import pytest

from novasched.placement.candidates import by_provider, parse

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


def test_each_provider_leads_to_its_candidates():
    """Compute nodes, their nested providers and shared storage are all keys."""
    first, second = parse(json.dumps(NESTED).encode())
    assert by_provider([first, second]) == {
        'root1': [first], 'gpu1': [first], 'nfs': [first], 'root2': [second], 'gpu2': [second],
    }  # fmt: skip


def test_a_candidate_keeps_what_placement_said():
    """Amounts, mappings and the body to claim with are what came in."""
    first, _ = parse(json.dumps(NESTED).encode())
    given = NESTED['allocation_requests'][0]
    assert first.resources()['gpu1'] == {'VGPU': 1}
    assert first.providers_by_group() == given['mappings']
    assert json.loads(first.body()) == given


@pytest.mark.parametrize(
    'body', [b'', b'null', b'{}', b'[]', b'{"allocation_requests": 1}', b'<html>']
)
def test_other_answers_are_refused(body):
    """What is no list of candidates is a ValueError, whatever it is."""
    with pytest.raises(ValueError, match=r'.'):
        parse(body)
