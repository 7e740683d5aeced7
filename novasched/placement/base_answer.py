# SPDX-License-Identifier: Apache-2.0
"""The answer of Placement to a base query, in columns.

An answer has the provider tree of each host: unused capacity, traits and parent of each
provider. The query of a request is matched with all trees at once. Trees are compared
in columns as far as their amounts decide, and searched
(:mod:`novasched.placement.tree_search`) once for each different pattern of free
amounts.
"""

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
import os_traits
from numpy.typing import NDArray

from novasched.placement.tree_search import SearchTooLong, TreeSearch
from novasched.placement.trees import Amounts, TreeQuery, TreeShape
from novasched.placement.wire import (
    AllocationCandidates,
    AllocationRequest,
    HostSummary,
    UnusableAnswer,
    decode,
)

CUSTOM = 'CUSTOM_'
"""Prefix of traits that Placement may not know."""
MAX_QUERIES = 64
"""Queries with shapes whose verdicts are kept."""
MAX_PATTERNS = 10_000
"""Patterns whose verdicts are kept, of each query and shape."""

Column = NDArray[np.int64]


class ShapesOfHosts(NamedTuple):
    """The different shapes of trees, and by host the index of the shape."""

    shapes: Sequence[TreeShape]
    shape_of: NDArray[np.intp]


@dataclass(frozen=True)
class Trees:
    """The providers of the hosts of an answer. The rows of a tree are adjacent, and
    begin with the compute node.

    :ivar uuids: the UUIDs of all providers.
    :ivar first_rows: by host, the row of the compute node.
    :ivar shapes: the different shapes of trees.
    :ivar shape_of: by host, the index of the shape.
    :ivar traits: the different sets of traits.
    :ivar kinds: by row, the index of the traits.
    """

    uuids: Sequence[str]
    first_rows: NDArray[np.intp]
    shapes: Sequence[TreeShape]
    shape_of: NDArray[np.intp]
    traits: Sequence[frozenset[str]]
    kinds: NDArray[np.intp]

    @cached_property
    def row_of(self) -> Mapping[str, int]:
        """The row of each provider."""
        return {uuid: row for row, uuid in enumerate(self.uuids)}

    @cached_property
    def host_uuids(self) -> Sequence[str]:
        """The UUIDs of the hosts, in Placement's order."""
        return [self.uuids[row] for row in self.first_rows.tolist()]

    @cached_property
    def host_of(self) -> Mapping[str, int]:
        """The number of each host."""
        return {uuid: number for number, uuid in enumerate(self.host_uuids)}

    @cached_property
    def known_traits(self) -> frozenset[str]:
        return frozenset[str]().union(*self.traits)

    @cached_property
    def _with_traits(self) -> dict[frozenset[str], ShapesOfHosts]:
        """The answers of :meth:`shapes_with`, by traits."""
        return {}

    def shapes_with(self, traits: frozenset[str]) -> ShapesOfHosts:
        """The shapes with only some traits. Hosts may have traits of their own, which
        no query names: with all traits, each host would have a shape of its own."""
        known = self._with_traits.get(traits)
        if known is not None:
            return known

        numbers: dict[TreeShape, int] = {}
        number_of_shape = []
        for shape in self.shapes:
            reduced = shape.with_traits(traits)
            number_of_shape.append(numbers.setdefault(reduced, len(numbers)))
        shape_of = np.array(number_of_shape, np.intp)[self.shape_of]
        if len(self._with_traits) >= MAX_QUERIES:
            self._with_traits.clear()
        return self._with_traits.setdefault(traits, ShapesOfHosts([*numbers], shape_of))

    def shape(self, host: int) -> TreeShape:
        """The shape of the tree of a host."""
        return self.shapes[int(self.shape_of[host])]

    def have_rows_of(self, others: 'Trees') -> bool:
        """True if other trees have the same hosts and providers in the same rows."""
        return self.uuids == others.uuids and np.array_equal(
            self.first_rows, others.first_rows
        )

    def hosts_of_rows(self, rows: Sequence[int]) -> frozenset[str]:
        """The UUIDs of the hosts whose trees have some rows."""
        numbers = np.searchsorted(self.first_rows, rows, side='right') - 1
        return frozenset(self.host_uuids[number] for number in set(numbers.tolist()))

    def rows(self, host: int) -> range:
        """The rows of the tree of a host."""
        first = int(self.first_rows[host])
        return range(first, first + len(self.shape(host).parents))


