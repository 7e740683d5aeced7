# SPDX-License-Identifier: Apache-2.0
"""A scheduler without a broker, messages for the scheduler, and a small cloud.

The messages are recorded bodies with method, version and arguments. The databases have
hosts for most of the messages. The scheduler is complete, behind oslo.messaging's
dispatcher; Placement answers as a test wants.
"""

import json
import logging
from collections.abc import Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import oslo_messaging
import requests
import sqlalchemy as sa
from keystoneauth1 import adapter, session, token_endpoint
from oslo_messaging._drivers import common
from oslo_serialization import jsonutils

from novasched.conf.settings import Settings
from novasched.observe.records.from_decision import record_of, rejections_of
from novasched.observe.records.record import (
    from_json,
    rejections_from_json,
    rejections_to_json,
    to_json,
)
from novasched.placement.client import PlacementClient
from novasched.plugins import loading
from novasched.rpc import faults
from novasched.rpc.heartbeats import RpcHeartbeats
from novasched.rpc.notifications.sender import (
    END,
    START,
    Notification,
    NotificationSender,
)
from novasched.rpc.server import BaseEndpoint, Dispatcher, SchedulerEndpoint, Serializer
from novasched.rpc.wire.base import DATA
from novasched.scheduler import errors
from novasched.scheduler.claims.pending_claims import PendingClaims
from novasched.scheduler.drivers import SchedulerDeps
from novasched.scheduler.drivers.filter_scheduler import FilterScheduler
from novasched.scheduler.prefilters import Port, Sources
from novasched.scheduler.prefilters.request_filter import enabled_prefilters
from novasched.tools.sandbox import databases as tables
from tests.fuzz.mutation import dumped
from tests.lab.builders import a_uuid
from tests.lab.logs import logged
from tests.lab.nova_databases import NovaDatabases
from tests.lab.reports import a_numa_cell, a_numa_topology, some_devices
from tests.lab.wire import MADE, RECORDED


def filters():
    """All filters except the filters that want a host without other instances."""
    names = sorted(entry_points(group='novasched.filters').names)
    return [name for name in names if not name.startswith(('Exact', 'TypeAffinity'))]


SETTINGS = Settings(
    enabled_filters=tuple(filters()),
    image_props_weight_multiplier=1.0,
    image_props_weight_setting=('hw_cpu_policy=2',),
    num_instances_weight_multiplier=-1.0,
    failure_domain_weight_multiplier=1.0,
    fragmentation_weight_multiplier=1.0,
    metrics_required=False,
    metrics_weight_setting=('cpu.percent=1', 'x=-1'),
    isolated_hosts=('nobody',),
    max_instances_per_host=10**6,
    max_io_ops_per_host=10**6,
    query_placement_for_image_type_support=True,
    query_placement_for_routed_network_aggregates=True,
    limit_tenants_to_placement_aggregate=True,
    enable_isolated_aggregate_filtering=True,
    image_metadata_prefilter=True,
    pci_in_placement=True,
    placement_patience=0,
    database_patience=0,
)
"""Settings that enable every feature, except features that reject every host."""


NETWORK: Any = SimpleNamespace(
    ports=lambda uuids: {uuid: Port(uuid) for uuid in uuids},
    network_aggregates=lambda uuid: frozenset(),
    subnet_aggregates=lambda uuid: frozenset(),
)
"""A Neutron in which every port exists, and no network is routed."""
CLEAR = (
    errors.BadRequest,
    faults.AllocationUpdateFault,
    faults.HostMetricFault,
    faults.NoValidHostFault,
)
"""Errors that a caller may receive."""
MAX_CHARACTER = '\uffff'
"""The last character of utf8mb3, the character set of nova's tables on MariaDB."""
REFUSED = (oslo_messaging.NoSuchMethod, oslo_messaging.UnsupportedVersion)


def an_offer(*providers):
    """Placement's answer with a candidate of each provider."""
    requested = {'VCPU': 1, 'MEMORY_MB': 512, 'DISK_GB': 1}
    allocation_requests = []
    summaries = {}
    for provider in providers:
        allocation_request = {
            'allocations': {provider: {'resources': requested}},
            'mappings': {'': [provider]},
        }
        allocation_requests.append(allocation_request)
        summaries[provider] = {
            'resources': {},
            'traits': [],
            'parent_provider_uuid': None,
        }
    return {
        'allocation_requests': allocation_requests,
        'provider_summaries': summaries,
    }


