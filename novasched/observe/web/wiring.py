# SPDX-License-Identifier: Apache-2.0
"""Wiring of traces, metrics and the page, where nova.conf enables them: the socket, the
directory of the workers' metrics, and the page with database connections of its own."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oslo_config import cfg
from oslo_utils import timeutils

from novasched.cells.aggregates import AggregateReader
from novasched.cells.engines import connect
from novasched.cells.mappings import Cells
from novasched.cells.servicegroup import service_group
from novasched.cells.snapshot import HostReader
from novasched.conf.errors import ConfigError, NovaschedError
from novasched.conf.redaction import redact
from novasched.conf.settings import Address, ServiceSettings, Settings
from novasched.scheduler.pending_claims import PendingClaims

if TYPE_CHECKING:
    from novasched.observe.metrics import WorkerMetrics
    from novasched.observe.page.app import Page
    from novasched.observe.page.hosts import CellView
    from novasched.observe.page.watch import ReadCells
    from novasched.observe.tracing import DecisionExporter
    from novasched.observe.web.server import HttpServer, WsgiApp

METRICS_OPTION = '[novasched] metrics_bind'
PAGE_OPTION = '[novasched] page'
TRACING_OPTION = '[novasched] tracing_endpoint'
EXTRAS = {'metrics': ('prometheus_client', 'waitress'), 'page': ('jinja2',)}
"""Packages by the extras that install them."""

DIRECTORY_VARIABLE = 'PROMETHEUS_MULTIPROC_DIR'
"""prometheus_client reads this variable when it is first imported."""

NICE_INCREMENT = 10
"""The HTTP process gets a tenth of a share where others want the processor."""


def traces(endpoint: str, host: str, version: str) -> DecisionExporter:
    """Traces to a collector.

    :param host: the name of this scheduler.
    :raises ConfigError: the libraries are not there.
    """
    try:
        from novasched.observe.tracing import DecisionExporter
    except ImportError as error:
        why = f'{error.name or error} is missing; pip install novasched[tracing]'
        raise ConfigError(TRACING_OPTION, redact(endpoint), why) from None
    return DecisionExporter(endpoint, host, version)


@dataclass(frozen=True, slots=True)
class MetricsFiles:
    """The socket for HTTP, and the directory of the workers' metrics."""

    socket: socket.socket
    directory: str

    def worker_metrics(self, number: int) -> WorkerMetrics:
        """The metrics of a worker. To be called in its process, which must not keep the
        port when the master has died."""
        from novasched.observe.metrics import WorkerMetrics

        self.socket.close()
        return WorkerMetrics(number)

    def http_server(self, page: WsgiApp | None = None) -> HttpServer:
        """The server. To be called in its process by the main thread, whose niceness
        all other threads inherit."""
        from novasched.observe.web.server import HttpServer, MetricsText, routed

        os.nice(NICE_INCREMENT)
        if hasattr(
            os, 'SCHED_BATCH'
        ):  # such a process preempts no other when it wakes up
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        app = routed({'/metrics': MetricsText(self.directory)}, page)
        return HttpServer(self.socket, app)

    def worker_ended(self, number: int) -> None:
        """Drop the gauges of a worker that has ended. Its counters stay, and the next
        worker of that number goes on with them."""
        from prometheus_client import multiprocess

        with contextlib.suppress(OSError):
            multiprocess.mark_process_dead(number, self.directory)


@contextlib.contextmanager
def metrics_files(address: Address | None) -> Iterator[MetricsFiles | None]:
    """Socket and directory, for as long as the master runs; None without an address.

    :raises ConfigError: a package is missing, or the address cannot be listened on.
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


def _check_packages(extra: str, option: str, value: object) -> None:
    for package in EXTRAS[extra]:
        if importlib.util.find_spec(package) is None:
            why = f'{package} is not installed: pip install novasched[{extra}]'
            raise ConfigError(option, value, why)


def listen(address: Address, option: str) -> socket.socket:
    """A socket that listens on an address.

    :raises ConfigError: the port is in use, or the address is none of this machine.
    """
    try:
        family, _, _, _, where = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        dual = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
        return socket.create_server(where[:2], family=family, dualstack_ipv6=dual)
    except OSError as error:
        raise ConfigError(option, address, error.strerror or str(error)) from None


def page_factory(
    conf: cfg.ConfigOpts, settings: Settings, service: ServiceSettings
) -> Callable[[], Page] | None:
    """Makes the page in the process that serves it; None if nova.conf does not enable
    it.

    :raises ConfigError: it cannot be served.
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

    def read() -> tuple[Mapping[str, CellView], bool]:
        with contextlib.suppress(NovaschedError):  # then the cells are those of before
            mappings.refresh()
        hosts = reader.snapshot().cells
        cells = dict[str, CellView]()
        for cell in mappings.enabled():
            answers = cell.uuid in hosts
            name = cell.name or cell.uuid
            known = hosts[cell.uuid].hosts.values() if answers else ()
            cells[cell.uuid] = CellView(
                name, tuple(known), 0.0 if answers else None, answers
            )
        return cells, aggregates.failing

    return read
