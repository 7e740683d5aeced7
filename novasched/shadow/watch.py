# SPDX-License-Identifier: Apache-2.0
"""Requests that are heard of: each is decided when it starts, and compared once it is known
what became of it.

What is known of that: ``end`` says that every server has its host, and names the last one;
Placement says which hosts these are. Of the servers between the first and the last of one
request only their computes tell. Without an end in time, and without a claim, a request was
refused; nova-conductor tells so at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from typing import Any

from novasched.errors import NovaschedError
from novasched.objects import RequestSpec
from novasched.objects.base import DATA
from novasched.shadow.bus import Event
from novasched.shadow.claims import Allocations, Claim, asked, claim_of
from novasched.shadow.comparison import Difference, compare
from novasched.shadow.decision import Decision, Shadow
from novasched.shadow.payload import IN_CLAIM, Rebuilt, rebuilt, server_of
from novasched.shadow.report import Row

START, END = 'scheduler.select_destinations.start', 'scheduler.select_destinations.end'
CREATED = ('compute.instance.create.start', 'instance.create.start')
REFUSED = 'compute_task.'

Saved = Callable[[str], RequestSpec | None]
"""What nova-api has saved of the request for a server."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A request as far as it is told, our decision, and what its first server had before
    that and after."""

    rebuilt: Rebuilt
    decision: Decision
    before: Claim
    after: Claim


@dataclass(slots=True)
class Case:
    """A request between its start and its row in the report."""

    number: int
    key: tuple[str, str | None]
    server: str
    deadline: float
    verdict: Future[Verdict]
    claims: dict[str, Future[Claim]] = field(default_factory=dict)
    told: dict[str, str] = field(default_factory=dict)
    ended: bool = False
    refused: bool = False

    @property
    def is_busy(self) -> bool:
        """Whether something is being found out."""
        claims = all(each.done() for each in self.claims.values())
        return not (claims and self.verdict.done())


class Watch:
    """Hears events, and makes rows of them.

    :param patience: seconds within which a request must come to its end.
    :param pool: runs what takes time.
    """

    def __init__(
        self,
        shadow: Shadow,
        allocations: Allocations,
        saved: Saved,
        patience: float,
        pool: Executor,
    ) -> None:
        self.shadow = shadow
        self.settings = shadow.driver.pipeline.settings
        self.patience = patience
        self.rows: list[Row] = []
        self.started = 0
        self._allocations = allocations
        self._saved = saved
        self._pool = pool
        self._open: list[Case] = []

    @property
    def is_idle(self) -> bool:
        """Whether all that has started has its row."""
        return not self._open

    def hear(self, event: Event, starts: bool = True) -> None:
        """Take note of an event; of a new request only if it may start."""
        try:
            self._hear(event, starts)
        except (KeyError, TypeError, AttributeError):
            return  # not nova's

    def _hear(self, event: Event, starts: bool) -> None:
        if event.name == START and starts:
            self._start(event)
        elif event.name == END:
            self._end(event)
        elif event.name in CREATED:
            told = event.payload.get(DATA, event.payload)
            server = told.get('uuid') or told.get('instance_id')
            for case in self._of(event):
                case.told.setdefault(server, told['host'])
        elif event.name.startswith(REFUSED):
            for case in self._of(event):
                case.refused = not case.ended

    def settle(self) -> None:
        """Make rows of the requests of which all is known, or no more will be."""
        for case in list(self._open):
            row = None if case.is_busy else self._settled(case)
            if row is not None:
                self._open.remove(case)
                self.rows.append(row)

    def _of(self, event: Event) -> list[Case]:
        """The open cases of an event's request."""
        return [case for case in self._open if case.key[1] == event.context.get('request_id')]

    def _start(self, event: Event) -> None:
        server = server_of(event.payload)
        self.started += 1
        self._open.append(
            Case(
                self.started,
                (event.publisher, event.context.get('request_id')),
                str(server),
                self.shadow.clock() + self.patience,
                self._pool.submit(self._decided, event, str(server)),
            )
        )

    def _decided(self, event: Event, server: str) -> Verdict:
        routed = self.settings.query_placement_for_routed_network_aggregates
        found = rebuilt(event.payload, event.context, self._saved(server), routed)
        before = self._claim(server, found)
        decision = self.shadow.decide(found.request)
        return Verdict(found, decision, before, self._claim(server, found))

    def _claim(self, server: str, found: Rebuilt) -> Claim:
        request = replace(found.request, arrived=self.shadow.clock())
        return claim_of(server, request, self._allocations, self.shadow.driver.hosts)

    def _end(self, event: Event) -> None:
        last = str(server_of(event.payload))
        key = event.publisher, event.context.get('request_id')
        cases = [case for case in self._open if case.key == key and not case.ended]
        # One request may start several times; servers of one request have their last named.
        case = next((case for case in cases if case.server == last), next(iter(cases), None))
        if case is not None:
            case.ended = True
            self._ask(case, {case.server, last})

    def _ask(self, case: Case, servers: set[str]) -> None:
        """Ask Placement what became of servers, once it is known who they are."""

        def ask(server: str) -> Claim:
            return self._claim(server, case.verdict.result().rebuilt)

        case.claims = {server: self._pool.submit(ask, server) for server in servers}

    def _settled(self, case: Case) -> Row | None:
        """A row; None if there may be more to know."""
        try:
            verdict = case.verdict.result()
            claims = {server: each.result() for server, each in case.claims.items()}
        except NovaschedError as error:
            return Row(case.number, failure=str(error), server=case.server)
        late = self.shadow.clock() >= case.deadline
        if case.refused:
            return _row(case, verdict, ())
        if not claims:
            if late:
                self._ask(case, {case.server})
            return None
        if not case.ended and not claims[case.server].hosts:
            return _row(case, verdict, ())
        return self._answered(case, verdict, claims, late)

    def _answered(
        self, case: Case, verdict: Verdict, claims: Mapping[str, Claim], late: bool
    ) -> Row | None:
        """The row of a request that was not refused."""
        request = verdict.rebuilt.request
        found = {server: each.host(verdict.before) for server, each in claims.items()}
        hosts = {**case.told, **{server: host for server, host in found.items() if host}}
        if request.count > 1 and case.ended and len(claims) == 1:
            return _unknown(case, verdict, 'it was for one of servers that were made together')
        if len(hosts) < request.count:
            why = f'the hosts of {len(hosts)} of {request.count} servers are known'
            return _unknown(case, verdict, why) if late else None
        looks = verdict.decision.looks
        wanted = asked(looks[0].request if looks else request, self.settings)
        for claim in claims.values():
            if not verdict.before.hosts and wanted and claim.amounts not in ({}, wanted):
                why = (
                    f'it has claimed {_text(claim.amounts)}, but what is told asks for '
                    f'{_text(wanted)}; not told: {", ".join(IN_CLAIM)}'
                )
                return _unknown(case, verdict, why, IN_CLAIM)
        return _row(case, verdict, tuple(hosts.values()))


