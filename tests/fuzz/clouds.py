# SPDX-License-Identifier: Apache-2.0
"""Messages that services have sent, as bodies that name method, version and arguments;
databases with hosts for most of them; and a whole scheduler without a broker that reads
these: a Placement that says what a test wants, and oslo.messaging's dispatcher in
front."""

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
from novasched.scheduler.drivers import SchedulerDeps
from novasched.scheduler.drivers.filter_scheduler import FilterScheduler
from novasched.scheduler.pending_claims import PendingClaims
from novasched.scheduler.prefilters import Port, Sources
from novasched.scheduler.prefilters.request_filter import enabled_prefilters
from novasched.tools.sandbox import databases as tables
from tests.fuzz.mutation import dumped
from tests.lab.builders import a_uuid
from tests.lab.logs import logged
from tests.lab.nova_databases import NovaDatabases
from tests.lab.reports import a_numa_cell, a_numa_topology, some_devices
from tests.lab.wire import MADE, RECORDED

FILTERS = tuple(
    name
    for name in sorted(entry_points(group='novasched.filters').names)
    if not name.startswith(('Exact', 'TypeAffinity'))  # these want a host to themselves
)
SETTINGS = Settings(
    enabled_filters=FILTERS,
    image_props_weight_multiplier=1.0,
    image_props_weight_setting=('hw_cpu_policy=2',),
    num_instances_weight_multiplier=-1.0,
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
"""All that can be switched on, and that does not refuse every host by itself."""


NETWORK: Any = SimpleNamespace(
    ports=lambda uuids: {uuid: Port(uuid) for uuid in uuids},
    network_aggregates=lambda uuid: frozenset(),
    subnet_aggregates=lambda uuid: frozenset(),
)
"""Every port is there, and no network is routed."""
CLEAR = (
    errors.BadRequest,
    faults.AllocationUpdateFault,
    faults.HostMetricFault,
    faults.NoValidHostFault,
)
"""What a caller may be told."""
REFUSED = (oslo_messaging.NoSuchMethod, oslo_messaging.UnsupportedVersion)


def an_offer(*providers):
    taken = {'VCPU': 1, 'MEMORY_MB': 512, 'DISK_GB': 1}
    return {
        'allocation_requests': [
            {'allocations': {rp: {'resources': taken}}, 'mappings': {'': [rp]}}
            for rp in providers
        ],
        'provider_summaries': {
            rp: {'resources': {}, 'traits': [], 'parent_provider_uuid': None}
            for rp in providers
        },
    }


@dataclass
class Answer:
    status: int = 200
    body: bytes = b''
    headers: dict[str, str] = field(
        default_factory=lambda: {'Content-Type': 'application/json'}
    )


class StillPlacement(requests.adapters.BaseAdapter):
    """Answers by method and the first part of the path; every claim is granted, and
    whatever a test does not speak of is there, and empty."""

    def __init__(self, offer):
        super().__init__()
        self.answers: Mapping[tuple[str, str], Answer] = {}
        self.usual = {
            ('GET', 'allocation_candidates'): Answer(200, json.dumps(offer).encode()),
            ('GET', 'allocations'): Answer(200, b'{"allocations": {}}'),
        }

    def send(self, request, **kwargs):
        """See requests'. Headers have to fit on the wire, as http.client wants it."""
        for name, text in request.headers.items():
            (name + str(text)).encode('latin-1')
        path = request.path_url.partition('?')[0].split('/')
        asked = str(request.method), path[1] if len(path) > 1 else ''
        answer = self.answers.get(asked) or self.usual.get(asked) or Answer(204)
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
        """Nothing is open."""


def notices():
    """Tells at once what can be sent, so that what fails is seen."""
    bus = SimpleNamespace(info=lambda context, event, payload: jsonutils.dumps(payload))
    send = NotificationSender(bus, bus)
    return SimpleNamespace(
        started=lambda request: send(Notification(START, request.origin, request)),
        ended=lambda request, flights: send(
            Notification(END, request.origin, request, flights)
        ),
    )


@contextmanager
def raising_bugs():
    """Raise the errors of which the log has the traceback; their callers are told
    nothing."""
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
    """What stands between a message and its reply."""

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
        self.hosts = databases.reader(
            **{n: getattr(settings, n) for n in settings.__slots__}
        )
        self.filters = loading.filters(settings)
        self.weighers = loading.weighers(settings)
        sources = Sources(self.hosts.aggregates, NETWORK)
        self.prefilters = enabled_prefilters(settings, sources)

    def close(self):
        self.placement.close()
        self.hosts.close()

    def driver(self, pending_claims=None):
        """One with pending claims, or one to which nothing is in flight yet."""
        self.hosts.pending_claims = pending_claims or PendingClaims(self.settings)
        parts = SchedulerDeps(
            self.settings,
            self.prefilters,
            self.placement,
            self.hosts,
            self.filters,
            self.weighers,
            pending_claims=self.hosts.pending_claims,
            notifier=notices(),
        )
        return FilterScheduler(parts)

    def answer(self, body, pending_claims=None):
        """What comes of the body of a message: the reply as it is sent, or a clear
        error.

        Anything else that is raised is a crash.

        :param pending_claims: those that the request meets; none by default.
        """
        try:
            body = jsonutils.loads(dumped(body))
        except (
            RecursionError
        ) as error:  # which oslo.messaging drops, with a line in the log
            return error
        context = {
            k.removeprefix('_context_'): v
            for k, v in body.items()
            if k.startswith('_context_')
        }
        message = {k: v for k, v in body.items() if not k.startswith('_')}
        endpoints = [SchedulerEndpoint(self.driver(pending_claims)), BaseEndpoint()]
        dispatcher = Dispatcher(endpoints, Serializer(), RpcHeartbeats())
        incoming = Incoming(message, context)
        try:
            with raising_bugs():
                reply = dispatcher.dispatch(incoming)
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
"""What the messages name."""


def a_call(arguments, version='4.5'):
    return {'method': 'select_destinations', 'version': version, 'args': arguments}


def full(**extra_specs):
    """Arguments that say something of everything, and yet find a host."""
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
    sent = {case: body for case, body in RECORDED.items() if 'method' in body}
    made = {
        case: a_call(arguments) for case, arguments in {**MADE, 'full': full()}.items()
    }
    for row in map(json.loads, OLD.read_text().splitlines()):
        made[f'{row["from"]} {row["case"]}'] = a_call(row['arguments'], row['version'])
    return json.loads(json.dumps({**sent, **made}).replace(CELL, a_uuid('cell1')))


MESSAGES = _messages()
"""By what is asked or told."""

SERVER = a_uuid('there')
"""Is on each host, by its name."""
ODD_AGGREGATE = 100
"""The number of an aggregate in which the first host is, and of its membership
there."""
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
"""What each host reports."""


class Cloud:
    """Four hosts in two cells, a server on each, and an aggregate."""

    def __init__(self, folder):
        self.databases = NovaDatabases(lambda name: f'sqlite:///{folder}/{name}')
        for name, cell in zip(HOSTS, ('cell1', 'cell1', 'cell2', 'cell2'), strict=True):
            self.databases.add_host(name, cell, **REPORT)
            engine = self.databases.engines[cell]
            uuid = a_uuid(f'{SERVER}{name}')
            self.databases.add(
                engine,
                tables.instances,
                uuid=uuid,
                host=name,
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
        self.databases.add_aggregate(1, HOSTS, availability_zone=ZONE, e2e_ssd='true')
        self.databases.add(
            self.databases.api, tables.aggregate_hosts, id=99, aggregate_id=99, host=''
        )
        self.databases.add_aggregate(ODD_AGGREGATE, HOSTS[:1])
        self.scheduler = Scheduler(self.databases, an_offer(*map(a_uuid, HOSTS)))

    def close(self):
        self.scheduler.close()
        self.databases.close()

    @contextmanager
    def written(self, base, table, column, value, number=1):
        """A value in a row, of any type, which SQLite takes, unless it is a null that
        cannot be there."""
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
