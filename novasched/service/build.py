# SPDX-License-Identifier: Apache-2.0
"""The composition root: builds a scheduler from nova.conf.

The only module that knows every adapter. A worker builds the scheduler after the fork,
since database connections and sockets do not survive a fork.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from keystoneauth1 import adapter, loading
from keystoneauth1 import exceptions as ks_exc
from oslo_config import cfg
from oslo_utils import timeutils

from novasched.cells.aggregates import AggregateReader
from novasched.cells.database import Database
from novasched.cells.discovery import Discovery
from novasched.cells.engines import connect
from novasched.cells.host_reader import HostReader
from novasched.cells.instance_states import InstanceStates
from novasched.cells.mappings import Cells
from novasched.cells.servicegroup import Heartbeat, MemcachedServiceGroup, service_group
from novasched.conf import tls
from novasched.conf.errors import ConfigError
from novasched.conf.redaction import hide
from novasched.conf.settings import ServiceSettings, Settings
from novasched.neutron import Neutron, UnusableNeutron
from novasched.observe.records import render
from novasched.observe.records.diagnosis import Diagnoser
from novasched.observe.records.recorder import DecisionRecorder
from novasched.observe.records.store import RecordWriter
from novasched.observe.web import wiring
from novasched.placement.client import PlacementClient
from novasched.placement.http import connections
from novasched.plugins import loading as plugins
from novasched.plugins.nova_compat.host_state import AggregateList
from novasched.plugins.nova_compat.import_stubs import share_options
from novasched.plugins.rehearsal import rehearse_all
from novasched.rpc import existing_queues
from novasched.rpc.claims_exchange import brokers, uses_rabbitmq
from novasched.rpc.notifications import sender
from novasched.rpc.notifications.sender import QueuedNotifier, make_notifier
from novasched.rpc.oslo_messaging_internals import BROKER_ERRORS, tracing_options
from novasched.rpc.peers import PeerSchedulers
from novasched.rpc.server import TOPIC, make_transport
from novasched.scheduler.claims.pending_claims import PendingClaims
from novasched.scheduler.claims.shared_ledger import SharedLedger
from novasched.scheduler.drivers import Driver, SchedulerDeps
from novasched.scheduler.errors import PlacementUnauthorized, PlacementUnavailable
from novasched.scheduler.prefilters import Network, Sources
from novasched.scheduler.prefilters.request_filter import enabled_prefilters
from novasched.service.runtime import version

if TYPE_CHECKING:
    from novasched.observe.metrics import DecisionCounters
    from novasched.observe.tracing import DecisionExporter

LOG = logging.getLogger('nova.scheduler.manager')
name_of = attrgetter('name')
EXPLAINED_BY = {'counts': render.explained}
"""The text that follows nova's reason in a fault, by ``[novasched] fault_detail``."""
MAX_HTTP_CONNECTIONS = 64
"""Connections to a service: one for each thread, by the default of ``[DEFAULT]
executor_thread_pool_size``."""


@dataclass(frozen=True, slots=True)
class Application:
    """A scheduler without its message queue.

    :ivar reads_caller: a filter or weigher reads the context of the caller.
    :ivar peers: None if pending claims are not shared with other schedulers.
    """

    driver: Driver
    placement: PlacementClient
    hosts: HostReader
    cells: Cells
    heartbeat: Heartbeat
    discovery: Discovery
    main_database: Database
    notifier: QueuedNotifier | None
    records: DecisionRecorder
    reads_caller: bool = False
    peers: PeerSchedulers | None = None
    tracing: DecisionExporter | None = None

    def look_at_columns(self) -> None:
        """Notice columns that ``nova-manage db sync`` has added to tables of nova."""
        self.main_database.look_again()
        self.cells.api.look_again()
        for cell in self.cells.all():
            cell.database.look_again()

    def close(self, seconds: float = 0.0) -> None:
        """Finish the pending work, and close the connections to databases.

        The pending work is: allocations to delete, notifications to send, decision
        records to store.

        :param seconds: the remaining time of the process. Deletions get half of the
            time.
        """
        # Allocations come first, so that the log names the instances with remaining
        # allocations before the process is killed. The next steps take up to a minute
        # if the message bus or the disk hangs.
        self.placement.close(seconds / 2)
        if self.notifier is not None:
            self.notifier.close()
        self.records.close()
        if self.tracing is not None:
            self.tracing.close()
        self.hosts.close()
        self.cells.close()
        self.main_database.close()
        self.cells.api.close()


