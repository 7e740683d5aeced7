# SPDX-License-Identifier: Apache-2.0
"""The daemon: a master that runs workers, and the life of a worker."""

from __future__ import annotations

import functools
import gc
import logging
import signal
import time
from collections.abc import Callable
from concurrent import futures
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oslo_config import cfg

from novasched.concurrency import loopingcall
from novasched.conf import loading
from novasched.conf.logs import hide_secrets
from novasched.conf.redaction import hide
from novasched.conf.settings import ServiceSettings, Settings
from novasched.observe.health.server import health_service
from novasched.observe.health.state import MAIN
from novasched.observe.health.vitals import Vitals, Work
from novasched.observe.records import render
from novasched.observe.records.recorder import DecisionRecorder
from novasched.observe.web.wiring import MetricsFiles, metrics_files, page_factory
from novasched.rpc.claims_exchange import make_exchange
from novasched.rpc.server import TOPIC, make_server, make_transport
from novasched.service import runtime
from novasched.service.build import Application, compose, preflight
from novasched.service.supervisor import Job, Supervisor

if TYPE_CHECKING:
    from novasched.observe.metrics import WorkerMetrics
    from novasched.observe.page.app import Page

LOG = logging.getLogger('nova.service')
MINUTE_S = 60
LOG_RESERVE_S = 2
"""Seconds, of those that a worker has to end, that are left for its log."""
TRIM_INTERVAL_S = 10
"""Seconds between looks for memory that the system can have back."""
TASKS_TIMEOUT_S = 2.0
"""Seconds that periodic tasks have to end."""
DECISIONS_IN_REPORT = 20
"""Decisions that a Guru Meditation Report shows."""


@dataclass
class SchedulerService:
    """A worker: takes requests from the queue and answers them. Implements
    :class:`novasched.service.supervisor.ProcessService`."""

    conf: cfg.ConfigOpts
    settings: Settings
    service: ServiceSettings
    metrics: WorkerMetrics | None = None
    vitals: Vitals | None = None
    _records: DecisionRecorder | None = None

    def decisions(self) -> list[str]:
        """The newest ones, a line each."""
        newest = self._records.newest(DECISIONS_IN_REPORT) if self._records else ()
        return [render.entry(record) for record in newest]

    def beat(self) -> None:
        if self.vitals:
            self.vitals()

    def start(self) -> None:
        """Build the scheduler, show that it is alive, take requests."""
        LOG.info('Starting %s node (version %s)', TOPIC, runtime.version())
        if self.conf.log_options:
            self.conf.log_opt_values(LOG, logging.DEBUG)
        runtime.tune_malloc()
        runtime.tune_gc()
        metrics = self.metrics
        counters = metrics.decisions if metrics else None
        self.application = compose(self.conf, self.settings, self.service, counters)
        self._records = self.application.records
        # a failure has been logged before the workers were started
        self._records.open()
        self.application.hosts.prefetch(time.monotonic())
        self._tasks = _start_tasks(self.application, self.settings)
        self._transport = make_transport(self.conf)
        self._server = make_server(
            self._transport,
            self.service.host,
            self.application.driver,
            counts=metrics.messages if metrics else None,
        )
        claims = self.application.hosts.pending_claims
        self._exchange = None
        if self.service.share_pending_claims and self.settings.in_flight_timeout:
            self._exchange = make_exchange(self._transport, claims, self.service.host)
        if self._exchange:
            claims.peers = self._exchange.peers
            self._exchange.start()
        self._server.start()
        if metrics:
            its = self.application
            parts = (
                its.hosts,
                its.placement,
                its.own,
                its.notifier,
                its.records,
            )
            self._tasks.append(metrics.sample(*parts, self._server))
        if self.vitals:
            self.vitals.work = self._work()

    def _work(self) -> Work:
        """The work, as it is to be reported."""
        its = self.application
        longest = longest_request_s(self.conf, self.settings)
        shares = self._exchange is not None
        return Work(its.hosts, its.placement, its.own, self._server, shares, longest)

    def stop(self) -> None:
        """Take no more requests, finish those in progress, close."""
        seconds = int(self.conf.graceful_shutdown_timeout) or MINUTE_S
        until = time.monotonic() + seconds - LOG_RESERVE_S
        if stop := getattr(self.application.driver, 'stop', None):
            stop(until - time.monotonic() - TASKS_TIMEOUT_S)
        self._server.stop()
        self._server.wait()
        for task in self._tasks:
            task.stop()
        # One that waits for a database which does not answer keeps nobody here.
        waiting = futures.ThreadPoolExecutor(max(1, len(self._tasks)), 'last')
        futures.wait(
            [waiting.submit(task.wait) for task in self._tasks], timeout=TASKS_TIMEOUT_S
        )
        waiting.shutdown(wait=False)
        self._transport.cleanup()
        if self._exchange:
            self._exchange.close()
        self.application.close(max(0.0, until - time.monotonic()))

    def reload(self) -> None:
        """Look at nova.conf and the cell mappings anew, and at all that the cells say.

        :raises NovaschedError: this cannot be had; all stays as it was.
        """
        began = time.monotonic()
        reload_options(self.conf)
        self.application.hosts.renew()
        if periodic := getattr(self.application.driver, 'periodic', None):
            periodic()
        LOG.info('SIGHUP: reloaded within %.2f s', time.monotonic() - began)


