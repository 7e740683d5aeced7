# SPDX-License-Identifier: Apache-2.0
"""The composition root: builds what talks to the outside, and runs the processes.

The only module that knows every adapter. What a worker needs is built in the worker,
after the fork, since neither database connections nor sockets survive one.
"""

from __future__ import annotations

import functools
import logging
import threading
import time
from dataclasses import dataclass
from typing import Any

import requests
from keystoneauth1 import adapter, loading
from keystoneauth1 import exceptions as ks_exc
from keystoneauth1.session import TCPKeepAliveAdapter
from oslo_config import cfg
from oslo_utils import timeutils

from novasched import conf as configuration
from novasched import plugins
from novasched.cells.aggregates import AggregateReader
from novasched.cells.engines import connect, dispose
from novasched.cells.heartbeat import Heartbeat
from novasched.cells.mappings import Cells
from novasched.cells.schema import Database
from novasched.cells.snapshot import HostReader
from novasched.conf.shared import share
from novasched.drivers import Driver, Parts
from novasched.errors import (
    ConfigError,
    PlacementUnauthorized,
    PlacementUnavailable,
)
from novasched.inflight import InFlight
from novasched.model.settings import Settings
from novasched.network import Neutron
from novasched.placement.client import PlacementClient
from novasched.prefilters import Sources
from novasched.prefilters.accelerators import AcceleratorsPrefilter
from novasched.prefilters.availability_zone import AvailabilityZonePrefilter
from novasched.prefilters.compute_status import ComputeStatusPrefilter
from novasched.prefilters.ephemeral_encryption import EphemeralEncryptionPrefilter
from novasched.prefilters.image_metadata import ImageMetadataPrefilter
from novasched.prefilters.image_type_support import ImageTypeSupportPrefilter
from novasched.prefilters.isolated_aggregates import IsolatedAggregatesPrefilter
from novasched.prefilters.owner_nova import OwnerNovaPrefilter
from novasched.prefilters.packed_virtqueue import PackedVirtqueuePrefilter
from novasched.prefilters.remote_managed_ports import RemoteManagedPortsPrefilter
from novasched.prefilters.routed_networks import RoutedNetworksPrefilter
from novasched.prefilters.tenant_aggregate import TenantAggregatePrefilter
from novasched.prefilters.tpm_secret_security import TpmSecretSecurityPrefilter
from novasched.prefilters.virtio_sound import VirtioSoundPrefilter
from novasched.processes import collect_seldom, loopingcall, service, share_heaps
from novasched.rpc.server import make_server, make_transport

LOG = logging.getLogger('nova.scheduler.manager')
PREFILTERS = (
    TenantAggregatePrefilter,
    AvailabilityZonePrefilter,
    ImageTypeSupportPrefilter,
    ComputeStatusPrefilter,
    IsolatedAggregatesPrefilter,
    ImageMetadataPrefilter,
    AcceleratorsPrefilter,
    PackedVirtqueuePrefilter,
    RoutedNetworksPrefilter,
    RemoteManagedPortsPrefilter,
    EphemeralEncryptionPrefilter,
    VirtioSoundPrefilter,
    TpmSecretSecurityPrefilter,
    OwnerNovaPrefilter,
)
"""In the order in which they run."""
MINUTE = 60  # seconds
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
    own: Database

    def close(self) -> None:
        """Close every connection to the databases."""
        self.hosts.close()
        dispose(self.own, self.cells.api, *(cell.database for cell in self.cells.all()))