def http_adapter(
    conf: cfg.ConfigOpts, group: str, service: ServiceSettings
) -> adapter.Adapter:
    """Return the keystoneauth1 adapter of a group of nova.conf.

    :raises ConfigError: an option of the group is missing or invalid.
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
        option = f'[{group}] auth_type'
        raise ConfigError(option, conf[group].auth_type, hide(error)) from None


HttpAdapters = Callable[[cfg.ConfigOpts, str, ServiceSettings], adapter.Adapter]
"""Makes the HTTP adapter of a group of nova.conf."""


def compose(
    conf: cfg.ConfigOpts,
    settings: Settings,
    service: ServiceSettings,
    counters: DecisionCounters | None = None,
    make_http: HttpAdapters = http_adapter,
) -> Application:
    """Build a scheduler from nova.conf.

    :param counters: counts decisions for metrics.
    :param make_http: makes the HTTP adapters for Placement and Neutron.
    :raises ConfigError: the value of an option cannot be used.
    :raises BadPlugin: a filter, weigher or driver cannot be loaded.
    :raises DatabaseUnavailable: a database cannot be reached.
    """
    # Plugins come first: a wrong name is found before a database is waited for.
    prepare = functools.partial(share_options, conf)
    filters = plugins.filters(settings, prepare)
    weighers = plugins.weighers(settings, prepare)
    make_driver = plugins.driver(settings, prepare)
    if counters:
        counters.expect(map(name_of, filters), map(name_of, weighers))

    main_database = _database(conf, 'database', settings.cell_timeout)
    ledger = SharedLedger(settings.in_flight_timeout)
    peers = _peers(conf, service, ledger)
    pending_claims = PendingClaims(settings, ledger, peers)
    hosts = _host_reader(conf, settings, service, pending_claims)

    placement = PlacementClient(
        settings,
        make_http(conf, 'placement', service),
        InstanceStates(hosts.cells),
        pending_claims.taken,
        max(1, service.workers),
    )
    network = _neutron(conf, settings, service, placement, make_http)

    prefilters = enabled_prefilters(settings, Sources(hosts.aggregates, network))
    notifier = make_notifier(conf, service)
    traces = _traces(conf, service)
    http = make_http(conf, 'placement', service)
    records = _recorder(settings, service, hosts, placement, http, counters, traces)
    deps = SchedulerDeps(
        settings,
        prefilters,
        placement,
        hosts,
        filters,
        weighers,
        pending_claims,
        notifier,
        records,
        EXPLAINED_BY.get(settings.fault_detail),
    )
    return Application(
        driver=make_driver(deps),
        placement=placement,
        hosts=hosts,
        cells=hosts.cells,
        heartbeat=_heartbeat(main_database, hosts, service),
        discovery=_discovery(main_database, hosts, service),
        main_database=main_database,
        notifier=notifier,
        records=records,
        reads_caller=deps.reads_caller,
        peers=peers,
        tracing=traces,
    )


def _peers(
    conf: cfg.ConfigOpts, service: ServiceSettings, ledger: SharedLedger
) -> PeerSchedulers | None:
    """Build the exchange of pending claims with other schedulers; None without."""
    if service.share_pending_claims and ledger.timeout and uses_rabbitmq(conf):
        return PeerSchedulers(ledger, service.host)
    return None


def _host_reader(
    conf: cfg.ConfigOpts,
    settings: Settings,
    service: ServiceSettings,
    pending_claims: PendingClaims,
) -> HostReader:
    """Build the reader of hosts from the databases of all cells."""
    api_database = _database(conf, 'api_database', settings.cell_timeout)
    cells = Cells(api_database, conf.database, settings.cell_timeout)
    cells.refresh()
    aggregates = AggregateReader(api_database)
    # The last state: requests read the aggregates before plugins are asked.
    AggregateList.source = lambda: aggregates.state(-math.inf).by_host

    utcnow = timeutils.utcnow
    group = service_group(conf, settings, service.host, utcnow)
    return HostReader(settings, cells, aggregates, pending_claims, group, utcnow)


def _heartbeat(
    main_database: Database, hosts: HostReader, service: ServiceSettings
) -> Heartbeat:
    """Build the reports of this scheduler as a service."""
    memcached = None
    if isinstance(hosts.group, MemcachedServiceGroup):
        memcached = hosts.group
    return Heartbeat(
        main_database, hosts.cells.enabled, service.host, hosts.utcnow, memcached
    )


def _discovery(
    main_database: Database, hosts: HostReader, service: ServiceSettings
) -> Discovery:
    """Build the discovery of new hosts."""
    return Discovery(
        hosts.cells, main_database, hosts.group, service.host, hosts.utcnow
    )


def _traces(conf: cfg.ConfigOpts, service: ServiceSettings) -> DecisionExporter | None:
    """Build the exporter of traces: to ``[novasched] tracing_endpoint``, or else where
    oslo.messaging sends the traces of messages."""
    if service.tracing_endpoint:
        return wiring.traces(service.tracing_endpoint, service.host, version())
    rpc_tracing = tracing_options(conf)
    if rpc_tracing is not None:
        return wiring.traces_beside_messages(rpc_tracing, service.host, version())
    return None


def _recorder(
    settings: Settings,
    service: ServiceSettings,
    hosts: HostReader,
    placement: PlacementClient,
    http: adapter.Adapter,
    counters: DecisionCounters | None,
    traces: DecisionExporter | None,
) -> DecisionRecorder:
    """Build the recorder of decisions with the diagnosis of refused requests."""
    store = None
    if service.decisions_file:
        store = RecordWriter(
            service.decisions_file, settings.decisions_stored, settings.decisions_size
        )
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


def _check_service_group(
    conf: cfg.ConfigOpts, settings: Settings, service: ServiceSettings
) -> None:
    service_group(conf, settings, service.host, timeutils.utcnow)


def _check_notifier(
    conf: cfg.ConfigOpts, settings: Settings, service: ServiceSettings
) -> None:
    notifier = make_notifier(conf, service)
    if notifier is not None:
        notifier.close()


LocalPart = Callable[[cfg.ConfigOpts, Settings, ServiceSettings], None]
LOCAL_PARTS: Sequence[LocalPart] = (_check_service_group, _check_notifier)
"""Checks of parts that need no server. Each function makes its part, and raises
ConfigError if an option cannot be used. The start ends with the first error;
``novaschedctl check`` reports all errors."""


def check_queues(conf: cfg.ConfigOpts, host: str) -> None:
    """Check the queues of the first broker that answers. Without a broker, do nothing.

    :param host: ``[DEFAULT] host`` of this scheduler.
    :raises ConfigError: the scheduler cannot use a queue of the broker.
    """
    if uses_rabbitmq(conf):
        check = functools.partial(
            existing_queues.check_queues, topic=TOPIC, server=host
        )
        _check_first_broker(make_transport(conf), None, check)


def check_notification_queues(conf: cfg.ConfigOpts, service: ServiceSettings) -> None:
    """Check the queues of notifications, like :func:`check_queues`.

    The start does not call this function: novasched, like nova-scheduler, serves
    requests without notifications.

    :raises ConfigError: notifications cannot be sent to a queue of the broker.
    """
    queues = sender.notification_queues(conf, service)
    url = conf[sender.GROUP].transport_url
    if queues and uses_rabbitmq(conf, url):
        check = functools.partial(
            existing_queues.check_notification_queues, queues=queues, url=url
        )
        _check_first_broker(sender.make_transport(conf), url, check)


def _check_first_broker(
    transport: Any, url: str | None, check: Callable[[Any, Any], None]
) -> None:
    """Check the first broker of a URL that answers.

    :param check: called with the transport and the broker.
    """
    try:
        for broker in brokers(transport, url):
            with contextlib.suppress(*BROKER_ERRORS):
                check(transport, broker)
                return
    finally:
        transport.cleanup()


def preflight(
    conf: cfg.ConfigOpts, settings: Settings, service: ServiceSettings
) -> None:
    """Check, before any worker starts, everything that an operator may have to fix.

    :raises NovaschedError: the text names the defect that an operator must fix.
    """
    # Parts without a server come first: no wrong option waits for a database.
    for check in LOCAL_PARTS:
        check(conf, settings, service)
    make_transport(conf).cleanup()
    prepare = functools.partial(share_options, conf)
    rehearse_all(plugins.filters(settings, prepare))
    rehearse_all(plugins.weighers(settings, prepare))

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
            'Decision records are kept only in memory, without novaschedctl explain: '
            '%s; set [novasched] decisions_file to a writable file, or to an empty '
            'value to disable the file',
            why,
        )
    application.close()
    check_queues(conf, service.host)


def _database(conf: cfg.ConfigOpts, group: str, patience: float) -> Database:
    url = conf[group].connection
    option = f'[{group}] connection'
    if not url:
        raise ConfigError(option, 'not set', 'a database URL is required')
    return connect(conf[group], url, option, wait=True, patience=patience)


def has_neutron(conf: cfg.ConfigOpts) -> bool:
    """True if ``[neutron]`` says how to log in."""
    return bool(conf.neutron.auth_type or conf.neutron.auth_section)


def _neutron(
    conf: cfg.ConfigOpts,
    settings: Settings,
    service: ServiceSettings,
    placement: PlacementClient,
    make_http: HttpAdapters,
) -> Network | None:
    """Return a client of Neutron, None without credentials in ``[neutron]``.

    As in nova, an unusable section does not end the start: requests that need Neutron
    are refused.
    """
    if not has_neutron(conf):
        level = logging.INFO
        if settings.query_placement_for_routed_network_aggregates:
            level = logging.WARNING
        LOG.log(
            level,
            'Neutron is not queried for routed networks and remote-managed ports, '
            'because [neutron] auth_type is not set.',
        )
        return None

    try:
        http = make_http(conf, 'neutron', service)
    except ConfigError as error:
        LOG.warning('Requests that need Neutron are refused: %s', error)
        return UnusableNeutron(str(error))
    http.connect_retries = service.http_retries
    return Neutron(http, placement.aggregates)
