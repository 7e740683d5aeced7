# SPDX-License-Identifier: Apache-2.0
"""Allocation candidates of Placement, and the choice among the candidates of a
host."""

import math
from abc import abstractmethod
from collections import Counter
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from itertools import compress, islice
from typing import Any, TypeVar, overload

import msgspec
import numpy as np
from numpy.typing import NDArray

from novasched.scheduler.errors import PlacementUnavailable
from novasched.scheduler.model.changes import UNVERSIONED, ChangeLog
from novasched.scheduler.model.pci import HostDevices

Item = TypeVar('Item', covariant=True)


class LazySequence(Sequence[Item]):
    """A sequence whose items are made at the first look. To look at the first items
    does not make the items behind them."""

    def __init__(self, items: Iterable[Item]) -> None:
        self._items = iter(items)
        self._made: list[Item] = []

    def __iter__(self) -> Iterator[Item]:
        index = 0
        while self._has(index):
            yield self._made[index]
            index += 1

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> list[Item]: ...
    def __getitem__(self, index: int | slice) -> Item | list[Item]:
        if isinstance(index, slice) or index < 0:
            return self._all()[index]
        self._has(index)
        return self._made[index]

    def __len__(self) -> int:
        return len(self._all())

    def __bool__(self) -> bool:
        return self._has(0)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._all() == [*other]

    def _all(self) -> list[Item]:
        self._made.extend(self._items)
        return self._made

    def _has(self, index: int) -> bool:
        """True if there is an item at an index; makes the item."""
        for item in islice(self._items, max(0, index + 1 - len(self._made))):
            self._made.append(item)
        return index < len(self._made)


class ProviderAllocation(msgspec.Struct):
    """The part of an allocation from a single provider: amounts by resource class."""

    resources: dict[str, int]


class Candidate(msgspec.Struct, frozen=True, gc=False):
    """An allocation request of Placement (microversion 1.36).

    ``allocations`` maps provider UUIDs to JSON texts of amounts. ``mappings`` is the
    JSON text of the providers by request group. The texts of Placement stay undecoded,
    since most candidates are never claimed.
    """

    allocations: dict[str, msgspec.Raw]
    mappings: msgspec.Raw = msgspec.Raw(b'{}')

    def detach(self) -> 'Candidate':
        """Copy the texts. Slices of Placement's answer would keep the whole answer in
        memory."""
        allocations = {rp: text.copy() for rp, text in self.allocations.items()}
        return Candidate(allocations, self.mappings.copy())

    def resources(self) -> dict[str, dict[str, int]]:
        """Decode the amounts, by provider UUID and resource class.

        :raises PlacementUnavailable: a text of Placement cannot be decoded.
        """
        decode = msgspec.json.Decoder(ProviderAllocation).decode
        try:
            return {rp: decode(text).resources for rp, text in self.allocations.items()}
        except (ValueError, RecursionError) as error:
            raise PlacementUnavailable(f'a candidate cannot be read: {error}') from None

    def providers_by_group(self) -> dict[str, list[str]]:
        """Decode the mappings: request group suffix to provider UUIDs. The suffix of
        the unsuffixed group is ''.

        :raises PlacementUnavailable: a text of Placement cannot be decoded.
        """
        try:
            return msgspec.json.decode(self.mappings, type=dict[str, list[str]])
        except (ValueError, RecursionError) as error:
            raise PlacementUnavailable(f'a candidate cannot be read: {error}') from None

    def body(self) -> str:
        """Encode the candidate as JSON text, for the claim of an alternate by
        nova-conductor."""
        return msgspec.json.encode(self).decode()

    def allocations_alone(self) -> str:
        """Encode the candidate without mappings, for microversions of Placement before
        1.34."""
        return msgspec.json.encode({'allocations': self.allocations}).decode()