class BaseAnswer:
    """The answer to a base query.

    :ivar asked_at: when Placement was asked (monotonic seconds).
    :ivar seconds: the time from the query to the answer of Placement, in seconds.
    :ivar trees: the providers.
    :ivar capacity_left: by resource class, the unused capacity of each row.
    :ivar root_classes: the resource classes that only compute nodes have.
    """

    def __init__(self, text: bytes, asked_at: float, seconds: float = 0.0) -> None:
        """Parse an answer of Placement.

        :raises UnusableAnswer: the text has another format or lacks the summary of a
            host, or providers share their inventories.
        """
        answer = decode(text, AllocationCandidates[AllocationRequest, HostSummary])
        self.asked_at = asked_at
        self.seconds = seconds
        self.trees, summaries = _trees_of(answer)

        self.capacity_left: dict[str, Column] = {}
        is_root = np.zeros(len(summaries), bool)
        is_root[self.trees.first_rows] = True
        nested_classes = set()
        for row, summary in enumerate(summaries):
            for name, resource in summary.resources.items():
                if name not in self.capacity_left:
                    self.capacity_left[name] = np.zeros(len(summaries), np.int64)
                try:
                    self.capacity_left[name][row] = resource.capacity_left
                except OverflowError:
                    raise UnusableAnswer(f'{name}: more than 64 bits') from None
                if not is_root[row]:
                    nested_classes.add(name)
        self.root_classes = self.capacity_left.keys() - nested_classes

    def unknown_traits(self, query: TreeQuery) -> frozenset[str]:
        """The forbidden traits of a query that Placement may not know: custom traits of
        no provider. Placement refuses a query with a trait that it does not know."""
        unknown = set()
        for name in query.forbidden_traits - self.trees.known_traits:
            if name.startswith(CUSTOM):
                unknown.add(name)
        return frozenset(unknown)

    @property
    def free_of_trees(self) -> defaultdict[str, Column]:
        """By resource class, the unused capacity of the tree of each host: the sum over
        its providers. Zeros for a class that no provider has."""
        first_rows = self.trees.first_rows
        free: defaultdict[str, Column] = defaultdict(
            lambda: np.zeros(len(first_rows), np.int64)
        )
        if len(first_rows):
            for name, column in self.capacity_left.items():
                free[name] = np.add.reduceat(column, first_rows)
        return free


def _trees_of(
    answer: AllocationCandidates[AllocationRequest, HostSummary],
) -> tuple[Trees, list[HostSummary]]:
    """The trees of an answer, and the summary of each row."""
    uuids: list[str] = []
    rows: list[HostSummary] = []
    kinds: list[int] = []
    first_rows: list[int] = []
    shape_of: list[int] = []

    # Thousands of providers have a few different texts of traits, and their trees a few
    # different shapes. Both are numbered here, and decoded and checked once below.
    number_of_text: dict[bytes, int] = {}
    number_of_shape: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}

    for members in _providers_by_host(answer):
        summaries = [answer.provider_summaries[uuid] for uuid in members]
        of_tree = []
        for summary in summaries:
            text = bytes(summary.traits)
            of_tree.append(number_of_text.setdefault(text, len(number_of_text)))
        shape = (_parents(members, summaries), tuple(of_tree))

        first_rows.append(len(rows))
        shape_of.append(number_of_shape.setdefault(shape, len(number_of_shape)))
        uuids += members
        rows += summaries
        kinds += of_tree

    traits = [frozenset(decode(text, list[str])) for text in number_of_text]
    if any(os_traits.MISC_SHARES_VIA_AGGREGATE in names for names in traits):
        raise UnusableAnswer('hosts share providers')

    shapes = []
    for parents, kinds_of_tree in number_of_shape:
        shapes.append(TreeShape(parents, tuple(traits[kind] for kind in kinds_of_tree)))
    if not all(shape.is_tree for shape in shapes):
        raise UnusableAnswer('the providers of a host are no tree')

    trees = Trees(
        uuids,
        np.array(first_rows, np.intp),
        shapes,
        np.array(shape_of, np.intp),
        traits,
        np.array(kinds, np.intp),
    )
    return trees, rows


