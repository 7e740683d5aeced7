# SPDX-License-Identifier: Apache-2.0
"""The composition root: builds a scheduler from nova.conf.

The only module that knows every adapter. A worker calls it after the fork, since
neither database connections nor sockets survive one.
"""

from __future__ import annotations

import functools
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from keystoneauth1 import adapter, loading
from keystoneauth1 import exceptions as ks_exc
from oslo_config import cfg
from oslo_utils import timeutils

from novasched.cells.aggregates import AggregateReader
from novasched.cells.database import Database
from novasched.cells.discovery import Discovery
from novasched.cells.engines import connect
from novasched.cells.instances import InstanceStates
from novasched.cells.mappings import Cells
from novasched.cells.servicegroup import Heartbeat, MemcachedServiceGroup, service_group
from novasched.cells.snapshot import HostReader
from novasched.conf import tls
from novasched.conf.errors import ConfigError
from novasched.conf.redaction import hide
from novasched.conf.settings import ServiceSettings, Settings
from novasched.neutron import Neutron
from novasched.observe.records import render
from novasched.observe.records.diagnosis import Diagnoser
from novasched.observe.records.recorder import DecisionRecorder
from novasched.observe.records.store import RecordWriter
from novasched.observe.web import wiring
from novasched.placement.client import PlacementClient
from novasched.placement.http import connections
from novasched.plugins import loading as plugins
from novasched.plugins.nova_compat.import_stubs import share_options
from novasched.rpc.notifications.sender import QueuedNotifier, make_notifier
from novasched.rpc.server import make_transport
from novasched.scheduler.drivers import Driver, Parts
from novasched.scheduler.errors import PlacementUnauthorized, PlacementUnavailable
from novasched.scheduler.pending_claims import PendingClaims
from novasched.scheduler.plugin import name_of
from novasched.scheduler.prefilters import Sources
from novasched.scheduler.prefilters.request_filter import enabled_prefilters
from novasched.service.runtime import version

if TYPE_CHECKING:
    from novasched.observe.metrics import DecisionCounters
    from novasched.observe.tracing import DecisionExporter

LOG = logging.getLogger('nova.scheduler.manager')
COUNTS = 'counts'
"""The value of ``[novasched] fault_detail`` with which refusals say why."""
MAX_HTTP_CONNECTIONS = 64
"""Threads that ask a service at once, as by default ``[DEFAULT]
executor_thread_pool_size``."""


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
    notifier: QueuedNotifier | None
    records: DecisionRecorder
    tracing: DecisionExporter | None = None

    def look_at_columns(self) -> None:
        """Notice columns that nova-manage has added to nova's tables."""
        for base in (
            self.own,
            self.cells.api,
            *(cell.database for cell in self.cells.all()),
        ):
            base.look_again()

    def close(self, seconds: float = 0.0) -> None:
        """Delete the allocations that are still to be deleted, send the waiting
        notifications, keep the waiting records, and close every connection to a
        database.

        :param seconds: the time that the process has left. Deletions get half of the
            time.
        """
        # Allocations come first, so that the log names the instances whose allocations
        # stay before the process is killed. The other steps take up to a minute where
        # the message bus or the disk hangs.
        self.placement.close(seconds / 2)
        if self.notifier is not None:
            self.notifier.close()
        self.records.close()
        if self.tracing is not None:
            self.tracing.close()
        self.hosts.close()
        self.cells.close()
        self.own.close()
        self.cells.api.close()


def compose(
    conf: cfg.ConfigOpts,
    settings: Settings,
    service: ServiceSettings,
    counters: DecisionCounters | None = None,
) -> Application:
    """Build a scheduler from nova.conf.

    :param counters: adds up decisions.
    :raises ConfigError: an option's value cannot be used.
    :raises BadPlugin: a filter, weigher or driver does not load.
    :raises DatabaseUnavailable: a database cannot be reached.
    """
    prepare = functools.partial(share_options, conf)
    filters = plugins.filters(settings, prepare)
    weighers = plugins.weighers(settings, prepare)
    make_driver = plugins.driver(settings, prepare)
    if counters:
        counters.expect(map(name_of, filters), map(name_of, weighers))
    host = service.host
    utcnow = timeutils.utcnow
    endpoint = service.tracing_endpoint
    traces = wiring.traces(endpoint, host, version()) if endpoint else None
    own = _database(conf, 'database', settings.cell_timeout)
    api = _database(conf, 'api_database', settings.cell_timeout)
    cells = Cells(api, conf.database, settings.cell_timeout)
    cells.refresh()
    aggregates = AggregateReader(api)
    group = service_group(conf, settings, host, utcnow)
    memcached = group if isinstance(group, MemcachedServiceGroup) else None
    pending_claims = PendingClaims(settings)
    hosts = HostReader(settings, cells, aggregates, pending_claims, group, utcnow)

    http = http_adapter(conf, 'placement', service)
    placement = PlacementClient(
        settings,
        http,
        InstanceStates(cells),
        pending_claims.taken,
        max(1, service.workers),
    )
    network = _neutron(conf, settings, service, placement)
    sources = Sources(aggregates, network)
    prefilters = enabled_prefilters(settings, sources)
    notifier = make_notifier(conf, service)

    records = _recorder(conf, settings, service, hosts, placement, counters, traces)
    explain = render.explained if settings.fault_detail == COUNTS else None
    parts = Parts(
        settings,
        prefilters,
        placement,
        hosts,
        filters,
        weighers,
        pending_claims,
        notifier,
        records,
        explain,
    )
    return Application(
        driver=make_driver(parts),
        placement=placement,
        hosts=hosts,
        cells=cells,
        heartbeat=Heartbeat(own, cells.enabled, host, utcnow, memcached),
        discovery=Discovery(cells, own, group, host, utcnow),
        own=own,
        notifier=notifier,
        records=records,
        tracing=traces,
    )


