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


_decode = msgspec.json.Decoder(_Answer).decode


def parse(body: bytes) -> list[Candidate]:
    """Decode an answer of microversion 1.12 or later; its summaries are passed over.

    :raises ValueError: the body is not such an answer.
    """
    try:
        return _decode(body).allocation_requests
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
