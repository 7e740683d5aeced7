# SPDX-License-Identifier: Apache-2.0
"""Claims in memory against a model of Placement that recounts for each question."""

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from novasched.conf.settings import Settings
from novasched.placement import wire
from novasched.placement.client import CandidatesWithSummaries
from novasched.tools.simulate.simulated_placement import (
    CandidatesLeft,
    SimulatedPlacement,
)
from tests.lab.builders import a_full_candidate, a_request, a_uuid

PROVIDERS = [a_uuid(name) for name in 'abc']
CLASSES = ['VCPU', 'MEMORY_MB', 'CUSTOM_X']


@dataclass(frozen=True)
class Inventory:
    """The inventory of a resource class, as Placement keeps inventories."""

    total: int
    reserved: int
    allocation_ratio: float
    min_unit: int
    max_unit: int
    step_size: int
    used: int

    def takes(self, amount, used):
        """True if ``amount`` is available while ``used`` is in use."""
        if not self.min_unit <= amount <= self.max_unit or amount % self.step_size:
            return False
        capacity = (self.total - self.reserved) * self.allocation_ratio
        return used + amount <= capacity


@dataclass
class PlacementModel:
    """A Placement that remembers inventories and allocations alone.

    :ivar inventories: (provider, class) to inventory.
    :ivar allocations: name of an instance to amounts by (provider, class).
    """

    inventories: dict
    allocations: dict = field(default_factory=dict)

    def used(self, key):
        """The used amount of a class of a provider."""
        amounts = [of_instance.get(key, 0) for of_instance in self.allocations.values()]
        return self.inventories[key].used + sum(amounts)

    def fits(self, amounts):
        """True if an instance can have the amounts."""
        return all(self._fits(key, amount) for key, amount in flat(amounts).items())

    def lacking(self, amounts):
        """The classes of which a provider cannot give an instance its amount."""
        classes = set()
        for key, amount in flat(amounts).items():
            if not self._fits(key, amount):
                classes.add(key[1])
        return frozenset(classes)

    def claim(self, wanted):
        """Claim the amounts of all instances, by name, or claim nothing."""
        before = dict(self.allocations)
        for name, amounts in wanted.items():
            if not self.fits(amounts):
                self.allocations = before
                return False
            self.allocations[name] = flat(amounts)
        return True

    def _fits(self, key, amount):
        inventory = self.inventories.get(key)
        return inventory is not None and inventory.takes(amount, self.used(key))


def flat(amounts):
    """(Provider, class) to amount."""
    by_key = {}
    for provider, of_provider in amounts.items():
        for name, amount in of_provider.items():
            by_key[provider, name] = amount
    return by_key


inventories = st.builds(
    Inventory,
    total=st.integers(1, 24),
    reserved=st.integers(0, 6),
    allocation_ratio=st.sampled_from([0.5, 1.0, 1.1, 1.5, 4.0]),
    min_unit=st.integers(1, 2),
    max_unit=st.integers(1, 24),
    step_size=st.integers(1, 3),
    used=st.integers(0, 12),
)
stocks = st.dictionaries(
    st.tuples(st.sampled_from(PROVIDERS), st.sampled_from(CLASSES)),
    inventories,
    max_size=9,
)
amounts = st.dictionaries(
    st.sampled_from(PROVIDERS),
    st.dictionaries(st.sampled_from(CLASSES), st.integers(1, 6), min_size=1),
    min_size=1,
    max_size=2,
)
events = st.lists(
    st.lists(st.integers(0, 7), min_size=1, max_size=3) | st.just('give back'),
    max_size=12,
)


def free_resources(stock):
    """The free amounts of providers, as a simulation reads the amounts from Placement's
    answer."""
    resources = {}
    for (provider, name), inventory in stock.items():
        capacity = inventory.total - inventory.reserved
        capacity = int(capacity * inventory.allocation_ratio)
        resource = wire.ProviderSummaryResource(capacity, inventory.used)
        resources.setdefault(provider, {})[name] = resource

    summaries = {}
    for provider, of_provider in resources.items():
        summaries[provider] = wire.ProviderSummary(of_provider)

    placement = SimulatedPlacement(
        lambda _query: CandidatesWithSummaries([], summaries), Settings()
    )
    placement.candidates(a_request())
    return placement.free


@settings(deadline=None, max_examples=300)
@given(stocks, st.lists(amounts, min_size=1, max_size=8), events)
def test_claims_in_memory_equal_the_claims_of_a_placement_model(stock, ways, story):
    """After every claim and release, the remaining candidates are the candidates that
    the model would offer, in the same order. The model and the free amounts accept the
    same claims, of several instances or of a single instance. The classes that rejected
    candidates lack are the classes that the model lacks."""
    model = PlacementModel(stock)
    free = free_resources(stock)
    offered = [amounts for amounts in ways if model.fits(amounts)]
    remaining = CandidatesLeft(list(map(a_full_candidate, offered)), free)
    claims = []

    for number, event in enumerate(story):
        if event == 'give back':
            if claims:
                for name, amounts in claims.pop().items():
                    del model.allocations[name]
                    free.change(amounts, 1)
        elif offered:
            wanted = {}
            for i, way in enumerate(event):
                wanted[f'{number}.{i}'] = offered[way % len(offered)]
            assert model.claim(wanted) == free.take(list(wanted.values()))
            if wanted.keys() <= model.allocations.keys():
                claims.append(wanted)

        check_remaining(remaining, offered, model)


def check_remaining(remaining, offered, model):
    """The remaining candidates are the candidates that fit in the model."""
    expected = []
    lacking = Counter()
    for amounts in offered:
        if model.fits(amounts):
            expected.append(amounts)
        else:
            lacking[model.lacking(amounts)] += 1

    assert [candidate.resources() for candidate in remaining.first(99)] == expected
    candidate_ids = set()
    for of_provider in remaining.fitting().values():
        candidate_ids.update(map(id, of_provider))
    assert len(candidate_ids) == remaining.fitting().count == len(expected)
    assert remaining.lacking() == lacking
