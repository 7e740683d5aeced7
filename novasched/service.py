# SPDX-License-Identifier: Apache-2.0
"""The composition root: builds what talks to the outside, and runs the processes.

The only module that knows every adapter. What a worker needs is built in the worker,
after the fork, since neither database connections nor sockets survive one.
"""

from __future__ import annotations

import functools
import importlib.metadata
import logging
import signal
import time
from collections.abc import Callable
from concurrent import futures
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from keystoneauth1 import adapter, loading
from keystoneauth1 import exceptions as ks_exc
from oslo_config import cfg
from oslo_utils import timeutils

from novasched import conf as configuration
from novasched import meditation, plugins, tls, tracing
from novasched.cells.aggregates import AggregateReader
from novasched.cells.discovery import Discovery
from novasched.cells.engines import connect, dispose
from novasched.cells.heartbeat import Heartbeat
from novasched.cells.mappings import Cells
from novasched.cells.schema import Database
from novasched.cells.servicegroup import service_group
from novasched.cells.snapshot import HostReader
from novasched.conf.shared import share
from novasched.connections import connections
from novasched.drivers import Driver, Parts
from novasched.errors import (
    ConfigError,
    PlacementUnauthorized,
    PlacementUnavailable,
)
from novasched.inflight import InFlight
from novasched.logs import hide_secrets
from novasched.model.settings import Settings
from novasched.monitoring import Monitoring, monitoring
from novasched.network import Neutron
from novasched.notify.sender import Sender, make_notices
from novasched.placement.client import PlacementClient
from novasched.ports import Silence
from novasched.prefilters import Sources
from novasched.prefilters.order import PREFILTERS
from novasched.processes import (
    collect_all,
    collect_seldom,
    loopingcall,
    share_heaps,
    share_modules,
    trim_heaps,
)
from novasched.recorder.inquiry import Inquirer
from novasched.recorder.keeper import Keeper
from novasched.recorder.store import Store
from novasched.records import story
from novasched.rpc.server import TOPIC, Server, make_server, make_transport
from novasched.secrets import hide
from novasched.supervisor import Job, Plan, Supervisor
from novasched.tracing import Tracing
from novasched.viewing import page_of, web

if TYPE_CHECKING:
    from novasched.measuring import Meter
    from novasched.metrics.tally import Tally
    from novasched.page.app import Page

LOG = logging.getLogger('nova.scheduler.manager')
SERVICE_LOG = logging.getLogger('nova.service')
PACKAGE = 'novasched'
MINUTE = 60  # seconds
LAST_WORDS = 2  # seconds, of those that a worker has to end, that are left for its log
TRIM = 10  # seconds between looks for memory that the system can have back
TASKS = 2.0  # seconds that tasks have to end
TLS_FILES = {tls.AUTHORITY: 'cafile', tls.CERTIFICATE: 'certfile', tls.KEY: 'keyfile'}
"""keystoneauth1's options."""
TOLD = 20  # decisions in a Guru Meditation Report
THREADS = 64
"""What ``[DEFAULT] executor_thread_pool_size`` is unless set."""


@dataclass(frozen=True, slots=True)
class Application:
    """A scheduler without its message queue."""

    driver: Driver
    placement: PlacementClient
    hosts: HostReader
    cells: Cells
    heartbeat: Heartbeat
    discovery: Discovery
    own: Database
    notices: Sender | Silence
    records: Keeper
    tracing: Tracing | None = None

    def close(self, seconds: float = 0.0) -> None:
        """Tell and keep what is left, close every connection to the databases; within so many
        seconds undo in Placement what is still to be undone."""
        self.notices.close()
        self.records.close()
        if self.tracing is not None:
            self.tracing.close()
        self.placement.close(seconds)
        self.hosts.close()
        self.discovery.close()
        self.cells.close()
        dispose(self.own, self.cells.api)