def _providers_by_host(
    answer: AllocationCandidates[AllocationRequest, HostSummary],
) -> Iterable[Sequence[str]]:
    """For each host, the UUIDs of its providers, the compute node first. The hosts are
    in Placement's order."""
    summaries = answer.provider_summaries
    members: dict[str, list[str]] = {}
    for request in answer.allocation_requests:
        for uuid in request.allocations:
            if uuid not in summaries:
                raise UnusableAnswer(f'{uuid} has no summary')
        roots = {summaries[uuid].root_provider_uuid for uuid in request.allocations}
        if len(roots) != 1:
            raise UnusableAnswer('hosts share providers')

        [root] = roots
        if root not in summaries:
            raise UnusableAnswer(f'{root} has no summary')
        members[root] = [root]

    # A tree has further providers, which the allocation request does not use.
    for uuid, summary in summaries.items():
        root = summary.root_provider_uuid
        if root in members and uuid != root:
            members[root].append(uuid)
    return members.values()


def _parents(
    members: Sequence[str], summaries: Sequence[HostSummary]
) -> tuple[int, ...]:
    """The positions of the parents of the providers of a tree; -1 for the root."""
    position_of = {uuid: position for position, uuid in enumerate(members)}
    return tuple(
        position_of.get(summary.parent_provider_uuid or '', -1) for summary in summaries
    )


@lru_cache(MAX_QUERIES)
def _known_verdicts(form: Hashable, shape: TreeShape) -> dict[bytes, bool]:
    """The verdicts of earlier searches in trees of a shape, by pattern of free amounts;
    further verdicts are added. The trees of a cloud have few patterns, which come again
    from one request to the next.

    :param form: see :attr:`TreeQuery.form`.
    """
    return {}


def is_flat(query: TreeQuery, root_classes: AbstractSet[str]) -> bool:
    """True if only the compute node itself can serve a query."""
    [first, *others] = query.groups
    names = {name for name, _ in first.amounts}
    return not first.suffix and not others and names <= root_classes


def fits(
    query: TreeQuery,
    answer: BaseAnswer,
    left: Mapping[str, Column],
) -> NDArray[np.bool_]:
    """By host, True if the tree of the host serves a query.

    :param left: by resource class, the unused capacity of each row.
    :raises SearchTooLong: a tree has too many possibilities.
    """
    if is_flat(query, answer.root_classes):
        return _fits_flat(query, answer.trees, left)
    return _fits_nested(
        query, answer.trees, left, np.arange(len(answer.trees.shape_of))
    )


def fits_beside(
    query: TreeQuery,
    answer: BaseAnswer,
    hosts: Sequence[int],
    pending: Mapping[str, Amounts],
) -> NDArray[np.bool_]:
    """For each of some hosts, True if the tree of the host serves a query beside
    pending claims.

    :param hosts: the numbers of the hosts.
    :param pending: amounts by provider UUID and resource class.
    :raises SearchTooLong: a tree has too many possibilities.
    """
    trees = answer.trees
    left = {}
    for name in query.demand.keys() & answer.capacity_left.keys():
        left[name] = answer.capacity_left[name].copy()
    for provider in pending.keys() & trees.row_of.keys():
        row = trees.row_of[provider]
        for name, amount in pending[provider].items():
            if name in left:
                left[name][row] -= amount
    return _fits_nested(query, trees, left, np.array(hosts, np.intp))