def _row(case: Case, verdict: Verdict, answer: tuple[str, ...]) -> Row:
    """Both answers side by side; a difference counts only if the request is fully known."""
    decision, untold = verdict.decision, verdict.rebuilt.untold
    difference = compare(answer, decision)
    common: dict[str, Any] = {'server': case.server, 'untold': untold}
    if difference is None:
        return Row(case.number, decision.hosts, compared=True, **common)
    if not answer:
        # No claim shows what was asked for.
        untold = common['untold'] = (*untold, *IN_CLAIM)
    difference = replace(difference, server=case.server)
    if untold:
        unknown = f'{difference.why}; but not told: {", ".join(untold)}'
    elif _is_overtaken(verdict, difference):
        unknown = f'{difference.why}; but it had been claimed already, which may have filled it'
    else:
        return Row(case.number, decision.hosts, True, difference, **common)
    return Row(case.number, decision.hosts, False, difference, unknown=unknown, **common)


def _is_overtaken(verdict: Verdict, difference: Difference) -> bool:
    """Whether the request's own claim may be why Placement does not offer a host."""
    offered = {host.host for look in verdict.decision.looks for host in look.hosts}
    return difference.recorded not in offered and bool(verdict.after.hosts)


def _unknown(case: Case, verdict: Verdict, why: str, more: tuple[str, ...] = ()) -> Row:
    untold = (*verdict.rebuilt.untold, *more)
    hosts = verdict.decision.hosts
    return Row(case.number, hosts, server=case.server, unknown=why, untold=untold)


def _text(amounts: Mapping[str, int]) -> str:
    return ' '.join(f'{name}:{amount}' for name, amount in sorted(amounts.items()))
