# SPDX-License-Identifier: Apache-2.0
"""Requests of a running scheduler: each is decided when it starts, and compared once
its result is known.

Sources of the result: ``end`` says that every instance has its host, and names the last
one; Placement says which hosts these are. Of the instances between the first and the
last of one request only their computes tell. Without an end in time, and without a
claim, a request was refused; nova-conductor tells so at once.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qsl

from novasched.conf.errors import NovaschedError
from novasched.conf.settings import Settings
from novasched.placement import query
from novasched.rpc.wire import RequestSpec
from novasched.rpc.wire.base import DATA
from novasched.scheduler.decision import Decision
from novasched.scheduler.model.basis import Basis
from novasched.scheduler.model.request import Request
from novasched.scheduler.ports import NO_INSTANCES
from novasched.tools.shadow.comparison import (
    ComparedRequest,
    Difference,
    Shadow,
    compare,
)
from novasched.tools.shadow.messages import (
    FIELDS_IN_CLAIM,
    instance_of,
    rebuild_request,
)

START_EVENT = 'scheduler.select_destinations.start'
END_EVENT = 'scheduler.select_destinations.end'
CREATED_EVENTS = ('compute.instance.create.start', 'instance.create.start')
REFUSED_EVENTS = 'compute_task.'


@dataclass(frozen=True, slots=True)
class ObservedClaim:
    """Names of the hosts on which an instance has allocations, by provider UUID, and
    the sum of its allocations."""

    hosts: Mapping[str, str] = field(default_factory=dict)
    amounts: Mapping[str, int] = field(default_factory=dict)

    def host(self, before: 'ObservedClaim') -> str | None:
        """The host that was chosen; None if that is not known.

        An instance that is evacuated keeps its allocations on its old host, so that a
        new one counts. Without a new one it was there before us.
        """
        new = {
            host
            for provider, host in self.hosts.items()
            if provider not in before.hosts
        }
        found = new or set(self.hosts.values())
        if len(found) == 1:
            return found.pop()
        return None


def requested_amounts(request: Request, settings: Settings) -> Mapping[str, int] | None:
    """The amounts that an instance of the request needs; None if there is no query for
    them."""
    try:
        parameters = parse_qsl(query.build(request, settings).string)
    except NovaschedError:
        return None
    amounts = Counter[str]()
    for name, value in parameters:
        if name.startswith('resources'):
            pairs = (each.split(':') for each in value.split(','))
            amounts.update({resource: int(amount) for resource, amount in pairs})
    return _comparable(amounts)


def _comparable(amounts: Counter[str]) -> Mapping[str, int]:
    """Hosts that do not know PCPU are asked for as many VCPU."""
    if cpus := amounts.pop('PCPU', 0):
        amounts['VCPU'] += cpus
    return dict(amounts)


@dataclass(frozen=True, slots=True)
class Event:
    """A notification: its publisher, its name, and the context of the request."""

    publisher: str
    name: str
    context: Mapping[str, Any]
    payload: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Verdict:
    """A request as far as it is known, our decision, and the claim of its first
    instance before that and after."""

    request: Request
    missing_fields: tuple[str, ...]
    decision: Decision
    before: ObservedClaim
    after: ObservedClaim


@dataclass(slots=True)
class PendingComparison:
    """A request between its start and its row in the report."""

    number: int
    start: Event
    server: str
    deadline: float
    verdict: Future[Verdict]
    claims: dict[str, Future[ObservedClaim]] = field(default_factory=dict)
    told: dict[str, str] = field(default_factory=dict)
    ended: bool = False
    refused: bool = False


@dataclass
class LiveComparison:
    """Receives events, and makes rows of them.

    :param allocations: reads those of an instance: provider UUID to resource class to
        amount.
    :param saved: reads the parts of the request for an instance that nova-api has
        saved.
    :param patience: seconds within which a request must come to its end.
    :param pool: runs what takes time.
    """

    shadow: Shadow
    allocations: Callable[[str], Mapping[str, Mapping[str, int]]]
    saved: Callable[[str], RequestSpec | None]
    patience: float
    pool: Executor
    rows: list[ComparedRequest] = field(default_factory=list)
    started: int = 0
    _open: list[PendingComparison] = field(default_factory=list)

    @property
    def is_idle(self) -> bool:
        """True if each request that has started has its row."""
        return not self._open

    def receive(self, event: Event, starts: bool = True) -> None:
        """Take note of an event; of a new request only if it may start."""
        try:
            if event.name == START_EVENT and starts:
                self._start(event)
            elif event.name == END_EVENT:
                self._end(event)
            elif event.name in CREATED_EVENTS:
                told = event.payload.get(DATA, event.payload)
                server = told.get('uuid') or told.get('instance_id')
                for pending in self._of(event):
                    pending.told.setdefault(server, told['host'])
            elif event.name.startswith(REFUSED_EVENTS):
                for pending in self._of(event):
                    pending.refused = not pending.ended
        except (KeyError, TypeError, AttributeError):
            return  # not nova's

    def settle(self) -> None:
        """Make rows of the requests of which all is known, or no more will be."""
        for pending in list(self._open):
            asked = pending.verdict.done() and all(
                x.done() for x in pending.claims.values()
            )
            row = self._settled(pending) if asked else None
            if row is not None:
                self._open.remove(pending)
                self.rows.append(row)

    def _of(self, event: Event) -> list[PendingComparison]:
        """The open comparisons of an event's request."""
        id = event.context.get('request_id')
        return [
            each for each in self._open if each.start.context.get('request_id') == id
        ]

    def _start(self, event: Event) -> None:
        server = str(instance_of(event.payload))
        self.started += 1
        deadline = self.shadow.clock() + self.patience
        verdict = self.pool.submit(self._decided, event, server)
        self._open.append(
            PendingComparison(self.started, event, server, deadline, verdict)
        )

    def _decided(self, event: Event, server: str) -> Verdict:
        settings = self.shadow.driver.pipeline.settings
        routed = settings.query_placement_for_routed_network_aggregates
        saved = self.saved(server)
        request, missing = rebuild_request(event.payload, event.context, saved, routed)
        before = self._claim(server, request)
        decision = self.shadow.decide(request)
        return Verdict(request, missing, decision, before, self._claim(server, request))

    def _claim(self, server: str, request: Request) -> ObservedClaim:
        """The claim of an instance of a request.

        :raises NovaschedError: Placement or the API database does not answer.
        """
        held = self.allocations(server)
        if not held:
            return ObservedClaim()
        now = self.shadow.clock()
        basis = Basis(began=now, read_since=now)
        snapshot = self.shadow.driver.parts.hosts.read(
            list(held), request, NO_INSTANCES, basis
        )
        hosts = snapshot.hosts
        amounts = Counter[str]()
        for each in held.values():
            amounts.update(each)
        names = {
            provider: hosts[provider].host for provider in held if provider in hosts
        }
        return ObservedClaim(names, _comparable(amounts))

    def _end(self, event: Event) -> None:
        last = str(instance_of(event.payload))
        same = [
            each for each in self._of(event) if each.start.publisher == event.publisher
        ]
        waiting = [each for each in same if not each.ended]
        # One request may start several times; instances of one request have their last
        # named.
        named = [each for each in waiting if each.server == last]
        for pending in (named or waiting)[:1]:
            pending.ended = True
            self._ask(pending, {pending.server, last})

    def _ask(self, pending: PendingComparison, servers: set[str]) -> None:
        """Read the claims of instances from Placement, once the request is rebuilt."""

        def ask(server: str) -> ObservedClaim:
            return self._claim(server, pending.verdict.result().request)

        pending.claims = {server: self.pool.submit(ask, server) for server in servers}

    def _settled(self, pending: PendingComparison) -> ComparedRequest | None:
        """A row; None if there may be more to know."""
        try:
            verdict = pending.verdict.result()
            claims = {server: each.result() for server, each in pending.claims.items()}
        except NovaschedError as error:
            return ComparedRequest(
                pending.number, failure=str(error), server=pending.server
            )
        late = self.shadow.clock() >= pending.deadline
        row = ComparedRequest(
            pending.number,
            verdict.decision.hosts,
            server=pending.server,
            missing_fields=verdict.missing_fields,
        )
        if pending.refused:
            return _compared(row, verdict, ())
        if not claims:
            if late:
                self._ask(pending, {pending.server})
            return None
        if not pending.ended and not claims[pending.server].hosts:
            return _compared(row, verdict, ())
        found = {server: each.host(verdict.before) for server, each in claims.items()}
        hosts = {
            **pending.told,
            **{server: host for server, host in found.items() if host},
        }
        count = verdict.request.count
        if count > 1 and pending.ended and len(claims) == 1:
            return replace(
                row, unknown='it was for one of servers that were made together'
            )
        if len(hosts) < count:
            why = f'the hosts of {len(hosts)} of {count} servers are known'
            if late:
                return replace(row, unknown=why)
            return None
        return self._answered(row, verdict, claims.values(), tuple(hosts.values()))

    def _answered(
        self,
        row: ComparedRequest,
        verdict: Verdict,
        claims: Iterable[ObservedClaim],
        hosts: tuple[str, ...],
    ) -> ComparedRequest:
        """The row of a request that was not refused."""
        decision = verdict.decision
        narrowed = decision.narrowed if decision.attempts else None
        settings = self.shadow.driver.pipeline.settings
        wanted = requested_amounts(narrowed or verdict.request, settings)
        for claim in claims:
            if (
                not verdict.before.hosts
                and wanted
                and claim.amounts not in ({}, wanted)
            ):
                why = (
                    f'it has claimed {_text(claim.amounts)}, but what is told asks for '
                    f'{_text(wanted)}; not told: {", ".join(FIELDS_IN_CLAIM)}'
                )
                missing_fields = (*row.missing_fields, *FIELDS_IN_CLAIM)
                return replace(row, unknown=why, missing_fields=missing_fields)
        return _compared(row, verdict, hosts)


