# SPDX-License-Identifier: Apache-2.0
"""Finds out what each host lacks that Placement does not offer.

Placement is asked about one constraint of the query at a time: which providers meet it.
That is far cheaper than a query for candidates. It happens after the request has been
answered, with connections of its own, and without the limits that hold for requests.
While the circuit to Placement is open, diagnoses do not ask Placement either. All
diagnoses together take a bounded share of Placement's time, however many requests are
refused.

A host lacks a constraint where no provider of its tree meets it, nor one that shares
with it. What is left then is how the parts fit together, which only the query itself
can tell.
"""

import contextlib
import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import os_traits
from keystoneauth1 import adapter

from novasched.conf.errors import NovaschedError
from novasched.conf.redaction import one_line
from novasched.conf.settings import Settings
from novasched.observe.records import render
from novasched.observe.records.from_decision import grouped, host_names
from novasched.observe.records.questions import (
    EVERYONE,
    Meeting,
    Questions,
    RefusedQuery,
)
from novasched.observe.records.record import (
    Diagnosis,
    ReasonCount,
    Stage,
    StageRejections,
)
from novasched.placement import query
from novasched.placement.query import Constraint
from novasched.scheduler.decision import Decision
from novasched.scheduler.model.basis import Basis
from novasched.scheduler.model.host import AVAILABILITY_ZONE, Aggregate, Host
from novasched.scheduler.model.request import Request
from novasched.scheduler.prefilters import Aggregates
from novasched.scheduler.prefilters.request_filter import TENANT_KEY


@dataclass(frozen=True, slots=True)
class Lack:
    """One thing that a host lacks.

    :ivar rank: its place in the order in which hosts are counted, each by its first
        one.
    :ivar words: follow a number of hosts.
    :ivar name: of the constraint, in the words of those who set it.
    """

    rank: int
    words: str
    reason: str
    name: str = ''


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

ANOTHER = 'not the requested host'
ZONE = 'in another zone'
PROJECTS = 'for other projects'
OUTSIDE = 'outside of the aggregates'
FIRST_OF_KIND = (ZONE, PROJECTS, OUTSIDE, render.DISABLED)
"""Words for constraints that are looked at before others of their kind."""

PLACEMENT_SHARE = 0.25
"""The part of one Placement worker's time that the diagnoses of all processes may take,
as much as remembered answers may (:data:`novasched.placement.remembered.SHARE`)."""

Lacking = dict[str, list[Lack]]
"""What each host lacks, by UUID, in order."""


