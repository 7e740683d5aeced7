# SPDX-License-Identifier: Apache-2.0
"""Compares requests of a running scheduler.

A request is decided at its start event, and compared once its result is known. The end
event says that every instance has a host, and names the last instance. The allocations
in Placement show the hosts of the first and the last instance; events of nova-compute
show the hosts of all further instances. A request was refused if nova-conductor says
so, or if there is neither an end event in time nor an allocation.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from typing import Any

from novasched.conf.errors import NovaschedError
from novasched.conf.settings import Settings
from novasched.placement import query
from novasched.rpc.wire import RequestSpec
from novasched.rpc.wire.base import DATA
from novasched.scheduler.decision import Decision
from novasched.scheduler.model.basis import Basis
from novasched.scheduler.model.request import Request
from novasched.scheduler.ports import NEEDS_NOTHING
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
    """The allocations of an instance.

    :ivar hosts: names of the hosts by provider UUID.
    :ivar amounts: sum of the allocations by resource class.
    """

    hosts: Mapping[str, str] = field(default_factory=dict)
    amounts: Mapping[str, int] = field(default_factory=dict)

    def host(self, before: 'ObservedClaim') -> str | None:
        """The chosen host; None if it is ambiguous or unknown.

        :param before: the allocations before the decision. An evacuated instance keeps
            the allocations on its old host, so a new host counts first.
        """
        new_hosts = set()
        for provider, host in self.hosts.items():
            if provider not in before.hosts:
                new_hosts.add(host)
        # Without a new host, the claim was there before the first look.
        hosts = new_hosts or set(self.hosts.values())
        if len(hosts) == 1:
            return hosts.pop()
        return None


def requested_amounts(request: Request, settings: Settings) -> Mapping[str, int] | None:
    """The amounts for an instance of the request by resource class; None if the request
    has no query for Placement."""
    try:
        parameters = query.build(request, settings).parameters
    except NovaschedError:
        return None

    amounts = Counter[str]()
    for name, value in parameters:
        # Also the resources of numbered groups (resources1). A group of traits alone
        # has no resources.
        if name.startswith('resources') and value:
            for pair in value.split(','):
                resource, amount = pair.split(':')
                amounts[resource] += int(amount)
    return _without_pcpu(amounts)


def _without_pcpu(amounts: Counter[str]) -> Mapping[str, int]:
    """The amounts with PCPU counted as VCPU, since nova asks hosts without PCPU for as
    many VCPU."""
    pcpus = amounts.pop('PCPU', 0)
    if pcpus:
        amounts['VCPU'] += pcpus
    return dict(amounts)


@dataclass(frozen=True, slots=True)
class Event:
    """A notification, with the context of its request."""

    publisher: str
    name: str
    context: Mapping[str, Any]
    payload: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Verdict:
    """A decision about a request, and the allocations of the first instance before and
    after the decision.

    :ivar missing_fields: fields of the request that no notification contains.
    """

    request: Request
    missing_fields: tuple[str, ...]
    decision: Decision
    before: ObservedClaim
    after: ObservedClaim


@dataclass(slots=True)
class PendingComparison:
    """A request between its start event and its row in the report.

    :ivar number: number of the request since the listener started.
    :ivar server: UUID of the first instance.
    :ivar deadline: time after which the request counts as refused, in monotonic
        seconds.
    :ivar claims: allocations by UUID of the instance, once they are read.
    :ivar reported_hosts: hosts by UUID of the instance, from events of nova-compute.
    """

    number: int
    start: Event
    server: str
    deadline: float
    verdict: Future[Verdict]
    claims: dict[str, Future[ObservedClaim]] = field(default_factory=dict)
    reported_hosts: dict[str, str] = field(default_factory=dict)
    ended: bool = False
    refused: bool = False


@dataclass
class LiveComparison:
    """Receives events, and adds a row for each request. Not thread-safe.

    :param allocations: reads the allocations of an instance: amounts by provider UUID
        and resource class.
    :param saved: reads the RequestSpec of an instance as saved by nova-api.
    :param patience: seconds until a request without a result counts as refused.
    :param pool: runs decisions and requests to Placement.
    :ivar started: number of requests.
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
        """True if every request has its row."""
        return not self._open

    def receive(self, event: Event, starts: bool = True) -> None:
        """Note an event.

        :param starts: a start event may start a new request.
        """
        try:
            if event.name == START_EVENT and starts:
                self._start(event)
            elif event.name == END_EVENT:
                self._end(event)
            elif event.name in CREATED_EVENTS:
                data = event.payload.get(DATA, event.payload)
                server = data.get('uuid') or data.get('instance_id')
                for pending in self._of(event):
                    pending.reported_hosts.setdefault(server, data['host'])
            elif event.name.startswith(REFUSED_EVENTS):
                for pending in self._of(event):
                    pending.refused = not pending.ended
        except (KeyError, TypeError, AttributeError):
            return  # not a payload of nova

    def settle(self) -> None:
        """Add the rows of requests with a known result, and of late requests."""
        for pending in list(self._open):
            claims = pending.claims.values()
            if not pending.verdict.done() or not all(claim.done() for claim in claims):
                continue
            row = self._settled(pending)
            if row is not None:
                self._open.remove(pending)
                self.rows.append(row)

    def _of(self, event: Event) -> list[PendingComparison]:
        """The open comparisons of the request of an event."""
        request_id = event.context.get('request_id')
        found = []
        for pending in self._open:
            if pending.start.context.get('request_id') == request_id:
                found.append(pending)
        return found

    def _start(self, event: Event) -> None:
        server = str(instance_of(event.payload))
        self.started += 1
        deadline = self.shadow.clock() + self.patience
        verdict = self.pool.submit(self._decided, event, server)
        pending = PendingComparison(self.started, event, server, deadline, verdict)
        self._open.append(pending)

    def _decided(self, event: Event, server: str) -> Verdict:
        """Rebuild and decide the request of a start event. Runs in the pool."""
        settings = self.shadow.driver.pipeline.settings
        routed = settings.query_placement_for_routed_network_aggregates
        saved = self.saved(server)
        request, missing = rebuild_request(event.payload, event.context, saved, routed)
        before = self._claim(server, request)
        decision = self.shadow.decide(request)
        after = self._claim(server, request)
        return Verdict(request, missing, decision, before, after)

    def _claim(self, server: str, request: Request) -> ObservedClaim:
        """The present allocations of an instance.

        :raises NovaschedError: Placement or the API database does not answer.
        """
        now = self.shadow.clock()
        basis = Basis(began=now, read_since=now)
        allocations = self.allocations(server)
        if not allocations:
            return ObservedClaim()

        snapshot = self.shadow.driver.deps.hosts.read(
            list(allocations), request, NEEDS_NOTHING, basis
        )
        amounts = Counter[str]()
        names = {}
        for provider, resources in allocations.items():
            amounts.update(resources)
            # Providers without a host are shared or nested.
            if provider in snapshot.hosts:
                names[provider] = snapshot.hosts[provider].host
        return ObservedClaim(names, _without_pcpu(amounts))

    def _end(self, event: Event) -> None:
        """Note an end event, and read the allocations of its request."""
        last = str(instance_of(event.payload))
        waiting = []
        for pending in self._of(event):
            is_same_scheduler = pending.start.publisher == event.publisher
            if is_same_scheduler and not pending.ended:
                waiting.append(pending)
        # A request id may have several requests for one instance each. The event of a
        # multi-create names the last instance, and its comparison the first.
        for_instance = [pending for pending in waiting if pending.server == last]
        for pending in (for_instance or waiting)[:1]:
            pending.ended = True
            self._ask(pending, {pending.server, last})

    def _ask(self, pending: PendingComparison, servers: set[str]) -> None:
        """Read the allocations of instances, once the request is rebuilt."""

        def ask(server: str) -> ObservedClaim:
            return self._claim(server, pending.verdict.result().request)

        pending.claims = {server: self.pool.submit(ask, server) for server in servers}

    def _settled(self, pending: PendingComparison) -> ComparedRequest | None:
        """The row of a request; None if the result is not yet known. The futures of the
        request are done."""
        try:
            verdict = pending.verdict.result()
            claims = {}
            for server, future in pending.claims.items():
                claims[server] = future.result()
        except NovaschedError as error:
            why = str(error)
            return ComparedRequest(pending.number, failure=why, server=pending.server)

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
            # The end event may be lost, so the allocations decide.
            if late:
                self._ask(pending, {pending.server})
            return None
        if not pending.ended and not claims[pending.server].hosts:
            return _compared(row, verdict, ())

        hosts = dict(pending.reported_hosts)
        for server, claim in claims.items():
            host = claim.host(verdict.before)
            if host:
                hosts[server] = host
        count = verdict.request.count
        if count > 1 and pending.ended and len(claims) == 1:
            why = 'it was for one server of a multi-create'
            return replace(row, unknown=why)
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
        """The row of a placed request. If the claimed amounts differ from the rebuilt
        request, the request is not compared."""
        decision = verdict.decision
        request = verdict.request
        if decision.attempts and decision.prefiltered:
            request = decision.prefiltered
        settings = self.shadow.driver.pipeline.settings
        requested = requested_amounts(request, settings)

        # Earlier allocations of an instance that moves are part of the claimed amounts.
        # A new instance has none: the first look came after the claim.
        if requested and not (request.moves and verdict.before.hosts):
            for claim in claims:
                if claim.amounts in ({}, requested):
                    continue
                fields = ', '.join(FIELDS_IN_CLAIM)
                why = (
                    f'it has claimed {_text(claim.amounts)}, but the notification asks'
                    f' for {_text(requested)}; not in notifications: {fields}'
                )
                missing_fields = (*row.missing_fields, *FIELDS_IN_CLAIM)
                return replace(row, unknown=why, missing_fields=missing_fields)
        return _compared(row, verdict, hosts)