def _compared(
    row: ComparedRequest, verdict: Verdict, answer: tuple[str, ...]
) -> ComparedRequest:
    """Both answers side by side; a difference counts only if the request is fully
    known."""
    difference = compare(answer, verdict.decision)
    if difference is None:
        return replace(row, compared=True)
    if not answer:
        # No claim shows the amounts that were asked for.
        row = replace(row, missing_fields=(*row.missing_fields, *FIELDS_IN_CLAIM))
    row = replace(row, difference=replace(difference, server=row.server))
    if row.missing_fields:
        but = f'not told: {", ".join(row.missing_fields)}'
    elif _is_overtaken(verdict, difference):
        but = 'it had been claimed already, which may have filled it'
    else:
        return replace(row, compared=True)
    return replace(row, unknown=f'{difference.why}; but {but}')


def _is_overtaken(verdict: Verdict, difference: Difference) -> bool:
    """True if the request's own claim may keep Placement from offering a host."""
    rankings = [attempt.ranking for attempt in verdict.decision.attempts]
    offered = {host.host for ranking in rankings for host in ranking.hosts}
    results = [result for ranking in rankings for result in ranking.filters]
    offered |= {host.host for result in results for host in result.rejected_hosts}
    return difference.recorded not in offered and bool(verdict.after.hosts)


def _text(amounts: Mapping[str, int]) -> str:
    return ' '.join(f'{name}:{amount}' for name, amount in sorted(amounts.items()))
