# SPDX-License-Identifier: Apache-2.0
"""The health of the daemon, judged from the reports of its processes.

A report has the age of the process's last sign of life and the outcome of the calls
that requests, heartbeats and periodic tasks made. A judgement therefore costs no I/O.
Orchestrators react differently to two questions, so both are answered:

liveness
    Every process makes progress. A restart helps a process that hangs. An outage of
    RabbitMQ, Placement or a database does not fail liveness, because a restart of the
    scheduler does not end the outage.
readiness
    The workers take requests from the queue and can decide requests.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeAlias

import msgspec

from novasched.concurrency.circuit_breaker import Trouble

PASS = 'pass'
WARN = 'warn'
FAIL = 'fail'
FORMAT_VERSION = '1.0'
DESCRIPTION = 'nova-scheduler'
MAIN = 'main'
"""The name of the main process."""

REPORT_TTL_S = 10.0
"""Seconds for which a report is valid. A process reports once a second."""

SILENT_S = 30.0
"""Seconds without a report after which a process counts as hung."""

RESTART_SHOWN_S = 60.0
"""Seconds for which the restart of a process is a warning."""

BUS_TTL_S = 5.0
"""Seconds without a connection to RabbitMQ after which readiness is a warning. Workers
look at the connection once a second."""

BUS_LOST_S = 30.0
"""Seconds without a connection to RabbitMQ after which readiness fails. A restart of
RabbitMQ takes less."""

TROUBLE_TTL_S = 120.0
"""Seconds for which a call without an answer describes the present. Workers query every
database in use once a minute."""


@dataclass(frozen=True, slots=True)
class CellReport:
    """A cell as a worker knows it. ``hosts`` is None if the cell did not answer the
    last query."""

    uuid: str
    name: str
    hosts: int | None = None
    disabled: bool = False
    trouble: Trouble | None = None


@dataclass(frozen=True, slots=True)
class WorkReport:
    """The work of a worker that takes requests. Moments are monotonic seconds.

    :ivar connected_at: when the worker last saw its queue connected to RabbitMQ; None
        if the driver of oslo.messaging does not tell.
    :ivar moved: when a request was last begun or finished.
    :ivar max_request_s: upper bound of the duration of a request, in seconds, worked
        out from the timeouts in nova.conf; None without a bound.
    :ivar troubles: calls without an answer, by target: ``placement``, ``database`` or
        ``api_database``.
    :ivar breakers: targets whose circuit is open.
    :ivar hosts: number of hosts by state; None until hosts have been read.
    :ivar read_at: when the hosts were read.
    :ivar peers: number of other schedulers that share pending claims; None if pending
        claims are not shared.
    :ivar shares: False if pending claims should be shared and cannot be.
    :ivar remembered_s: age of the answer of Placement that serves requests, in seconds.
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
    """The state of a process.

    :ivar started: in seconds since 1970.
    :ivar at: the moment of the report (monotonic seconds).
    :ivar work: None for the main process, and for a worker that starts.
    """

    name: str
    pid: int
    started: float
    at: float
    work: WorkReport | None = None


to_json = msgspec.json.encode
from_json = msgspec.json.Decoder(ProcessReport).decode
"""Decodes a report. Raises msgspec.MsgspecError if the text is no report."""


@dataclass(frozen=True, slots=True)
class Check:
    """An item of health, observed at the moment ``at`` (monotonic seconds)."""

    status: str
    at: float
    output: str = ''


Checks: TypeAlias = Mapping[str, Check]


def overall(checks: Iterable[Check]) -> str:
    """The worst status of several items; ``pass`` without items."""
    statuses = {check.status for check in checks}
    if FAIL in statuses:
        return FAIL
    if WARN in statuses:
        return WARN
    return PASS


@dataclass
class _Process:
    """The last report of a process, and its restarts.

    :ivar restarted: when the first report of the present process was sent (monotonic
        seconds).
    :ivar predecessor_pid: the pid of the process before.
    """

    report: ProcessReport
    restarts: int = 0
    restarted: float = 0.0
    predecessor_pid: int = 0


