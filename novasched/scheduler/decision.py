# SPDX-License-Identifier: Apache-2.0
"""A decision as a value: what came of a request, and why.

A cycle collects the parts while it decides, in the :class:`DecisionTrace` of its
request, and returns the :class:`Decision`; whoever catches an error has the trace make
one of it. Records, metrics, traces and refusals that are explained to the caller are
functions of it.

Decisions wait for the thread that records them, so a decision refers to few large
objects: the chosen candidates without the others, each rejected host, and the ranked
hosts of the first instance. The hosts that fit a later instance are the hosts of the
first instance's ranking, less the rejected hosts.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from typing import Any

from novasched.conf.errors import NovaschedError
from novasched.scheduler.errors import NoValidHost
from novasched.scheduler.model.candidate import Candidates
from novasched.scheduler.model.host import Host, HostSnapshot, Selection, uuid_of
from novasched.scheduler.model.request import Request

PREFILTERS = 'prefilters'
PLACEMENT = 'placement'
HOSTS = 'hosts'
FILTERS = 'filters'
WEIGHERS = 'weighers'
CLAIM = 'claim'
ALTERNATES = 'alternates'
STEPS = (PREFILTERS, PLACEMENT, HOSTS, FILTERS, WEIGHERS, CLAIM, ALTERNATES)
_NEXT_STEP = {**dict(pairwise(STEPS)), CLAIM: CLAIM, ALTERNATES: ALTERNATES}
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


@dataclass(frozen=True, slots=True)
class PlacementAttempt:
    """The search of a host for one instance of a request.

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

    Attempts and ``together_refused`` are of the last time that the request was decided,
    where it had to wait; steps are of all times. ``began``, ``ended`` and those of
    steps are seconds of one clock.

    :ivar narrowed: the request as the prefilters left it, once Placement is asked.
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
    steps: tuple[Step, ...] = ()
    narrowed: Request | None = None
    counts: CandidateCounts | None = None
    attempts: tuple[PlacementAttempt, ...] = ()
    together_refused: bool = False
    outdated: str | None = None
    selections: list[list[Selection]] = field(default_factory=list)
    refusal: str | None = None
    failure: str | None = None

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


