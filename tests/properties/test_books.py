# SPDX-License-Identifier: Apache-2.0
"""Claims in memory against a Placement that counts everything anew for each
question."""

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from novasched.conf.settings import Settings
from novasched.placement import wire
from novasched.placement.client import CandidatesWithSummaries
from novasched.tools.simulate.simulator import CandidatesLeft, SimulatedPlacement
from tests.lab.builders import a_full_candidate, a_request, a_uuid

PROVIDERS = [a_uuid(name) for name in 'abc']
CLASSES = ['VCPU', 'MEMORY_MB', 'CUSTOM_X']


@dataclass(frozen=True)
class Inventory:
    """What a provider has of a class, as Placement keeps it."""

    total: int
    reserved: int
    allocation_ratio: float
    min_unit: int
    max_unit: int
    step_size: int
    used: int

    def takes(self, amount, used):
        """Whether so much more can be had where so much is in use."""
        capacity = (self.total - self.reserved) * self.allocation_ratio
        units = (
            self.min_unit <= amount <= self.max_unit and amount % self.step_size == 0
        )
        return units and used + amount <= capacity


@dataclass
class Twin:
    """A Placement that remembers who has what, and nothing else."""

    stock: dict
    held: dict = field(default_factory=dict)

    def used(self, key):
        """What is in use of a class of a provider."""
        claimed = sum(each.get(key, 0) for each in self.held.values())
        return self.stock[key].used + claimed

    def fits(self, amounts):
        """Whether one server can have this."""
        return all(
            key in self.stock and self.stock[key].takes(amount, self.used(key))
            for key, amount in flat(amounts).items()
        )

    def lacking(self, amounts):
        """The classes of which some provider cannot give one server this."""
        wanted = flat(amounts).items()
        return frozenset(
            key[1] for key, n in wanted if not self.stock[key].takes(n, self.used(key))
        )

    def claim(self, wanted):
        """All of these servers, by name, or none."""
        before = dict(self.held)
        for name, amounts in wanted.items():
            if not self.fits(amounts):
                self.held = before
                return False
            self.held[name] = flat(amounts)
        return True


def flat(amounts):
    """(Provider, class) to amount."""
    return {(rp, name): n for rp, each in amounts.items() for name, n in each.items()}


inventory = st.builds(
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
    inventory,
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
    """The free amounts of providers, as a simulation learns them from Placement's
    answer."""
    inventories = {}
    for (provider, name), each in stock.items():
        capacity = int((each.total - each.reserved) * each.allocation_ratio)
        inventories.setdefault(provider, {})[name] = wire.ProviderSummaryResource(
            capacity, each.used
        )
    summaries = {rp: wire.ProviderSummary(each) for rp, each in inventories.items()}
    placement = SimulatedPlacement(
        lambda _query: CandidatesWithSummaries([], summaries), Settings()
    )
    placement.candidates(a_request())
    return placement.free


@settings(deadline=None, max_examples=300)
@given(stocks, st.lists(amounts, min_size=1, max_size=8), events)
def test_claims_are_those_that_placement_would_make(stock, ways, story):
    """Whatever is claimed and given back, what is left of the candidates that Placement
    offered first is what it would offer now, in their order; the others lack just the
    classes without which it would not; and it says yes and no to the same claims: of
    several servers together or of one."""
    twin = Twin(stock)
    free = free_resources(stock)
    offered = [each for each in ways if twin.fits(each)]
    left = CandidatesLeft([a_full_candidate(each) for each in offered], free)
    made = []
    for number, event in enumerate(story):
        if event == 'give back':
            if made:
                for name, each in made.pop().items():
                    del twin.held[name]
                    free.release(each)
        elif offered:
            wanted = {
                f'{number}.{i}': offered[way % len(offered)]
                for i, way in enumerate(event)
            }
            assert twin.claim(wanted) == free.take(list(wanted.values()))
            if wanted.keys() <= twin.held.keys():
                made.append(wanted)
        expected = [each for each in offered if twin.fits(each)]
        assert [each.resources() for each in left.first(99)] == expected
        fitting = {
            id(each) for of_provider in left.fitting().values() for each in of_provider
        }
        assert len(fitting) == left.fitting().count == len(expected)
        assert left.lacking() == Counter(
            twin.lacking(x) for x in offered if not twin.fits(x)
        )
