# SPDX-License-Identifier: Apache-2.0
"""A decision as a value: the outcome of a request, and the reasons.

A cycle returns the :class:`Decision` of each try, also of a try that an error ends.
Records, metrics, traces and the refusals that are explained to the caller are functions
of decisions.

Decisions wait in memory for the thread that records them, so a decision refers to few
large objects: the chosen candidates, each rejected host, and the ranked hosts of the
first instance. The hosts that fit a later instance are the hosts of the
first instance's ranking, less the rejected hosts.
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
"""The step after each step. After a refused claim comes a claim on the next host."""

ALL_TOGETHER = 'all together'
"""In place of a host, if Placement refuses a claim for all instances at once."""

PLACED = 'placed'
REFUSED = 'refused'
FAILED = 'failed'
RESULTS = (PLACED, REFUSED, FAILED)
"""In turn: every instance has a host; an instance has no valid host; a failure that an
operator must mend."""

REMEMBERED = 'remembered'
ALL_HOSTS = 'all_hosts'
OWN_QUERY = 'own_query'
CANDIDATE_SOURCES = (REMEMBERED, ALL_HOSTS, OWN_QUERY)
"""Where the candidates of a request come from: an earlier answer of Placement about
all hosts, a new answer about all hosts, or the answer to the query of the request."""


@dataclass(frozen=True, slots=True)
class FilterResult:
    """Hosts rejected by a filter, or by a field of the request, with a reason for each.

    :ivar start: the number of hosts that came in.
    """

    name: str
    start: int
    rejected_hosts: Sequence[Host] = ()
    reasons: Sequence[str] = ()
    seconds: float = 0.0

    @property
    def end(self) -> int:
        """The number of hosts that passed."""
        return self.start - len(self.reasons)


@dataclass(frozen=True, slots=True)
class Contribution:
    """The part of a host's weight that a weigher adds. All numbers are finite.

    :ivar raw: the raw weight; None if the weigher answered NaN or infinity.
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
    """The hosts that can take an instance, best first.

    :ivar filters: the verdicts of each filter, in the order of the filters.
    :ivar weighers: name and duration (seconds) of each weigher.
    :ivar best: the first hosts with their weights.
    :ivar refusal: the reason for the caller if no host remains; None for the usual
        reason.
    :ivar candidates: the allocation candidates that the filters left; None in a
        decision.
    """

    hosts: Sequence[Host]
    filters: tuple[FilterResult, ...] = ()
    weighers: tuple[tuple[str, float], ...] = ()
    best: tuple[HostWeight, ...] = ()
    refusal: str | None = None
    candidates: Candidates | None = None

    def explained(self, with_hosts: bool) -> 'Ranking':
        """The part of the ranking that explains an attempt.

        The candidates are left out, since they keep Placement's answer in memory.
        """
        hosts: Sequence[Host] = ()
        if with_hosts:
            hosts = self.hosts
        return replace(self, hosts=hosts, candidates=None)


@dataclass(frozen=True, slots=True)
class CandidateCounts:
    """The size of Placement's offer.

    :ivar hosts: the number of providers that are hosts of the cells.
    :ivar elsewhere: the number of candidates without a host of the cells.
    :ivar total: the number of hosts in all cells; 0 if unknown.
    :ivar asked: False for a request that does not need Placement.
    :ivar age: seconds since the query, if the candidates are remembered; otherwise
        None.
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
        """The counts once the hosts of the offer are read.

        :param hosts: the number of hosts that the request may go to.
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
    """The search of a host for one instance of a request. Only the cycle that makes the
    attempt changes the attempt.

    :ivar start: the number of hosts before the filters.
    :ivar pending: the number of these hosts with pending claims.
    :ivar ranking: verdicts and weights; hosts only for the first instance.
    :ivar refused: host and node of each claim that Placement refused.
    :ivar unfit: hosts that no longer fitted beside later claims.
    :ivar passed: the number of hosts that fit the instance.
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

    :ivar attempt: the attempt, for a step that is for one instance.
    :ivar refused: the host on which Placement refused a claim.
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
    :ivar outdated: the reason why Placement was asked although candidates were
        remembered.
    :ivar refusal: the reason for the caller if there is no valid host, without nova's
        standard text. Empty if Placement offered no candidates.
    :ivar failure: the failure that an operator must mend. For foreign errors, which may
        quote secrets, only the name of their type.
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
    """The failure that an operator must mend, for an error that ends a try; None for a
    refusal.

    Foreign errors may quote secrets, so that only their type is named.
    """
    if isinstance(error, NoValidHost):
        # A refusal has a cause where a prefilter could not do its work.
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
