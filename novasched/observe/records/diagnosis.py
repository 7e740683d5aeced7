# SPDX-License-Identifier: Apache-2.0
"""Finds the constraints that keep Placement from offering a host.

Placement is queried about one constraint of the request at a time: which resource
providers meet the constraint. That is far cheaper than a query for allocation
candidates. A diagnosis runs after the request has been answered, with connections of
its own, and without the limits of requests. While the circuit to Placement is open, no
diagnosis queries Placement. All diagnoses together take a bounded share of Placement's
time, however many requests are refused.

A host lacks a constraint if neither a provider of the host's tree nor a sharing
provider meets the constraint. A host that meets each constraint alone may still have no
allocation candidate; the query of the request itself decides that.
"""

import contextlib
import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from keystoneauth1 import adapter

from novasched.conf.errors import NovaschedError
from novasched.conf.redaction import one_line
from novasched.conf.settings import Settings
from novasched.observe.records import render
from novasched.observe.records.constraint_texts import (
    ANOTHER,
    ConstraintTexts,
    Lack,
    cause_of,
)
from novasched.observe.records.from_decision import grouped, host_names
from novasched.observe.records.questions import (
    EVERYONE,
    Meeting,
    PlacementQueries,
    Questions,
    RefusedQuery,
)
from novasched.observe.records.record import (
    Diagnosis,
    ReasonCount,
    RejectionStage,
    StageRejections,
)
from novasched.placement import query
from novasched.placement.base_answer import fits
from novasched.placement.query import Constraint
from novasched.placement.tree_search import SearchTooLong
from novasched.placement.wire import UnusableAnswer
from novasched.scheduler.decision import Decision
from novasched.scheduler.errors import PlacementUnavailable
from novasched.scheduler.model.aggregate_list import AggregateList
from novasched.scheduler.model.basis import Basis
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request
from novasched.scheduler.prefilters import Aggregates

ELSEWHERE = Lack(-1, render.LEFT_OUT, 'the request is for another cell')
UNKNOWN = Lack(1, 'unknown to Placement', 'it has no provider of that UUID')
MAX_RANK = 10_000
APART = Lack(
    MAX_RANK,
    'without a candidate that meets all at once',
    'each constraint is met by itself, but not by what a candidate may be made of',
)
BEYOND = Lack(
    MAX_RANK, 'beyond max_placement_results', 'Placement offers them without that limit'
)
SINCE = Lack(MAX_RANK, 'offered when asked again', 'something has changed since')

PLACEMENT_SHARE = 0.25
"""The part of the time of one worker of Placement that the diagnoses of all processes
may take, as much as remembered answers may take
(:data:`novasched.placement.remembered.SHARE`)."""

Lacking = dict[str, list[Lack]]
"""The lacks of each host by UUID, in the order of their ranks."""


