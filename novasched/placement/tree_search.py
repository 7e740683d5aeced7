# SPDX-License-Identifier: Apache-2.0
"""Allocation candidates worked out from trees of resource providers.

A query of GET /allocation_candidates has request groups. The search assigns providers
of a tree to the groups by the rules of Placement (microversion 1.36):

- Resources of a suffixed group come from a single provider. The provider has all
  required traits, one of each ``in:`` list (1.39), and no forbidden trait.
- Each resource class of the unsuffixed group may come from another provider of the
  tree. Together, the providers have the required traits. No provider has a forbidden
  trait.
- With ``group_policy=isolate``, suffixed groups have different providers.
- The providers of the groups in a ``same_subtree`` set (1.36) descend from one of
  these providers. A group without resources takes part with its traits.
- The traits of ``root_required`` (1.35) count for the root of the tree.

A tree with equal devices has thousands of candidates that differ in nothing but the
choice among these devices. The search finds one candidate of each kind: providers are
interchangeable if parent, traits, free amounts and place are equal.

Sharing providers, aggregates of nested providers, and ``min_unit``, ``max_unit`` and
``step_size`` of inventories are not part of a tree.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from novasched.placement.trees import Amounts, TraitRule, TreeQuery, TreeShape

MAX_STEPS = 20_000
"""Assignments of a provider to a part of a query before a search is given up."""


class SearchTooLong(Exception):
    """A search has taken :data:`MAX_STEPS` steps."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """The providers of a tree for a query, as positions in the tree.

    :ivar providers: for each suffix, the providers of the group.
    :ivar amounts: the amounts to allocate, by provider and resource class.
    """

    providers: Mapping[str, Sequence[int]]
    amounts: Mapping[int, Amounts]


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a query that a single provider serves: a suffixed group, or a resource
    class of the unsuffixed group.

    :ivar subtrees: positions of the ``same_subtree`` sets of the group.
    :ivar options: the providers that can serve the part, the least sufficient first.
    """

    suffix: str
    amounts: tuple[tuple[str, int], ...]
    traits: TraitRule
    subtrees: frozenset[int] = frozenset()
    kind: str = ''
    options: tuple[int, ...] = ()

    @property
    def form(self) -> Hashable:
        """Parts with equal forms can change places in an assignment."""
        if not self.suffix:
            return self
        return self.amounts, self.traits, self.subtrees, self.kind


@dataclass(slots=True)
class _ClassDemand:
    """The demand of all parts for a resource class.

    :ivar groups: number of suffixed groups with the class.
    :ivar options: the providers that can serve a part with the class.
    """

    name: str
    amount: int = 0
    groups: int = 0
    options: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Constraint:
    """A condition on the providers of several parts.

    :ivar parts: positions of the parts. The condition is checked when the last part has
        a provider.
    :ivar holds: takes the providers of the parts, in order.
    """

    parts: tuple[int, ...]
    holds: Callable[[Sequence[int]], bool]


def parts_of(query: TreeQuery) -> Iterator[_Part]:
    """The parts of a query."""
    for group in query.groups:
        if not group.suffix:
            # Required traits may be spread over the providers: see _all_constraints.
            traits = TraitRule(forbidden=group.traits.forbidden)
            for pair in group.amounts:
                yield _Part('', (pair,), traits)
            continue

        subtrees = [
            number
            for number, suffixes in enumerate(query.same_subtrees)
            if group.suffix in suffixes
        ]
        yield _Part(
            group.suffix, group.amounts, group.traits, frozenset(subtrees), group.kind
        )


