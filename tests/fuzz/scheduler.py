# SPDX-License-Identifier: Apache-2.0
"""A whole scheduler without a broker: databases in SQLite, a Placement that says what a test
wants, and oslo.messaging's dispatcher in front."""

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from types import SimpleNamespace
from typing import Any
from unittest import mock

import oslo_messaging
import requests
from keystoneauth1 import adapter, session, token_endpoint
from oslo_messaging._drivers import common
from oslo_serialization import jsonutils

from novasched.conf.settings import Settings
from novasched.placement.client import PlacementClient
from novasched.plugins import loading
from novasched.rpc import faults
from novasched.rpc.heartbeats import RpcHeartbeats
from novasched.rpc.notifications.sender import END, START, Notification, NotificationSender
from novasched.rpc.server import BaseEndpoint, Dispatcher, SchedulerEndpoint, Serializer
from novasched.scheduler import errors
from novasched.scheduler.drivers import Parts
from novasched.scheduler.drivers.filter_scheduler import FilterScheduler
from novasched.scheduler.pending_claims import PendingClaims
from novasched.scheduler.prefilters import Port, Sources
from novasched.scheduler.prefilters.request_filter import enabled_prefilters
from tests.fuzz.mutation import dumped
from tests.lab.logs import logged

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


def an_offer(*providers: str) -> dict[str, Any]:
    taken = {'VCPU': 1, 'MEMORY_MB': 512, 'DISK_GB': 1}
    return {
        'allocation_requests': [
            {'allocations': {rp: {'resources': taken}}, 'mappings': {'': [rp]}} for rp in providers
        ],
        'provider_summaries': {
            rp: {'resources': {}, 'traits': [], 'parent_provider_uuid': None} for rp in providers
        },
    }


@dataclass
class Answer:
    status: int = 200
    body: bytes = b''
    headers: dict[str, str] = field(default_factory=lambda: {'Content-Type': 'application/json'})


class StillPlacement(requests.adapters.BaseAdapter):
    """Answers by method and the first part of the path; every claim is granted, and whatever
    a test does not speak of is there, and empty."""

    def __init__(self, offer: Any) -> None:
        super().__init__()
        self.answers: Mapping[tuple[str, str], Answer] = {}
        self.usual = {
            ('GET', 'allocation_candidates'): Answer(200, json.dumps(offer).encode()),
            ('GET', 'allocations'): Answer(200, b'{"allocations": {}}'),
        }

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
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
        response.request, response.url = request, str(request.url)
        return response

    def answering(self, answers: Mapping[tuple[str, str], Answer]) -> AbstractContextManager[Any]:
        return mock.patch.object(self, 'answers', answers)

    def close(self) -> None:
        """Nothing is open."""


def notices() -> Any:
    """Tells at once what can be sent, so that what fails is seen."""
    bus = SimpleNamespace(info=lambda context, event, payload: jsonutils.dumps(payload))
    send = NotificationSender(bus, bus)
    return SimpleNamespace(
        started=lambda request: send(Notification(START, request.origin, request)),
        ended=lambda request, flights: send(Notification(END, request.origin, request, flights)),
    )


@contextmanager
def raising_bugs() -> Iterator[None]:
    """Raise the errors of which the log has the traceback; their callers are told nothing."""
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

    def __init__(self, databases: Any, offer: Any, settings: Settings = SETTINGS) -> None:
        self.settings = settings
        self.http = StillPlacement(offer)
        transport = requests.Session()
        transport.mount('http://', self.http)
        keystone = session.Session(
            auth=token_endpoint.Token('http://placement', 'token'), session=transport
        )
        self.placement = PlacementClient(
            settings, adapter.Adapter(keystone, service_type='placement', connect_retries=0)
        )
        self.hosts = databases.reader(**{n: getattr(settings, n) for n in settings.__slots__})
        self.filters, self.weighers = loading.filters(settings), loading.weighers(settings)
        sources = Sources(self.hosts.aggregates, self.hosts.minimum_version, NETWORK)
        self.prefilters = enabled_prefilters(settings, sources)

    def close(self) -> None:
        self.placement.close()
        self.hosts.close()

    def driver(self) -> FilterScheduler:
        """One to which nothing is in flight yet."""
        self.hosts.pending_claims = PendingClaims(self.settings)
        parts = Parts(
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

    def answer(self, body: Any) -> Any:
        """What comes of the body of a message: the reply as it is sent, or a clear error.

        Anything else that is raised is a crash.
        """
        try:
            body = jsonutils.loads(dumped(body))
        except RecursionError as error:  # which oslo.messaging drops, with a line in the log
            return error
        context = {
            k.removeprefix('_context_'): v for k, v in body.items() if k.startswith('_context_')
        }
        message = {k: v for k, v in body.items() if not k.startswith('_')}
        endpoints = [SchedulerEndpoint(self.driver()), BaseEndpoint()]
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