@dataclass(eq=False)
class Diagnoser:
    """Finds out why Placement did not offer hosts.

    :param hosts: reads the hosts of all cells by UUID, as of a moment (monotonic
        seconds) or later.
    :param circuit_open: True while the circuit to Placement is open.
    :param processes: number of processes that share the time for diagnoses.
    :param clock: monotonic seconds.
    """

    settings: Settings
    http: adapter.Adapter
    aggregates: Aggregates
    hosts: Callable[[float], Mapping[str, Host]]
    circuit_open: Callable[[], bool] = lambda: False
    processes: int = 1
    clock: Callable[[], float] = time.monotonic
    _answers: dict[str, Meeting] = field(default_factory=dict, init=False)
    _pause_until: float = field(default=-math.inf, init=False)

    def pause(self) -> float:
        """Seconds until the next diagnosis may query Placement."""
        return max(0.0, self._pause_until - self.clock())

    def __call__(self, decision: Decision) -> tuple[Diagnosis, StageRejections]:
        """The number of hosts by their first lack, and all lacks of each host.

        :raises NovaschedError: Placement or a database does not answer.
        """
        request = decision.prefiltered or decision.request
        hosts = self._hosts_not_offered(decision, request)
        queries = query.build_all(request, self.settings)
        constraints = [built.constraints() for built in queries]
        number = len(set().union(*constraints))

        questions = self._questions(
            self.settings.decisions_questions, request, decision.basis
        )
        try:
            lacking = self._lacking(constraints, hosts, questions)
            if not questions.queries.is_exhausted:
                if self._is_cut(decision, request):
                    whole = BEYOND
                else:
                    whole = SINCE
                self._compare_whole_queries(queries, lacking, questions, whole)
            _add_causes_by_inventories(lacking, questions)
        except RefusedQuery as error:
            diagnosis = Diagnosis(
                queries=questions.queries.sent, constraints=number, refusal=str(error)
            )
            return diagnosis, _rejections({}, {})
        finally:
            pauses = self.processes / PLACEMENT_SHARE - 1
            self._pause_until = self.clock() + pauses * questions.queries.seconds

        diagnosis = Diagnosis(
            queries=questions.queries.sent,
            constraints=number,
            lacking=_stages(lacking),
            nearest=_nearest(lacking),
        )
        return diagnosis, _rejections(lacking, hosts)

    def _questions(self, limit: int, request: Request, basis: Basis) -> Questions:
        queries = PlacementQueries(
            self.http, request.trace_id, limit, self.circuit_open, self.clock
        )
        return Questions(queries, self._answers, request, basis)

    def _is_cut(self, decision: Decision, request: Request) -> bool:
        """True if ``[scheduler] max_placement_results`` may have cut the answer."""
        limit = query.limit(request, self.settings)
        if not limit:
            return False
        return decision.counts is not None and decision.counts.candidates >= limit

    def _hosts_not_offered(
        self, decision: Decision, request: Request
    ) -> Mapping[str, Host]:
        """The hosts that Placement did not offer, by UUID."""
        offered: set[str] = set()
        if decision.attempts:
            ranking = decision.attempts[0].ranking
            offered.update(host.uuid for host in ranking.hosts)
            for result in ranking.filters:
                offered.update(host.uuid for host in result.rejected_hosts)

        hosts = self.hosts(decision.basis.read_since)
        return {uuid: host for uuid, host in hosts.items() if uuid not in offered}

    def _lacking(
        self,
        constraints: Sequence[Sequence[Constraint]],
        hosts: Mapping[str, Host],
        questions: Questions,
    ) -> Lacking:
        """The lacks of each host.

        A request with pinned CPUs may have two queries, with PCPU and with VCPU
        (``[workarounds] disable_fallback_pcpu_query``). The query whose first lack
        comes later counts for a host.
        """
        aggregates = self._named_aggregates(constraints, questions.basis)
        by_query = []
        for row in constraints:
            by_query.append(self._lacking_of_query(row, hosts, questions, aggregates))
        lacking: Lacking = {}
        for uuid in hosts:
            lacking[uuid] = max((row[uuid] for row in by_query), key=_first_rank)

        # A host that no answer named may have no provider at all.
        unnamed = []
        for uuid, lacks in lacking.items():
            if lacks and lacks[0].words != ANOTHER and uuid not in questions.named:
                unnamed.append(uuid)
        if unnamed and (everyone := questions.meeting(EVERYONE)):
            for uuid in unnamed:
                if uuid not in everyone.roots:
                    lacking[uuid] = [UNKNOWN]

        # As in nova, a destination in a cell leaves out the hosts of other cells,
        # whatever Placement says of them.
        destination = questions.request.requested_destination
        if destination is None or not destination.cell_uuid:
            return lacking
        if destination.allow_cross_cell_move:
            return lacking
        for uuid, host in hosts.items():
            if host.cell_uuid != destination.cell_uuid:
                lacking[uuid] = [ELSEWHERE]
        return lacking

    def _lacking_of_query(
        self,
        constraints: Sequence[Constraint],
        hosts: Mapping[str, Host],
        questions: Questions,
        aggregates: AggregateList,
    ) -> Lacking:
        """The lacks of each host by one query."""
        shares = questions.shares()
        texts = []
        for constraint in constraints:
            texts.append(
                ConstraintTexts(constraint, questions.request, aggregates, not shares)
            )
        texts.sort(key=lambda text: text.position)

        lacking: Lacking = {uuid: [] for uuid in hosts}
        for number, describe in enumerate(texts, 1):
            constraint = describe.constraint
            without = _hosts_without(constraint, hosts, questions, shares)
            rank = UNKNOWN.rank + number
            if constraint.kind == 'host':
                rank = 0
            for uuid in without:
                lacking[uuid].append(describe(hosts[uuid], rank))
        return lacking

    def _compare_whole_queries(
        self,
        queries: Sequence[query.Query],
        lacking: Lacking,
        questions: Questions,
        whole: Lack,
    ) -> None:
        """Add a lack to hosts that meet each constraint alone.

        :param whole: the lack of a host that Placement offers now.
        """
        complete = [uuid for uuid, lacks in lacking.items() if not lacks]
        if not complete:
            return
        local = [built.local for built in queries if built.local is not None]
        is_local = len(local) == len(queries) and not questions.has_sharing_providers()
        if is_local and not any(built.is_for_placement for built in local):
            # Placement would list all permutations of devices, for minutes.
            with contextlib.suppress(UnusableAnswer, SearchTooLong):
                lacks = [_lacks_of_trees(built, questions, whole) for built in local]
                if questions.queries.is_exhausted:
                    return
                for uuid in complete:
                    of_host = [row.get(uuid, APART) for row in lacks]
                    # The fallback query may be the one that the host serves.
                    lacking[uuid] = [whole if whole in of_host else of_host[0]]
                return

        roots = questions.offered(queries)
        if roots is None:
            return
        for uuid in complete:
            if uuid in roots:
                lacking[uuid] = [whole]
            else:
                lacking[uuid] = [APART]

    def _named_aggregates(
        self, constraints: Sequence[Sequence[Constraint]], basis: Basis
    ) -> AggregateList:
        """The aggregates, if a constraint is named after an aggregate and the API
        database answers."""
        for constraint in chain.from_iterable(constraints):
            if constraint.kind == 'aggregates':
                with contextlib.suppress(NovaschedError):
                    return self.aggregates.all(basis.read_since)
                break
        return AggregateList()


