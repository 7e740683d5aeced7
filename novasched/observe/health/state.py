# SPDX-License-Identifier: Apache-2.0
"""Health: reports of the daemon's processes, judged by their age and by what the work
has met.

Judging costs no I/O: a report says what calls that a request, a heartbeat or a periodic
task made anyway have met. Two questions are answered, since an orchestrator does
different things with them:

liveness
    The processes make progress; a restart helps if one does not. RabbitMQ, Placement
    and the databases do not count, since a restart of the scheduler does not help
    while they are away.
readiness
    Requests are taken from the queue and can be decided.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from typing import Any, TypeAlias

import msgspec

from novasched.concurrency.circuit_breaker import Trouble

PASS = 'pass'
WARN = 'warn'
FAIL = 'fail'
FORMAT_VERSION = '1.0'
DESCRIPTION = 'nova-scheduler'
MAIN = 'main'
"""The name of the process that runs the others."""

REPORT_TTL_S = 10.0
"""Seconds for which a report is valid. A process reports each second."""
SILENT_S = 30.0
"""Seconds without a report after which a process counts as hung."""
RESTART_SHOWN_S = 60.0
"""Seconds for which it is shown that a process was started again."""
BUS_TTL_S = 5.0
BUS_LOST_S = 30.0
"""Seconds without a connection to RabbitMQ, which is looked at each second: after these
its loss is told, and after those it is more than a restart."""
TROUBLE_TTL_S = 120.0
"""Seconds for which a call without an answer tells how things stand. All databases in
use are asked each minute."""


@dataclass(frozen=True, slots=True)
class CellReport:
    """A cell as a worker knows it; ``hosts`` is None if it did not answer the last
    time."""

    uuid: str
    name: str
    hosts: int | None = None
    disabled: bool = False
    trouble: Trouble | None = None


@dataclass(frozen=True, slots=True)
class WorkReport:
    """The work of a worker that takes requests. Moments are monotonic seconds.

    :ivar connected_at: when the queue was last looked at with a connection to RabbitMQ;
        None if the driver does not say.
    :ivar moved: when a request was last begun or done.
    :ivar max_request_s: seconds that a request takes at most as nova.conf has it,
        roughly; None without a limit.
    :ivar troubles: calls without an answer, by what was asked: ``placement``,
        ``database`` or ``api_database``.
    :ivar hosts: number of hosts by state; None until hosts have been read.
    :ivar read_at: when the hosts were read.
    :ivar peers: other schedulers that pending claims are shared with; None if they are
        not to be.
    :ivar shares: False if they are to be, and cannot.
    :ivar remembered_s: age of the answer of Placement that serves requests.
    """

    connected_at: float | None
    moved: float
    max_request_s: float | None
    done: int
    in_progress: int
    threads: int
    waiting: int
    troubles: Mapping[str, Trouble] = field(default_factory=dict)
    breakers: Sequence[str] = ()
    cells: Sequence[CellReport] = ()
    hosts: Mapping[str, int] | None = None
    read_at: float | None = None
    pending_claims: int = 0
    peers: int | None = None
    shares: bool = True
    remembered_s: float | None = None


@dataclass(frozen=True, slots=True)
class ProcessReport:
    """A process at a moment (``at``, monotonic seconds), started at another (seconds
    since 1970). ``work`` is None in the main process, and in a worker that does not
    take requests yet."""

    name: str
    pid: int
    started: float
    at: float
    work: WorkReport | None = None


to_json = msgspec.json.encode
from_json = msgspec.json.Decoder(ProcessReport).decode
"""Raises msgspec.MsgspecError where a text holds no report."""


@dataclass(frozen=True, slots=True)
class Check:
    """An item of health, with the moment that it tells of (monotonic seconds)."""

    status: str
    at: float
    output: str = ''


Checks: TypeAlias = Mapping[str, Check]


def overall(checks: Iterable[Check]) -> str:
    """The status of several items together: that of the worst; without any it
    passes."""
    found = {check.status for check in checks}
    if FAIL in found:
        return FAIL
    if WARN in found:
        return WARN
    return PASS


@dataclass
class _Process:
    """The last report of a process; ``restarted`` is when its predecessor was seen to
    be gone, and ``gone`` that one's number."""

    report: ProcessReport
    restarts: int = 0
    restarted: float = 0.0
    gone: int = 0