def compose(conf: cfg.ConfigOpts, settings: Settings, tally: Tally | None = None) -> Application:
    """Build a scheduler from nova.conf.

    :param tally: adds up decisions.
    :raises ConfigError: an option's value cannot be used.
    :raises BadPlugin: a filter, weigher or driver does not load.
    :raises DatabaseUnavailable: a database cannot be reached.
    """
    prepare = functools.partial(share, conf)
    filters, weighers = plugins.filters(settings, prepare), plugins.weighers(settings, prepare)
    driver = plugins.driver(settings, prepare)
    traces = _tracing(conf)
    own = _database(conf, 'database', settings.cell_timeout)
    api = _database(conf, 'api_database', settings.cell_timeout)
    cells = Cells(api, conf.database, settings.cell_timeout)
    cells.refresh()
    aggregates = AggregateReader(api)
    in_flight = InFlight(settings)
    host, utcnow = configuration.host(conf), timeutils.utcnow
    group, heartbeat = service_group(conf, settings, own, cells.enabled, host, utcnow)
    hosts = HostReader(settings, cells, aggregates, in_flight, group, utcnow)
    placement = PlacementClient(settings, http_adapter(conf, 'placement'))
    sources = Sources(aggregates, hosts, _network(conf, settings, placement))
    prefilters = [each(settings, sources) for each in PREFILTERS]
    notices = make_notices(conf, settings, configuration.host(conf)) or Silence()
    records = _records(conf, settings, aggregates, tally, traces)
    if tally:
        tally.expect([each.name for each in filters], [each.name for each in weighers])
    parts = Parts(
        settings, prefilters, placement, hosts, filters, weighers, in_flight, notices, records
    )
    return Application(
        driver=driver(parts),
        placement=placement,
        hosts=hosts,
        cells=cells,
        heartbeat=heartbeat,
        discovery=Discovery(cells.separate(), own, group, host, utcnow),
        own=own,
        notices=notices,
        records=records,
        tracing=traces,
    )


def preflight(conf: cfg.ConfigOpts) -> None:
    """See, before any worker starts, that there is nothing that an operator must mend.

    :raises NovaschedError: there is; the text says what.
    """
    application = compose(conf, configuration.settings(conf))
    try:
        application.placement.check()
    except PlacementUnauthorized as error:
        raise ConfigError('[placement]', 'credentials', str(error)) from None
    except PlacementUnavailable as error:
        LOG.warning(
            'Unable to initialize placement client (%s); Continuing with startup, but '
            'scheduling will not be possible.',
            error,
        )
    application.heartbeat.join()
    application.close()
    make_transport(conf).cleanup()


class SchedulerService:
    """One worker: takes requests from the queue and answers them. Implements
    :class:`novasched.supervisor.Service`."""

    def __init__(self, conf: cfg.ConfigOpts, meter: Meter | None = None) -> None:
        self.conf = conf
        self.meter = meter
        self._records: Keeper | None = None

    def decisions(self) -> list[str]:
        """The newest ones, a line each."""
        return [story.entry(each) for each in self._records.newest(TOLD)] if self._records else []

    def start(self) -> None:
        """Build the scheduler, show that it is alive, take requests."""
        version = importlib.metadata.version(PACKAGE)
        SERVICE_LOG.info('Starting %s node (version %s)', TOPIC, version)
        if self.conf.log_options:
            self.conf.log_opt_values(SERVICE_LOG, logging.DEBUG)
        share_heaps()
        collect_seldom()
        settings = configuration.settings(self.conf)
        meter = self.meter
        self.application = compose(self.conf, settings, meter.tally if meter else None)
        self._records = self.application.records
        self.application.hosts.prepare(time.monotonic())
        self._tasks = _start_tasks(self.application, settings)
        self._transport = make_transport(self.conf)
        host = configuration.host(self.conf)
        counts = meter.counts if meter else None
        self._server = make_server(self._transport, host, self.application.driver, counts=counts)
        self._server.start()
        if meter:
            self._tasks.append(_watched(meter, self.application, self._server))

    def stop(self) -> None:
        """Take no more requests, finish those in progress, close."""
        until = time.monotonic() + (int(self.conf.graceful_shutdown_timeout) or MINUTE) - LAST_WORDS
        self._server.stop()
        self._server.wait()
        for task in self._tasks:
            task.stop()
        # One that waits for a database which does not answer keeps nobody here.
        waiting = futures.ThreadPoolExecutor(max(1, len(self._tasks)), 'last')
        futures.wait([waiting.submit(task.wait) for task in self._tasks], timeout=TASKS)
        waiting.shutdown(wait=False)
        self._transport.cleanup()
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
        SERVICE_LOG.info('SIGHUP: reloaded within %.2f s', time.monotonic() - began)


def reload_options(conf: cfg.ConfigOpts) -> None:
    """Take over what nova.conf says now for options that may change while we run."""
    try:
        conf.mutate_config_files()
    except (cfg.Error, OSError, ValueError, TypeError) as error:  # as at the start
        SERVICE_LOG.error('SIGHUP: options stay as they were: %s', hide(error))
    hide_secrets()  # in a log that has been set up anew, too


