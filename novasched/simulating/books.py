# SPDX-License-Identifier: Apache-2.0
"""Placement's books, kept in memory: what providers have left, and who may still have it.

A claim never makes room, so what Placement would offer later is what it offers now, less what
does not fit any more. Least and greatest amounts and steps do not depend on what is in use:
Placement offers no candidate that it would refuse for them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from novasched.model.candidate import Candidate
from novasched.placement.candidates import Summary

Amounts = Mapping[str, Mapping[str, int]]
"""Provider UUID to resource class to amount."""


@dataclass(slots=True)
class Books:
    """What each provider has left of each resource class. ``changes`` are the providers that
    something was taken from or given back to, in turn."""

    left: dict[str, dict[str, int]] = field(default_factory=dict)
    changes: list[str] = field(default_factory=list)

    def learn(self, summaries: Mapping[str, Summary]) -> None:
        """Take in the providers that are new; what is known of others goes on from there."""
        for provider, summary in summaries.items():
            if provider not in self.left:
                self.left[provider] = {
                    name: stock.capacity - stock.used for name, stock in summary.resources.items()
                }

    def lacks(self, wanted: Amounts) -> frozenset[str]:
        """The resource classes of which some provider has too little left; one that it does
        not have at all it has none left of."""
        return frozenset(
            name
            for provider, amounts in wanted.items()
            for name, amount in amounts.items()
            if amount > self.left.get(provider, {}).get(name, 0)
        )

    def take(self, wanted: Sequence[Amounts]) -> bool:
        """Allocate to several servers, or to none of them if that is too much."""
        if self.lacks(total(wanted)):
            return False
        for each in wanted:
            self._change(each, -1)
        return True

    def give_back(self, held: Amounts) -> None:
        """Undo what one server was allocated."""
        self._change(held, 1)

    def _change(self, amounts: Amounts, sign: int) -> None:
        for provider, each in amounts.items():
            left = self.left[provider]
            for name, amount in each.items():
                left[name] += sign * amount
            self.changes.append(provider)


def total(wanted: Iterable[Amounts]) -> Amounts:
    """What several servers take together."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for amounts in wanted:
        for provider, each in amounts.items():
            found[provider].update(each)
    return found


class Offered:
    """The candidates of one query, of which those are left that still fit."""

    def __init__(self, candidates: Sequence[Candidate], books: Books) -> None:
        self._books = books
        self._candidates = candidates
        self._amounts = [each.resources() for each in candidates]
        self._places: dict[str, list[int]] = defaultdict(list)
        for place, amounts in enumerate(self._amounts):
            for provider in amounts:
                self._places[provider].append(place)
        self._gone: dict[int, frozenset[str]] = {}
        self._seen = 0

    def left(self, most: int | None) -> Sequence[Candidate]:
        """The first of those that fit, in Placement's order."""
        self._follow()
        gone = self._gone
        if not gone:
            return self._candidates[:most]
        return [each for place, each in enumerate(self._candidates) if place not in gone][:most]

    @property
    def count(self) -> int:
        """How many fit."""
        self._follow()
        return len(self._candidates) - len(self._gone)

    def lacking(self) -> Counter[frozenset[str]]:
        """How many candidates are gone for want of which resource classes."""
        self._follow()
        return Counter(self._gone.values())

    def amount(self, name: str) -> int:
        """The least that a candidate takes of a resource class, from one provider."""
        return min(
            amounts[name] for each in self._amounts for amounts in each.values() if name in amounts
        )

    def _follow(self) -> None:
        """Look again at the candidates on providers that have changed."""
        for provider in {*self._books.changes[self._seen :]}:
            for place in self._places.get(provider, ()):
                if lacks := self._books.lacks(self._amounts[place]):
                    self._gone[place] = lacks
                else:
                    self._gone.pop(place, None)
        self._seen = len(self._books.changes)