def _fits_nested(
    query: TreeQuery,
    trees: Trees,
    left: Mapping[str, Column],
    hosts: NDArray[np.intp],
) -> NDArray[np.bool_]:
    """For each of some hosts, True if the tree of the host serves a query."""
    fitting = np.zeros(len(hosts), bool)
    shapes = trees.shapes_with(query.named_traits)
    shape_of = shapes.shape_of[hosts]
    for number, shape in enumerate(shapes.shapes):
        positions = np.flatnonzero(shape_of == number)
        if len(positions):
            first_rows = trees.first_rows[hosts[positions]]
            patterns = _Patterns.of(query, shape, first_rows, left)
            fitting[positions] = patterns.verdicts()
    return fitting


def _fits_flat(
    query: TreeQuery, trees: Trees, left: Mapping[str, Column]
) -> NDArray[np.bool_]:
    """By host, True if the compute node itself serves a query."""
    # Hosts with the same traits share the verdict.
    [group] = query.groups
    has_traits = []
    for traits in trees.traits:
        has_traits.append(group.traits.accepts(traits) and query.root.accepts(traits))
    fitting = np.array(has_traits, bool)[trees.kinds[trees.first_rows]]
    for name, amount in group.amounts:
        fitting &= left[name][trees.first_rows] >= amount
    return fitting


@dataclass(frozen=True, slots=True)
class _Patterns:
    """The free amounts of trees of one shape, as far as they matter to a query.

    An amount that exceeds the sum of all demands counts as this sum, so that large
    hosts have equal patterns. Interchangeable providers are sorted.

    :ivar names: the resource classes of the query.
    :ivar sums: the demand of all groups, by class.
    :ivar codes: a row for each tree, a column for each provider: the amounts of all
        classes as one number.
    """

    query: TreeQuery
    shape: TreeShape
    names: Sequence[str]
    sums: Sequence[int]
    codes: Column

    @classmethod
    def of(
        cls,
        query: TreeQuery,
        shape: TreeShape,
        first_rows: NDArray[np.intp],
        left: Mapping[str, Column],
    ) -> '_Patterns':
        """:raises SearchTooLong: the amounts do not fit in one number."""
        demand = query.demand
        if math.prod(amount + 1 for amount in demand.values()) >= 2**62:
            raise SearchTooLong()

        rows = first_rows[:, None] + np.arange(len(shape.parents))
        codes = np.zeros(rows.shape, np.int64)
        for name, amount in demand.items():
            codes *= amount + 1
            if name in left:
                codes += left[name][rows].clip(0, amount)
        for block in shape.interchangeable:
            codes[:, block] = np.sort(codes[:, block], axis=1)
        return cls(query, shape, [*demand], [*demand.values()], codes)

    def verdicts(self) -> list[bool]:
        """True for each tree that serves the query.

        :raises SearchTooLong: a tree has too many possibilities.
        """
        known = _known_verdicts(self.query.form, self.shape)
        if len(known) >= MAX_PATTERNS:
            known.clear()
        data = self.codes.tobytes()
        width = self.codes.itemsize * self.codes.shape[1]
        verdicts = []
        for number in range(len(self.codes)):
            pattern = data[number * width : (number + 1) * width]
            verdict = known.get(pattern)
            if verdict is None:
                free = [self._amounts(code) for code in self.codes[number].tolist()]
                verdict = TreeSearch(self.query, self.shape, free).fits()
                known[pattern] = verdict
            verdicts.append(verdict)
        return verdicts

    def _amounts(self, code: int) -> Amounts:
        """The amounts by class that a code stands for."""
        amounts = {}
        for name, amount in zip(reversed(self.names), reversed(self.sums), strict=True):
            code, amounts[name] = divmod(code, amount + 1)
        return amounts