def compose(conf: cfg.ConfigOpts, settings: Settings) -> Application:
    """Build a scheduler from nova.conf.

    :raises ConfigError: an option's value cannot be used.
    :raises BadPlugin: a filter, weigher or driver does not load.
    :raises DatabaseUnavailable: a database cannot be reached.
    """
    prepare = functools.partial(share, conf)
    filters, weighers = plugins.filters(settings, prepare), plugins.weighers(settings, prepare)
    driver = plugins.driver(settings, prepare)
    own = _database(conf, 'database')
    api = _database(conf, 'api_database')
    cells = Cells(api, conf.database)
    cells.refresh()
    aggregates = AggregateReader(api)
    in_flight = InFlight(settings)
    hosts = HostReader(settings, cells, aggregates, in_flight, timeutils.utcnow)
    placement = PlacementClient(settings, _adapter(conf, 'placement'))
    sources = Sources(aggregates, hosts, _network(conf, settings, placement))
    prefilters = [each(settings, sources) for each in PREFILTERS]
    return Application(
        driver=driver(Parts(settings, prefilters, placement, hosts, filters, weighers, in_flight)),
        placement=placement,
        hosts=hosts,
        cells=cells,
        heartbeat=Heartbeat(own, cells.enabled, configuration.host(conf), timeutils.utcnow),
        own=own,
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


class SchedulerService(service.ServiceBase):  # type: ignore[misc]  # oslo.service is untyped
    """One worker: takes requests from the queue and answers them."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        super().__init__()
        self.conf = conf
        self._stopped = threading.Event()

    def start(self) -> None:
        """Build the scheduler, show that it is alive, take requests."""
        share_heaps()
        collect_seldom()
        settings = configuration.settings(self.conf)
        self.application = compose(self.conf, settings)
        self.application.hosts.prepare(time.monotonic())
        self._tasks = _start_tasks(self.application, settings)
        self._transport = make_transport(self.conf)
        host = configuration.host(self.conf)
        self._server = make_server(self._transport, host, self.application.driver)
        self._server.start()

    def stop(self) -> None:
        """Take no more requests, finish those in progress, close."""
        self._server.stop()
        self._server.wait()
        for task in self._tasks:
            task.stop()
        for task in self._tasks:
            task.wait()
        self._transport.cleanup()
        self.application.close()
        self._stopped.set()

    def wait(self) -> None:
        """Return once stopped."""
        self._stopped.wait()

    def reset(self) -> None:
        """Look at the cell mappings anew, and at all that the cells say."""
        self.application.cells.refresh()
        self.application.hosts.forget()


def _start_tasks(application: Application, settings: Settings) -> list[Any]:
    """The heartbeat, and what the driver wants done from time to time.

    As in nova an interval of 0 is a minute, and a negative one leaves the driver's out.
    """
    pulse = loopingcall.FixedIntervalLoopingCall(application.heartbeat.beat)
    pulse.start(interval=settings.report_interval)
    periodic = getattr(application.driver, 'periodic', None)
    if periodic is None or settings.periodic_task_interval < 0:
        return [pulse]
    task = loopingcall.FixedIntervalLoopingCall(periodic)
    task.start(interval=settings.periodic_task_interval or MINUTE, stop_on_exception=False)
    return [pulse, task]


def run(conf: cfg.ConfigOpts) -> int:
    """Run the workers until a signal ends them; the answer is the exit status.

    :raises NovaschedError: the configuration does not let them start.
    """
    preflight(conf)
    launcher = service.launch(
        conf, SchedulerService(conf), workers=conf.scheduler.workers or 1, restart_method='mutate'
    )
    return int(launcher.wait() or 0)


def _database(conf: cfg.ConfigOpts, group: str) -> Database:
    url = conf[group].connection
    if not url:
        raise ConfigError(f'[{group}] connection', 'not set', 'the URL of a database is needed')
    return connect(conf[group], url, f'[{group}] connection', wait=True)


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
    http = _adapter(conf, 'neutron')
    http.connect_retries = conf.neutron.http_retries
    return Neutron(http, placement)


def _connections() -> requests.Session:
    """Connections that are kept open, so many as there are threads to use them."""
    pool = requests.Session()
    for scheme in ('http://', 'https://'):
        pool.mount(scheme, TCPKeepAliveAdapter(pool_maxsize=THREADS))
    return pool


def _adapter(conf: cfg.ConfigOpts, group: str) -> adapter.Adapter:
    """The keystoneauth1 adapter that a group of nova.conf describes."""
    try:
        auth = loading.load_auth_from_conf_options(conf, group)
        session = loading.load_session_from_conf_options(
            conf, group, auth=auth, session=_connections()
        )
        return loading.load_adapter_from_conf_options(conf, group, session=session, auth=auth)
    except (ks_exc.ClientException, ValueError) as error:
        raise ConfigError(f'[{group}]', 'auth_type', str(error)) from None