def _recorder(
    conf: cfg.ConfigOpts,
    settings: Settings,
    service: ServiceSettings,
    hosts: HostReader,
    placement: PlacementClient,
    counters: DecisionCounters | None,
    traces: DecisionExporter | None,
) -> DecisionRecorder:
    """Make what keeps decisions, and finds out why Placement did not offer hosts."""
    path = service.decisions_file
    stored = settings.decisions_stored
    size = settings.decisions_size
    store = RecordWriter(path, stored, size) if path else None
    http = http_adapter(conf, 'placement', service)
    diagnoser = Diagnoser(
        settings,
        http,
        hosts.aggregates,
        lambda since: hosts.snapshot(since).host_snapshot.hosts,
        circuit_open=lambda: placement.circuit_open,
        processes=max(1, service.workers),
    )
    observers = (traces,) if traces else ()
    return DecisionRecorder(
        settings, store, diagnoser, counters, observers=observers, pause=diagnoser.pause
    )


def preflight(
    conf: cfg.ConfigOpts, settings: Settings, service: ServiceSettings
) -> None:
    """See, before any worker starts, that there is nothing that an operator must mend.

    :raises NovaschedError: there is; the text says what.
    """
    application = compose(conf, settings, service)
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
    application.heartbeat.register()
    if why := application.records.open():
        LOG.warning(
            'Decision records are kept in memory alone, where novaschedctl explain does'
            ' not see them: %s; set [novasched] decisions_file to a file that can be'
            ' written, or to nothing',
            why,
        )
    application.close()
    make_transport(conf).cleanup()


def _database(conf: cfg.ConfigOpts, group: str, patience: float) -> Database:
    url = conf[group].connection
    if not url:
        raise ConfigError(
            f'[{group}] connection', 'not set', 'the URL of a database is needed'
        )
    return connect(
        conf[group], url, f'[{group}] connection', wait=True, patience=patience
    )


def _neutron(
    conf: cfg.ConfigOpts,
    settings: Settings,
    service: ServiceSettings,
    placement: PlacementClient,
) -> Neutron | None:
    """Neutron, if ``[neutron]`` has credentials."""
    if not conf.neutron.auth_type and not conf.neutron.auth_section:
        is_needed = settings.query_placement_for_routed_network_aggregates
        LOG.log(
            logging.WARNING if is_needed else logging.INFO,
            'Neutron is not asked about routed networks and remote-managed ports, since'
            ' [neutron] auth_type is not set.',
        )
        return None
    http = http_adapter(conf, 'neutron', service)
    http.connect_retries = service.http_retries
    return Neutron(http, placement.aggregates)


def http_adapter(
    conf: cfg.ConfigOpts, group: str, service: ServiceSettings
) -> adapter.Adapter:
    """The keystoneauth1 adapter that a group of nova.conf describes.

    :raises ConfigError: the group does not say enough, or what cannot be.
    """
    tls.check_group(conf, group, 'cafile', 'certfile', 'keyfile')
    try:
        auth = loading.load_auth_from_conf_options(conf, group)
        pool = connections(MAX_HTTP_CONNECTIONS, service.max_answer_size)
        session = loading.load_session_from_conf_options(
            conf, group, auth=auth, session=pool
        )
        return loading.load_adapter_from_conf_options(
            conf, group, session=session, auth=auth
        )
    except (ks_exc.ClientException, ValueError) as error:
        raise ConfigError(f'[{group}]', 'auth_type', hide(error)) from None
