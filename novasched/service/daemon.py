# SPDX-License-Identifier: Apache-2.0
"""The daemon: a master that runs workers, and the service of a worker."""

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
    from novasched.observe.web.server import HttpServer

LOG = logging.getLogger('nova.service')
MINUTE_S = 60
LOG_RESERVE_S = 2
"""Seconds of the graceful shutdown timeout that are reserved for the last log lines."""
TRIM_INTERVAL_S = 10
"""Seconds between two returns of free memory to the system."""
TASKS_TIMEOUT_S = 2.0
"""Seconds for periodic tasks to end."""
DECISIONS_IN_REPORT = 20
"""Number of decisions in a Guru Meditation Report."""


@dataclass
class SchedulerService:
    """A worker: takes requests from the queue and answers them.

    Implements :class:`novasched.service.supervisor.ProcessService`.
    """

    conf: cfg.ConfigOpts
    settings: Settings
    service: ServiceSettings
    metrics: WorkerMetrics | None = None
    vitals: Vitals | None = None
    _records: DecisionRecorder | None = None

    def decisions(self) -> list[str]:
        """Return the newest decisions, a line each."""
        if self._records is None:
            return []
        return list(map(render.entry, self._records.newest(DECISIONS_IN_REPORT)))

    def beat(self) -> None:
        if self.vitals:
            self.vitals()

    def start(self) -> None:
        """Build the scheduler, report that it is alive, and take requests."""
        LOG.info('Starting %s node (version %s)', TOPIC, runtime.version())
        if self.conf.log_options:
            self.conf.log_opt_values(LOG, logging.DEBUG)
        runtime.tune_malloc()
        runtime.tune_gc()

        metrics = self.metrics
        counters = metrics.decisions if metrics else None
        application = compose(self.conf, self.settings, self.service, counters)
        self.application = application
        self._records = application.records
        # preflight() has logged a failure before the workers were started.
        self._records.open()
        application.hosts.prefetch(time.monotonic())
        self._tasks = _start_tasks(application, self.settings)

        self._transport = make_transport(self.conf)
        self._server = make_server(
            self._transport,
            self.service.host,
            application.driver,
            counts=metrics.messages if metrics else None,
        )

        # Claims of peers are heard before the first request is decided.
        claims = application.hosts.pending_claims
        self._exchange = None
        if self.service.share_pending_claims and self.settings.in_flight_timeout:
            self._exchange = make_exchange(self._transport, claims, self.service.host)
        if self._exchange:
            claims.peers = self._exchange.peers
            self._exchange.start()
        self._server.start()

        if metrics:
            sampling = metrics.sample(
                application.hosts,
                application.placement,
                application.main_database,
                application.notifier,
                application.records,
                self._server,
            )
            self._tasks.append(sampling)
        if self.vitals:
            self.vitals.work = self._work()

    def _work(self) -> Work:
        """Return the parts of the worker for the health report."""
        application = self.application
        return Work(
            application.hosts,
            application.placement,
            application.main_database,
            self._server,
            shares=self._exchange is not None,
            max_request_s=longest_request_s(self.conf, self.settings),
        )

    def stop(self) -> None:
        """Take no more requests, finish the requests in progress, and close."""
        seconds = int(self.conf.graceful_shutdown_timeout) or MINUTE_S
        deadline = time.monotonic() + seconds - LOG_RESERVE_S

        # The driver first, so that requests that wait for Placement end in time.
        if stop := getattr(self.application.driver, 'stop', None):
            stop(deadline - time.monotonic() - TASKS_TIMEOUT_S)
        self._server.stop()
        self._server.wait()

        for task in self._tasks:
            task.stop()
        # A task may wait for a database that does not answer. Such a task must not
        # delay the end, so threads wait for the tasks, and nobody for the threads.
        executor = futures.ThreadPoolExecutor(max(1, len(self._tasks)), 'last')
        waits = [executor.submit(task.wait) for task in self._tasks]
        futures.wait(waits, timeout=TASKS_TIMEOUT_S)
        executor.shutdown(wait=False)

        self._transport.cleanup()
        if self._exchange:
            self._exchange.close()
        self.application.close(max(0.0, deadline - time.monotonic()))

    def reload(self) -> None:
        """Reload nova.conf, the cell mappings and the hosts of all cells.

        :raises NovaschedError: a part cannot be read; the current configuration stays.
        """
        began = time.monotonic()
        reload_options(self.conf)
        self.application.hosts.renew()
        if periodic := getattr(self.application.driver, 'periodic', None):
            periodic()
        LOG.info('SIGHUP: reloaded within %.2f s', time.monotonic() - began)


