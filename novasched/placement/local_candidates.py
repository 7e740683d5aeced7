# SPDX-License-Identifier: Apache-2.0
"""Offers from answers of Placement about all hosts. The candidates of a host are worked
out from its provider tree at the first look at the host."""

from collections.abc import (
    Callable,
    Collection,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import chain, compress, islice

import msgspec
import numpy as np
from numpy.typing import NDArray

from novasched.placement.base_answer import (
    BaseAnswer,
    Column,
    ShapesOfHosts,
    Trees,
    fits,
    fits_beside,
    is_flat,
)
from novasched.placement.tree_search import Assignment, SearchTooLong, TreeSearch
from novasched.placement.trees import TreeQuery
from novasched.scheduler.model.candidate import Candidate, Candidates, LazySequence
from novasched.scheduler.model.changes import UNVERSIONED, ChangeLog
from novasched.scheduler.model.pci import DeviceChoice, HostDevices

MAX_CANDIDATES_PER_HOST = 128
"""Candidates of a host that are worked out, one of each kind. The first candidates are
near different NUMA cells; a host of eight cells has at most 70 sets of equally many
cells."""


def no_devices(host: str) -> HostDevices:
    """The PCI devices of a host, if unknown."""
    return HostDevices()


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The influence of other requests and of the hosts on candidates.

    :ivar pending: amounts of pending claims, by provider and resource class.
    :ivar devices: returns the PCI devices of a host.
    """

    pending: Mapping[str, Mapping[str, int]]
    devices: Callable[[str], HostDevices]


NO_SURROUNDINGS = Surroundings({}, no_devices)


@dataclass(frozen=True, slots=True)
class TreeCapacity:
    """The unused capacity of the providers of an answer.

    :ivar left: by resource class, the unused capacity of each row of the answer, less
        pending claims. Claims of later requests are subtracted, too.
    :ivar changes: the version of ``left``, and the hosts that have changed.
    """

    trees: Trees
    left: Mapping[str, Column]
    changes: ChangeLog

    def devices_left(self, hosts: Sequence[str], name: str) -> NDArray[np.float64]:
        """See :meth:`novasched.scheduler.model.candidate.Candidates.devices_left`."""
        trees = self.trees
        column = self.left.get(name)
        if column is None or not len(column) or not hosts:
            return np.zeros((len(hosts), 0))

        numbers = np.array([trees.host_of.get(host, -1) for host in hosts])
        is_known = numbers >= 0
        ends = np.append(trees.first_rows[1:], len(column))
        sizes = np.where(is_known, ends[numbers] - trees.first_rows[numbers], 0)
        positions = np.arange(max(int(np.max(sizes)), 1))
        rows = trees.first_rows[numbers][:, None] + positions
        is_in_tree = positions < sizes[:, None]
        devices = np.where(is_in_tree, column[np.minimum(rows, len(column) - 1)], 0)
        # Most providers of a tree have other classes: only columns in use stay.
        devices = -np.sort(-devices, axis=1)
        is_used = np.any(devices > 0, axis=0)
        return devices[:, is_used].astype(np.float64)


@dataclass(frozen=True, slots=True)
class MatchedHosts:
    """The hosts of an answer, matched with a query that the compute node serves.

    :ivar amounts: the amounts of the query that the compute node serves, by resource
        class.
    :ivar uuids: the hosts of the answer, in Placement's order.
    :ivar row_of: the row of a host: the index in ``uuids``.
    :ivar fits: by row, True if the host serves the query.
    :ivar kinds: by row, the index of the traits of the host in ``traits``.
    :ivar capacity: the unused capacity of all providers, if known.
    """

    amounts: Mapping[str, int]
    uuids: Sequence[str]
    row_of: Mapping[str, int]
    fits: NDArray[np.bool_]
    kinds: NDArray[np.intp]
    traits: Sequence[Collection[str]]
    capacity: TreeCapacity | None = field(default=None, kw_only=True)

    @property
    def is_nested(self) -> bool:
        """True if candidates have several providers, or one of several."""
        return False

    def has(self, provider: object) -> bool:
        """True if a provider is a host and serves the query."""
        row = self.row_of.get(provider)  # type: ignore[call-overload]
        return row is not None and bool(self.fits[row])

    def candidates(self, host: str, around: Surroundings) -> Sequence[Candidate]:
        """The candidates of a host that serves the query."""
        text = msgspec.Raw(msgspec.json.encode({'resources': dict(self.amounts)}))
        mappings = msgspec.Raw(msgspec.json.encode({'': [host]}))
        return [Candidate({host: text}, mappings)]

    def capacity_left(self, provider: str) -> Mapping[str, int]:
        """The unused capacity of a provider, without pending claims; empty for a
        provider whose capacity does not matter to the choice of a candidate."""
        return {}

    def exhausted(
        self, hosts: Collection[str], around: Surroundings
    ) -> Collection[str]:
        """The hosts that no longer serve the query beside pending claims, among
        ``hosts``. A claim on the compute node alone is left to Placement."""
        return frozenset()


@dataclass(frozen=True, slots=True)
class MatchedTrees(MatchedHosts):
    """The hosts of an answer, matched with a query for several providers.

    :ivar query: the query.
    :ivar answer: the answer; its capacity has no pending claims.
    :ivar shapes: the shapes of trees with the traits that the query names.
    :ivar columns: the unused capacity of each row, for the classes of the query.
    :ivar assignments: assignments of trees with a shape, free amounts and places: many
        hosts are equal.
    """

    query: TreeQuery
    answer: BaseAnswer
    shapes: ShapesOfHosts
    columns: Mapping[str, Column]
    assignments: dict[Hashable, Sequence[Assignment]] = field(default_factory=dict)

    @property
    def is_nested(self) -> bool:
        return True

    def candidates(self, host: str, around: Surroundings) -> Sequence[Candidate]:
        """The candidates of a host, one of each kind, at most
        :data:`MAX_CANDIDATES_PER_HOST`."""
        trees = self.answer.trees
        number = self.row_of[host]
        uuids = [trees.uuids[row] for row in trees.rows(number)]
        devices = around.devices(host)
        places = tuple(map(devices.places.get, uuids))
        free = [self._free(uuid, around.pending) for uuid in uuids]

        amounts = tuple(tuple(of_provider.values()) for of_provider in free)
        shape_number = int(self.shapes.shape_of[number])
        key = shape_number, amounts, places, devices.cells
        assignments = self.assignments.get(key)
        if assignments is None:
            tree = TreeSearch(
                self.query, self.shapes.shapes[shape_number], free, places
            )
            choices = (_positions(choice, uuids) for choice in devices.choices())
            assignments = LazySequence(_assignments(tree, choices))
            self.assignments[key] = assignments
        return LazySequence(_candidate_of(found, uuids) for found in assignments)

    def _free(
        self, provider: str, pending: Mapping[str, Mapping[str, int]]
    ) -> dict[str, int]:
        """The unused capacity of a provider beside pending claims, in the order of the
        demand. Of a class that only compute nodes have, the demand is enough."""
        left = dict(self.capacity_left(provider))
        claimed = pending.get(provider, {})
        for name in left:
            left[name] -= claimed.get(name, 0)
            if name in self.amounts:
                left[name] = min(left[name], self.amounts[name])
        return left

    def capacity_left(self, provider: str) -> Mapping[str, int]:
        row = self.answer.trees.row_of.get(provider)
        if row is None:
            return {}
        left = {}
        for name, column in self.columns.items():
            left[name] = int(column[row])
        return left

    def exhausted(
        self, hosts: Collection[str], around: Surroundings
    ) -> Collection[str]:
        numbers = [self.row_of[host] for host in hosts]
        try:
            verdicts = fits_beside(self.query, self.answer, numbers, around.pending)
        except SearchTooLong:
            return {host for host in hosts if not self.candidates(host, around)}
        return {*compress(hosts, (~verdicts).tolist())}


def match(
    answer: BaseAnswer,
    query: TreeQuery,
    left: Mapping[str, Column],
    allowed: NDArray[np.bool_] | None = None,
    changes: ChangeLog | None = None,
) -> MatchedHosts:
    """Find the hosts of an answer for a query.

    :param left: by resource class, the unused capacity of each row of the answer.
    :param allowed: by host, False if the host is excluded.
    :param changes: the version of ``left``; None if no earlier version is known.
    :raises SearchTooLong: a tree has too many possibilities.
    """
    trees = answer.trees
    fitting = fits(query, answer, left)
    if allowed is not None:
        fitting &= allowed
    demand = query.demand
    amounts = {}
    for name in demand.keys() & answer.root_classes:
        amounts[name] = demand[name]
    hosts = trees.host_uuids, trees.host_of, fitting
    traits = trees.kinds[trees.first_rows], trees.traits
    capacity = TreeCapacity(trees, left, changes or UNVERSIONED.with_step(()))
    if is_flat(query, answer.root_classes):
        return MatchedHosts(amounts, *hosts, *traits, capacity=capacity)
    columns = {}
    for name in demand:
        if name in answer.capacity_left:
            columns[name] = answer.capacity_left[name]
    return MatchedTrees(
        amounts,
        *hosts,
        *traits,
        query,
        answer,
        trees.shapes_with(query.named_traits),
        columns,
        capacity=capacity,
    )


def _positions(
    choice: DeviceChoice, uuids: Sequence[str]
) -> Mapping[str, Mapping[int, int]]:
    """A choice of devices with the positions of providers in a tree."""
    positions: dict[str, dict[int, int]] = {}
    for kind, ranks in choice.items():
        positions[kind] = {}
        for position, uuid in enumerate(uuids):
            if uuid in ranks:
                positions[kind][position] = ranks[uuid]
    return positions


def _assignments(
    tree: TreeSearch, choices: Iterable[Mapping[str, Mapping[int, int]]]
) -> Iterator[Assignment]:
    """The assignments of a tree, one of each kind, at most
    :data:`MAX_CANDIDATES_PER_HOST`.

    First comes an assignment for each choice of devices, then an assignment regardless
    of the choices, then the further assignments in turn. Filters so see candidates near
    all NUMA cells that the guest fits before the many candidates near the first cells.
    """
    searches = chain((replace(tree, choice=choice) for choice in choices), [tree])
    seen = set()
    for assignment in _in_turn(map(_found, searches)):
        groups = assignment.providers
        providers = frozenset((suffix, *groups[suffix]) for suffix in groups)
        if providers not in seen:
            seen.add(providers)
            yield assignment
        if len(seen) == MAX_CANDIDATES_PER_HOST:
            break


def _found(search: TreeSearch) -> Iterator[Assignment]:
    # After SearchTooLong: the assignments so far have the fewest providers.
    with suppress(SearchTooLong):
        yield from search.assignments()


def _in_turn(iterators: Iterable[Iterator[Assignment]]) -> Iterator[Assignment]:
    """The first assignment of each iterator, then the second of each, and so on."""
    waiting = iterators
    while True:
        continued = []
        for iterator in waiting:
            for assignment in islice(iterator, 1):
                yield assignment
                continued.append(iterator)
        if not continued:
            return
        waiting = continued


def _candidate_of(assignment: Assignment, uuids: Sequence[str]) -> Candidate:
    """The candidate of an assignment.

    :param uuids: the providers of the tree.
    """
    allocations = {}
    for provider, amounts in assignment.amounts.items():
        text = msgspec.json.encode({'resources': amounts})
        allocations[uuids[provider]] = msgspec.Raw(text)
    providers_of_group = {}
    for suffix, providers in assignment.providers.items():
        providers_of_group[suffix] = [uuids[provider] for provider in providers]
    return Candidate(allocations, msgspec.Raw(msgspec.json.encode(providers_of_group)))


class LocalCandidates(Candidates):
    """Candidates from answers to base queries. The candidates of a host are worked out
    at the first look at the host: most hosts of an answer are never looked at."""

    def __init__(
        self,
        matches: Sequence[MatchedHosts],
        asked_at: float,
        age: float | None = None,
    ) -> None:
        """:param matches: the hosts of an answer for each query of the request; the
            fallback query is the last.
        :param age: seconds since ``asked_at`` if the answer is remembered.
        """
        self.asked_at = asked_at
        self.age = age
        self.is_remembered = age is not None
        self.count = sum(int(np.count_nonzero(match.fits)) for match in matches)
        self.depends_on_claims = any(match.is_nested for match in matches)
        self._matches = matches
        self._changes = UNVERSIONED.with_step(())
        self._around = NO_SURROUNDINGS
        self._narrowed: Mapping[str, Sequence[Candidate]] = {}
        self._worked_out: dict[str, Sequence[Candidate]] = {}

    @property
    def unchecked_amounts(self) -> Mapping[str, int]:
        """The common amounts of all candidates of a host."""
        common = set(self._matches[0].amounts.items())
        for match in self._matches[1:]:
            common &= match.amounts.items()
        return dict(common)

    def traits(self, provider: str) -> Collection[str]:
        for match in self._matches:
            if provider in match.row_of:
                return match.traits[int(match.kinds[match.row_of[provider]])]
        return ()

    def capacity_left(self, provider: str) -> Mapping[str, int]:
        left: dict[str, int] = {}
        for match in self._matches:
            left |= match.capacity_left(provider)
        return left

    def devices_left(self, hosts: Sequence[str], name: str) -> NDArray[np.float64]:
        capacity = self._matches[0].capacity
        if capacity is None:
            return super().devices_left(hosts, name)
        return capacity.devices_left(hosts, name)

    @property
    def device_changes(self) -> ChangeLog:
        capacity = self._matches[0].capacity
        if capacity is None:
            return super().device_changes
        return capacity.changes

    @property
    def candidate_changes(self) -> ChangeLog:
        return self._changes

    def rows(self) -> tuple[Sequence[str], NDArray[np.bool_]]:
        if len(self._matches) > 1:
            # The answers may have different hosts, and so no rows in common.
            return super().rows()
        [match] = self._matches
        return match.uuids, match.fits

    def narrowed(self, left: Mapping[str, Sequence[Candidate]]) -> 'LocalCandidates':
        if not left:
            return self
        candidates = copy(self)
        candidates._narrowed = {**self._narrowed, **left}
        candidates._changes = self._changes.with_step(())
        return candidates

    def beside(
        self,
        get_pending: Callable[[], Mapping[str, Mapping[str, int]]],
        devices: Callable[[str], HostDevices],
        changed: Collection[str],
    ) -> 'LocalCandidates':
        if not self.depends_on_claims:
            return self
        candidates = copy(self)
        candidates._around = Surroundings(get_pending(), devices)
        candidates._worked_out = {}
        candidates._narrowed = dict(self._narrowed)
        for host in changed:
            candidates._narrowed.pop(host, None)
        candidates._changes = self._changes.with_step(changed)
        return candidates

    def without(self, host: str, refused: Sequence[Candidate]) -> 'LocalCandidates':
        full: dict[str, Mapping[str, int]] = {}
        for candidate in refused:
            for provider in candidate.allocations.keys() - {host}:
                full[provider] = self.capacity_left(provider)
        if not full:
            return self
        around = replace(self._around, pending={**self._around.pending, **full})
        candidates = copy(self)
        candidates._around = around
        candidates._worked_out = {}
        candidates._narrowed = dict(self._narrowed)
        candidates._narrowed.pop(host, None)
        candidates._changes = self._changes.with_step((host,))
        if candidates[host]:
            return candidates
        return self

    def __getitem__(self, provider: str) -> Sequence[Candidate]:
        if provider in self._narrowed:
            return self._narrowed[provider]
        if provider in self._worked_out:
            return self._worked_out[provider]

        matches = [match for match in self._matches if match.has(provider)]
        if not matches:
            raise KeyError(provider)
        of_matches = [match.candidates(provider, self._around) for match in matches]
        candidates = of_matches[0]
        if len(of_matches) > 1:
            candidates = LazySequence(chain.from_iterable(of_matches))
        self._worked_out[provider] = candidates
        return candidates

    def __contains__(self, provider: object) -> bool:
        return any(match.has(provider) for match in self._matches)

    def exhausted(self, hosts: Collection[str]) -> Collection[str]:
        nested = [match for match in self._matches if match.is_nested]
        if len(nested) < len(self._matches):
            return ()
        offered: set[str] = set()
        left: set[str] = set()
        for match in nested:
            served = [host for host in hosts if match.has(host)]
            offered.update(served)
            left.update({*served}.difference(match.exhausted(served, self._around)))
        return offered - left

    def __iter__(self) -> Iterator[str]:
        uuids: dict[str, None] = {}
        for match in self._matches:
            uuids.update(dict.fromkeys(compress(match.uuids, match.fits.tolist())))
        return iter(uuids)

    def __len__(self) -> int:
        if len(self._matches) == 1:
            return self.count
        # A host may serve both queries.
        return sum(1 for _ in self)
