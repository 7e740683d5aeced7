# SPDX-License-Identifier: Apache-2.0
"""Decides requests like the daemon, without claims, and compares the answers with
answers of another scheduler."""

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
from novasched.observe.records.render import raw_weight
from novasched.scheduler.attempt import End, Outcome, next_basis
from novasched.scheduler.claims.pending_claims import PendingClaims
from novasched.scheduler.claims.shared_ledger import SharedLedger
from novasched.scheduler.cycle import Cycle, CycleDeps
from novasched.scheduler.decision import (
    Decision,
    HostWeight,
    PlacementAttempt,
)
from novasched.scheduler.drivers.filter_scheduler import FilterScheduler
from novasched.scheduler.memory import MemoryPlacement
from novasched.scheduler.model.basis import Basis
from novasched.scheduler.model.request import Request
from novasched.scheduler.offered_hosts import OfferedHosts
from novasched.scheduler.requested_hosts import REJECTIONS
from novasched.service.build import Application, compose
from novasched.tools import config_files
from novasched.tools.shadow.messages import Recorded, Unread, read


@dataclass(slots=True)
class Shadow:
    """Decides requests with the parts of a filter scheduler.

    :ivar seed: seed of the draws of every decision.
    :ivar clock: monotonic seconds.
    """

    driver: FilterScheduler
    seed: int
    clock: Callable[[], float] = field(default=time.monotonic)

    def decide(self, request: Request) -> Decision:
        """Decide a request with the hosts and candidates of this moment.

        :raises NovaschedError: Placement or the API database does not answer.
        """
        now = self.clock()
        basis = Basis(began=now, read_since=now)
        outcome = self._outcome(request, basis)
        while following := next_basis(basis, outcome, now):
            basis = following
            outcome = self._outcome(request, basis)
        if outcome.end is not End.REFUSED and outcome.error is not None:
            raise outcome.error
        return outcome.decision

    def _outcome(self, request: Request, basis: Basis) -> Outcome:
        """The outcome of one try."""
        driver = self.driver
        pipeline = driver.pipeline.for_request()
        pipeline.explained_hosts = sys.maxsize
        pipeline.explained_instances = sys.maxsize
        # Claims stay in memory, and no pending claim counts for a later decision.
        placement = MemoryPlacement(source=driver.deps.placement)
        pending = PendingClaims(pipeline.settings, SharedLedger(0.0, self.clock))
        parts = CycleDeps(
            driver.deps.prefilters,
            placement,
            driver.deps.hosts,
            pipeline,
            pending,
            OfferedHosts(),
        )
        return Cycle(parts, basis, self.seed).decide(request)


NO_HOST = '(none)'


@dataclass(frozen=True, slots=True)
class Difference:
    """The first instance with different hosts in both answers.

    :ivar recorded: the host chosen by the other scheduler.
    """

    server: str | None
    recorded: str
    ours: str
    why: str


def compare(recorded: tuple[str, ...], decision: Decision) -> Difference | None:
    """The difference of a decision from recorded hosts; None for the same hosts.
    Instances of a request may have swapped hosts."""
    their_hosts = Counter(recorded)
    our_hosts = Counter(decision.hosts)
    if their_hosts == our_hosts:
        return None

    theirs = next(iter(their_hosts - our_hosts), NO_HOST)
    ours = next(iter(our_hosts - their_hosts), NO_HOST)
    index = max(len(decision.attempts) - 1, 0)
    if ours != NO_HOST:
        index = decision.hosts.index(ours)
    attempts = decision.attempts[: index + 1]
    server = None
    if attempts:
        server = attempts[-1].instance_uuid
    why = _why(theirs, ours, attempts, decision.refusal)
    return Difference(server, theirs, ours, why)


def _why(
    theirs: str, ours: str, attempts: Sequence[PlacementAttempt], refusal: str | None
) -> str:
    """The reason against the recorded host for the last of these instances."""
    if theirs == NO_HOST:
        return 'the other scheduler refused the request'
    if not attempts:
        return refusal or 'Placement offers no candidate.'
    if not _fits(theirs, attempts):
        return _rejection(theirs, attempts)
    if ours == NO_HOST:
        return refusal or 'no host is left'

    # Several nodes of a host may be weighed; the best is first.
    weighed = {best.host: best for best in reversed(attempts[-1].ranking.best)}
    return _outweighed(weighed.get(theirs), weighed.get(ours))


def _fits(name: str, attempts: Sequence[PlacementAttempt]) -> bool:
    """True if a node of the host fits the last instance. An instance is decided among
    the hosts that fit the instance before."""
    first, *others = attempts
    nodes = {host.uuid for host in first.ranking.hosts if host.host == name}
    for attempt in others:
        for result in attempt.ranking.filters:
            nodes.difference_update(host.uuid for host in result.rejected_hosts)
    return bool(nodes)