@dataclass
class Answer:
    status: int = 200
    body: bytes = b''
    headers: dict[str, str] = field(
        default_factory=lambda: {'Content-Type': 'application/json'}
    )


class StillPlacement(requests.adapters.BaseAdapter):
    """A Placement with an answer for each method and first part of the path.

    Placement grants every claim. A resource without an answer exists and is empty.
    """

    def __init__(self, offer):
        super().__init__()
        self.answers: Mapping[tuple[str, str], Answer] = {}
        self.usual = {
            ('GET', 'allocation_candidates'): Answer(200, json.dumps(offer).encode()),
            ('GET', 'allocations'): Answer(200, b'{"allocations": {}}'),
        }

    def send(self, request, **kwargs):
        """Answer a request, with the interface of requests.

        :raises UnicodeEncodeError: for headers that http.client cannot encode.
        """
        for name, text in request.headers.items():
            (name + str(text)).encode('latin-1')

        path = request.path_url.partition('?')[0].split('/')
        key = str(request.method), path[1] if len(path) > 1 else ''
        answer = self.answers.get(key) or self.usual.get(key) or Answer(204)

        response = requests.Response()
        response.status_code = answer.status
        response._content = answer.body
        response.headers.update(answer.headers)
        response.request = request
        response.url = str(request.url)
        return response

    def answering(self, answers):
        return mock.patch.object(self, 'answers', answers)

    def close(self):
        """Close nothing."""


def notices():
    """A notifier that sends in the thread of the request, so that errors show."""
    bus = SimpleNamespace(info=lambda context, event, payload: jsonutils.dumps(payload))
    send = NotificationSender(bus, bus)
    return SimpleNamespace(
        started=lambda request: send(Notification(START, request.origin, request)),
        ended=lambda request, flights: send(
            Notification(END, request.origin, request, flights)
        ),
    )


def check_record(decision):
    """Check that the record of a decision is read as it was written."""
    record = record_of(decision, 'id', 0.0)
    assert from_json(to_json(record)) == record
    rejections_from_json(rejections_to_json(rejections_of(decision)))


class QueriedTexts:
    """Watches the texts in queries for a text that MariaDB cannot compare with a column
    of nova's utf8mb3 tables (error 1267). SQLite compares any text."""

    def __init__(self, databases):
        self.foreign = []
        for database in databases:
            sa.event.listen(database.engine, 'before_cursor_execute', self._look)

    def _look(self, connection, cursor, statement, parameters, context, many):
        for values in parameters if many else [parameters]:
            for value in values:
                if isinstance(value, str) and max(value, default='') > MAX_CHARACTER:
                    self.foreign.append(ascii(value))

    def check(self):
        """Check that no query had such a text since the last check."""
        foreign = self.foreign
        self.foreign = []
        assert not foreign, foreign


@contextmanager
def raising_bugs():
    """Raise the errors that the scheduler logs with a traceback and hides from
    callers."""
    with logged(faults.LOG.name, logging.ERROR) as records:
        try:
            yield
        except oslo_messaging.ExpectedException:
            for record in records:
                if record.exc_info:
                    raise record.exc_info[1] from None
            raise


@dataclass(eq=False)
class Incoming:
    message: dict[str, Any]
    ctxt: dict[str, Any]
    client_timeout: float | None = None


