# SPDX-License-Identifier: Apache-2.0
"""Offers from answers of Placement: the answer to the request itself, and remembered
answers about all hosts."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import compress

import msgspec
import numpy as np
from numpy.typing import NDArray

from novasched.placement.wire import (
    ProviderSummaries,
    ProviderSummary,
    ProviderSummaryTraits,
)
from novasched.scheduler.model.candidate import Candidate, CandidateIndex, Candidates

_decode_summaries = msgspec.json.Decoder(ProviderSummaries).decode
_decode_summary = msgspec.json.Decoder(ProviderSummary).decode
_decode_traits = msgspec.json.Decoder(ProviderSummaryTraits).decode


class AskedCandidates(CandidateIndex):
    """The candidates of answers to the request itself.

    Few requests look at provider summaries. The summary of a provider is decoded at the
    first look.
    """

    def __init__(
        self, candidates: Iterable[Candidate], texts: Sequence[bytes] = ()
    ) -> None:
        """:param texts: the answers of Placement, with the provider summaries."""
        super().__init__(candidates)
        self._texts = texts
        self._summaries: dict[str, msgspec.Raw] | None = None
        self._capacity_left: dict[str, Mapping[str, int]] = {}

    def capacity_left(self, provider: str) -> Mapping[str, int]:
        if provider in self._capacity_left:
            return self._capacity_left[provider]

        try:
            resources = _decode_summary(self._summary(provider)).resources
        except (KeyError, ValueError, RecursionError):
            # Unknown capacity excludes no candidate: Placement checks the claim.
            resources = {}
        left = {name: resource.capacity_left for name, resource in resources.items()}
        return self._capacity_left.setdefault(provider, left)

    def traits(self, provider: str) -> Collection[str]:
        try:
            return _decode_traits(self._summary(provider)).traits
        except (KeyError, ValueError, RecursionError):
            return ()

    def _summary(self, provider: str) -> msgspec.Raw:
        if self._summaries is None:
            # Splitting the texts is cheap; few summaries are ever decoded.
            self._summaries = {}
            for text in self._texts:
                self._summaries.update(_decode_summaries(text).provider_summaries)
        return self._summaries[provider]


@dataclass(frozen=True, slots=True)
class MatchedHosts:
    """The hosts of a remembered answer, matched with a flat query.

    :ivar amounts: the amounts of the query by resource class.
    :ivar uuids: the hosts of the answer, in Placement's order.
    :ivar row_of: the row of a host: the index in ``uuids``.
    :ivar fits: by row, True if the host serves the query.
    :ivar kinds: by row, the index of the traits of the host in ``traits``.
    """

    amounts: Mapping[str, int]
    uuids: Sequence[str]
    row_of: Mapping[str, int]
    fits: NDArray[np.bool_]
    kinds: NDArray[np.intp]
    traits: Sequence[Collection[str]]

    def has(self, provider: object) -> bool:
        """True if a provider is a host and serves the query."""
        row = self.row_of.get(provider)  # type: ignore[call-overload]
        return row is not None and bool(self.fits[row])


class RememberedCandidates(Candidates):
    """Candidates from remembered answers. A candidate is made at the first look at the
    host: most hosts of an answer are never looked at."""

    is_remembered = True

    def __init__(
        self, matches: Sequence[MatchedHosts], asked_at: float, age: float
    ) -> None:
        """:param matches: the hosts of an answer for each query of the request; the
        fallback query is the last.
        """
        self.asked_at = asked_at
        self.age = age
        self.count = sum(int(np.count_nonzero(match.fits)) for match in matches)
        self._matches = matches
        self._narrowed: Mapping[str, Sequence[Candidate]] = {}
        self._texts = [
            msgspec.Raw(msgspec.json.encode({'resources': dict(match.amounts)}))
            for match in matches
        ]

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

    def rows(self) -> tuple[Sequence[str], NDArray[np.bool_]]:
        if len(self._matches) > 1:
            # The answers may have different hosts, and so no rows in common.
            return super().rows()
        [match] = self._matches
        return match.uuids, match.fits

    def narrowed(
        self, left: Mapping[str, Sequence[Candidate]]
    ) -> 'RememberedCandidates':
        if not left:
            return self
        remembered = copy(self)
        remembered._narrowed = {**self._narrowed, **left}
        return remembered

    def __getitem__(self, provider: str) -> Sequence[Candidate]:
        if provider in self._narrowed:
            return self._narrowed[provider]

        # The texts of Placement for a candidate of a single provider.
        mappings = msgspec.Raw(msgspec.json.encode({'': [provider]}))
        candidates = []
        for match, text in zip(self._matches, self._texts, strict=True):
            if match.has(provider):
                candidates.append(Candidate({provider: text}, mappings))
        if not candidates:
            raise KeyError(provider)
        return candidates

    def __contains__(self, provider: object) -> bool:
        return any(match.has(provider) for match in self._matches)

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
