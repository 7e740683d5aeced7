# SPDX-License-Identifier: Apache-2.0
"""Allocation candidates: the ways in which Placement can serve a request."""

import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from novasched.scheduler.errors import PlacementUnavailable


class ProviderAllocation(msgspec.Struct):
    """The part of an allocation that one provider gives: amounts by resource class."""

    resources: dict[str, int]


class Candidate(msgspec.Struct, frozen=True, gc=False):
    """One allocation request of Placement (microversion 1.36), decoded as far as
    needed.

    ``allocations`` maps the UUID of each provider that gives something to the text of
    what it gives; ``mappings`` is the text that says which providers serve which
    request group. Both texts stay as Placement wrote them, since most candidates
    are never claimed.
    """

    allocations: dict[str, msgspec.Raw]
    mappings: msgspec.Raw = msgspec.Raw(b'{}')

    def detach(self) -> 'Candidate':
        """Copy the texts, which are pieces of Placement's answer and keep all of it in
        memory."""
        own = {rp: text.copy() for rp, text in self.allocations.items()}
        return Candidate(own, self.mappings.copy())

    def resources(self) -> dict[str, dict[str, int]]:
        """The amounts: provider UUID to resource class to amount.

        :raises PlacementUnavailable: Placement wrote something else.
        """
        decode = msgspec.json.Decoder(ProviderAllocation).decode
        try:
            return {rp: decode(text).resources for rp, text in self.allocations.items()}
        except (ValueError, RecursionError) as error:
            raise PlacementUnavailable(f'a candidate cannot be read: {error}') from None

    def providers_by_group(self) -> dict[str, list[str]]:
        """Request group suffix ('' is the unsuffixed group) to provider UUIDs."""
        try:
            return msgspec.json.decode(self.mappings, type=dict[str, list[str]])
        except (ValueError, RecursionError) as error:
            raise PlacementUnavailable(f'a candidate cannot be read: {error}') from None

    def body(self) -> str:
        """The JSON text that conductor keeps to claim an alternate with."""
        return msgspec.json.encode(self).decode()

    def allocations_alone(self) -> str:
        """The same without mappings, as Placement's microversions before 1.34 want
        it."""
        return msgspec.json.encode({'allocations': self.allocations}).decode()


class Candidates(Mapping[str, Sequence[Candidate]]):
    """Placement's offer for a request: the candidates of each provider, by its UUID.

    A candidate stands under each provider that it takes resources from: the compute
    node, its nested providers and sharing providers. Placement does not say which of
    the providers is the compute node; the cell databases do. Providers and candidates
    keep Placement's order.

    An offer never changes. Filters that drop candidates of a host return a
    :meth:`narrowed` offer.

    :ivar count: number of candidates before filters dropped some. A candidate with
        several providers counts once.
    :ivar is_remembered: True if Placement was asked earlier, for another request.
    :ivar asked_at: when Placement was asked for the oldest remembered answer (monotonic
        seconds); None if the offer is not remembered.
    :ivar age: seconds since ``asked_at`` when the offer was made; None if the offer is
        not remembered.
    """

    count: int
    is_remembered: bool = False
    asked_at: float | None = None
    age: float | None = None

    @property
    def unchecked_amounts(self) -> Mapping[str, int]:
        """Amounts by resource class that the offer takes from a host without a check
        against ``max_unit`` of the inventories of the host. Empty for an answer to the
        request itself: Placement has checked it."""
        return {}

    def traits(self, provider: str) -> Collection[str]:
        """The traits of a provider; empty if they are unknown."""
        return ()

    def capacity_left(self, provider: str) -> Mapping[str, int]:
        """The unused capacity of a provider by resource class, without the resource
        classes of which it is unknown."""
        return {}

    def rows(self) -> tuple[Sequence[str], NDArray[np.bool_]]:
        """Provider UUIDs in Placement's order, and for each of them True if the offer
        has candidates of it.

        Offers that rest on the same answer share the sequence object, so that a caller
        can keep columns for it.
        """
        uuids = [*self]
        return uuids, np.ones(len(uuids), bool)

    @abstractmethod
    def narrowed(self, left: Mapping[str, Sequence[Candidate]]) -> 'Candidates':
        """The offer with only the candidates ``left`` on the providers in ``left``.
        Other providers keep their candidates."""


class CandidateIndex(dict[str, Sequence[Candidate]], Candidates):
    """Candidates in memory, by provider. The traits and the capacity of the providers
    are unknown.

    A dict, since requests look at each of 10,000 hosts.
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

    def narrowed(self, left: Mapping[str, Sequence[Candidate]]) -> 'CandidateIndex':
        if not left:
            return self
        index = copy(self)
        index.update(left)
        return index


@dataclass(frozen=True, slots=True)
class _Room:
    """The capacity that providers have left beside pending claims, as far as it is
    known."""

    left: Callable[[str], Mapping[str, int]]
    taken: Mapping[str, Mapping[str, int]]

    def fits(self, candidate: Candidate) -> bool:
        """Tell whether pending claims leave enough of each provider."""
        busy = candidate.allocations.keys() & self.taken.keys()
        amounts = candidate.resources() if busy else {}
        return all(
            amount + self.taken[rp].get(name, 0) <= self.left(rp).get(name, math.inf)
            for rp in busy
            for name, amount in amounts[rp].items()
        )

    def of(self, candidate: Candidate) -> list[tuple[str, int]]:
        """The sum that its providers have left of each resource class that they
        give."""
        sums = Counter[str]()
        for rp, amounts in candidate.resources().items():
            left = self.left(rp)
            taken = self.taken.get(rp, {})
            for name in amounts.keys() & left.keys():
                sums[name] += left[name] - taken.get(name, 0)
        return sorted(sums.items())


def choose(
    offered: Candidates,
    host: str,
    pending: Callable[[], Mapping[str, Mapping[str, int]]],
    far: Callable[[Candidate], int],
    refused: Sequence[Candidate] = (),
) -> Candidate | None:
    """The best candidate of a host whose providers have enough left beside pending
    claims.

    Where some were refused, one of other providers; None where there is none, since
    another claim on the same ones would be refused, too.

    :param pending: amounts of pending claims by provider; called only where there is a
        choice.
    :param far: the number of devices that a candidate gives far from the guest.
    """
    candidates = offered[host]
    if len(candidates) == 1 and not refused:
        return candidates[0]
    tried = [candidate.allocations.keys() for candidate in refused]
    lost = set().union(*tried)
    usual = _classes(candidates[0])
    room = _Room(offered.capacity_left, pending())
    best = [x for x in candidates if x.allocations.keys() not in tried and room.fits(x)]
    if not best and not refused:
        best = [*candidates]
    rules: Sequence[Callable[[Candidate], Any]] = (
        # Candidates of the fallback query stand behind those of the first.
        lambda x: _classes(x) != usual,
        lambda x: len(x.allocations.keys() & lost),
        lambda x: len(x.allocations),
        far,
        room.of,  # the least suffices, and large devices stay whole
    )
    for rule in rules:
        if len(best) > 1:
            ranks = [rule(x) for x in best]
            least = min(ranks)
            best = [x for x, rank in zip(best, ranks, strict=True) if rank == least]
    if best:
        return best[0]
    return None


def _classes(candidate: Candidate) -> set[str]:
    return set().union(*candidate.resources().values())