class HealthState:
    """The health of the daemon, judged from the reports of its processes.

    :param names: the processes that report, the main process first.
    :param placement_patience: seconds for which requests wait for Placement before the
        scheduler refuses them (``[novasched] placement_patience``).
    :param database_patience: likewise for databases (``[novasched]
        database_patience``).
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
        self._processes: dict[str, _Process] = {}

    def hear(self, report: ProcessReport) -> None:
        """Take a report."""
        process = self._processes.setdefault(report.name, _Process(report))
        if process.report.pid != report.pid:
            process.restarts += 1
            process.restarted = report.at
            process.predecessor_pid = process.report.pid
        process.report = report

    def liveness(self) -> Checks:
        """An item for each process that has reported, or is missed."""
        checks = {}
        for name in self._names:
            check = self._process_check(name)
            if check is not None:
                checks[name] = check
        return checks

    def readiness(self) -> Checks:
        """An item for each resource that requests need, over all workers."""
        now = self._clock()
        workers = len(self._names) - 1
        reports = self._fresh_workers(now)
        if len(reports) == workers:
            status = PASS
        elif reports:
            status = WARN
        else:
            status = FAIL
        why = f'{len(reports)} of {workers} workers report'
        checks = {'workers': Check(status, now, why)}

        by_item: dict[str, list[Check]] = {}
        for report in reports:
            for name, check in self._items(report, now).items():
                by_item.setdefault(name, []).append(check)
        for name, item in by_item.items():
            checks[name] = _merged(item)
        return checks

    def document(self, checks: Checks, host: str) -> dict[str, Any]:
        """Items in the form of application/health+json
        (draft-inadarei-api-health-check)."""
        now = self._clock()
        items = {}
        for name, check in checks.items():
            item = {'status': check.status, 'time': _moment(now - check.at)}
            if check.status != PASS:
                item['output'] = check.output
            items[name] = item
        return {
            'status': overall(checks.values()),
            'version': FORMAT_VERSION,
            'description': DESCRIPTION,
            'notes': {'host': host},
            'checks': items,
        }

    def status(self, host: str, version: str) -> dict[str, Any]:
        """The whole state, for people (``novaschedctl status``)."""
        now = self._clock()
        live = self.liveness()
        ready = self.readiness()
        document = {
            'release': version,
            'health': overall(live.values()),
            'ready': overall(ready.values()),
            **self.document({**live, **ready}, host),
            'processes': self._process_rows(now),
            'cells': [],
            'hosts': None,
            'hosts_read_s': None,
        }

        # Workers read the hosts independently; the newest reading is shown.
        newest: WorkReport | None = None
        read_at = -math.inf
        for name in self._names[1:]:
            process = self._processes.get(name)
            work = process.report.work if process else None
            if work and work.read_at is not None and work.read_at > read_at:
                newest = work
                read_at = work.read_at
        if newest is not None:
            document['cells'] = list(map(_cell_row, newest.cells))
            document['hosts'] = newest.hosts
            document['hosts_read_s'] = round(now - read_at, 1)
        return document

    def _process_check(self, name: str) -> Check | None:
        """The item of a process; None for a process that has not reported yet and is
        not missed yet."""
        now = self._clock()
        process = self._processes.get(name)
        reported_at = self._began
        if process is not None:
            reported_at = process.report.at

        silent = now - reported_at
        if silent > SILENT_S:
            return Check(FAIL, reported_at, f'no report for {silent:.0f} s')
        if silent > REPORT_TTL_S:
            return Check(WARN, reported_at, f'no report for {silent:.0f} s')
        if process is None:
            return None

        # Threads that hang leave the main loop of the worker, which reports, running.
        work = process.report.work
        if work and work.max_request_s is not None and work.in_progress >= work.threads:
            still = now - work.moved
            if still > work.max_request_s:
                why = (
                    f'{work.threads} threads are busy, and none was done for'
                    f' {still:.0f} s'
                )
                return Check(FAIL, work.moved, why)

        ago = now - process.restarted
        if process.restarts and ago <= RESTART_SHOWN_S:
            why = (
                f'process {process.predecessor_pid} has ended, and was started again'
                f' {ago:.0f} s ago'
            )
            return Check(WARN, process.restarted, why)
        return Check(PASS, reported_at)

    def _fresh_workers(self, now: float) -> list[ProcessReport]:
        """The valid reports of workers."""
        reports = []
        for name in self._names[1:]:
            process = self._processes.get(name)
            if process and now - process.report.at <= REPORT_TTL_S:
                reports.append(process.report)
        return reports

    def _items(self, report: ProcessReport, now: float) -> dict[str, Check]:
        """The items of one worker."""
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
        """An item for each enabled cell."""
        cells = [cell for cell in work.cells if not cell.disabled]
        names = Counter(cell.name for cell in cells)

        # While one cell answers, requests are placed there, and no cell fails.
        patience = None
        if all(cell.trouble for cell in cells):
            patience = self._database_patience

        items = {}
        for cell in cells:
            label = cell.name
            if names[cell.name] > 1:
                label = cell.uuid
            items[f'cell:{label}'] = _grade(cell.trouble, at, now, patience)
        return items

    def _process_rows(self, now: float) -> list[dict[str, Any]]:
        rows = []
        for name in self._names:
            if name in self._processes:
                rows.append(_process_row(name, self._processes[name], now))
        return rows


WORK_FIELDS = (
    'done',
    'in_progress',
    'threads',
    'waiting',
    'pending_claims',
    'peers',
    'remembered_s',
    'breakers',
)
"""Fields of :class:`WorkReport` that ``novaschedctl status`` shows by worker."""


def _process_row(name: str, process: _Process, now: float) -> dict[str, Any]:
    report = process.report
    started = datetime.fromtimestamp(report.started, UTC)
    row = {
        'name': name,
        'pid': report.pid,
        'since': started.isoformat('T', 'seconds'),
        'restarts': process.restarts,
        'reported_s': round(now - report.at, 1),
    }
    if report.work is not None:
        for field_name in WORK_FIELDS:
            row[field_name] = getattr(report.work, field_name)
    return row


def _message_bus(work: WorkReport, at: float, now: float) -> Check:
    if work.connected_at is None:
        return Check(PASS, at)

    away = now - work.connected_at
    if away <= BUS_TTL_S:
        return Check(PASS, work.connected_at)
    status = WARN
    if away > BUS_LOST_S:
        status = FAIL
    return Check(status, work.connected_at, f'no connection for {away:.0f} s')


def _grade(
    trouble: Trouble | None, at: float, now: float, patience: float | None = None
) -> Check:
    """Judge calls without an answer: a warning while requests wait, and a failure once
    the scheduler refuses requests.

    :param patience: seconds for which requests wait for the service; None if requests
        can be decided without the service.
    """
    if trouble is None:
        return Check(PASS, at)

    if now - trouble.last > TROUBLE_TTL_S:
        why = f'not asked for {now - trouble.last:.0f} s; before that, {trouble.why}'
        return Check(WARN, trouble.last, why)

    lasted = now - trouble.since
    status = WARN
    if patience is not None and lasted >= patience:
        status = FAIL
    return Check(status, trouble.last, f'no answer for {lasted:.0f} s: {trouble.why}')


def _merged(checks: Sequence[Check]) -> Check:
    """The item of several workers. A failure of every worker is a failure; a failure of
    a part of the workers is a warning."""
    worst = min(checks, key=lambda check: (FAIL, WARN, PASS).index(check.status))
    if worst.status == FAIL and any(check.status != FAIL for check in checks):
        return Check(WARN, worst.at, worst.output)
    return worst


def _cell_row(cell: CellReport) -> dict[str, Any]:
    row: dict[str, Any] = {
        'uuid': cell.uuid,
        'name': cell.name,
        'hosts': cell.hosts,
        'disabled': cell.disabled,
        'trouble': None,
    }
    if cell.trouble is not None:
        row['trouble'] = cell.trouble.why
    return row


def _moment(ago: float) -> str:
    moment = datetime.fromtimestamp(time.time() - ago, UTC)
    return moment.isoformat('T', 'seconds')
