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
from novasched.observe.health.service import health_service
from novasched.observe.health.state import MAIN
from novasched.observe.health.vitals import Vitals, Work
from novasched.observe.records import render
from novasched.observe.web.wiring import (
    MetricsFiles,
    http_process,
    metrics_files,
    page_factory,
)
from novasched.observe.worker_view import WorkerParts
from novasched.rpc.claims_exchange import ClaimsExchange, uses_rabbitmq
from novasched.rpc.oslo_messaging_internals import RpcServer
from novasched.rpc.peers import PeerSchedulers
from novasched.rpc.server import TOPIC, make_server, make_transport
from novasched.service import runtime
from novasched.service.build import Application, compose, preflight
from novasched.service.supervisor import Job, Supervisor

if TYPE_CHECKING:
    from novasched.observe.metrics import WorkerMetrics

LOG = logging.getLogger('nova.service')
MINUTE_S = 60
LOG_RESERVE_S = 2
"""Seconds of the graceful shutdown timeout that are reserved for the last log lines."""
TRIM_INTERVAL_S = 10
"""Seconds between two returns of free memory to the system."""
TASKS_TIMEOUT_S = 2.0
"""Seconds for periodic tasks to end."""


@dataclass
class SchedulerService:
    """A worker: takes requests from the queue and answers them.

    Implements :class:`novasched.service.supervisor.ProcessService`. Until the start
    is complete, ``_running`` is None.
    """

    conf: cfg.ConfigOpts
    settings: Settings
    service: ServiceSettings
    metrics: WorkerMetrics | None = None
    vitals: Vitals | None = None
    _running: RunningScheduler | None = None

    def decisions(self) -> list[str]:
        """Return the newest decisions, a line each."""
        if self._running is None:
            return []
        records = self._running.application.records
        return list(map(render.entry, records.newest()))

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

        decision_counters = None
        message_counts = None
        if self.metrics:
            decision_counters = self.metrics.decisions
            message_counts = self.metrics.messages
        application = compose(self.conf, self.settings, self.service, decision_counters)
        if application.tracing is not None:
            application.tracing.start()
        # preflight() has logged a failure before the workers were started.
        application.records.open()
        application.hosts.prefetch(time.monotonic())
        tasks = _start_tasks(application, self.settings)

        transport = make_transport(self.conf)
        server = make_server(
            transport,
            self.service.host,
            application.driver,
            message_counts,
            keeps_caller=application.reads_caller,
        )
        exchange = self._start_exchange(transport, application.peers)
        # The server is started last, so that the first request finds all parts.
        server.start()
        running = RunningScheduler(application, transport, server, exchange, tasks)
        self._running = running

        parts = running.parts()
        if self.metrics:
            tasks.append(self.metrics.sample(parts.view))
        if self.vitals:
            self.vitals.work = Work(
                parts.view,
                shares=exchange is not None,
                max_request_s=longest_request_s(self.conf, self.settings),
            )

    def _start_exchange(
        self, transport: Any, peers: PeerSchedulers | None
    ) -> ClaimsExchange | None:
        """Share pending claims with other schedulers, unless nova.conf disables it."""
        if peers is None:
            if self.service.share_pending_claims and not uses_rabbitmq(self.conf):
                LOG.info('Pending claims are not shared: the broker is not RabbitMQ')
            return None

        exchange = ClaimsExchange(transport, peers)
        exchange.start()
        return exchange

    def stop(self) -> None:
        """Take no more requests, finish the requests in progress, and close."""
        seconds = int(self.conf.graceful_shutdown_timeout) or MINUTE_S
        deadline = time.monotonic() + seconds - LOG_RESERVE_S
        if self._running:
            self._running.stop(deadline)

    def reload(self) -> None:
        """Reload nova.conf, the cell mappings and the hosts of all cells.

        :raises NovaschedError: a part cannot be read; the current configuration stays.
        """
        began = time.monotonic()
        reload_options(self.conf)
        if self._running:
            self._running.renew()
        LOG.info('SIGHUP: reloaded within %.2f s', time.monotonic() - began)


@dataclass(frozen=True, slots=True)
class RunningScheduler:
    """A scheduler that takes requests: the parts that :class:`SchedulerService` starts.

    :ivar exchange: None if pending claims are not shared with other schedulers.
    :ivar tasks: the periodic tasks.
    """

    application: Application
    transport: Any
    server: RpcServer
    exchange: ClaimsExchange | None
    tasks: list[Any]

    def parts(self) -> WorkerParts:
        """Return the parts that health and metrics read."""
        return WorkerParts(
            self.application.hosts,
            self.application.placement,
            self.application.main_database,
            self.application.notifier,
            self.application.records,
            self.server,
        )

    def renew(self) -> None:
        """Read the cell mappings and the hosts of all cells anew.

        :raises NovaschedError: a part cannot be read.
        """
        self.application.hosts.renew()
        self.application.driver.periodic()

    def stop(self, deadline: float) -> None:
        """Take no more requests, finish the requests in progress, and close.

        :param deadline: when the process should end (monotonic seconds).
        """
        # The driver first, so that requests that wait for Placement end in time.
        self.application.driver.stop(deadline - time.monotonic() - TASKS_TIMEOUT_S)
        self.server.stop()
        self.server.wait()

        for task in self.tasks:
            task.stop()
        # A task may hang on a database that does not answer. Threads wait for the
        # tasks, so that the end of the process waits for a limited time only.
        executor = futures.ThreadPoolExecutor(max(1, len(self.tasks)), 'last')
        waits = [executor.submit(task.wait) for task in self.tasks]
        futures.wait(waits, timeout=TASKS_TIMEOUT_S)
        executor.shutdown(wait=False)

        self.transport.cleanup()
        if self.exchange:
            self.exchange.close()
        self.application.close(max(0.0, deadline - time.monotonic()))


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
        LOG.error(
            'SIGHUP: options not reloaded, keeping the current values: %s', hide(error)
        )
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
        periodic = application.driver.periodic
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
            # Again after the fork, with the sections of the worker.
            runtime.report_on_signal(conf, sections)
            return scheduler

        def timeout() -> int:
            return int(conf.graceful_shutdown_timeout)

        jobs = _jobs(service.workers, worker, files)
        if files or health:
            make_http = functools.partial(http_process, files, health, page)
            jobs.append(Job(make_http, 'http', vital=False))
        beat = health.vitals(MAIN) if health else lambda: None
        reload = functools.partial(reload_options, conf)
        return Supervisor(jobs, timeout, reload, beat).run()


def _jobs(
    workers: int, worker: Callable[[int], SchedulerService], files: MetricsFiles | None
) -> list[Job]:
    """Return the jobs of the workers."""
    jobs = []
    for number in range(workers):
        ended = None
        if files:
            ended = functools.partial(files.worker_ended, number)
        jobs.append(Job(functools.partial(worker, number), ended=ended))
    return jobs