def longest_request_s(conf: cfg.ConfigOpts, settings: Settings) -> float | None:
    """Return the longest duration of a request in seconds, None if unlimited.

    Twice the time that nova.conf lets a request wait.
    """
    timeout = conf.placement.timeout
    if not timeout:
        return None
    patience = settings.placement_patience + settings.database_patience
    return 2 * float(patience + settings.cell_timeout + timeout)


def reload_options(conf: cfg.ConfigOpts) -> None:
    """Reload the options that oslo.config declares mutable."""
    try:
        conf.mutate_config_files()
    except (cfg.Error, OSError, ValueError, TypeError) as error:
        # ValueError and TypeError: oslo.log sets up the log anew, see cmd/novasched.py.
        LOG.error('SIGHUP: options stay as they were: %s', hide(error))
    # The handlers may be new.
    hide_secrets()


def _start_tasks(application: Application, settings: Settings) -> list[Any]:
    """Start the periodic tasks: heartbeat, discovery of hosts, tasks of the driver.

    As in nova, an interval of 0 means a minute, and a negative interval disables the
    task.
    """
    intervals: list[tuple[Callable[[], object], int]] = [
        (application.heartbeat.report_state, settings.report_interval),
        (application.heartbeat.update_version, settings.report_interval),
        (gc.collect, MINUTE_S),
        (runtime.trim_heaps, TRIM_INTERVAL_S),
        (application.look_at_columns, MINUTE_S),
    ]
    if settings.periodic_enable:
        discover = application.discovery.run
        intervals.append((discover, settings.discover_hosts_in_cells_interval))
        periodic = getattr(application.driver, 'periodic', None)
        if periodic is not None:
            intervals.append((periodic, settings.periodic_task_interval))

    tasks = []
    for work, interval in intervals:
        if interval >= 0:
            task = loopingcall.FixedIntervalLoopingCall(work)
            task.start(interval=interval or MINUTE_S, stop_on_exception=False)
            tasks.append(task)
    return tasks


def run(conf: cfg.ConfigOpts) -> int:
    """Run the workers until a signal ends the daemon.

    :returns: the exit status.
    :raises NovaschedError: the configuration does not allow a start.
    """
    # Without a worker there is nothing to reload.
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
            scheduler = SchedulerService(conf, settings, service, metrics, vitals)
            sections = {
                'Decisions': scheduler.decisions,
            }
            runtime.report_on_signal(conf, sections)
            return scheduler

        def timeout() -> int:
            return int(conf.graceful_shutdown_timeout)

        jobs = _jobs(service.workers, worker, files, page)
        if health:
            jobs.append(Job(health.server, 'health', vital=False))
        beat = health.vitals(MAIN) if health else lambda: None
        reload = functools.partial(reload_options, conf)
        return Supervisor(jobs, timeout, reload, beat).run()


def _jobs(
    workers: int,
    worker: Callable[[int], SchedulerService],
    files: MetricsFiles | None,
    page: Callable[[], Page] | None,
) -> list[Job]:
    """Return the jobs of the workers, and of the web server if metrics are served."""
    jobs = []
    for number in range(workers):
        ended = None
        if files:
            ended = functools.partial(files.worker_ended, number)
        jobs.append(Job(functools.partial(worker, number), ended=ended))
    if files is None:
        return jobs

    def web() -> HttpServer:
        return files.http_server(page() if page else None)

    jobs.append(Job(web, 'web', vital=False))
    return jobs
