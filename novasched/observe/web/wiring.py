# SPDX-License-Identifier: Apache-2.0
"""Wiring of traces and of the HTTP process, which serves metrics, page and health."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import logging
import os
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oslo_config import cfg
from oslo_utils import timeutils

from novasched.cells.aggregates import AggregateReader
from novasched.cells.engines import connect
from novasched.cells.host_reader import HostReader
from novasched.cells.mappings import Cells
from novasched.cells.servicegroup import service_group
from novasched.conf.errors import ConfigError, NovaschedError
from novasched.conf.redaction import redact
from novasched.conf.settings import Address, ServiceSettings, Settings
from novasched.observe.health.service import HealthApp, HealthService
from novasched.observe.web.server import HttpServer, Limits, bind, listen, routed
from novasched.scheduler.claims.pending_claims import PendingClaims
from novasched.scheduler.model.usual_guests import UsualGuests

if TYPE_CHECKING:
    from novasched.observe.metrics import WorkerMetrics
    from novasched.observe.page.app import Page
    from novasched.observe.page.hosts import CellView
    from novasched.observe.page.watch import ReadCells
    from novasched.observe.tracing import DecisionExporter

LOG = logging.getLogger(__name__)

METRICS_OPTION = '[novasched] metrics_bind'
PAGE_OPTION = '[novasched] page'
TRACING_OPTION = '[novasched] tracing_endpoint'
EXTRAS = {'metrics': ('prometheus_client',), 'page': ('jinja2',)}
"""Packages by the extra that installs them."""

DIRECTORY_VARIABLE = 'PROMETHEUS_MULTIPROC_DIR'
"""prometheus_client reads this variable when it is first imported."""

METRICS_LIMITS = Limits(connection_s=10.0, per_second=200, niceness=10)
"""Bounds for metrics and the page. Prometheus and people need a few connections. With
this niceness the threads get a tenth of a share of a busy processor, and strangers at
the port take no time from workers."""

HEALTH_LIMITS = Limits(connection_s=5.0, answers=8)
"""Bounds for health. Its threads keep their full share of the processors: to an
orchestrator a probe that is answered too late is a failure."""


def traces(endpoint: str, host: str, version: str) -> DecisionExporter:
    """The sender of traces to a collector.

    :param host: the name of this scheduler.
    :raises ConfigError: the libraries are not installed.
    """
    try:
        from novasched.observe.tracing import DecisionExporter
    except ImportError as error:
        why = f'{error.name or error} is missing; pip install novasched[tracing]'
        raise ConfigError(TRACING_OPTION, redact(endpoint), why) from None
    return DecisionExporter(endpoint, host, version)


def traces_beside_messages(
    options: Any, host: str, version: str
) -> DecisionExporter | None:
    """The sender of traces to the collector of oslo.messaging; None without libraries,
    since oslo.messaging goes on without them, too.

    :param options: ``[oslo_messaging_tracing]``.
    """
    try:
        from novasched.observe.tracing import DecisionExporter
    except ImportError as error:
        LOG.warning(
            '[oslo_messaging_tracing] tracing_enabled: decisions are not traced, since'
            ' %s is missing; pip install novasched[tracing]',
            error.name or error,
        )
        return None

    # Only oslo.messaging knows the library for another protocol.
    endpoint = None
    if options.otlp_protocol == 'http/protobuf':
        endpoint = f'{options.otel_exporter_otlp_endpoint}/v1/traces'
    name = options.tracing_service_name
    return DecisionExporter(endpoint, host, version, service_name=name)


@dataclass(frozen=True, slots=True)
class MetricsFiles:
    """The socket for HTTP, and the directory of the workers' metrics."""

    socket: socket.socket
    directory: str

    def worker_metrics(self, number: int) -> WorkerMetrics:
        """The metrics of a worker. Call it in the worker's process: a worker that
        outlives the main process must not keep the port."""
        from novasched.observe.metrics import WorkerMetrics

        self.socket.close()
        return WorkerMetrics(number)

    def worker_ended(self, number: int) -> None:
        """Remove the gauges of an ended worker. Its counters stay, and the next worker
        of that number continues the counters."""
        from prometheus_client import multiprocess

        with contextlib.suppress(OSError):
            multiprocess.mark_process_dead(number, self.directory)


@contextlib.contextmanager
def metrics_files(address: Address | None) -> Iterator[MetricsFiles | None]:
    """Socket and directory, for as long as the main process runs; None without an
    address.

    :raises ConfigError: a package is missing, or the address cannot be used.
    """
    if address is None:
        yield None
        return
    _check_packages('metrics', METRICS_OPTION, address)
    with (
        listen(address, METRICS_OPTION) as listener,
        tempfile.TemporaryDirectory(prefix='novasched-metrics-') as directory,
    ):
        os.environ[DIRECTORY_VARIABLE] = directory
        yield MetricsFiles(listener, directory)