@dataclass(slots=True)
class DecisionTrace:
    """The parts of a decision, collected by the cycle that makes it.

    It is kept apart from errors: requests that wait for one answer share the error,
    too.

    :ivar seed: of every draw.
    :ivar clock: seconds, from any moment on.
    :ivar began: when the request came.
    :ivar steps: those of earlier attempts, ``steps_before``, and of this one.
    :ivar is_announced: notifications tell that hosts are going to be chosen.
    :ivar _uuids: UUIDs of the hosts for the instance at ``_uuids_index``, once needed.
    """

    request: Request
    seed: int
    clock: Callable[[], float]
    began: float
    narrowed: Request | None = None
    counts: CandidateCounts | None = None
    attempts: list[PlacementAttempt] = field(default_factory=list)
    together_refused: bool = False
    steps: list[Step] = field(default_factory=list)
    steps_before: int = 0
    is_announced: bool = False
    outdated: str | None = None
    _uuids: set[str] | None = None
    _uuids_index: int = 0

    def restart(self, request: Request) -> None:
        """Forget an attempt that an unavailable service ended, or what was remembered,
        but for the time that it took, which lasts until now."""
        self._end_step()
        self.request = request
        self.narrowed = None
        self.counts = None
        self.attempts = []
        self.together_refused = False
        self._uuids = None
        self.steps_before = len(self.steps)

    def _end_step(self) -> None:
        done = self.steps[self.steps_before :]
        first = HOSTS if self.request.is_rebuild else PREFILTERS
        self.step(_NEXT_STEP[done[-1].name] if done else first)

    def step(
        self,
        name: str,
        attempt: PlacementAttempt | None = None,
        refused: str | None = None,
    ) -> None:
        """Note the end of a step."""
        self.steps.append(Step(name, self.clock(), attempt, refused))

    def prefiltered(self, request: Request) -> None:
        """Note the request that Placement is asked for."""
        self.narrowed = request
        self.step(PREFILTERS)

    def offered(self, candidates: Candidates) -> None:
        """Note the size of Placement's offer, which an index knows: to count takes
        long."""
        count: int | None = getattr(candidates, 'count', None)
        if count is None:
            count = len(set(map(id, chain.from_iterable(candidates.values()))))
        self.counts = CandidateCounts(
            count, len(candidates), age=getattr(candidates, 'age', None)
        )
        self.step(PLACEMENT)

    def read(
        self, snapshot: HostSnapshot, hosts: int, candidates: Candidates | None
    ) -> None:
        """Note the numbers of hosts."""
        counts = (candidates is not None and self.counts) or CandidateCounts(
            asked=False
        )
        elsewhere = 0
        if candidates is not None and hosts < counts.providers:
            strangers = candidates.keys() - snapshot.hosts.keys()
            elsewhere = len(
                {
                    id(candidate)
                    for rp in strangers
                    for candidate in candidates[rp]
                    if snapshot.hosts.keys().isdisjoint(candidate.allocations)
                }
            )
        total = max(snapshot.total, hosts)
        self.counts = replace(counts, hosts=hosts, elsewhere=elsewhere, total=total)
        self.step(HOSTS)

    def filtered(
        self,
        request: Request,
        hosts: Sequence[Host],
        pending: Collection[str],
        ranking: Ranking,
    ) -> None:
        """Note the verdicts on the hosts for the next instance; claims are pending on
        some."""
        uuid = request.instance_uuid if request.instance_uuids else None
        before = None
        is_again = bool(self.attempts) and self.attempts[-1].instance_uuid == uuid
        if uuid is not None and is_again:
            before = self.attempts.pop()

        index = len(self.attempts)
        kept_hosts = ranking.hosts if index == 0 else ()
        attempt = PlacementAttempt(
            instance_uuid=uuid,
            index=index,
            start=len(hosts),
            pending=self._count_pending(hosts, pending) if pending else 0,
            ranking=replace(ranking, hosts=kept_hosts, candidates=None),
            refused=before.refused if before else (),
            unfit=before.unfit if before else (),
            passed=len(ranking.hosts),
        )
        self.attempts.append(attempt)
        self.step(FILTERS, attempt)

    def weighed(self, ranking: Ranking) -> None:
        """Note the order of the hosts for the same instance."""
        attempt = self.attempts[-1]
        hosts = ranking.hosts if attempt.index == 0 else ()
        ranking = replace(ranking, hosts=hosts, candidates=None)
        attempt = replace(attempt, ranking=ranking)
        self.attempts[-1] = attempt
        self.step(WEIGHERS, attempt)

    def _count_pending(self, hosts: Sequence[Host], pending: Collection[str]) -> int:
        """The number of hosts for the next instance on which claims are pending.

        The UUIDs of hosts are collected once for a request, since collecting the UUIDs
        for each instance takes a tenth of the time of its decision. An instance has the
        hosts of the instance before, less the rejected hosts.
        """
        index = len(self.attempts)
        if self._uuids is None:
            self._uuids = set(map(uuid_of, hosts))
            self._uuids_index = index

        for attempt in self.attempts[self._uuids_index :]:
            for result in attempt.ranking.filters:
                self._uuids.difference_update(map(uuid_of, result.rejected_hosts))
        self._uuids_index = index
        return len(self._uuids.intersection(pending))

    def claim_refused(self, host: Host) -> None:
        """Note that Placement refused a claim for the same instance."""
        attempt = self.attempts[-1]
        self.attempts[-1] = replace(attempt, refused=(*attempt.refused, host.key))
        self.step(CLAIM, refused=host.host)

    def became_unfit(self, host: Host) -> None:
        """Note that a host does not fit any more when it is its turn."""
        attempt = self.attempts[-1]
        self.attempts[-1] = replace(attempt, unfit=(*attempt.unfit, host.host))

    def placed_apart(self, refused: bool) -> None:
        """Note that each instance is placed by itself now: Placement refused to claim
        for all of them at once, or another scheduler was faster for one of them."""
        self.attempts.clear()
        self._uuids = None
        self.together_refused = refused
        self.step(CLAIM, refused=ALL_TOGETHER if refused else None)

    def failed(self, error: Exception) -> Decision:
        """The decision that ended with this error."""
        cause = error.__cause__ if isinstance(error, NoValidHost) else error
        failure = None
        if cause is not None:
            if isinstance(cause, NovaschedError):
                failure = str(cause)
            else:
                failure = type(cause).__name__
        if cause is not None or len(self.steps) == self.steps_before:
            self._end_step()
        refusal = error.reason if isinstance(error, NoValidHost) else None
        return self.decision(refusal=refusal, failure=failure)

    def decision(self, **result: Any) -> Decision:
        """The decision with this result."""
        return Decision(
            request=self.request,
            seed=self.seed,
            began=self.began,
            ended=self.clock(),
            steps=tuple(self.steps),
            narrowed=self.narrowed,
            counts=self.counts,
            attempts=tuple(self.attempts),
            together_refused=self.together_refused,
            outdated=self.outdated,
            **result,
        )