def longest_request_s(conf: cfg.ConfigOpts, settings: Settings) -> float | None:
    """Seconds that a request takes at most, twice what nova.conf lets it wait; None if
    that is for ever."""
    timeout = conf.placement.timeout
    if not timeout:
        return None
    patience = settings.placement_patience + settings.database_patience
    return 2 * float(patience + settings.cell_timeout + timeout)


def reload_options(conf: cfg.ConfigOpts) -> None:
    """Take over what nova.conf says now for options that may change while we run."""
    try:
        conf.mutate_config_files()
    except (cfg.Error, OSError, ValueError, TypeError) as error:  # as at the start
        LOG.error('SIGHUP: options stay as they were: %s', hide(error))
    hide_secrets()  # in a log that has been set up anew, too


def _start_tasks(application: Application, settings: Settings) -> list[Any]:
    """The heartbeat, the discovery of hosts, and what the driver wants done.

    As in nova an interval of 0 is a minute, and a negative one leaves a task out.
    """
    wanted: list[tuple[Callable[[], object] | None, int]] = [
        (application.heartbeat.report_state, settings.report_interval),
        (application.heartbeat.update_version, settings.report_interval),
        (gc.collect, MINUTE_S),
        (runtime.trim_heaps, TRIM_INTERVAL_S),
        (application.look_at_columns, MINUTE_S),
    ]
    if settings.periodic_enable:
        wanted += [
            (application.discovery.run, settings.discover_hosts_in_cells_interval),
            (
                getattr(application.driver, 'periodic', None),
                settings.periodic_task_interval,
            ),
        ]
    tasks = []
    for work, interval in wanted:
        if work is not None and interval >= 0:
            task = loopingcall.FixedIntervalLoopingCall(work)
            task.start(interval=interval or MINUTE_S, stop_on_exception=False)
            tasks.append(task)
    return tasks


def run(conf: cfg.ConfigOpts) -> int:
    """Run the workers until a signal ends them; the answer is the exit status.

    :raises NovaschedError: the configuration does not let them start.
    """
    # Until there is a worker, there is nothing that it could reload.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    runtime.report_on_signal(conf)
    settings = loading.settings(conf)
    service = loading.service_settings(conf)
    page = page_factory(conf, settings, service)
    with (
        metrics_files(service.metrics_bind) as files,
        health_service(conf, settings, service, runtime.version()) as health,
    ):
        preflight(conf, settings, service)
        runtime.share_modules()

        def worker(number: int) -> SchedulerService:
            metrics = files.worker_metrics(number) if files else None
            vitals = health.worker_vitals(number) if health else None
            made = SchedulerService(conf, settings, service, metrics, vitals)
            sections = {'Decisions': made.decisions}
            runtime.report_on_signal(conf, sections)
            return made

        jobs = _jobs(service.workers, worker, files, page)
        if health:
            jobs.append(Job(health.server, 'health', vital=False))
        beat = health.vitals(MAIN) if health else lambda: None
        reload = functools.partial(reload_options, conf)
        return Supervisor(
            jobs, lambda: int(conf.graceful_shutdown_timeout), reload, beat
        ).run()


def _jobs(
    workers: int,
    worker: Callable[[int], SchedulerService],
    files: MetricsFiles | None,
    page: Callable[[], Page] | None,
) -> list[Job]:
    """The workers, and where metrics are served a process for HTTP, perhaps with the
    page."""
    make = functools.partial
    if files is None:
        return [Job(make(worker, number)) for number in range(workers)]
    ended = files.worker_ended
    jobs = [
        Job(make(worker, number), ended=make(ended, number))
        for number in range(workers)
    ]
    web = Job(lambda: files.http_server(page() if page else None), 'web', vital=False)
    return [*jobs, web]
