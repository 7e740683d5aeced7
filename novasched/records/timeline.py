# SPDX-License-Identifier: Apache-2.0
"""A decision as it went by: its steps with the moments at which they began and ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from novasched.records import story
from novasched.records.account import (
    CLAIM,
    FILTERS,
    HOSTS,
    PLACEMENT,
    WEIGHERS,
    Account,
    Mark,
)
from novasched.records.looks import Watched
from novasched.records.reasons import told
from novasched.records.record import Record

Value: TypeAlias = str | int | float | bool | list[str]
Values: TypeAlias = Mapping[str, Value]
MOST = 100
"""So many steps are told apart; a request for many servers has more."""
NAMES = 10
"""So many servers or hosts are named."""
PLACED, REFUSED, FAILED = 'placed', 'refused', 'failed'


@dataclass(frozen=True, slots=True)
class Span:
    """What took from one moment to another (seconds since 1970), with what there is to say of
    it. ``failure`` is what an operator must mend."""

    name: str
    start: float
    end: float
    values: Values = field(default_factory=dict)
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class Timeline:
    """A decision, and its steps one behind the other."""

    whole: Span
    steps: tuple[Span, ...]


def of(account: Account, record: Record) -> Timeline:
    """The timeline of a decision that is over."""
    marks = account.marks
    moments = [account.began, *(mark.ended for mark in marks)]
    times = [record.at + moment - account.began for moment in moments]
    last = {mark.step: mark for mark in marks}
    failing = marks[-1] if marks and record.result.failure is not None else None
    steps = [
        Span(
            mark.step,
            start,
            end,
            _step(mark, record, latest=mark is last[mark.step]),
            record.result.failure if mark is failing else None,
        )
        for mark, start, end in zip(marks[:MOST], times, times[1:], strict=False)
    ]
    more = {'novasched.steps.left_out': len(marks) - MOST} if len(marks) > MOST else {}
    values = {**_whole(record), **more}
    whole = Span('select_destinations', times[0], times[-1], values, record.result.failure)
    return Timeline(whole, tuple(steps))


def _whole(record: Record) -> Values:
    asked, result = record.asked, record.result
    said = PLACED if result.hosts else REFUSED
    known: dict[str, Value | None] = {
        'openstack.request_id': record.request_id and told(record.request_id),
        'openstack.global_request_id': record.global_request_id and told(record.global_request_id),
        'openstack.project_id': asked.project,
        'openstack.server_ids': [*asked.servers[:NAMES]],
        'novasched.record': record.id,
        'novasched.result': said if result.failure is None else FAILED,
        'novasched.headline': story.headline(record),
        'novasched.servers': asked.count,
        'novasched.flavor': asked.flavor,
        'novasched.zone': asked.zone and told(asked.zone),
        'novasched.chosen': [*result.hosts[:NAMES]],
        'novasched.seed': record.seed,
        **_offered(record),
    }
    return {name: value for name, value in known.items() if value not in (None, [])}


def _offered(record: Record) -> dict[str, Value]:
    offer = record.offer
    if offer is None:
        return {}
    return {
        'novasched.candidates': offer.candidates,
        'novasched.hosts.offered': offer.hosts,
        'novasched.hosts.total': offer.total,
    }


def _step(mark: Mark, record: Record, latest: bool) -> Values:
    """What there is to say of a step. What Placement offered is known of the last attempt."""
    offer = record.offer
    if mark.step == PLACEMENT and latest and offer is not None:
        return {'novasched.candidates': offer.candidates, 'novasched.providers': offer.providers}
    if mark.step == HOSTS and latest and offer is not None:
        return {'novasched.hosts.offered': offer.hosts, 'novasched.hosts.total': offer.total}
    if mark.step == CLAIM and isinstance(mark.about, str):
        return {'novasched.refused': mark.about}
    if isinstance(mark.about, Watched):
        return {'novasched.server': mark.about.index + 1, **_look(mark.step, mark.about)}
    return {}


def _look(step: str, look: Watched) -> Values:
    if step == WEIGHERS:
        best = look.best[:1]
        won: Values = (
            {'novasched.host': best[0].host, 'novasched.weight': best[0].weight} if best else {}
        )
        return {'novasched.hosts': look.left, **won}
    if step != FILTERS:
        return {}
    values: dict[str, Value] = {
        'novasched.hosts.in': look.start or 0,
        'novasched.hosts.out': look.left,
        'novasched.hosts.in_flight': look.in_flight,
    }
    for name, start, reasons, _ in look.stages:
        values[f'novasched.filter.{name}.in'] = start
        values[f'novasched.filter.{name}.out'] = start - len(reasons)
    return values
