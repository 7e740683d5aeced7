# SPDX-License-Identifier: Apache-2.0
"""Placements in memory in which all claims have the same size."""

import json
from itertools import chain

from novasched.placement.candidates import AskedCandidates
from novasched.scheduler.memory import MemoryPlacement
from novasched.scheduler.model.basis import FRESH


def slots_on(hosts, number):
    """Host UUID to the number of slots, the same on all hosts."""
    return {host.uuid: number for host in hosts}


class CountingPlacement(MemoryPlacement):
    """A Placement where a claim takes a slot of the provider.

    :param slots: the maximum number of claims by provider UUID.
    :param stale: see :class:`novasched.scheduler.memory.MemoryPlacement`.
    """

    def __init__(self, slots, stale=()):
        free = {provider: {'VCPU': number} for provider, number in slots.items()}
        super().__init__(free, resources=lambda request: {'VCPU': 1}, stale=stale)

    @property
    def slots(self):
        """The number of further claims by provider UUID."""
        by_provider = self.free.by_provider
        return {provider: amounts['VCPU'] for provider, amounts in by_provider.items()}

    @property
    def hosts(self):
        """The provider of each instance with an allocation."""
        return {uuid: next(iter(amounts)) for uuid, amounts in self.allocations.items()}

    def claim_together(self, wanted, basis=FRESH):
        """Claim for instances with a UUID and without allocations."""
        for request, _ in wanted:
            assert request.instance_uuid
            assert request.instance_uuid not in self.allocations
        return super().claim_together(wanted, basis)


class TraitsPlacement(CountingPlacement):
    """A Placement with the traits of providers in its answers.

    :param traits: the names of traits by provider UUID.
    """

    def __init__(self, slots, traits):
        super().__init__(slots)
        self.traits = {}
        for provider, names in traits.items():
            self.traits[provider] = {'traits': [*names]}

    def candidates(self, request, basis=FRESH):
        """The candidates, as parsed from an answer with the summaries of providers."""
        candidates = chain.from_iterable(super().candidates(request, basis).values())
        answer = json.dumps({'provider_summaries': self.traits})
        return AskedCandidates(candidates, [answer.encode()])
