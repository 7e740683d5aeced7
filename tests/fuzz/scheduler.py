# SPDX-License-Identifier: Apache-2.0
"""A whole scheduler without a broker: databases in SQLite, a Placement that says what a test
wants, and oslo.messaging's dispatcher in front."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Any

import oslo_messaging
import requests
from keystoneauth1 import adapter, session, token_endpoint
from oslo_messaging._drivers import common
from oslo_serialization import jsonutils

from novasched import errors, plugins
from novasched.drivers import Parts
from novasched.drivers.filter_scheduler import FilterScheduler
from novasched.inflight import InFlight
from novasched.model.request import Request
from novasched.model.settings import Settings
from novasched.notify.sender import END, START, Notice, Teller
from novasched.placement.client import PlacementClient
from novasched.prefilters import Port, Sources
from novasched.prefilters.order import PREFILTERS
from novasched.rpc.callers import Callers
from novasched.rpc.dispatcher import Dispatcher
from novasched.rpc.endpoint import BaseEndpoint, SchedulerEndpoint
from novasched.rpc.serializer import Serializer
from tests.fuzz.mutation import dumped

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
)
"""All that can be switched on, and that does not refuse every host by itself."""


class PlainNetwork:
    """Every port is there, and no network is routed."""

    def ports(self, uuids: Collection[str]) -> dict[str, Port]:
        return {uuid: Port(uuid) for uuid in uuids}

    def network_aggregates(self, uuid: str) -> frozenset[str]:
        return frozenset()

    subnet_aggregates = network_aggregates


CLEAR = (
    errors.BadRequest,
    errors.ClaimFailed,
    errors.MetricMissing,
    errors.NetworkUnavailable,
    errors.NoValidHost,
)
REFUSED = (oslo_messaging.NoSuchMethod, oslo_messaging.UnsupportedVersion)


def an_offer(*providers: str) -> dict[str, Any]:
    """Placement's answer: a candidate on each of these."""
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
    """What Placement says."""

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

    @contextmanager
    def answering(self, answers: Mapping[tuple[str, str], Answer]) -> Iterator[None]:
        """Say this for a while."""
        self.answers = answers
        try:
            yield
        finally:
            self.answers = {}

    def close(self) -> None:
        """Nothing is open."""


class Bus:
    """Takes notifications if they can be sent."""

    def info(self, context: Any, event: str, payload: Any) -> None:
        """See oslo.messaging's Notifier."""
        jsonutils.dumps(payload)


class Notices:
    """Tells at once, so that what fails is seen."""

    def __init__(self, settings: Settings) -> None:
        self._tell = Teller(settings, Bus(), Bus())

    def started(self, request: Request) -> None:
        self._tell(Notice(START, request.origin, request))

    def ended(self, request: Request, flights: Sequence[Any]) -> None:
        self._tell(Notice(END, request.origin, request, flights))

    def close(self) -> None:
        """Nobody waits."""


@dataclass(eq=False)
class Incoming:
    """A message as oslo.messaging hands it on."""

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
        self.filters, self.weighers = plugins.filters(settings), plugins.weighers(settings)
        sources = Sources(self.hosts.aggregates, self.hosts, PlainNetwork())
        self.prefilters = [each(settings, sources) for each in PREFILTERS]

    def close(self) -> None:
        self.placement.close()
        self.hosts.close()

    def driver(self) -> FilterScheduler:
        """One to which nothing is in flight yet."""
        self.hosts.in_flight = InFlight(self.settings)
        parts = Parts(
            self.settings,
            self.prefilters,
            self.placement,
            self.hosts,
            self.filters,
            self.weighers,
            in_flight=self.hosts.in_flight,
            notices=Notices(self.settings),
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
        dispatcher = Dispatcher(endpoints, Serializer(), Callers())
        incoming = Incoming(message, context)
        try:
            reply = dispatcher.dispatch(incoming)
        except oslo_messaging.ExpectedException as error:
            jsonutils.loads(common.serialize_remote_exception(error.exc_info))
            return error.exc_info[1]
        except (*CLEAR, *REFUSED) as error:
            return error
        return jsonutils.loads(jsonutils.dumps(reply))
