# SPDX-License-Identifier: Apache-2.0
"""Placement after the claims of a simulation."""

import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice

from novasched.conf.settings import Settings
from novasched.observe.records.record import Diagnosis
from novasched.placement import query
from novasched.placement.base_answer import BaseAnswer
from novasched.placement.client import CandidatesWithSummaries
from novasched.placement.local_candidates import LocalCandidates
from novasched.placement.tree_search import SearchTooLong
from novasched.placement.wire import UnusableAnswer
from novasched.scheduler.errors import BadRequest
from novasched.scheduler.memory import FreeResources, MemoryPlacement
from novasched.scheduler.model.basis import FRESH, Basis
from novasched.scheduler.model.candidate import Candidate, CandidateIndex, Candidates
from novasched.scheduler.model.request import Request
from novasched.tools.simulate.trees import TreesLeft


class CandidatesLeft:
    """The candidates of a query that still fit.

    Only simulated claims make room when they end, and the units and steps of an
    inventory do not depend on its usage, so later answers of Placement are subsets of
    the first answer.

    :ivar _indexes: indexes of the candidates on each provider, by UUID.
    :ivar _gone: resource classes missing for each candidate that no longer fits.
    :ivar _seen: number of changes of free resources that are followed.
    """

    def __init__(self, candidates: Sequence[Candidate], free: FreeResources) -> None:
        self._free = free
        self._candidates = candidates
        self._amounts = [candidate.resources() for candidate in candidates]
        self._indexes: dict[str, list[int]] = defaultdict(list)
        for index, amounts in enumerate(self._amounts):
            for provider in amounts:
                self._indexes[provider].append(index)
        self._gone: dict[int, frozenset[str]] = {}
        self._seen = 0
        self._fitting: CandidateIndex | None = None

    def fitting(self) -> CandidateIndex:
        """The candidates that fit, in Placement's order; the same object until a
        candidate is gone or comes back."""
        self._follow()
        if self._fitting is None:
            self._fitting = CandidateIndex(self._iterate())
        return self._fitting

    def first(self, number: int) -> Sequence[Candidate]:
        """The first candidates that fit."""
        self._follow()
        return [*islice(self._iterate(), number)]

    def _iterate(self) -> Iterator[Candidate]:
        for index, candidate in enumerate(self._candidates):
            if index not in self._gone:
                yield candidate

    def lacking(self) -> Counter[frozenset[str]]:
        """The number of candidates that no longer fit, by missing resource classes."""
        self._follow()
        return Counter(self._gone.values())

    def amount(self, name: str) -> int:
        """The least amount of a resource class that a candidate takes from a
        provider."""
        taken = []
        for amounts_by_provider in self._amounts:
            for amounts in amounts_by_provider.values():
                if name in amounts:
                    taken.append(amounts[name])
        return min(taken)

    def _follow(self) -> None:
        """Compare candidates on changed providers with the free resources. Candidates
        come back when instances are deleted, or when a trial ends."""
        for provider in {*self._free.changes[self._seen :]}:
            for index in self._indexes.get(provider, ()):
                lacking = self._free.lacking(self._amounts[index])
                if bool(lacking) != (index in self._gone):
                    self._fitting = None
                if lacking:
                    self._gone[index] = lacking
                else:
                    self._gone.pop(index, None)
        self._seen = len(self._free.changes)


