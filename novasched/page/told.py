# SPDX-License-Identifier: Apache-2.0
"""Decisions as a list, and one of them in full."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from novasched.records import facts, story
from novasched.records.causes import Causes
from novasched.records.record import Look, Record

LOOKS, HOSTS, COLUMNS = 10, 50, 6
"""So many further looks, chosen hosts and weighers are told of a decision."""


@dataclass(frozen=True, slots=True)
class Line:
    """A decision in a list."""

    id: str
    when: str
    headline: str
    placed: bool
    what: str
    servers: str


@dataclass(frozen=True, slots=True)
class Stage:
    """A filter that dropped hosts, and why."""

    name: str
    start: str
    end: str
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Best:
    """A host among the best, with what it weighs."""

    host: str
    weights: tuple[str, ...]
    chosen: bool


@dataclass(frozen=True, slots=True)
class Search:
    """How a host was looked for, for one server."""

    title: str
    troubles: tuple[tuple[str, str], ...]
    stages: tuple[Stage, ...]
    idle: tuple[str, ...]
    weighers: tuple[str, ...]
    best: tuple[Best, ...]


@dataclass(frozen=True, slots=True)
class Count:
    """So many hosts, in words and as a part of a hundred, and what became of them."""

    hosts: str
    percent: float
    words: str


@dataclass(frozen=True, slots=True)
class Told:
    """A decision in full: what decided it first, then how the other servers fared."""

    line: Line
    facts: tuple[tuple[str, str], ...]
    counts: tuple[Count, ...]
    hosts: tuple[str, ...]
    searches: tuple[Search, ...]
    more: int


def line(record: Record) -> Line:
    """A decision in short."""
    asked = record.asked
    return Line(
        record.id,
        facts.when(record),
        story.headline(record),
        bool(record.result.hosts),
        f'{asked.count} x {asked.flavor or "flavor"}',
        facts.some(asked.servers),
    )


def told(record: Record) -> Told:
    """All that a record says."""
    decided = facts.told_of(record)
    looks = [*enumerate(record.looks)]
    looks.sort(key=lambda each: each[1] is not decided)
    return Told(
        line(record),
        tuple((name, text) for name, text in facts.of(record) if text),
        _counts(record),
        tuple(dict.fromkeys(record.result.hosts))[:HOSTS],
        tuple(_search(place, look, record) for place, look in looks[: LOOKS + 1]),
        max(0, len(looks) - LOOKS - 1),
    )


def _counts(record: Record) -> tuple[Count, ...]:
    counts = story.tally(record)
    whole = counts.total()
    return tuple(
        Count(f'{hosts:,}', round(100 * hosts / whole, 1), words)
        for words, hosts in counts.most_common()
    )


def why_not(record: Record, host: str, causes: Causes | None) -> Sequence[str]:
    """What there was against a host."""
    return facts.why_not(record, host, causes)


def _search(place: int, look: Look, record: Record) -> Search:
    names = tuple(facts.telling(look.best)[:COLUMNS])
    # A host of the answer is that of the server in the same place.
    hosts = record.result.hosts
    chosen = hosts[place] if place < len(hosts) else None
    which = (
        f'server {place + 1} of {record.asked.count}' if record.asked.count > 1 else 'the server'
    )
    return Search(
        f'For {which}: {look.left:,} of {look.start:,} hosts passed',
        tuple(facts.troubles(look)),
        tuple(
            Stage(x.name, f'{x.start:,}', f'{x.end:,}', tuple(facts.reasons(x)))
            for x in look.stages
            if x.causes
        ),
        tuple(stage.name for stage in look.stages if not stage.causes),
        names,
        tuple(Best(x.host, tuple(facts.weighed(x, names)), x.host == chosen) for x in look.best),
    )