class Scheduler:
    """A scheduler that reads the body of a message and returns the reply."""

    def __init__(self, databases, offer, settings=SETTINGS):
        self.settings = settings
        self.http = StillPlacement(offer)

        transport = requests.Session()
        transport.mount('http://', self.http)
        keystone = session.Session(
            auth=token_endpoint.Token('http://placement', 'token'), session=transport
        )
        self.placement = PlacementClient(
            settings,
            adapter.Adapter(keystone, service_type='placement', connect_retries=0),
        )

        values = {name: getattr(settings, name) for name in settings.__slots__}
        self.hosts = databases.reader(**values)
        cells = databases.cells
        read = [cells.api, *(cell.database for cell in cells.all())]
        self.texts = QueriedTexts(read)

        self.filters = loading.filters(settings)
        self.weighers = loading.weighers(settings)
        sources = Sources(self.hosts.aggregates, NETWORK)
        self.prefilters = enabled_prefilters(settings, sources)

    def close(self):
        self.placement.close()
        self.hosts.close()

    def driver(self, pending_claims=None):
        """A driver with the pending claims, or without pending claims."""
        self.hosts.pending_claims = pending_claims or PendingClaims(self.settings)
        # Readings ask the databases about the instances of pending claims.
        self.hosts._reader._pending_claims = self.hosts.pending_claims
        parts = SchedulerDeps(
            self.settings,
            self.prefilters,
            self.placement,
            self.hosts,
            self.filters,
            self.weighers,
            pending_claims=self.hosts.pending_claims,
            notifier=notices(),
            recorder=check_record,
        )
        return FilterScheduler(parts)

    def answer(self, body, pending_claims=None):
        """Handle the body of a message. Any exception is a crash.

        :param pending_claims: pending claims beside the request; none by default.
        :returns: the reply as the caller receives the reply, or a clear error.
        """
        try:
            body = jsonutils.loads(dumped(body))
        except RecursionError as error:
            # oslo.messaging logs such a message and drops it.
            return error

        context = {}
        message = {}
        for key, value in body.items():
            if key.startswith('_context_'):
                context[key.removeprefix('_context_')] = value
            elif not key.startswith('_'):
                message[key] = value

        endpoints = [SchedulerEndpoint(self.driver(pending_claims)), BaseEndpoint()]
        dispatcher = Dispatcher(endpoints, Serializer(), RpcHeartbeats())
        incoming = Incoming(message, context)

        try:
            try:
                with raising_bugs():
                    reply = dispatcher.dispatch(incoming)
            finally:
                self.texts.check()
        except oslo_messaging.ExpectedException as error:
            jsonutils.loads(common.serialize_remote_exception(error.exc_info))
            fault = error.exc_info[1]
            assert isinstance(fault, CLEAR), repr(fault)
            return fault
        except REFUSED as error:
            return error
        return jsonutils.loads(jsonutils.dumps(reply))


OLD = Path(__file__).parents[1] / 'lab' / 'messages' / 'old.jsonl'
HOSTS = ('e2e-cmp1', 'e2e-cmp2', 'e2e-cmp3', 'e2e-cmp4')
ZONE = 'e2e-az'
CELL = 'c20426e3-05e3-4b70-9282-0679c58899f1'
"""A cell that the messages name, as the messages name HOSTS and ZONE."""


def a_call(arguments, version='4.5'):
    return {'method': 'select_destinations', 'version': version, 'args': arguments}


def full(**extra_specs):
    """Arguments with a value in every field, for a request that finds a host."""
    arguments = json.loads(json.dumps(MADE['everything']).replace('1515', '10fb'))
    arguments['instance_uuids'] = [a_uuid('one'), a_uuid('two')]
    arguments |= {'return_objects': True, 'return_alternates': True}

    spec = arguments['spec_obj'][DATA]
    spec['availability_zone'] = ZONE
    spec['requested_destination'][DATA] |= {'host': None, 'node': None, 'cell': None}
    spec['scheduler_hints'] = {
        'query': [
            '["or", [">=", "$free_ram_mb", 1024], ["=", "$stats.x", "$service.host"]]'
        ],
        'different_host': [a_uuid('nobody')],
        'build_near_host_ip': ['192.0.2.9'],
        'cidr': ['/24'],
    }
    spec['instance_group'][DATA] |= {'hosts': [], 'policy': 'soft-affinity'}
    spec['pci_requests'][DATA]['requests'][0][DATA] |= {
        'count': 1,
        'numa_policy': 'preferred',
    }
    spec['numa_topology'][DATA]['cells'][0][DATA]['pagesize'] = None

    spec['flavor'][DATA]['extra_specs'] = {
        'hw:cpu_policy': 'mixed',
        'hw:cpu_dedicated_mask': '^0-1',
        'hw:cpu_thread_policy': 'prefer',
        'aggregate_instance_extra_specs:e2e_ssd': '<in> t',
        'hw:maxphysaddr_bits': '40',
        'capabilities:free_ram_mb': '>= 1',
        'capabilities:cpu_info:features': '<in> avx',
        'trait2:CUSTOM_A': 'required',
        'hw:pmem': 'a,b',
        'resources2:CUSTOM_B': '2',
        'hw:tpm_version': '2.0',
        **extra_specs,
    }
    spec['image'][DATA]['properties'][DATA] |= {
        'img_hv_requested_version': '>=1',
        'hw_maxphysaddr_bits': 40,
        'hw_vif_model': 'virtio',
    }
    return arguments


