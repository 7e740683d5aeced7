# SPDX-License-Identifier: Apache-2.0
"""Placement as it would be after the claims that are made here, and nowhere else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from novasched.model.candidate import Candidate
from novasched.model.request import Request
from novasched.model.settings import Settings
from novasched.placement import query
from novasched.placement.candidates import Offer, by_provider
from novasched.ports import Candidates
from novasched.records.record import Inquiry
from novasched.simulating.books import Amounts, Books, Offered

Ask = Callable[[query.Query], Offer]


class Rehearsal:
    """Implements :class:`novasched.ports.Placement`: each query is asked once, for all
    candidates, and answered from memory ever after.

    :param ask: asks Placement.
    :ivar beyond: how many candidates the limit kept from the last request. Placement may pick
        others than the first ones that it named.
    """

    def __init__(self, ask: Ask, settings: Settings) -> None:
        self.settings = settings
        self.books = Books()
        self.beyond = 0
        self._ask = ask
        self._offers: dict[str, Offered] = {}

    def expect(self, moment: float) -> None:
        """Nobody waits."""

    def candidates(self, request: Request) -> Candidates:
        """See :class:`novasched.ports.Placement`. The limit of the query is kept to.

        :raises PlacementUnavailable: it is asked, and does not answer.
        """
        most = query.limit(request, self.settings)
        self.beyond = 0
        found: list[Candidate] = []
        for offer in self._offered(request):
            first = offer.left(most)
            self.beyond += offer.count - len(first)
            found += first
        return by_provider(found)

    def claim(self, request: Request, candidate: Candidate) -> Amounts | None:
        """See :class:`novasched.ports.Placement`."""
        held = candidate.resources()
        return held if self.books.take([held]) else None

    def claim_together(
        self, wanted: Sequence[tuple[Request, Candidate]]
    ) -> Sequence[Amounts] | None:
        """See :class:`novasched.ports.Placement`."""
        held = [candidate.resources() for _, candidate in wanted]
        return held if self.books.take(held) else None

    def give_back(self, claim: Amounts) -> None:
        """See :class:`novasched.ports.Placement`."""
        self.books.give_back(claim)

    def why_nothing(self, request: Request) -> Inquiry | None:
        """The resource classes without any one of which a candidate would be left; None if
        there was none to begin with."""
        found: Counter[str] = Counter()
        classes: set[str] = set()
        for offer in self._offered(request):
            for lacks, number in offer.lacking().items():
                classes |= lacks
                if len(lacks) == 1:
                    (name,) = lacks
                    found[f'{offer.amount(name)} {name}'] += number
        if not classes:
            return None
        return Inquiry(tuple(name for name, _ in found.most_common()))

    def full(self, request: Request) -> Counter[str]:
        """How many candidates there were and are not any more, for want of which classes."""
        found: Counter[str] = Counter()
        for offer in self._offered(request):
            for lacks, number in offer.lacking().items():
                found[' and '.join(sorted(lacks))] += number
        return found

    def _offered(self, request: Request) -> list[Offered]:
        """What there is for each query of a request.

        :raises PlacementUnavailable: it is asked, and does not answer.
        """
        found = []
        for each in query.every(replace(request, unlimited=True), self.settings):
            if each.string not in self._offers:
                answer = self._ask(each)
                self.books.learn(answer.provider_summaries)
                self._offers[each.string] = Offered(answer.allocation_requests, self.books)
            found.append(self._offers[each.string])
        return found