class HealthState:
    """The health of the daemon, by the reports of its processes.

    :param names: the processes that report.
    :param placement_patience: seconds for which requests wait for Placement before they
        are refused; ``database_patience`` likewise.
    """

    def __init__(
        self,
        names: Sequence[str],
        placement_patience: float,
        database_patience: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._names = names
        self._clock = clock
        self._placement_patience = placement_patience
        self._database_patience = database_patience
        self._began = clock()
        self._known: dict[str, _Process] = {}

    def hear(self, report: ProcessReport) -> None:
        """Take a report."""
        known = self._known.setdefault(report.name, _Process(report))
        if known.report.pid != report.pid:
            known.restarts += 1
            known.restarted = report.at
            known.gone = known.report.pid
        known.report = report

    def liveness(self) -> Checks:
        """Items of the processes; a process has none before it is missed."""
        found = {name: self._process(name) for name in self._names}
        return {name: check for name, check in found.items() if check is not None}

    def readiness(self) -> Checks:
        """Items of what requests need, each of all workers together."""
        now = self._clock()
        reports = self._fresh_workers(now)
        count = len(self._names) - 1
        status = PASS if len(reports) == count else WARN if reports else FAIL
        checks = {
            'workers': Check(status, now, f'{len(reports)} of {count} workers report')
        }
        by_worker = [self._items(report, now) for report in reports]
        for name in dict.fromkeys(name for items in by_worker for name in items):
            checks[name] = _together(
                [items[name] for items in by_worker if name in items]
            )
        return checks

    def document(self, checks: Checks, host: str) -> dict[str, Any]:
        """Items in the form of application/health+json."""
        now = self._clock()
        return {
            'status': overall(checks.values()),
            'version': FORMAT_VERSION,
            'description': DESCRIPTION,
            'notes': {'host': host},
            'checks': {
                name: (
                    {'status': check.status, 'time': _moment(now - check.at)}
                    | ({'output': check.output} if check.status != PASS else {})
                )
                for name, check in checks.items()
            },
        }

    def status(self, host: str, version: str) -> dict[str, Any]:
        """All that is known, for people."""
        now = self._clock()
        live = self.liveness()
        ready = self.readiness()
        workers = [self._known[x].report for x in self._names[1:] if x in self._known]
        read = [x.work for x in workers if x.work and x.work.read_at is not None]
        newest = max(read, key=lambda work: work.read_at or 0.0, default=None)
        return {
            'release': version,
            'health': overall(live.values()),
            'ready': overall(ready.values()),
            **self.document({**live, **ready}, host),
            'processes': [
                self._shown(name, now) for name in self._names if name in self._known
            ],
            'cells': [_cell(each) for each in newest.cells] if newest else [],
            'hosts': newest.hosts if newest else None,
            'hosts_read_s': (
                newest and newest.read_at and round(now - newest.read_at, 1)
            ),
        }

    def _process(self, name: str) -> Check | None:
        now = self._clock()
        known = self._known.get(name)
        heard = known.report.at if known else self._began
        if now - heard > REPORT_TTL_S:
            status = FAIL if now - heard > SILENT_S else WARN
            return Check(status, heard, f'no report for {now - heard:.0f} s')
        if known is None:
            return None
        work = known.report.work
        if work and work.max_request_s is not None and work.in_progress >= work.threads:
            still = now - work.moved
            if still > work.max_request_s:
                why = (
                    f'{work.threads} threads are busy, and none was done for'
                    f' {still:.0f} s'
                )
                return Check(FAIL, work.moved, why)
        if known.restarts and now - known.restarted <= RESTART_SHOWN_S:
            ago = now - known.restarted
            why = (
                f'process {known.gone} has ended, and was started again {ago:.0f} s ago'
            )
            return Check(WARN, known.restarted, why)
        return Check(PASS, heard)

    def _fresh_workers(self, now: float) -> list[ProcessReport]:
        reports = [
            self._known[name].report for name in self._names[1:] if name in self._known
        ]
        return [report for report in reports if now - report.at <= REPORT_TTL_S]

    def _items(self, report: ProcessReport, now: float) -> dict[str, Check]:
        """Items of what one worker has met."""
        work = report.work
        if work is None:
            return {'message_bus': Check(FAIL, report.at, 'no requests are taken yet')}
        items = {'message_bus': _message_bus(work, report.at, now)}
        if work.shares is False:
            why = 'pending claims are not shared: other schedulers are not heard'
            items['peers'] = Check(WARN, report.at, why)
        elif work.peers is not None:
            items['peers'] = Check(PASS, report.at)
        trouble = work.troubles.get('placement')
        items['placement'] = _grade(trouble, report.at, now, self._placement_patience)
        for name in ('api_database', 'database'):
            items[name] = _grade(work.troubles.get(name), report.at, now)
        if work.hosts is None:
            items['hosts'] = Check(FAIL, report.at, 'no hosts have been read yet')
        else:
            items['hosts'] = Check(PASS, work.read_at or report.at)
        return {**items, **self._cells(work, report.at, now)}

    def _cells(self, work: WorkReport, at: float, now: float) -> dict[str, Check]:
        """An item for each cell; one that is away fails only if no other can be
        used."""
        cells = [cell for cell in work.cells if not cell.disabled]
        names = [cell.name for cell in cells]
        if all(cell.trouble for cell in cells):
            patience = self._database_patience
        else:
            patience = None
        return {
            f'cell:{cell.name if names.count(cell.name) == 1 else cell.uuid}': _grade(
                cell.trouble, at, now, patience
            )
            for cell in cells
        }

    def _shown(self, name: str, now: float) -> dict[str, Any]:
        known = self._known[name]
        report = known.report
        work = report.work
        shown = {
            'name': name,
            'pid': report.pid,
            'since': (
                datetime.fromtimestamp(report.started, timezone.utc).isoformat(
                    'T', 'seconds'
                )
            ),
            'restarts': known.restarts,
            'reported_s': round(now - report.at, 1),
        }
        if work is not None:
            kept = (
                'done in_progress threads waiting pending_claims peers remembered_s'
                ' breakers'
            )
            fields = asdict(work)
            shown |= {each: fields[each] for each in kept.split()}
        return shown


def _message_bus(work: WorkReport, at: float, now: float) -> Check:
    if work.connected_at is None:
        return Check(PASS, at)
    away = now - work.connected_at
    if away <= BUS_TTL_S:
        return Check(PASS, work.connected_at)
    status = FAIL if away > BUS_LOST_S else WARN
    return Check(status, work.connected_at, f'no connection for {away:.0f} s')


def _grade(
    trouble: Trouble | None, at: float, now: float, patience: float | None = None
) -> Check:
    """Judge calls without an answer: a warning, and a failure once requests are refused
    for them.

    :param patience: seconds for which requests wait; None if they do without.
    """
    if trouble is None:
        return Check(PASS, at)
    if now - trouble.last > TROUBLE_TTL_S:
        why = f'not asked for {now - trouble.last:.0f} s; before that, {trouble.why}'
        return Check(WARN, trouble.last, why)
    lasts = patience is not None and now - trouble.since >= patience
    why = f'no answer for {now - trouble.since:.0f} s: {trouble.why}'
    return Check(FAIL if lasts else WARN, trouble.last, why)


def _together(checks: Sequence[Check]) -> Check:
    """One item of several workers: if it fails for all it fails, for some it is a
    warning."""
    worst = min(checks, key=lambda check: (FAIL, WARN, PASS).index(check.status))
    if worst.status == FAIL and any(check.status != FAIL for check in checks):
        return Check(WARN, worst.at, worst.output)
    return worst


def _cell(cell: CellReport) -> dict[str, Any]:
    shown = {
        'uuid': cell.uuid,
        'name': cell.name,
        'hosts': cell.hosts,
        'disabled': cell.disabled,
    }
    return {**shown, 'trouble': cell.trouble.why if cell.trouble else None}


def _moment(ago: float) -> str:
    moment = datetime.fromtimestamp(time.time() - ago, timezone.utc)
    return moment.isoformat('T', 'seconds')