@dataclass(eq=False)
class Diagnoser:
    """Says why Placement did not offer the hosts that it did not.

    :param hosts: those of all cells by UUID, as of a moment (monotonic seconds) or
        later.
    :param circuit_open: tells whether the circuit to Placement is open.
    :param processes: the number of processes that share the time for diagnoses.
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
        """Seconds until Placement may be asked for the next diagnosis."""
        return max(0.0, self._pause_until - self.clock())

    def __call__(self, decision: Decision) -> tuple[Diagnosis, StageRejections]:
        """The numbers of hosts by what they lack first, and all that each one lacks.

        :raises NovaschedError: Placement or a database does not answer.
        """
        request = decision.narrowed or decision.request
        left = self._not_offered(decision, request)
        strings = [each.string for each in query.build_all(request, self.settings)]
        wanted = [query.constraints(string) for string in strings]
        number = len(dict.fromkeys(each for row in wanted for each in row))
        asking = self._questions(
            self.settings.decisions_questions, request, decision.basis
        )
        try:
            lacking = self._lacking(wanted, left, asking, decision.basis)
            limit = query.limit(request, self.settings)
            count = decision.counts.candidates if decision.counts else 0
            whole = BEYOND if limit and count >= limit else SINCE
            if not asking.is_over:
                self._look_at_wholes(strings, lacking, left, asking, whole)
        except RefusedQuery as error:
            return Diagnosis((), asking.asked, number, str(error)), _rejections({}, {})
        finally:
            pauses = self.processes / PLACEMENT_SHARE - 1
            self._pause_until = self.clock() + pauses * asking.seconds
        nearest = Counter(each[0].name for each in lacking.values() if len(each) == 1)
        alone = tuple(ReasonCount(*each) for each in nearest.most_common() if each[0])
        stages = _stages(lacking)
        found = Diagnosis((), asking.asked, number, lacking=stages, nearest=alone)
        return found, _rejections(lacking, left)

    def _questions(self, most: int, request: Request, basis: Basis) -> Questions:
        return Questions(
            self.http,
            self._answers,
            most,
            request,
            basis.began,
            circuit_open=self.circuit_open,
            clock=self.clock,
        )

    def _not_offered(self, decision: Decision, request: Request) -> Mapping[str, Host]:
        """The hosts that Placement did not offer, by UUID."""
        offered: set[str] = set()
        if decision.attempts:
            ranking = decision.attempts[0].ranking
            offered.update(
                host.uuid for each in ranking.filters for host in each.rejected_hosts
            )
            offered.update(host.uuid for host in ranking.hosts)
        known = self.hosts(decision.basis.read_since)
        return {uuid: host for uuid, host in known.items() if uuid not in offered}

    def _lacking(
        self,
        wanted: Sequence[Sequence[Constraint]],
        left: Mapping[str, Host],
        asking: Questions,
        basis: Basis,
    ) -> Lacking:
        """The lacks of each host by one of the queries: by that which it comes further
        with."""
        known = self._known(wanted, basis)
        rows = [self._lacking_of(each, left, asking, known) for each in wanted]
        lacking = {
            uuid: max((row[uuid] for row in rows), key=_first_rank) for uuid in left
        }
        lacks_any = (
            uuid for uuid in left if lacking[uuid] and lacking[uuid][0].words != ANOTHER
        )
        unnamed = [uuid for uuid in lacks_any if uuid not in asking.named]
        if unnamed and (everyone := asking.meeting(EVERYONE)):
            strangers = (uuid for uuid in unnamed if uuid not in everyone.roots)
            lacking.update((uuid, [UNKNOWN]) for uuid in strangers)
        destination = asking.request.requested_destination
        if (
            destination
            and destination.cell_uuid
            and not destination.allow_cross_cell_move
        ):
            cell = destination.cell_uuid
            elsewhere = (uuid for uuid, host in left.items() if host.cell_uuid != cell)
            lacking.update((uuid, [ELSEWHERE]) for uuid in elsewhere)
        return lacking

    def _lacking_of(
        self,
        constraints: Sequence[Constraint],
        left: Mapping[str, Host],
        asking: Questions,
        known: Sequence[Aggregate],
    ) -> Lacking:
        lacking: Lacking = {uuid: [] for uuid in left}
        shares = asking.shares()
        texts = [
            _ConstraintTexts(each, asking.request, known, not shares)
            for each in constraints
        ]
        texts.sort(key=lambda each: each.place)
        for number, describe in enumerate(texts, 1):
            constraint = describe.constraint
            rank = 0 if constraint.kind == 'host' else UNKNOWN.rank + number
            if constraint.kind == 'host':
                without: Collection[str] = left.keys() - {constraint.value}
            elif (met := asking.meeting(constraint.question)) is None:
                continue
            elif constraint.forbidden:
                without = left.keys() & met.providers
            else:
                without = left.keys() - (
                    met.providers if constraint.of_root else met.roots
                )
                if constraint.kind in ('trait', 'resource') and not constraint.of_root:
                    for provider in shares.keys() & met.providers:
                        without -= shares[provider]
            for uuid in without:
                lacking[uuid].append(describe(left[uuid], rank))
        return lacking

    def _look_at_wholes(
        self,
        strings: Sequence[str],
        lacking: Lacking,
        left: Mapping[str, Host],
        asking: Questions,
        whole: Lack,
    ) -> None:
        """Add what becomes of hosts that meet each constraint, by the queries
        themselves.

        :param whole: for those that the queries offer.
        """
        complete = [uuid for uuid, lacks in lacking.items() if not lacks]
        if complete and (roots := asking.offered(strings)) is not None:
            lacking.update(
                (uuid, [whole if uuid in roots else APART]) for uuid in complete
            )

    def _known(
        self, wanted: Sequence[Sequence[Constraint]], basis: Basis
    ) -> Sequence[Aggregate]:
        """The aggregates, by whose names some constraints are called; none if they are
        not at hand."""
        if any(each.kind == 'aggregates' for row in wanted for each in row):
            with contextlib.suppress(NovaschedError):
                return self.aggregates.all(basis.read_since)
        return ()


def _first_rank(lacks: Sequence[Lack]) -> int:
    """The rank of what a host lacks first, thus how far it comes: beyond all without a
    lack."""
    if lacks:
        return lacks[0].rank
    return MAX_RANK


def _stages(lacking: Lacking) -> tuple[Stage, ...]:
    """The numbers of hosts by what they lack first, in order."""
    by_words: dict[tuple[int, str], Counter[str]] = defaultdict(Counter)
    for lacks in lacking.values():
        for each in lacks[:1]:
            by_words[each.rank, each.words][each.reason] += 1
    stages = []
    start = len(lacking)
    for (_, words), reasons in sorted(by_words.items(), key=lambda item: item[0]):
        end = start - reasons.total()
        stages.append(Stage(words, start, end, grouped(reasons)))
        start = end
    return tuple(stages)


def _rejections(lacking: Lacking, hosts: Mapping[str, Host]) -> StageRejections:
    """All that each host lacks."""
    texts: dict[str, int] = {}
    which = [
        texts.setdefault(
            '; '.join(f'{x.words}: {x.reason}' for x in lacks) or 'no offer', len(texts)
        )
        for lacks in lacking.values()
    ]
    lines = [one_line(text) for text in texts]
    return StageRejections(
        'Placement', host_names([hosts[x] for x in lacking]), lines, which
    )


class _ConstraintTexts:
    """Says of hosts what it is that they lack.

    :param is_own: hosts have what they have for themselves, and share nothing.
    :ivar place: among the constraints, in the order in which hosts are counted.
    """

    def __init__(
        self,
        constraint: Constraint,
        request: Request,
        known: Sequence[Aggregate],
        is_own: bool,
    ) -> None:
        self.constraint = constraint
        self._is_own = is_own
        self._made: dict[str, Lack] = {}
        self._amount = 0
        kind = constraint.kind
        value = constraint.value
        if kind == 'resource':
            value, _, amount = value.partition(':')
            self._amount = int(amount)
            words = f'lack {value}'
            name = f'{amount} {value}'
        elif kind == 'aggregates':
            words, name = _aggregates(constraint, request, known)
        elif kind == 'host':
            words = ANOTHER
            name = f'the one host {value}'
        elif constraint.forbidden and value == os_traits.COMPUTE_STATUS_DISABLED:
            words = render.DISABLED
            name = 'leaving out disabled hosts'
        elif constraint.forbidden:
            words = f'have {value}'
            name = f'forbidding trait {value}'
        else:
            words = f'lack {value}'
            name = f'trait {value}'
        self._class = value
        name = f'{name} (group {constraint.group})' if constraint.group else name
        self._words = one_line(words)
        self._name = one_line(name)
        if words in FIRST_OF_KIND:
            first = FIRST_OF_KIND.index(words)
        else:
            first = len(FIRST_OF_KIND)
        self.place = query.ORDER.index(kind), first

    def __call__(self, host: Host, rank: int) -> Lack:
        reason = self._reason(host)
        made = self._made.get(reason)
        if made is None:
            made = Lack(rank, self._words, reason, self._name)
            self._made[reason] = made
        return made

    def _reason(self, host: Host) -> str:
        if self._words == render.DISABLED:
            if host.service.disabled:
                return one_line(f'disabled, reason: {host.service.disabled_reason}')
            return 'its provider is marked so, though its service is enabled'
        if (
            not self._amount
            or not self._is_own
            or (most := _most(host, self._class)) is None
        ):
            return self._name
        what = 'in use or reserved' if most >= self._amount else 'more than there is'
        return f'{self._name}, {what}'


def _most(host: Host, name: str) -> float | None:
    """The amount of a resource class that a host without instances could give one; None
    if nova's databases do not tell. A single one never gets more than there is before
    overcommit."""
    of = {
        'VCPU': (host.vcpus_total, host.cpu_allocation_ratio),
        'PCPU': (host.vcpus_total, 1.0),
        'MEMORY_MB': (host.total_usable_ram_mb, host.ram_allocation_ratio),
        'DISK_GB': (host.total_usable_disk_gb, host.disk_allocation_ratio),
    }
    total, ratio = of.get(name, (None, 1.0))
    if total is None:
        return None
    return total * min(1.0, ratio)


def _aggregates(
    constraint: Constraint, request: Request, known: Sequence[Aggregate]
) -> tuple[str, str]:
    """Words and name of a constraint to aggregates, or out of some."""
    members = {*constraint.value.removeprefix('in:').split(',')}
    named = {each.uuid: each for each in known if each.uuid in members}
    names = ', '.join(sorted(named[x].name if x in named else x for x in members))
    if constraint.forbidden:
        return 'in isolated aggregates', f'staying out of aggregate {names}'
    zone = request.availability_zone
    of_zone = {
        each.uuid for each in known if each.metadata.get(AVAILABILITY_ZONE) == zone
    }
    if zone and of_zone == members:
        return ZONE, f'availability zone {zone}'
    of_project = {
        each.uuid
        for each in known
        for key, value in each.metadata.items()
        if key.startswith(TENANT_KEY) and value == request.project_id
    }
    if of_project == members:
        return PROJECTS, f'aggregate {names}'
    return OUTSIDE, f'aggregate {names}'