def _rejection(theirs: str, attempts: Sequence[PlacementAttempt]) -> str:
    """The reason against a host that is not ranked: that of the last filter with a
    rejection."""
    why = 'Placement offers no candidate there, or the host is in no cell any more'
    for attempt in attempts:
        for result in attempt.ranking.filters:
            pairs = zip(result.rejected_hosts, result.reasons, strict=True)
            reasons = [reason for host, reason in pairs if host.host == theirs]
            if reasons and result.name in REJECTIONS:
                why = 'the request itself rules the host out'
            elif reasons:
                why = f'{result.name} rejects it: {reasons[0]}'
    return why


def _outweighed(theirs: HostWeight | None, ours: HostWeight | None) -> str:
    """The weighers with different weights, the largest difference first."""
    gains = []
    if theirs is not None and ours is not None:
        for their_share, our_share in zip(theirs.shares, ours.shares, strict=True):
            gain = our_share.added - their_share.added
            if gain:
                ours_raw = raw_weight(our_share.raw)
                theirs_raw = raw_weight(their_share.raw)
                raw = f'{ours_raw} against {theirs_raw}'
                text = f'{our_share.weigher} {gain:+.3g} ({raw})'
                gains.append((abs(gain), text))
    if not gains:
        return 'both weigh the same, so chance decides'

    gains.sort(reverse=True)
    texts = [text for _, text in gains]
    return f'ours weighs differently: {", ".join(texts)}'


@dataclass(frozen=True, slots=True)
class ComparedRequest:
    """Result of a request.

    :ivar line: the line of the request in the file, or its number with ``--listen``.
    :ivar failure: why the request was not read or not decided.
    :ivar unknown: why the decision is not compared.
    :ivar missing_fields: fields of the request that no notification contains.
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
    """nova.conf, the scheduler of nova.conf, and a shadow of the scheduler."""
    logging.getLogger().addHandler(logging.NullHandler())
    files = config_files(arguments.config_file, arguments.config_dir)
    conf = loading.load(files, 'novasched')
    with composed(conf) as (application, driver):
        yield conf, application, Shadow(driver, arguments.seed)


@contextmanager
def composed(conf: cfg.ConfigOpts) -> Iterator[tuple[Application, FilterScheduler]]:
    """The scheduler of nova.conf, and its driver; closed at the end.

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
        return [_compared(shadow, entry) for entry in read(lines)]


def _compared(shadow: Shadow, entry: Recorded | Unread) -> ComparedRequest:
    if isinstance(entry, Unread):
        return ComparedRequest(entry.line, failure=entry.why)
    try:
        decision = shadow.decide(entry.request)
    except NovaschedError as error:
        return ComparedRequest(entry.line, failure=str(error))

    if entry.hosts is None:
        return ComparedRequest(entry.line, decision.hosts)
    difference = compare(entry.hosts, decision)
    return ComparedRequest(entry.line, decision.hosts, True, difference)


def count_results(rows: Sequence[ComparedRequest]) -> dict[str, int]:
    """The number of requests by result."""
    compared = 0
    different = 0
    failed = 0
    for row in rows:
        if row.failure is not None:
            failed += 1
        if row.compared:
            compared += 1
            if row.difference is not None:
                different += 1
    return {
        'requests': len(rows),
        'compared': compared,
        'same': compared - different,
        'different': different,
        'unknown': len(rows) - compared - failed,
        'failed': failed,
    }


def is_same(rows: Sequence[ComparedRequest]) -> bool:
    """True if all compared requests have the same answers, and no request failed."""
    counts = count_results(rows)
    return not counts['different'] and not counts['failed']


def as_json(rows: Sequence[ComparedRequest]) -> str:
    """``{"counts": {...}, "requests": [{line, hosts, compared, difference, failure,
    server, unknown, missing_fields}]}``."""
    requests = [dataclasses.asdict(row) for row in rows]
    return json.dumps({'counts': count_results(rows), 'requests': requests}, indent=2)


def as_table(rows: Sequence[ComparedRequest]) -> str:
    """A table of different, failed and uncompared requests, and the counts below the
    table."""
    table = PrettyTable(('line', 'server', 'recorded', 'ours', 'why'))
    table.align = 'l'
    table.max_width['why'] = 60
    for row in rows:
        why = row.failure or row.unknown
        difference = row.difference
        if difference is not None:
            server = difference.server or row.server
            reason = why or difference.why
            table.add_row(
                [row.line, server, difference.recorded, difference.ours, reason]
            )
        elif why is not None:
            table.add_row([row.line, row.server or '', '', ' '.join(row.hosts), why])

    lines = []
    if table.rows:
        lines.append(str(table))
    counts = [f'{number} {name}' for name, number in count_results(rows).items()]
    lines.append(f'{", ".join(counts)}.')

    missing: set[str] = set()
    incomplete = []
    for row in rows:
        if row.missing_fields:
            missing.update(row.missing_fields)
            incomplete.append(str(row.line))
    if incomplete:
        names = ', '.join(sorted(missing))
        numbers = ', '.join(incomplete)
        if len(incomplete) == len(rows):
            numbers = 'all'
        lines.append(f'Not in the notifications: {names} (requests: {numbers}).')
    return '\n'.join(lines)