def _lacks_of_trees(
    local: query.LocalQuery, questions: Questions, whole: Lack
) -> Mapping[str, Lack]:
    """The lack of each host, from the provider trees of all hosts; empty if the limit
    of queries is reached.

    :param whole: the lack of a host that serves the query now.
    :raises UnusableAnswer: hosts share providers, or the answer has another format.
    :raises SearchTooLong: a tree has too many possibilities.
    """
    answer = questions.base_answer(local.base)
    if answer is None:
        return {}

    fitting = fits(local.trees, answer, answer.capacity_left)
    free = answer.free_of_trees
    lacks = {}
    for host, uuid in enumerate(answer.trees.host_uuids):
        if fitting[host]:
            lacks[uuid] = whole
            continue

        lacks[uuid] = APART
        for name, amount in local.trees.demand.items():
            if free[name][host] < amount:
                lacks[uuid] = Lack(
                    MAX_RANK,
                    f'have fewer than {amount} free {name}',
                    f'{free[name][host]} of {amount} {name} free',
                    f'{amount} {name}',
                )
                break
    return lacks


def _add_causes_by_inventories(lacking: Lacking, questions: Questions) -> None:
    """Add to lacks of a resource that nova's databases do not count why the inventory
    of the host cannot give the amount; for few hosts, a query to Placement each."""
    for uuid, lacks in lacking.items():
        for position, lack in enumerate(lacks):
            if not lack.resource_class:
                continue
            try:
                inventories = questions.inventories(uuid)
            except PlacementUnavailable:
                # The diagnosis is complete without these causes.
                return
            if inventories is None:
                return
            # Without an inventory the resource may be that of a nested provider.
            inventory = inventories.get(lack.resource_class)
            if inventory is not None:
                reason = f'{lack.reason}, {cause_of(inventory, lack.amount)}'
                lacks[position] = replace(lack, reason=reason)


def _hosts_without(
    constraint: Constraint,
    hosts: Mapping[str, Host],
    questions: Questions,
    shares: Mapping[str, frozenset[str]],
) -> Collection[str]:
    """The UUIDs of hosts that do not meet a constraint; empty if the limit of queries
    is reached.

    :param shares: the hosts that share in each sharing provider.
    """
    if constraint.kind == 'host':
        return hosts.keys() - {constraint.value}

    meeting = questions.meeting(constraint.question)
    if meeting is None:
        return ()
    if constraint.forbidden:
        return hosts.keys() & meeting.providers
    if constraint.of_root:
        return hosts.keys() - meeting.providers

    without = hosts.keys() - meeting.roots
    if constraint.kind in ('trait', 'resource'):
        for provider in shares.keys() & meeting.providers:
            without -= shares[provider]
    return without


def _first_rank(lacks: Sequence[Lack]) -> int:
    """The rank of the first lack. A host without a lack ranks behind all others."""
    if lacks:
        return lacks[0].rank
    return MAX_RANK


def _nearest(lacking: Lacking) -> tuple[ReasonCount, ...]:
    """The constraints that are the only lack of hosts, with the number of hosts."""
    counts: Counter[str] = Counter()
    for lacks in lacking.values():
        if len(lacks) == 1 and lacks[0].name:
            counts[lacks[0].name] += 1
    return tuple(ReasonCount(name, hosts) for name, hosts in counts.most_common())


def _stages(lacking: Lacking) -> tuple[RejectionStage, ...]:
    """The numbers of hosts by their first lack, in the order of ranks."""
    reasons_by_lack: dict[tuple[int, str], Counter[str]] = defaultdict(Counter)
    for lacks in lacking.values():
        if lacks:
            first = lacks[0]
            reasons_by_lack[first.rank, first.words][first.reason] += 1

    stages = []
    start = len(lacking)
    for (_, words), reasons in sorted(
        reasons_by_lack.items(), key=lambda item: item[0]
    ):
        end = start - reasons.total()
        stages.append(RejectionStage(words, start, end, grouped(reasons)))
        start = end
    return tuple(stages)


def _rejections(lacking: Lacking, hosts: Mapping[str, Host]) -> StageRejections:
    """All lacks of each host, as one reason a host."""
    numbers: dict[str, int] = {}
    which = []
    for lacks in lacking.values():
        text = '; '.join(f'{lack.words}: {lack.reason}' for lack in lacks)
        which.append(numbers.setdefault(text or 'no offer', len(numbers)))

    names = host_names([hosts[uuid] for uuid in lacking])
    return StageRejections('Placement', names, list(map(one_line, numbers)), which)
