# SPDX-License-Identifier: Apache-2.0
"""Placement's answer to GET /allocation_candidates, made into candidates by host."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from novasched.model.candidate import Candidate

Candidates = Mapping[str, list[Candidate]]
"""Provider UUID to the candidates that take something from it, in Placement's order.

Every provider of a candidate is a key, since only the cell databases know which of
them is the compute node: the others are its nested providers or shared ones.
"""


class _Answer(msgspec.Struct):
    allocation_requests: list[Candidate]


class Stock(msgspec.Struct, frozen=True):
    """What a provider has of a resource class, with what is reserved taken off and what is
    overcommitted added, and how much of that is in use."""

    capacity: int
    used: int


class Summary(msgspec.Struct, frozen=True):
    """A provider: resource class to what it has."""

    resources: dict[str, Stock]


class Offer(msgspec.Struct, frozen=True):
    """An answer with its summaries: all that there is to know of its providers."""

    allocation_requests: list[Candidate]
    provider_summaries: dict[str, Summary]


_decode = msgspec.json.Decoder(_Answer).decode
_decode_offer = msgspec.json.Decoder(Offer).decode


def parse(body: bytes) -> list[Candidate]:
    """Decode an answer of microversion 1.12 or later; its summaries are passed over.

    :raises ValueError: the body is not such an answer.
    """
    try:
        return _decode(body).allocation_requests
    except RecursionError as error:
        raise ValueError(str(error)) from None


def parse_offer(body: bytes) -> Offer:
    """Decode an answer of microversion 1.12 or later with its summaries.

    :raises ValueError: the body is not such an answer.
    """
    try:
        return _decode_offer(body)
    except RecursionError as error:
        raise ValueError(str(error)) from None


class Index(dict[str, list[Candidate]]):
    """Candidates by provider, and how many there are: one may stand at several providers."""

    count = 0


def by_provider(candidates: Iterable[Candidate]) -> Index:
    """Index candidates by each provider that they take something from."""
    index = Index()
    for candidate in candidates:
        index.count += 1
        for provider in candidate.allocations:
            index.setdefault(provider, []).append(candidate)
    return index
