# SPDX-License-Identifier: Apache-2.0
"""Trees of resource providers, and queries for providers of a tree."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

Amounts = Mapping[str, int]
"""Amounts by resource class."""


@dataclass(frozen=True, slots=True)
class TraitRule:
    """A rule on the traits of a provider, or of several providers together.

    :ivar required: sets of traits; one trait of each set is required.
    :ivar forbidden: traits that no provider may have.
    """

    required: frozenset[frozenset[str]] = frozenset()
    forbidden: frozenset[str] = frozenset()

    def has_required(self, traits: frozenset[str]) -> bool:
        """True if traits have one of each required set."""
        return all(not options.isdisjoint(traits) for options in self.required)

    def accepts(self, traits: frozenset[str]) -> bool:
        """True if a single provider with the traits meets the rule."""
        return self.forbidden.isdisjoint(traits) and self.has_required(traits)


ANY_TRAITS = TraitRule()


@dataclass(frozen=True, slots=True)
class Group:
    """A request group.

    :ivar suffix: '' for the unsuffixed group.
    :ivar amounts: pairs of resource class and amount; none for a group without
        resources.
    :ivar kind: the PCI request of the group. Equal groups of different kinds are not
        interchangeable: filters compare devices with the PCI request.
    """

    suffix: str
    amounts: tuple[tuple[str, int], ...]
    traits: TraitRule = ANY_TRAITS
    kind: str = ''


@dataclass(frozen=True, slots=True)
class TreeQuery:
    """A query, as far as trees are concerned.

    :ivar groups: the request groups; suffixes are unique.
    :ivar isolate: True for ``group_policy=isolate``.
    :ivar same_subtrees: sets of suffixes.
    :ivar root: the rule of ``root_required``.
    """

    groups: tuple[Group, ...]
    isolate: bool = False
    same_subtrees: tuple[frozenset[str], ...] = ()
    root: TraitRule = ANY_TRAITS

    @property
    def demand(self) -> dict[str, int]:
        """The amounts of all groups together, by resource class."""
        demand: dict[str, int] = {}
        for group in self.groups:
            for name, amount in group.amounts:
                demand[name] = demand.get(name, 0) + amount
        return demand

    @property
    def form(self) -> Hashable:
        """Queries of equal forms have the same hosts. Suffixes may have UUIDs, which
        differ from one request to the next."""
        number_of = {group.suffix: i for i, group in enumerate(self.groups)}
        groups = []
        for group in self.groups:
            groups.append((group.suffix == '', group.amounts, group.traits))
        subtrees = []
        for suffixes in self.same_subtrees:
            subtrees.append(frozenset(number_of.get(suffix) for suffix in suffixes))
        return tuple(groups), self.isolate, tuple(subtrees), self.root

    @property
    def named_traits(self) -> frozenset[str]:
        """The traits that the query names. Trees that differ only in other traits are
        equal for the query."""
        named: set[str] = set()
        for rule in (self.root, *(group.traits for group in self.groups)):
            named.update(rule.forbidden, *rule.required)
        return frozenset(named)

    @property
    def forbidden_traits(self) -> frozenset[str]:
        """The traits that any group, or the root, forbids."""
        forbidden = self.root.forbidden
        for group in self.groups:
            forbidden |= group.traits.forbidden
        return forbidden


@dataclass(frozen=True)
class TreeShape:
    """The providers of a tree without UUIDs and amounts. Equal trees share a shape.

    :ivar parents: the position of each provider's parent; the root is first, and has
        the parent -1.
    :ivar traits: the traits of each provider.
    """

    parents: tuple[int, ...]
    traits: tuple[frozenset[str], ...]

    def with_traits(self, traits: frozenset[str]) -> 'TreeShape':
        """The shape with only some traits."""
        return TreeShape(self.parents, tuple(own & traits for own in self.traits))

    @cached_property
    def interchangeable(self) -> Sequence[Sequence[int]]:
        """Blocks of leaves with the same parent and the same traits."""
        blocks: dict[Hashable, list[int]] = {}
        for provider, parent in enumerate(self.parents):
            if self.is_leaf(provider):
                key = (parent, self.traits[provider])
                blocks.setdefault(key, []).append(provider)
        return [block for block in blocks.values() if len(block) > 1]

    @property
    def is_tree(self) -> bool:
        """True if the root is an ancestor of all providers."""
        below_root = {0}
        for _ in self.parents:
            for provider, parent in enumerate(self.parents):
                if parent in below_root:
                    below_root.add(provider)
        return self.parents[0] == -1 and len(below_root) == len(self.parents)

    def is_leaf(self, provider: int) -> bool:
        """True if a provider has no children."""
        return provider not in self.parents

    def lineage(self, provider: int) -> Iterator[int]:
        """A provider and its ancestors, up to the root."""
        while provider >= 0:
            yield provider
            provider = self.parents[provider]
