# SPDX-License-Identifier: Apache-2.0
"""Claims and the allocations of instances, in Placement's JSON."""

import msgspec
import pytest

from novasched.placement.allocations import Claim
from novasched.placement.wire import ConsumerAllocations
from tests.lab.builders import a_full_candidate

TARGET = {'target': {'VCPU': 1}, 'nfs': {'DISK_GB': 5}}


def amounts_of(body):
    """The amounts in a body, by provider."""
    plain = msgspec.json.decode(msgspec.json.encode(body))
    amounts = {}
    for provider, allocation in plain['allocations'].items():
        amounts[provider] = allocation['resources']
    return amounts


def allocations(resources, generation):
    """Placement's answer about an instance."""
    rows = {provider: {'resources': amounts} for provider, amounts in resources.items()}
    plain = {'allocations': rows, 'consumer_generation': generation}
    return msgspec.convert(plain, ConsumerAllocations)


@pytest.mark.parametrize(
    ('held', 'written'),
    [
        ({'source': {'VCPU': 2}}, {'source': {'VCPU': 2}, **TARGET}),
        # Storage that serves both hosts gives what it gave before, and is not asked
        # twice.
        ({'nfs': {'DISK_GB': 7}}, {**TARGET, 'nfs': {'DISK_GB': 7}}),
        (
            {'target': {'VCPU': 4}, 'gone': {'VGPU': 1}},
            {**TARGET, 'target': {'VCPU': 4}, 'gone': {'VGPU': 1}},
        ),
    ],
)
def test_a_claim_for_a_move_keeps_the_earlier_allocations(held, written):
    """The claim is written beside the earlier allocations, in the next generation.
    Equal allocations from another claim are told apart, and deleting the claim leaves
    the earlier allocations."""
    claim = Claim('server', a_full_candidate(TARGET), {}).beside(allocations(held, 3))
    assert amounts_of(claim.body()) == written == claim.wanted()
    assert claim.body()['consumer_generation'] == 3
    made = allocations(written, 4)
    assert claim.is_made(made)
    assert not claim.is_made(allocations(written, 5))
    undone = claim.undo_body(made)
    assert amounts_of(undone) == held
    assert undone['consumer_generation'] == 4