def _compared(
    row: ComparedRequest, verdict: Verdict, answer: tuple[str, ...]
) -> ComparedRequest:
    """The row with both answers compared. A difference counts only if the whole request
    is known.

    :param answer: hosts chosen by the other scheduler; empty after a refusal.
    """
    difference = compare(answer, verdict.decision)
    if difference is None:
        return replace(row, compared=True)

    if not answer:
        # Without a claim, the requested amounts cannot be checked.
        row = replace(row, missing_fields=(*row.missing_fields, *FIELDS_IN_CLAIM))
    row = replace(row, difference=replace(difference, server=row.server))
    if row.missing_fields:
        but = f'not in notifications: {", ".join(row.missing_fields)}'
    elif _is_overtaken(verdict, difference):
        but = 'the claim of the other scheduler may have filled the host'
    else:
        return replace(row, compared=True)
    return replace(row, unknown=f'{difference.why}; but {but}')


def _is_overtaken(verdict: Verdict, difference: Difference) -> bool:
    """True if Placement may not offer the recorded host because of the claim of the
    request itself."""
    offered: set[str] = set()
    for attempt in verdict.decision.attempts:
        offered.update(host.host for host in attempt.ranking.hosts)
        for result in attempt.ranking.filters:
            offered.update(host.host for host in result.rejected_hosts)
    return difference.recorded not in offered and bool(verdict.after.hosts)


def _text(amounts: Mapping[str, int]) -> str:
    return ' '.join(f'{name}:{amount}' for name, amount in sorted(amounts.items()))