class Candidates(Mapping[str, Sequence[Candidate]]):
    """Placement's offer for a request: candidates by provider UUID.

    A candidate with several providers stands under all: the compute node, nested
    providers and sharing providers. Only the cell databases distinguish the compute
    node. Providers and candidates keep Placement's order.

    An offer never changes. A filter drops candidates of a host by a :meth:`narrowed`
    offer.

    :ivar count: number of candidates before filters. A candidate with several providers
        counts once.
    :ivar is_remembered: True if Placement was asked earlier, for another request.
    :ivar asked_at: when Placement was asked for the oldest answer about all hosts
        (monotonic seconds); None for an answer to the request itself.
    :ivar age: seconds since ``asked_at`` when the offer was made; None if the offer is
        not remembered.
    :ivar depends_on_claims: True if pending claims can leave a host without candidates.
        False for Placement's answer to the request.
    """

    count: int
    is_remembered: bool = False
    asked_at: float | None = None
    age: float | None = None
    depends_on_claims: bool = False

    @property
    def unchecked_amounts(self) -> Mapping[str, int]:
        """Amounts by resource class that were not compared with ``max_unit`` of the
        inventories of a host. Empty for an answer to the request itself: Placement has
        compared the amounts."""
        return {}

    def traits(self, provider: str) -> Collection[str]:
        """The traits of a provider; empty if unknown."""
        return ()

    def capacity_left(self, provider: str) -> Mapping[str, int]:
        """The unused capacity of a provider by resource class, as far as known."""
        return {}

    def devices_left(self, hosts: Sequence[str], name: str) -> NDArray[np.float64]:
        """The unused capacity of a resource class on each provider of some hosts, with
        a row for each host, the largest capacity first. A remembered offer subtracts
        pending claims.

        Hosts with fewer providers of the class have zeros, and so have all hosts if the
        offer does not know the providers.

        :param hosts: UUIDs of compute nodes.
        """
        return np.zeros((len(hosts), 0))

    @property
    def device_changes(self) -> ChangeLog:
        """The version of the capacity in :meth:`devices_left`, and the UUIDs of the
        hosts whose capacity may have changed since earlier offers."""
        return UNVERSIONED

    def rows(self) -> tuple[Sequence[str], NDArray[np.bool_]]:
        """Provider UUIDs in Placement's order, and by row True if the offer has
        candidates of the provider.

        Offers from the same remembered answer share the sequence object, so that a
        caller can keep columns by row.
        """
        uuids = [*self]
        return uuids, np.ones(len(uuids), bool)

    @property
    def candidate_changes(self) -> ChangeLog:
        """The version of the candidates, and the UUIDs of the hosts with candidates
        that filters have not judged since earlier versions. The version before filters
        dropped candidates is an earlier version, which knows no later version."""
        return UNVERSIONED

    @abstractmethod
    def narrowed(self, left: Mapping[str, Sequence[Candidate]]) -> 'Candidates':
        """The offer with only the candidates ``left`` on the providers in ``left``.
        Other providers keep their candidates."""

    def beside(
        self,
        get_pending: Callable[[], Mapping[str, Mapping[str, int]]],
        devices: Callable[[str], HostDevices],
        changed: Collection[str],
    ) -> 'Candidates':
        """The offer beside pending claims. The candidates of Placement's answer to the
        request stay: :func:`choose` compares the candidates with pending claims.

        :param get_pending: returns amounts by provider UUID and resource class.
        :param devices: returns the PCI devices of a host, by UUID of the compute node.
        :param changed: hosts whose claims have changed since filters narrowed the
            offer.
        """
        return self

    def without(self, host: str, refused: Sequence[Candidate]) -> 'Candidates':
        """The offer with candidates of a host that avoid the devices of refused
        candidates, if there are such candidates. Filters have not judged these
        candidates."""
        return self

    def exhausted(self, hosts: Collection[str]) -> Collection[str]:
        """The hosts to which pending claims leave no candidate, among ``hosts``. Empty
        for Placement's answer to the request."""
        return ()


