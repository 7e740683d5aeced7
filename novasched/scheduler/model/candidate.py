# SPDX-License-Identifier: Apache-2.0
"""Allocation candidates: the ways in which Placement can serve a request."""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import chain, compress
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from novasched.scheduler.errors import PlacementUnavailable


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
        decode = msgspec.json.Decoder(_Resources).decode
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


Candidates = Mapping[str, Sequence[Candidate]]
"""Provider UUID to the candidates that take something from it, in Placement's order."""


class _Resources(msgspec.Struct):
    resources: dict[str, int]


class Inventory(msgspec.Struct, frozen=True):
    """A provider's capacity of a resource class, less what is reserved and times the
    allocation ratio, and how much of that is in use."""

    capacity: int
    used: int


class ProviderSummary(msgspec.Struct, frozen=True):
    """A provider's inventories by resource class."""

    resources: dict[str, Inventory]


class _Summaries(msgspec.Struct):
    provider_summaries: dict[str, msgspec.Raw]


class _Traits(msgspec.Struct):
    traits: list[str]


_decode_summaries = msgspec.json.Decoder(_Summaries).decode
_decode_summary = msgspec.json.Decoder(ProviderSummary).decode
_decode_traits = msgspec.json.Decoder(_Traits).decode


class CandidateIndex(dict[str, list[Candidate]]):
    """Provider UUID to the candidates that take something from it, in Placement's
    order.

    Every provider of a candidate is a key, since only the cell databases know which of
    them is the compute node: the others are its nested providers or shared ones.

    :ivar count: the number of candidates, one of which may stand at several providers.
    """

    def __init__(
        self, candidates: Iterable[Candidate] = (), texts: Sequence[bytes] = ()
    ) -> None:
        """:param texts: the answers that have the summaries of the providers."""
        super().__init__()
        self.count = 0
        self._texts = texts
        self._summaries: dict[str, msgspec.Raw] | None = None
        self._left: dict[str, Mapping[str, int]] = {}
        for candidate in candidates:
            self.count += 1
            for provider in candidate.allocations:
                self.setdefault(provider, []).append(candidate)

    def capacity_left(self, provider: str) -> Mapping[str, int]:
        """The amount of each resource class that a provider has left, as far as it is
        known."""
        if provider in self._left:
            return self._left[provider]
        try:
            resources = _decode_summary(self._summary(provider)).resources
        except (KeyError, ValueError, RecursionError):
            resources = {}
        left = {
            name: inventory.capacity - inventory.used
            for name, inventory in resources.items()
        }
        return self._left.setdefault(provider, left)

    def traits(self, provider: str) -> Collection[str]:
        """The traits of a provider, as far as they are known."""
        try:
            return _decode_traits(self._summary(provider)).traits
        except (KeyError, ValueError, RecursionError):
            return ()

    def _summary(self, provider: str) -> msgspec.Raw:
        if self._summaries is None:
            self._summaries = {}
            for text in self._texts:
                self._summaries.update(_decode_summaries(text).provider_summaries)
        return self._summaries[provider]


@dataclass(frozen=True, slots=True)
class Offer:
    """Hosts that serve the same amounts, each by itself, as an earlier answer has them.

    :ivar fits: True for those that do, by row.
    :ivar kinds: the place of each one's traits among ``traits``, by row.
    """

    amounts: Mapping[str, int]
    uuids: Sequence[str]
    row_of: Mapping[str, int]
    fits: NDArray[np.bool_]
    kinds: NDArray[np.intp]
    traits: Sequence[Collection[str]]


class RememberedCandidates(Mapping[str, Sequence[Candidate]]):
    """Candidates from earlier answers of Placement, made where one is looked at.

    :ivar sent: when the oldest of the answers was asked for (monotonic seconds).
    :ivar age: the seconds since then when these were offered.
    :ivar narrowed: what filters have left of hosts of which they took a part.
    """

    def __init__(self, offers: Sequence[Offer], sent: float, age: float) -> None:
        self.sent = sent
        self.age = age
        self.narrowed: Candidates = {}
        self._offers = offers
        self._texts = [
            msgspec.Raw(msgspec.json.encode({'resources': dict(each.amounts)}))
            for each in offers
        ]
        self.count = sum(int(np.count_nonzero(each.fits)) for each in offers)

    @property
    def amounts(self) -> Mapping[str, int]:
        """The amounts that a host gives, whichever of its candidates is taken."""
        first, *others = (each.amounts for each in self._offers)
        return {
            x: n for x, n in first.items() if all(each.get(x) == n for each in others)
        }

    def traits(self, provider: str) -> Collection[str]:
        """The traits of a provider, as far as they are known."""
        known = (
            x.traits[x.kinds[x.row_of[provider]]]
            for x in self._offers
            if provider in x.row_of
        )
        return next(known, ())

    def __getitem__(self, provider: str) -> Sequence[Candidate]:
        if provider in self.narrowed:
            return self.narrowed[provider]
        found = [
            Candidate(
                {provider: text}, msgspec.Raw(msgspec.json.encode({'': [provider]}))
            )
            for offer, text in zip(self._offers, self._texts, strict=True)
            if provider in offer.row_of and offer.fits[offer.row_of[provider]]
        ]
        if not found:
            raise KeyError(provider)
        return found

    def __contains__(self, provider: object) -> bool:
        return any(
            (row := offer.row_of.get(provider)) is not None and bool(offer.fits[row])  # type: ignore[call-overload]
            for offer in self._offers
        )

    def rows(self) -> tuple[Sequence[str], NDArray[np.bool_]]:
        """Hosts in the order in which they are tried, and True for each that is
        offered. For one answer they are those in it, and the same object each time."""
        if len(self._offers) > 1:
            uuids = [*self]
            return uuids, np.ones(len(uuids), bool)
        [offer] = self._offers
        return offer.uuids, offer.fits

    def __iter__(self) -> Iterator[str]:
        offered = [compress(each.uuids, each.fits.tolist()) for each in self._offers]
        return iter(dict.fromkeys(chain(*offered)))

    def __len__(self) -> int:
        if len(self._offers) == 1:
            return self.count
        return sum(1 for _ in self)


def narrowed(offered: Candidates, left: Candidates) -> Candidates:
    """An offer of which less is left on some hosts; what is known of providers stays
    known."""
    if not left:
        return offered
    if isinstance(offered, RememberedCandidates):
        remembered = copy(offered)
        remembered.narrowed = {**offered.narrowed, **left}
        return remembered
    if not isinstance(offered, CandidateIndex):
        return {**offered, **left}
    index = copy(offered)
    index.update({provider: list(each) for provider, each in left.items()})
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
    known = offered.capacity_left if isinstance(offered, CandidateIndex) else _nothing
    room = _Room(known, pending())
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


def _nothing(provider: str) -> Mapping[str, int]:
    """The capacity of a provider that Placement's answer does not tell."""
    return {}


def _classes(candidate: Candidate) -> set[str]:
    return set().union(*candidate.resources().values())