def check_metrics(address: Address) -> None:
    """Check that a daemon can serve metrics at an address, without listening.

    :raises ConfigError: a package is missing, or the address cannot be used.
    """
    _check_packages('metrics', METRICS_OPTION, address)
    bind(address, METRICS_OPTION).close()


def _check_packages(extra: str, option: str, value: object) -> None:
    for package in EXTRAS[extra]:
        if importlib.util.find_spec(package) is None:
            why = f'{package} is not installed: pip install novasched[{extra}]'
            raise ConfigError(option, value, why)


class HttpProcess:
    """The HTTP process. Implements
    :class:`novasched.service.supervisor.ProcessService`.

    Each address has separate threads and bounds, so health stays available while the
    page or the metrics are busy.
    """

    def __init__(self, servers: Sequence[HttpServer], health: HealthApp | None) -> None:
        self._servers = servers
        self._health = health

    def start(self) -> None:
        """Serve in threads."""
        for server in self._servers:
            server.start()

    def beat(self) -> None:
        """Read the reports of the processes, and feed systemd's watchdog."""
        if self._health is not None:
            self._health.beat()

    def reload(self) -> None:
        """Do nothing: every answer is made from current values."""

    def stop(self) -> None:
        """Accept no more connections, and finish the answers in progress."""
        for server in self._servers:
            server.stop()


def http_process(
    files: MetricsFiles | None,
    health: HealthService | None,
    make_page: Callable[[], Page] | None,
) -> HttpProcess:
    """Make the service of the HTTP process. Call this function after the fork."""
    servers = []
    health_app: HealthApp | None = None
    if health is not None:
        health_app = HealthApp(health)
        if health.listener is not None:
            app = routed(health_app.routes())
            servers.append(HttpServer('health', health.listener, app, HEALTH_LIMITS))

    if files is not None:
        from novasched.observe.metrics import MetricsText

        page: Page | None = None
        if make_page is not None:
            try:
                page = make_page()
            except Exception:
                # Health and metrics are served without the page.
                LOG.exception('The page cannot be served')
        app = routed({'/metrics': MetricsText(files.directory)}, page)
        servers.append(HttpServer('metrics', files.socket, app, METRICS_LIMITS))
    return HttpProcess(servers, health_app)


def page_factory(
    conf: cfg.ConfigOpts, settings: Settings, service: ServiceSettings
) -> Callable[[], Page] | None:
    """A function that makes the page, in the HTTP process; None if ``[novasched] page``
    is off.

    :raises ConfigError: the page cannot be served.
    """
    if not service.page:
        return None
    if service.metrics_bind is None:
        raise ConfigError(
            PAGE_OPTION, True, 'it is served where [novasched] metrics_bind says'
        )
    _check_packages('page', PAGE_OPTION, True)
    connect_cells = functools.partial(_connect, conf, settings, service.host)

    def page() -> Page:
        from novasched.observe.page.app import Page
        from novasched.observe.page.watch import Watch

        watch = Watch(connect_cells)
        zone = settings.default_availability_zone
        return Page(watch, service.decisions_file, zone, service.page_remote)

    return page


def _connect(conf: cfg.ConfigOpts, settings: Settings, host: str) -> ReadCells:
    """Connect to the databases as a scheduler does.

    :raises DatabaseUnavailable: the API database cannot be reached.
    """
    from novasched.observe.page.hosts import CellView

    # The page has connections of its own, so that it takes none from the workers.
    group = conf.api_database
    timeout = settings.cell_timeout
    utcnow = timeutils.utcnow
    api = connect(
        group, group.connection, '[api_database] connection', patience=timeout
    )
    mappings = Cells(api, conf.database, timeout)
    mappings.refresh()

    services = service_group(conf, settings, host, utcnow)
    pending = PendingClaims(settings)
    aggregates = AggregateReader(api)
    reader = HostReader(settings, mappings, aggregates, pending, services, utcnow)

    def read() -> tuple[Mapping[str, CellView], bool, UsualGuests]:
        # If the API database does not answer, the cell mappings stay as they were.
        with contextlib.suppress(NovaschedError):
            mappings.refresh()

        hosts_by_cell = reader.snapshot().cells
        cells = dict[str, CellView]()
        for cell in mappings.enabled():
            name = cell.name or cell.uuid
            if cell.uuid in hosts_by_cell:
                hosts = tuple(hosts_by_cell[cell.uuid].hosts.values())
                cells[cell.uuid] = CellView(name, hosts, age=0.0)
            else:
                cells[cell.uuid] = CellView(name, answers=False)
        return cells, aggregates.failing, reader.usual_guests()

    return read
