# SPDX-License-Identifier: Apache-2.0
"""A decision as a value: the outcome of a request, and the reasons.

A cycle returns the :class:`Decision` of each try, also of a try with an error. Records,
metrics, traces and explained refusals are functions of decisions.

Decisions wait in memory for the recording thread, so that a decision refers to few
large objects: the chosen candidates, the rejected hosts, and the ranked hosts of the
first instance. The hosts for a later instance are the ranked hosts of the first
instance, less the rejected hosts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from novasched.conf.errors import NovaschedError
from novasched.scheduler.errors import NoValidHost
from novasched.scheduler.model.basis import FRESH, Basis
from novasched.scheduler.model.candidate import Candidates
from novasched.scheduler.model.host import Host, HostSnapshot, Selection
from novasched.scheduler.model.request import Request

PREFILTERS = 'prefilters'
PLACEMENT = 'placement'
HOSTS = 'hosts'
FILTERS = 'filters'
WEIGHERS = 'weighers'
CLAIM = 'claim'
ALTERNATES = 'alternates'
STEPS = (PREFILTERS, PLACEMENT, HOSTS, FILTERS, WEIGHERS, CLAIM, ALTERNATES)
NEXT_STEP = {**dict(pairwise(STEPS)), CLAIM: CLAIM, ALTERNATES: ALTERNATES}
"""The next step, by step. After a refused claim comes a claim on the next host."""

ALL_TOGETHER = 'all together'
"""In place of a host, if Placement refuses a claim for all instances at once."""

PLACED = 'placed'
REFUSED = 'refused'
FAILED = 'failed'
RESULTS = (PLACED, REFUSED, FAILED)
"""In this order: every instance has a host; an instance has no valid host; an operator
must mend a failure."""

REMEMBERED = 'remembered'
ALL_HOSTS = 'all_hosts'
OWN_QUERY = 'own_query'
CANDIDATE_SOURCES = (REMEMBERED, ALL_HOSTS, OWN_QUERY)
"""The sources of candidates: an earlier answer of Placement about all hosts, a new
answer about all hosts, and the answer to the query of the request."""


@dataclass(frozen=True, slots=True)
class FilterResult:
    """Hosts rejected by a filter, or by a field of the request, with the reasons.

    :ivar start: the number of hosts before the filter.
    :ivar reasons: the reason for each rejected host, in the order of the hosts.
    """

    name: str
    start: int
    rejected_hosts: Sequence[Host] = ()
    reasons: Sequence[str] = ()
    seconds: float = 0.0

    @property
    def end(self) -> int:
        """The number of hosts after the filter."""
        return self.start - len(self.reasons)


@dataclass(frozen=True, slots=True)
class Contribution:
    """The contribution of a weigher to the weight of a host. All numbers are finite.

    :ivar raw: the raw weight; None if the raw weight is NaN or infinite.
    """

    weigher: str
    raw: float | None
    normalised: float
    multiplier: float
    added: float


@dataclass(frozen=True, slots=True)
class HostWeight:
    """A host with its weight, and the contribution of each weigher."""

    host: str
    node: str
    weight: float
    shares: tuple[Contribution, ...] = ()


@dataclass(frozen=True, slots=True)
class Ranking:
    """The hosts for an instance, best first.

    :ivar filters: the verdicts of each filter, in the order of the filters.
    :ivar weighers: name and duration (seconds) of each weigher.
    :ivar best: the first hosts, with weights.
    :ivar refusal: the reason for the caller if no host remains; None for the usual
        reason.
    :ivar candidates: the allocation candidates after the filters; None in a decision.
    """

    hosts: Sequence[Host]
    filters: tuple[FilterResult, ...] = ()
    weighers: tuple[tuple[str, float], ...] = ()
    best: tuple[HostWeight, ...] = ()
    refusal: str | None = None
    candidates: Candidates | None = None

    def explained(self, with_hosts: bool) -> 'Ranking':
        """The part of the ranking for the explanation of an attempt.

        Without the candidates, which would keep Placement's answer in memory.
        """
        hosts: Sequence[Host] = ()
        if with_hosts:
            hosts = self.hosts
        return replace(self, hosts=hosts, candidates=None)


@dataclass(frozen=True, slots=True)
class CandidateCounts:
    """The size of Placement's offer.

    :ivar hosts: the number of hosts of the cells among the providers.
    :ivar elsewhere: the number of candidates without a host of the cells.
    :ivar total: the number of hosts in all cells; 0 if unknown.
    :ivar asked: False for a request without a query to Placement.
    :ivar age: seconds since the query, for remembered candidates; otherwise None.
    :ivar source: one of :data:`CANDIDATE_SOURCES`.
    """

    candidates: int = 0
    providers: int = 0
    hosts: int = 0
    elsewhere: int = 0
    total: int = 0
    asked: bool = True
    age: float | None = None
    source: str = OWN_QUERY

    @classmethod
    def of(cls, candidates: Candidates) -> 'CandidateCounts':
        """The counts of Placement's offer."""
        source = OWN_QUERY
        if candidates.is_remembered:
            source = REMEMBERED
        elif candidates.asked_at is not None:
            source = ALL_HOSTS
        return cls(candidates.count, len(candidates), age=candidates.age, source=source)

    def with_hosts(
        self, candidates: Candidates | None, snapshot: HostSnapshot, hosts: int
    ) -> 'CandidateCounts':
        """The counts after the hosts of the offer were read.

        :param hosts: the number of offered hosts.
        """
        elsewhere = 0
        if candidates is not None and hosts < self.providers:
            strangers = candidates.keys() - snapshot.hosts.keys()
            # A candidate with several providers is counted once.
            ids = set()
            for provider in strangers:
                for candidate in candidates[provider]:
                    if snapshot.hosts.keys().isdisjoint(candidate.allocations):
                        ids.add(id(candidate))
            elsewhere = len(ids)
        total = max(snapshot.total, hosts)
        return replace(self, hosts=hosts, elsewhere=elsewhere, total=total)


