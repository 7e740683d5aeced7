# SPDX-License-Identifier: Apache-2.0
"""Decide a request as the daemon would, claim nothing, compare the answer with that of
another scheduler, and report, for people and for machines."""

import argparse
import dataclasses
import json
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from oslo_config import cfg
from prettytable import PrettyTable

from novasched.conf import loading
from novasched.conf.errors import ConfigError, NovaschedError
from novasched.scheduler.assignments import OfferedHosts
from novasched.scheduler.attempt import End
from novasched.scheduler.cycle import Cycle, CycleParts
from novasched.scheduler.decision import (
    Decision,
    HostWeight,
    PlacementAttempt,
)
from novasched.scheduler.drivers.filter_scheduler import FilterScheduler
from novasched.scheduler.memory import MemoryPlacement
from novasched.scheduler.model.basis import Basis
from novasched.scheduler.model.request import Request
from novasched.scheduler.pending_claims import PendingClaims
from novasched.scheduler.requested_hosts import REJECTIONS
from novasched.service.build import Application, compose
from novasched.tools import config_files
from novasched.tools.shadow.messages import Recorded, Unread, read


@dataclass(slots=True)
class Shadow:
    """A filter scheduler's parts, and a seed that every decision starts from."""

    driver: FilterScheduler
    seed: int
    clock: Callable[[], float] = field(default=time.monotonic)

    def decide(self, request: Request) -> Decision:
        """The answer of the daemon now.

        :raises NovaschedError: it cannot be decided: Placement or the API database is
            away.
        """
        now = self.clock()
        basis = Basis(began=now, read_since=now)
        driver = self.driver
        line = driver.pipeline.for_request()
        line.explained_hosts = line.explained_instances = sys.maxsize
        placement = MemoryPlacement(source=driver.parts.placement)
        # Each decision is made for itself: none counts for the next.
        pending = PendingClaims(line.settings, self.clock, timeout=0.0)
        offered = OfferedHosts()
        parts = CycleParts(
            driver.parts.prefilters,
            placement,
            driver.parts.hosts,
            line,
            pending,
            offered,
        )
        outcome = Cycle(parts, basis, self.seed).decide(request)
        if outcome.end is not End.REFUSED and outcome.error is not None:
            raise outcome.error
        return outcome.decision


NO_HOST = '(none)'


@dataclass(frozen=True, slots=True)
class Difference:
    """The first instance of a request that the two answers send to different hosts."""

    server: str | None
    recorded: str
    ours: str
    why: str


def compare(recorded: tuple[str, ...], decision: Decision) -> Difference | None:
    """None for the same hosts; the instances of one request may have swapped theirs."""
    left = Counter(recorded)
    right = Counter(decision.hosts)
    if left == right:
        return None
    theirs = next(iter(left - right), NO_HOST)
    ours = next(iter(right - left), NO_HOST)
    if ours != NO_HOST:
        index = decision.hosts.index(ours)
    else:
        index = len(decision.attempts) - 1
    attempts = decision.attempts[: max(index, 0) + 1]
    server = attempts[-1].instance_uuid if attempts else None
    return Difference(
        server, theirs, ours, _why(theirs, ours, attempts, decision.refusal)
    )


def _why(
    theirs: str, ours: str, attempts: Sequence[PlacementAttempt], refusal: str | None
) -> str:
    """The reason against a host for the last of these instances."""
    if theirs == NO_HOST:
        return 'the request was refused then'
    if not attempts:
        return refusal or 'Placement offers no candidate.'
    if not _fits(theirs, attempts):
        return _rejection(theirs, attempts)
    weighed = {best.host: best for best in reversed(attempts[-1].ranking.best)}
    if ours == NO_HOST:
        return refusal or 'ours is not among the hosts that are left'
    return _outweighed(weighed.get(theirs), weighed.get(ours))


def _fits(name: str, attempts: Sequence[PlacementAttempt]) -> bool:
    """True if a node of the host fits the last of the instances. The hosts of an
    instance are the hosts that fit the instance before."""
    first, *others = attempts
    nodes = {host.uuid for host in first.ranking.hosts if host.host == name}
    for attempt in others:
        for result in attempt.ranking.filters:
            nodes.difference_update(host.uuid for host in result.rejected_hosts)
    return bool(nodes)


def _rejection(theirs: str, attempts: Sequence[PlacementAttempt]) -> str:
    """The reason against a host that is not among the ranked ones."""
    why = 'Placement offers no candidate there, or no cell has the host any more'
    for result in (
        result for attempt in attempts for result in attempt.ranking.filters
    ):
        pairs = zip(result.rejected_hosts, result.reasons, strict=True)
        reasons = [reason for host, reason in pairs if host.host == theirs]
        if reasons and result.name in REJECTIONS:
            why = 'the request itself rules the host out'
        elif reasons:
            why = f'{result.name} rejects it: {reasons[0]}'
    return why