@dataclass
class TreeSearch:
    """The search for assignments in a tree.

    :ivar free: the unused capacity of each provider.
    :ivar places: for each provider, a value that tells apart otherwise equal providers,
        such as a NUMA cell; empty if all providers are in the same place.
    :ivar choice: for each kind of groups, the allowed providers with their ranks; a
        provider of a lower rank is tried first. Other kinds may have any provider.
    """

    query: TreeQuery
    shape: TreeShape
    free: Sequence[Amounts]
    places: Sequence[Hashable] = ()
    choice: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    _parts: list[_Part] = field(init=False, repr=False)
    _demands: list[_ClassDemand] = field(init=False, repr=False)
    _constraints: list[list[_Constraint]] = field(init=False, repr=False)
    _chosen: list[int] = field(init=False, repr=False)
    _taken: dict[int, dict[str, int]] = field(init=False, repr=False)
    _steps: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        parts = []
        options: dict[Hashable, tuple[int, ...]] = {}
        for part in parts_of(self.query):
            if part.form not in options:
                options[part.form] = self._options_of(part)
            parts.append(replace(part, options=options[part.form]))

        # The part with the fewest options first. Equal parts stand side by side, so
        # that _is_allowed can keep their providers in order.
        forms: dict[Hashable, int] = {}
        for part in parts:
            forms.setdefault(part.form, len(forms))
        parts.sort(key=lambda part: (len(part.options), forms[part.form]))
        self._parts = parts
        self._demands = self._all_demands()
        self._begin()

        self._constraints = [[] for _ in parts]
        for constraint in self._all_constraints():
            if constraint.parts:
                self._constraints[max(constraint.parts)].append(constraint)

    def fits(self) -> bool:
        """True if the tree has an assignment.

        :raises SearchTooLong: the search was given up.
        """
        if not self._is_possible():
            return False
        self._begin()
        return any(True for _ in self._assign(len(self._parts)))

    def assignments(self) -> Iterator[Assignment]:
        """At least one assignment of each kind. Assignments with the fewest providers
        come first; then, roughly, with the least sufficient providers. With equal
        groups, a kind may come again.

        If the search for the fewest providers is given up, an assignment comes all the
        same from a tree that :meth:`fits`.

        :raises SearchTooLong: the search was given up.
        """
        if not self._is_possible():
            return
        is_found = False
        try:
            for number in range(self._least_providers(), len(self._parts) + 1):
                self._begin()
                for _ in self._assign(number, number):
                    is_found = True
                    yield self._assignment()
            return
        except SearchTooLong:
            if is_found:
                raise

        # The search of fits(): any number of providers, and no places.
        self.places = ()
        self._begin()
        for _ in self._assign(len(self._parts)):
            yield self._assignment()

    def _is_possible(self) -> bool:
        """True unless the root, a part alone, or a sum of amounts excludes the tree."""
        if not self.query.root.accepts(self.shape.traits[0]) or not all(
            part.options for part in self._parts
        ):
            return False
        for demand in self._demands:
            free = [self.free[provider][demand.name] for provider in demand.options]
            if sum(free) < demand.amount:
                return False
            if self.query.isolate and len(free) < demand.groups:
                return False
        return True

    def _begin(self) -> None:
        """Begin a search. An earlier search may have been left in the middle."""
        self._chosen = []
        self._taken = {}
        self._steps = 0

    def _options_of(self, part: _Part) -> tuple[int, ...]:
        """The providers that can serve a part, the least sufficient first."""
        ranks = self.choice.get(part.kind)
        options = []
        for provider, traits in enumerate(self.shape.traits):
            if ranks is not None and provider not in ranks:
                continue
            free = self.free[provider]
            has_amounts = all(free.get(name, 0) >= n for name, n in part.amounts)
            if has_amounts and part.traits.accepts(traits):
                options.append(provider)

        def order(provider: int) -> tuple[int, int, int]:
            free = self.free[provider]
            rank = ranks[provider] if ranks is not None else 0
            return rank, sum(free[name] for name, _ in part.amounts), provider

        return tuple(sorted(options, key=order))

    def _all_demands(self) -> list[_ClassDemand]:
        """The demand of all parts for each resource class."""
        demands: dict[str, _ClassDemand] = {}
        for part in self._parts:
            for name, amount in part.amounts:
                demand = demands.setdefault(name, _ClassDemand(name))
                demand.amount += amount
                demand.groups += part.suffix != ''
                demand.options.update(part.options)
        return [*demands.values()]

    def _all_constraints(self) -> Iterator[_Constraint]:
        """The conditions on several parts."""
        suffixes = [part.suffix for part in self._parts]
        for group in self.query.groups:
            if not group.suffix and group.traits.required:
                rule = group.traits
                members = [i for i, suffix in enumerate(suffixes) if not suffix]
                yield _Constraint(tuple(members), partial(self._has_traits, rule))
        for subtree in self.query.same_subtrees:
            members = [i for i, suffix in enumerate(suffixes) if suffix in subtree]
            yield _Constraint(tuple(members), self._is_subtree)

    def _has_traits(self, rule: TraitRule, chosen: Sequence[int]) -> bool:
        """True if providers have the required traits together."""
        traits: frozenset[str] = frozenset()
        for provider in chosen:
            traits |= self.shape.traits[provider]
        return rule.has_required(traits)

    def _is_subtree(self, chosen: Sequence[int]) -> bool:
        """True if one of the providers is an ancestor of all others."""
        common = set(self.shape.lineage(chosen[0]))
        for provider in chosen[1:]:
            common.intersection_update(self.shape.lineage(provider))
        return not common.isdisjoint(chosen)

    def _assign(self, max_providers: int, min_providers: int = 0) -> Iterator[None]:
        """Assign the next part; yields once for each complete assignment."""
        position = len(self._chosen)
        if len(self._taken) + len(self._parts) - position < min_providers:
            # The remaining parts add too few providers.
            return
        if position == len(self._parts):
            yield
            return

        part = self._parts[position]
        kinds = set()
        for provider in part.options:
            if not self._is_allowed(part, provider, max_providers):
                continue
            kind = self._kind(provider)
            if kind in kinds:
                continue
            kinds.add(kind)

            self._steps += 1
            if self._steps > MAX_STEPS:
                raise SearchTooLong()
            self._choose(part, provider)
            if self._holds(position):
                yield from self._assign(max_providers, min_providers)
            self._unchoose(part)

    def _is_allowed(self, part: _Part, provider: int, max_providers: int) -> bool:
        """True if a provider can serve a part beside the parts before."""
        position = len(self._chosen)
        taken = self._taken.get(provider)
        if taken is None and part.amounts and len(self._taken) == max_providers:
            return False

        if taken is not None:
            free = self.free[provider]
            for name, amount in part.amounts:
                if taken.get(name, 0) + amount > free[name]:
                    return False

        if self.query.isolate and part.suffix:
            for other, chosen in zip(self._parts, self._chosen, strict=False):
                if chosen == provider and other.suffix:
                    return False

        # Of the assignments that differ in the order of equal parts, one is enough.
        if position and self._parts[position - 1].form == part.form:
            before = self._chosen[position - 1]
            return part.options.index(provider) >= part.options.index(before)
        return True

    def _kind(self, provider: int) -> Hashable:
        """Unused providers of one kind are interchangeable."""
        if provider in self._chosen or not self.shape.is_leaf(provider):
            return provider
        return (
            self.shape.parents[provider],
            self.shape.traits[provider],
            frozenset(self.free[provider].items()),
            self.places[provider] if self.places else None,
        )

    def _choose(self, part: _Part, provider: int) -> None:
        self._chosen.append(provider)
        if part.amounts:
            taken = self._taken.setdefault(provider, {})
            for name, amount in part.amounts:
                taken[name] = taken.get(name, 0) + amount

    def _unchoose(self, part: _Part) -> None:
        provider = self._chosen.pop()
        if part.amounts:
            taken = self._taken[provider]
            for name, amount in part.amounts:
                taken[name] -= amount
                if not taken[name]:
                    del taken[name]
            if not taken:
                del self._taken[provider]

    def _holds(self, position: int) -> bool:
        """True if the conditions hold that a part completes."""
        for constraint in self._constraints[position]:
            chosen = [self._chosen[part] for part in constraint.parts]
            if not constraint.holds(chosen):
                return False
        return True

    def _assignment(self) -> Assignment:
        providers: dict[str, list[int]] = {}
        for part, provider in zip(self._parts, self._chosen, strict=True):
            of_group = providers.setdefault(part.suffix, [])
            if provider not in of_group:
                of_group.append(provider)
        amounts = {provider: dict(taken) for provider, taken in self._taken.items()}
        return Assignment(providers, amounts)

    def _least_providers(self) -> int:
        """A lower bound of the number of providers. Without the bound, the search would
        try every smaller number in vain."""
        least = 0
        counted: set[int] = set()
        for demand in sorted(self._demands, key=lambda demand: len(demand.options)):
            # The same providers may serve this class and an earlier class.
            if counted.isdisjoint(demand.options):
                counted |= demand.options
                least += self._least_providers_of(demand)
        return least

    def _least_providers_of(self, demand: _ClassDemand) -> int:
        """The number of the largest providers that serve the demand for a class."""
        free = [self.free[provider][demand.name] for provider in demand.options]
        count = 0
        amount = demand.amount
        for largest in sorted(free, reverse=True):
            if amount <= 0:
                break
            amount -= largest
            count += 1
        if self.query.isolate:
            return max(count, demand.groups)
        return count