def _messages():
    messages = {case: body for case, body in RECORDED.items() if 'method' in body}
    for case, arguments in {**MADE, 'full': full()}.items():
        messages[case] = a_call(arguments)
    for row in map(json.loads, OLD.read_text().splitlines()):
        case = f'{row["from"]} {row["case"]}'
        messages[case] = a_call(row['arguments'], row['version'])
    return json.loads(json.dumps(messages).replace(CELL, a_uuid('cell1')))


MESSAGES = _messages()
"""Name of a case to message."""

SERVER = a_uuid('there')
"""Prefix for the names of the instances, of which each host has one."""
ODD_AGGREGATE = 100
"""The number of an aggregate of the first host, and of the row of the membership."""
KINDS = [['x86_64', 'kvm', 'hvm'], ['i686', 'fake', 'hvm']]
METRICS = [{'name': name, 'value': 1} for name in ('cpu.percent', 'x')]
CPU = {'features': ['avx', 'avx2'], 'maxphysaddr': {'mode': 'emulate', 'bits': 46}}
TOPOLOGY = a_numa_topology(
    a_numa_cell(0, cpuset=[0, 1], pcpuset=[2, 3, 4, 5, 6, 7]),
    a_numa_cell(1, cpuset=[8, 9], pcpuset=[10, 11, 12, 13, 14, 15]),
)
REPORT = {
    'memory_mb': 10**6,
    'free_ram_mb': 10**6,
    'vcpus': 1000,
    'local_gb': 10**6,
    'free_disk_gb': 10**6,
    'disk_available_least': 10**6,
    'hypervisor_version': 8002002,
    'host_ip': '192.0.2.1',
    'cpu_allocation_ratio': 4.0,
    'ram_allocation_ratio': 1.5,
    'disk_allocation_ratio': 1.0,
    'numa_topology': TOPOLOGY,
    'pci_stats': some_devices(5, 0),
    'cpu_info': json.dumps(CPU),
    'supported_instances': json.dumps(KINDS),
    'metrics': json.dumps(METRICS),
    'stats': json.dumps(
        {'num_instances': 1, 'io_workload': '0', 'failed_builds': '0', 'x': 'y'}
    ),
}
"""The report of each host."""


class Cloud:
    """Four hosts in two cells, each with an instance, and aggregates."""

    def __init__(self, folder):
        self.databases = NovaDatabases(lambda name: f'sqlite:///{folder}/{name}')
        for name, cell in zip(HOSTS, ('cell1', 'cell1', 'cell2', 'cell2'), strict=True):
            self.databases.add_host(name, cell, **REPORT)
            self._add_instance(name, self.databases.engines[cell])

        self.databases.add_aggregate(1, HOSTS, availability_zone=ZONE, e2e_ssd='true')
        self.databases.add(
            self.databases.api, tables.aggregate_hosts, id=99, aggregate_id=99, host=''
        )
        self.databases.add_aggregate(ODD_AGGREGATE, HOSTS[:1])

        self.scheduler = Scheduler(self.databases, an_offer(*map(a_uuid, HOSTS)))

    def _add_instance(self, host, engine):
        uuid = a_uuid(f'{SERVER}{host}')
        self.databases.add(
            engine,
            tables.instances,
            uuid=uuid,
            host=host,
            instance_type_id=7,
            deleted=0,
        )
        for key, value in (('hw_cpu_policy', 'shared'), ('hw_numa_nodes', '2')):
            self.databases.add(
                engine,
                tables.instance_system_metadata,
                instance_uuid=uuid,
                key=f'image_{key}',
                value=value,
                deleted=0,
            )

    def close(self):
        self.scheduler.close()
        self.databases.close()

    @contextmanager
    def written(self, base, table, column, value, number=1):
        """Write a value into a row for a while.

        SQLite accepts values of any type. A null in a column without nulls is not
        written.
        """
        engine = self.databases.api if base == 'api' else self.databases.engines[base]
        update = f'update {table} set {column} = ? where id = ?'
        with engine.connect() as connection:
            select = f'select {column} from {table} where id = ?'
            (before,) = connection.exec_driver_sql(select, (number,)).one()

        with suppress(sa.exc.IntegrityError), engine.begin() as connection:
            connection.exec_driver_sql(update, (value, number))
        try:
            yield
        finally:
            with engine.begin() as connection:
                connection.exec_driver_sql(update, (before, number))
