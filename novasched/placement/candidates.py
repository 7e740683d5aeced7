# SPDX-License-Identifier: Apache-2.0
"""Offers from answers of Placement to the requests themselves."""

from collections.abc import (
    Collection,
    Iterable,
    Mapping,
    Sequence,
)

import msgspec

from novasched.placement.wire import (
    ProviderSummaries,
    ProviderSummary,
    ProviderSummaryTraits,
)
from novasched.scheduler.model.candidate import Candidate, CandidateIndex

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