@dataclass(slots=True)
class PlacementAttempt:
    """The search of a host for one instance of a request. Only the cycle of the attempt
    changes the attempt.

    :ivar start: the number of hosts before the filters.
    :ivar pending: the number of hosts with pending claims before the filters.
    :ivar ranking: verdicts and weights; hosts only for the first instance.
    :ivar refused: host and node of each refused claim.
    :ivar unfit: hosts without room for the instance beside later claims.
    :ivar passed: the number of hosts after the filters.
    """

    instance_uuid: str | None
    index: int
    start: int
    pending: int
    ranking: Ranking
    refused: tuple[tuple[str, str], ...] = ()
    unfit: tuple[str, ...] = ()
    passed: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """The end of a step. A step begins at the end of the step before.

    :ivar attempt: the attempt, for a step for one instance.
    :ivar refused: the host of a refused claim.
    """

    name: str
    ended: float
    attempt: PlacementAttempt | None = None
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """The outcome of a request.

    A request may take several tries. Steps are of all tries, attempts and
    ``together_refused`` of the last try. ``began``, ``ended`` and the moments of steps
    are seconds of one clock.

    :ivar basis: the freshness of the data in the last try.
    :ivar prefiltered: the request after the prefilters; None before Placement is asked.
    :ivar together_refused: Placement refused the claim for all instances at once.
    :ivar selections: for each instance a host with its alternates; none after an error.
    :ivar outdated: the reason for the query to Placement in spite of remembered
        candidates.
    :ivar refusal: the reason for the caller if there is no valid host, without nova's
        standard text. Empty if Placement offered no candidates.
    :ivar failure: the failure for an operator to mend. A foreign error may quote
        secrets, so that only the type of the error is named.
    """

    request: Request
    seed: int
    began: float
    ended: float
    basis: Basis = FRESH
    steps: tuple[Step, ...] = ()
    prefiltered: Request | None = None
    counts: CandidateCounts | None = None
    attempts: tuple[PlacementAttempt, ...] = ()
    together_refused: bool = False
    outdated: str | None = None
    selections: list[list[Selection]] = field(default_factory=list)
    refusal: str | None = None
    failure: str | None = None

    def after(self, earlier: 'Decision | None') -> 'Decision':
        """The decision of a later try of the same request, with the steps of the
        earlier tries. The pause between two tries belongs to the last step of the
        earlier try."""
        if earlier is None:
            return self

        *steps, last_step = earlier.steps
        last_step = replace(last_step, ended=self.began)
        return replace(
            self,
            began=earlier.began,
            steps=(*steps, last_step, *self.steps),
            outdated=self.outdated or earlier.outdated,
        )

    @property
    def hosts(self) -> tuple[str, ...]:
        """The chosen host of each instance."""
        return tuple(selections[0].service_host for selections in self.selections)

    @property
    def result(self) -> str:
        """One of :data:`RESULTS`."""
        if self.failure is not None:
            return FAILED
        if self.refusal is None:
            return PLACED
        return REFUSED

    @property
    def seconds(self) -> dict[str, float]:
        """The sum of the times of each step."""
        sums: dict[str, float] = {}
        last = self.began
        for step in self.steps:
            sums[step.name] = sums.get(step.name, 0.0) + step.ended - last
            last = step.ended
        return sums


def failure_of(error: Exception | None) -> str | None:
    """The failure for an operator to mend, after the error of a try; None for a
    refusal.

    A foreign error may quote secrets, so that only the type of the error is named.
    """
    if isinstance(error, NoValidHost):
        # A refusal has a cause if a prefilter could not do its work.
        cause = error.__cause__
        if cause is None:
            return None
    elif error is None:
        return None
    else:
        cause = error
    if isinstance(cause, NovaschedError):
        return str(cause)
    return type(cause).__name__