def _outweighed(theirs: HostWeight | None, ours: HostWeight | None) -> str:
    """The weighers that tell the two apart, the one that matters most first."""
    parts = []
    if theirs is not None and ours is not None:
        for there, here in zip(theirs.shares, ours.shares, strict=True):
            if gain := here.added - there.added:
                text = (
                    f'{here.weigher} {gain:+.3g} ({here.raw:g} against {there.raw:g})'
                )
                parts.append((abs(gain), text))
    if not parts:
        return 'both weigh the same, so that their order is up to chance'
    return 'ours weighs differently: ' + ', '.join(
        text for _, text in sorted(parts)[::-1]
    )


@dataclass(frozen=True, slots=True)
class ComparedRequest:
    """Result of one request: the line that it stands in, or its number among those that
    were heard.

    ``failure`` if it could not be read or decided; ``unknown`` says why it is not
    compared though it was decided. ``missing_fields`` names the parts of the request
    that nobody told.
    """

    line: int
    hosts: tuple[str, ...] = ()
    compared: bool = False
    difference: Difference | None = None
    failure: str | None = None
    server: str | None = None
    unknown: str | None = None
    missing_fields: tuple[str, ...] = ()


@contextmanager
def shadowing(
    arguments: argparse.Namespace,
) -> Iterator[tuple[cfg.ConfigOpts, Application, Shadow]]:
    """nova.conf, the scheduler that it describes, and a shadow of that."""
    logging.getLogger().addHandler(logging.NullHandler())
    conf = loading.load(
        config_files(arguments.config_file, arguments.config_dir), 'novasched'
    )
    with composed(conf) as (application, driver):
        yield conf, application, Shadow(driver, arguments.seed)


@contextmanager
def composed(conf: cfg.ConfigOpts) -> Iterator[tuple[Application, FilterScheduler]]:
    """The scheduler that nova.conf describes, and its driver.

    :raises NovaschedError: nova.conf or the databases cannot be used.
    """
    application = compose(conf, loading.settings(conf), loading.service_settings(conf))
    try:
        if type(application.driver) is not FilterScheduler:
            why = 'only filter_scheduler can decide without claiming'
            raise ConfigError('[scheduler] driver', conf.scheduler.driver, why)
        yield application, application.driver
    finally:
        application.close()


def run(arguments: argparse.Namespace, lines: Iterable[str]) -> list[ComparedRequest]:
    """Decide every request and compare."""
    with shadowing(arguments) as (_, _, shadow):
        return [_compared(shadow, each) for each in read(lines)]


def _compared(shadow: Shadow, each: Recorded | Unread) -> ComparedRequest:
    if isinstance(each, Unread):
        return ComparedRequest(each.line, failure=each.why)
    try:
        decision = shadow.decide(each.request)
    except NovaschedError as error:
        return ComparedRequest(each.line, failure=str(error))
    if each.hosts is None:
        return ComparedRequest(each.line, decision.hosts)
    return ComparedRequest(
        each.line, decision.hosts, True, compare(each.hosts, decision)
    )


def count_results(rows: Sequence[ComparedRequest]) -> dict[str, int]:
    compared = sum(row.compared for row in rows)
    different = sum(row.compared and row.difference is not None for row in rows)
    failed = sum(row.failure is not None for row in rows)
    return {
        'requests': len(rows),
        'compared': compared,
        'same': compared - different,
        'different': different,
        'unknown': len(rows) - compared - failed,
        'failed': failed,
    }


def is_same(rows: Sequence[ComparedRequest]) -> bool:
    """True if all compared requests have the same answers, and none failed."""
    counts = count_results(rows)
    return not counts['different'] and not counts['failed']


def as_json(rows: Sequence[ComparedRequest]) -> str:
    """``{"counts": {...}, "requests": [{line, hosts, compared, difference, failure,
    server, unknown, missing_fields}]}``."""
    requests = [dataclasses.asdict(row) for row in rows]
    return json.dumps({'counts': count_results(rows), 'requests': requests}, indent=2)


def as_table(rows: Sequence[ComparedRequest]) -> str:
    """The requests that differ, failed or cannot be compared, and the counts below
    them."""
    table = PrettyTable(('line', 'server', 'recorded', 'ours', 'why'))
    table.align = 'l'
    table.max_width['why'] = 60
    for row in rows:
        why = row.failure or row.unknown
        if found := row.difference:
            cells = [
                found.server or row.server,
                found.recorded,
                found.ours,
                why or found.why,
            ]
            table.add_row([row.line, *cells])
        elif why is not None:
            table.add_row([row.line, row.server or '', '', ' '.join(row.hosts), why])
    counts = ', '.join(
        f'{number} {name}' for name, number in count_results(rows).items()
    )
    lines = [*([str(table)] if table.rows else []), f'{counts}.']
    if partial := [row for row in rows if row.missing_fields]:
        names = ', '.join(
            sorted({name for row in partial for name in row.missing_fields})
        )
        some = ', '.join(str(row.line) for row in partial)
        which = 'all' if len(partial) == len(rows) else some
        lines.append(f'Not rebuilt fully, since not told: {names} (requests: {which}).')
    return '\n'.join(lines)