class CandidateIndex(dict[str, Sequence[Candidate]], Candidates):
    """Candidates in memory, by provider. The traits and the capacity of the providers
    are unknown.

    A dict, since requests look at all of 10,000 hosts.
    """

    def __init__(self, candidates: Iterable[Candidate] = ()) -> None:
        super().__init__()
        self.count = 0
        by_provider: dict[str, list[Candidate]] = {}
        for candidate in candidates:
            self.count += 1
            for provider in candidate.allocations:
                by_provider.setdefault(provider, []).append(candidate)
        self.update(by_provider)

    @cached_property
    def candidate_changes(self) -> ChangeLog:
        return UNVERSIONED.with_step(())

    def narrowed(self, left: Mapping[str, Sequence[Candidate]]) -> 'CandidateIndex':
        if not left:
            return self
        changes = self.candidate_changes.with_step(())
        index = copy(self)
        index.update(left)
        index.candidate_changes = changes
        return index


@dataclass(frozen=True, slots=True)
class _CapacityLeft:
    """The capacity of providers beside pending claims.

    :ivar capacity_left: gives the unused capacity of a provider by resource class, as
        far as Placement has told it.
    :ivar pending: amounts of pending claims by provider and resource class.
    """

    capacity_left: Callable[[str], Mapping[str, int]]
    pending: Mapping[str, Mapping[str, int]]

    def has(self, candidate: Candidate) -> bool:
        """True if the providers of a candidate have enough left. A resource class of
        unknown capacity always has."""
        providers = candidate.allocations.keys() & self.pending.keys()
        if not providers:
            return True

        resources = candidate.resources()
        for rp in providers:
            capacity = self.capacity_left(rp)
            for name, amount in resources[rp].items():
                needed = amount + self.pending[rp].get(name, 0)
                if needed > capacity.get(name, math.inf):
                    return False
        return True

    def sums(self, candidate: Candidate) -> list[tuple[str, int]]:
        """The capacity left of each resource class of a candidate, summed over its
        providers, by name."""
        sums = Counter[str]()
        for rp, amounts in candidate.resources().items():
            capacity = self.capacity_left(rp)
            pending = self.pending.get(rp, {})
            for name in amounts.keys() & capacity.keys():
                sums[name] += capacity[name] - pending.get(name, 0)
        return sorted(sums.items())


def choose(
    offer: Candidates,
    host: str,
    get_pending: Callable[[], Mapping[str, Mapping[str, int]]],
    count_far_devices: Callable[[Candidate], int],
    refused: Sequence[Candidate] = (),
) -> Candidate | None:
    """Choose the best candidate of a host among the candidates with enough capacity
    beside pending claims. Without such a candidate choose the best of all: Placement
    decides. None for a host without candidates.

    After refused candidates, choose a candidate of different providers with enough
    capacity. None without such a candidate: Placement would refuse a claim on the same
    providers as well.

    :param get_pending: returns the amounts of pending claims by provider; not called
        for a host with a single candidate.
    :param count_far_devices: returns the number of devices of a candidate far from the
        NUMA cells of the guest.
    :param refused: candidates of the host with claims that Placement has refused.
    """
    candidates = offer[host]
    if not candidates:
        return None
    if len(candidates) == 1 and not refused:
        return candidates[0]

    refused_providers = [candidate.allocations.keys() for candidate in refused]
    capacity = _CapacityLeft(offer.capacity_left, get_pending())
    best = []
    for candidate in candidates:
        is_refused = candidate.allocations.keys() in refused_providers
        if not is_refused and capacity.has(candidate):
            best.append(candidate)
    if not best and not refused:
        best = [*candidates]

    suspects = set().union(*refused_providers)
    first_query = _resource_classes(candidates[0])
    rules: Sequence[Callable[[Candidate], Any]] = (
        # Candidates of the fallback query stand behind those of the first.
        lambda candidate: _resource_classes(candidate) != first_query,
        # Any provider of a refused candidate may be the full one.
        lambda candidate: len(candidate.allocations.keys() & suspects),
        lambda candidate: len(candidate.allocations),
        count_far_devices,
        # The least sufficient capacity, so that large devices stay whole.
        capacity.sums,
    )
    for rule in rules:
        if len(best) > 1:
            ranks = [rule(candidate) for candidate in best]
            least = min(ranks)
            is_best = [rank == least for rank in ranks]
            best = [*compress(best, is_best)]
    if best:
        return best[0]
    return None


def _resource_classes(candidate: Candidate) -> set[str]:
    return set().union(*candidate.resources().values())
