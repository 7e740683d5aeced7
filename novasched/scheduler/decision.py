# SPDX-License-Identifier: Apache-2.0
"""A decision as a value: what came of a request, and why.

A cycle returns the :class:`Decision` of each try, also of a try that an error ends.
Records, metrics, traces and the refusals that are explained to the caller are functions
of decisions.

Decisions wait for the thread that records them, so a decision refers to few large
objects: the chosen candidates without the others, each rejected host, and the ranked
hosts of the first instance. The hosts that fit a later instance are the hosts of the
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
"""A claim that is refused is followed by one on the next host."""

ALL_TOGETHER = 'all together'
"""Stands for the host where Placement refuses a claim for all instances at once."""

PLACED = 'placed'
REFUSED = 'refused'
FAILED = 'failed'
RESULTS = (PLACED, REFUSED, FAILED)
"""Every instance has a host; there was none; an operator must mend something."""


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
    """The part of a host's weight that comes from one weigher."""

    weigher: str
    raw: float
    normalised: float
    multiplier: float
    added: float


@dataclass(frozen=True, slots=True)
class HostWeight:
    """A host with its weight, and the parts of this."""

    host: str
    node: str
    weight: float
    shares: tuple[Contribution, ...] = ()


@dataclass(frozen=True, slots=True)
class Ranking:
    """The hosts that can take an instance, the one to try first in front.

    :ivar filters: the verdicts of each filter that judged, in order.
    :ivar weighers: the names of the weighers that ran, with the seconds of each.
    :ivar best: the first hosts with their weights.
    :ivar refusal: the reason for the caller where no host is left, if it is a special
        one.
    :ivar candidates: those of Placement's that the filters left. No decision keeps
        them.
    """

    hosts: Sequence[Host]
    filters: tuple[FilterResult, ...] = ()
    weighers: tuple[tuple[str, float], ...] = ()
    best: tuple[HostWeight, ...] = ()
    refusal: str | None = None
    candidates: Candidates | None = None

    def explained(self, with_hosts: bool) -> 'Ranking':
        """The part of the ranking that explains an attempt: without the candidates,
        which would keep Placement's answer in memory, and perhaps without the hosts."""
        hosts = self.hosts if with_hosts else ()
        return replace(self, hosts=hosts, candidates=None)


@dataclass(frozen=True, slots=True)
class CandidateCounts:
    """The size of Placement's offer. ``hosts`` are those of its providers that are
    hosts of ours, ``elsewhere`` the candidates on none of them. ``total`` hosts are
    known in all cells; 0 where they were not counted. ``age`` is the seconds since
    Placement was asked, if it was not asked for this request."""

    candidates: int = 0
    providers: int = 0
    hosts: int = 0
    elsewhere: int = 0
    total: int = 0
    asked: bool = True
    age: float | None = None

    @classmethod
    def of(cls, candidates: Candidates) -> 'CandidateCounts':
        """The counts of Placement's offer."""
        return cls(candidates.count, len(candidates), age=candidates.age)

    def with_hosts(
        self, candidates: Candidates | None, snapshot: HostSnapshot, hosts: int
    ) -> 'CandidateCounts':
        """The counts once the hosts of the offer are read.

        :param hosts: the number of hosts that the request may go to.
        """
        elsewhere = 0
        if candidates is not None and hosts < self.providers:
            strangers = candidates.keys() - snapshot.hosts.keys()
            elsewhere = len(
                {
                    id(candidate)
                    for provider in strangers
                    for candidate in candidates[provider]
                    if snapshot.hosts.keys().isdisjoint(candidate.allocations)
                }
            )
        total = max(snapshot.total, hosts)
        return replace(self, hosts=hosts, elsewhere=elsewhere, total=total)


@dataclass(slots=True)
class PlacementAttempt:
    """The search of a host for one instance of a request. The cycle that makes the
    attempt fills it in; nobody changes it afterwards.

    :ivar start: the number of hosts to choose from: those left by the instance before.
    :ivar pending: the number of them from which pending claims were subtracted.
    :ivar ranking: the verdicts and weights; the hosts only for the first instance.
    :ivar refused: names of hosts and nodes on which Placement refused a claim, once for
        each.
    :ivar unfit: hosts that did not fit any more when it was their turn.
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
    """The end of a step, which began when the one before it ended.

    :ivar attempt: as far as it had come, where the step is for one instance.
    :ivar refused: the host on which Placement refused a claim.
    """

    name: str
    ended: float
    attempt: PlacementAttempt | None = None
    refused: str | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """Outcome of a request.

    Attempts and ``together_refused`` are of the last try, where the request was decided
    in several; steps are of all tries. ``began``, ``ended`` and the moments of steps
    are seconds of one clock.

    :ivar basis: the freshness of the data that the last try rests on.
    :ivar prefiltered: the request as the prefilters left it, once Placement is asked.
    :ivar together_refused: Placement refused the claim for all instances at once.
    :ivar selections: for each instance a host with its alternates; none after an error.
    :ivar outdated: why the candidates that were remembered did not do; then Placement
        was asked.
    :ivar refusal: the reason given to the caller where there is no valid host.
    :ivar failure: what an operator must mend; of foreign errors, which may hold
        secrets, the name alone.
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
        """The decision of the last try of a request, with the steps of the tries before
        it. The pause between two tries counts to the step that ended the earlier."""
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
