# SPDX-License-Identifier: Apache-2.0
"""The pages of decisions: the list, and one in full."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from novasched.observe.records import render
from novasched.observe.records.record import AttemptRecord, Record

MAX_SEARCHES, MAX_HOSTS, MAX_WEIGHERS = 10, 50, 6
"""Further searches, chosen hosts and weighers of a decision that are shown."""


@dataclass(frozen=True, slots=True)
class DecisionLine:
    """A decision in the list."""

    id: str
    when: str
    headline: str
    placed: bool
    what: str
    servers: str


@dataclass(frozen=True, slots=True)
class HostSearch:
    """The search of a host for one instance, and the host that was chosen."""

    title: str
    attempt: AttemptRecord
    weighers: Sequence[str]
    chosen: str | None


@dataclass(frozen=True, slots=True)
class DecisionView:
    """A decision in full; the search that decided it comes first."""

    line: DecisionLine
    facts: tuple[tuple[str, str], ...]
    counts: Counter[str]
    hosts: tuple[str, ...]
    searches: tuple[HostSearch, ...]
    more: int


def line(record: Record) -> DecisionLine:
    """A decision as a line of the list."""
    asked = record.asked
    return DecisionLine(
        record.id,
        render.when(record),
        render.headline(record),
        bool(record.result.hosts),
        f'{asked.count} x {asked.flavor or "flavor"}',
        render.some(asked.servers),
    )


def view(record: Record) -> DecisionView:
    """A decision in full."""
    decided = render.deciding_attempt(record)
    attempts = [*enumerate(record.looks)]
    attempts.sort(key=lambda each: each[1] is not decided)
    return DecisionView(
        line(record),
        tuple(render.facts(record)),
        render.tally(record),
        tuple(dict.fromkeys(record.result.hosts))[:MAX_HOSTS],
        tuple(_search(index, each, record) for index, each in attempts[: MAX_SEARCHES + 1]),
        max(0, len(attempts) - MAX_SEARCHES - 1),
    )


def _search(index: int, attempt: AttemptRecord, record: Record) -> HostSearch:
    hosts, count = record.result.hosts, record.asked.count
    which = f'server {index + 1} of {count}' if count > 1 else 'the server'
    return HostSearch(
        f'For {which}: {attempt.left:,} of {attempt.start:,} hosts passed',
        attempt,
        render.telling_weighers(attempt.best)[:MAX_WEIGHERS],
        hosts[index] if index < len(hosts) else None,
    )