def _start_tasks(application: Application, settings: Settings) -> list[Any]:
    """The heartbeat, the discovery of hosts, and what the driver wants done.

    As in nova an interval of 0 is a minute, and a negative one leaves a task out.
    """
    wanted: list[tuple[Callable[[], object] | None, int]]
    wanted = [
        (application.heartbeat.beat, settings.report_interval),
        (collect_all, MINUTE),
        (trim_heaps, TRIM),
    ]
    if settings.periodic_enable:
        wanted += [
            (application.discovery.run, settings.discover_hosts_in_cells_interval),
            (getattr(application.driver, 'periodic', None), settings.periodic_task_interval),
        ]
    tasks = []
    for work, interval in wanted:
        if work is not None and interval >= 0:
            task = loopingcall.FixedIntervalLoopingCall(work)
            task.start(interval=interval or MINUTE, stop_on_exception=False)
            tasks.append(task)
    return tasks


def _watched(meter: Meter, its: Application, server: Server) -> Any:
    """The task that looks at how things stand in the application."""
    return meter.watch(its.hosts, its.placement, its.own, its.notices, its.records, server)


def run(conf: cfg.ConfigOpts) -> int:
    """Run the workers until a signal ends them; the answer is the exit status.

    :raises NovaschedError: the configuration does not let them start.
    """
    # Until there is a worker, there is nothing that it could reload.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    version = importlib.metadata.version(PACKAGE)
    meditation.listen(conf, version)
    page = page_of(conf)
    with monitoring(configuration.metrics_bind(conf)) as watch:
        preflight(conf)
        share_modules()

        def timeout() -> int:
            return int(conf.graceful_shutdown_timeout)

        def reload() -> None:
            reload_options(conf)

        return Supervisor(Plan(_jobs(conf, version, watch, page), timeout, reload)).run()


def _jobs(
    conf: cfg.ConfigOpts,
    version: str,
    watch: Monitoring | None,
    page: Callable[[], Page] | None,
) -> list[Job]:
    """What the processes are for: the workers, and whoever serves what is seen of them."""

    def make(number: int) -> SchedulerService:
        service = SchedulerService(conf, watch.meter(number) if watch else None)
        meditation.listen(conf, version, service.decisions)
        return service

    numbers = range(conf.scheduler.workers or 1)
    if watch is None:
        return [Job(functools.partial(make, number)) for number in numbers]
    jobs = [
        Job(functools.partial(make, number), ended=functools.partial(watch.ended, number))
        for number in numbers
    ]
    return [*jobs, Job(functools.partial(web, watch, page), 'web', vital=False)]


def _database(conf: cfg.ConfigOpts, group: str, patience: float) -> Database:
    url = conf[group].connection
    if not url:
        raise ConfigError(f'[{group}] connection', 'not set', 'the URL of a database is needed')
    return connect(conf[group], url, f'[{group}] connection', wait=True, patience=patience)


def _tracing(conf: cfg.ConfigOpts) -> Tracing | None:
    """Where traces of decisions go, if anywhere."""
    url = configuration.tracing_endpoint(conf)
    version = importlib.metadata.version(PACKAGE)
    return tracing.begin(url, configuration.host(conf), version) if url else None


def _records(
    conf: cfg.ConfigOpts,
    settings: Settings,
    aggregates: AggregateReader,
    tally: Tally | None,
    traces: Tracing | None,
) -> Keeper:
    """Who keeps the records of decisions, and asks Placement about refusals."""
    path = configuration.decisions_file(conf)
    store = Store(path, settings.decisions_stored) if path else None
    ask = Inquirer(settings, http_adapter(conf, 'placement'), aggregates)
    return Keeper(settings, store, ask, tally, observers=(traces,) if traces else ())


def _network(
    conf: cfg.ConfigOpts, settings: Settings, placement: PlacementClient
) -> Neutron | None:
    """Neutron, if ``[neutron]`` says who we are there."""
    if not conf.neutron.auth_type and not conf.neutron.auth_section:
        wanted = settings.query_placement_for_routed_network_aggregates
        LOG.log(
            logging.WARNING if wanted else logging.INFO,
            'Neutron is not asked about routed networks and remote-managed ports, since '
            '[neutron] auth_type is not set.',
        )
        return None
    http = http_adapter(conf, 'neutron')
    http.connect_retries = conf.neutron.http_retries
    return Neutron(http, placement)


def http_adapter(conf: cfg.ConfigOpts, group: str) -> adapter.Adapter:
    """The keystoneauth1 adapter that a group of nova.conf describes.

    :raises ConfigError: the group does not say enough, or what cannot be.
    """
    tls.check_group(conf, group, TLS_FILES)
    try:
        auth = loading.load_auth_from_conf_options(conf, group)
        session = loading.load_session_from_conf_options(
            conf, group, auth=auth, session=connections(THREADS)
        )
        return loading.load_adapter_from_conf_options(conf, group, session=session, auth=auth)
    except (ks_exc.ClientException, ValueError) as error:
        raise ConfigError(f'[{group}]', 'auth_type', hide(error)) from None