class SimulatedPlacement(MemoryPlacement):
    """Placement after the claims of the simulation. The real Placement is asked each
    query once, for all candidates; later answers come from memory.

    :param ask: asks the real Placement a query; None without a real Placement, where
        base queries must serve all requests.
    :param ask_base: asks the real Placement a base query; None to ask for all
        candidates of devices.
    :ivar beyond: number of candidates beyond the limit of the last request. The real
        Placement may choose different candidates within the limit.
    """

    def __init__(
        self,
        ask: Callable[[query.Query], CandidatesWithSummaries] | None,
        settings: Settings,
        ask_base: Callable[[query.LocalQuery], BaseAnswer] | None = None,
    ) -> None:
        super().__init__({})
        self.settings = settings
        self.beyond = 0
        self._ask = ask
        self._ask_base = ask_base
        self._offers: dict[str, CandidatesLeft] = {}
        # By base query and further resource classes; None if hosts share providers.
        self._trees: dict[tuple[str, frozenset[str]], TreesLeft | None] = {}

    @property
    def has_all_providers(self) -> bool:
        """True if base queries serve all requests."""
        return self._ask is None

    def candidates(self, request: Request, basis: Basis = FRESH) -> Candidates:
        """The candidates within the limit of the query; see
        :class:`novasched.scheduler.ports.Placement`.

        :raises PlacementUnavailable: the real Placement does not answer.
        """
        worked_out = self._worked_out(request)
        if worked_out is not None:
            self.beyond = 0
            return worked_out

        offers = self._candidates(request)
        fitting = [offer.fitting() for offer in offers]
        limit = query.limit(request, self.settings)
        if limit is None:
            limit = sys.maxsize
        self.beyond = sum(max(0, index.count - limit) for index in fitting)
        if len(fitting) == 1 and not self.beyond:
            return fitting[0]

        within_limit: list[Candidate] = []
        for offer in offers:
            within_limit += offer.first(limit)
        return CandidateIndex(within_limit)

    def shortage(self, request: Request) -> tuple[Diagnosis | None, Counter[str]]:
        """The resource classes in the way of candidates.

        :returns: single resource classes without which a candidate would fit, None if
            there was no candidate at the beginning; and the number of candidates that
            no longer fit, by missing resource classes.
        """
        single = Counter[str]()
        full = Counter[str]()
        for lacks, amount_of in self._lacks(request):
            for lacking, number in lacks.items():
                full[' and '.join(sorted(lacking))] += number
                if len(lacking) == 1:
                    (name,) = lacking
                    single[f'{amount_of(name)} {name}'] += number
        if not full:
            return None, full
        return Diagnosis(tuple(name for name, _ in single.most_common())), full

    def _lacks(
        self, request: Request
    ) -> Iterator[tuple[Counter[frozenset[str]], Callable[[str], int]]]:
        """For each query of a request, the missing resource classes of hosts or
        candidates, and a function for the requested amount of a class."""
        local_queries = self._local_queries(request)
        if local_queries is not None:
            for local, trees in local_queries:
                yield trees.lacking(local.trees), local.trees.demand.__getitem__
            return
        for offer in self._candidates(request):
            yield offer.lacking(), offer.amount

    def _worked_out(self, request: Request) -> LocalCandidates | None:
        """Candidates from the trees of hosts; None if the real Placement is to be asked
        for all candidates."""
        local_queries = self._local_queries(request)
        if local_queries is None:
            return None

        matches = []
        for local, trees in local_queries:
            with suppress(SearchTooLong):
                matched = trees.match(local.trees)
                if matched is not None:
                    matches.append(matched)
        if len(matches) < len(local_queries):
            return None
        asked_at = min(trees.asked_at for _, trees in local_queries)
        return LocalCandidates(matches, asked_at)

    def _local_queries(
        self, request: Request
    ) -> list[tuple[query.LocalQuery, TreesLeft]] | None:
        """The queries of a request for devices, each with the trees of hosts; None if
        the real Placement is to be asked for all candidates."""
        local_queries = []
        if self._ask is None:
            # All hosts are known, so that no limit matters.
            request = replace(request, unlimited=False)
        for built in query.build_all(request, self.settings):
            local = built.local
            if local is None:
                return None
            if local.is_for_placement and self._ask is not None:
                return None
            trees = self._trees_of(local)
            if trees is None:
                return None
            local_queries.append((local, trees))
        return local_queries

    def _trees_of(self, local: query.LocalQuery) -> TreesLeft | None:
        """The trees for a query; None if hosts share providers."""
        if self._ask_base is None:
            return None
        key = local.base.string, local.further_classes
        if key not in self._trees:
            trees = None
            with suppress(UnusableAnswer):
                trees = TreesLeft(self._ask_base(local), self.free)
            self._trees[key] = trees
        return self._trees[key]

    def _candidates(self, request: Request) -> list[CandidatesLeft]:
        """The candidates of each query of a request."""
        unlimited = replace(request, unlimited=True)
        offers = []
        for question in query.build_all(unlimited, self.settings):
            if question.string not in self._offers:
                self._offers[question.string] = self._read(question)
            offers.append(self._offers[question.string])
        return offers

    def _read(self, question: query.Query) -> CandidatesLeft:
        """Ask the real Placement, and keep the free resources of new providers.

        :raises BadRequest: there is no real Placement.
        """
        if self._ask is None:
            raise BadRequest(f'only a real Placement answers {question.string}')
        answer = self._ask(question)
        for provider, summary in answer.provider_summaries.items():
            free = {}
            for name, inventory in summary.resources.items():
                free[name] = inventory.capacity - inventory.used
            # The free resources of a known provider include simulated claims.
            self.free.by_provider.setdefault(provider, free)
        return CandidatesLeft(answer.allocation_requests, self.free)
