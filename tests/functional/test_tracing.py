# SPDX-License-Identifier: Apache-2.0
"""Traces of the decisions of a real daemon arrive at a collector."""

import base64
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import psutil
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from novasched.scheduler.decision import STEPS
from tests.lab.daemon import Daemon, new_uuids
from tests.lab.known_secrets import a_secret
from tests.lab.processes import wait_until
from tests.lab.proxy import HttpStub, Reply
from tests.lab.rpc_load import CONTEXT, arguments_for


@dataclass(frozen=True)
class Span:
    """A span as received.

    :ivar resource: attributes of the process that sent the span.
    """

    resource: dict[str, Any]
    name: str
    trace: str
    id: str
    parent: str
    start: int  # nanoseconds
    end: int
    values: dict[str, Any] = field(default_factory=dict)
    failed: bool = False


class Collector(HttpStub):
    """A collector that keeps received spans in ``spans``. Started with ``hangs``, it
    answers no request until the end of the context."""

    def __init__(self, hangs: bool = False) -> None:
        super().__init__()
        self.spans: list[Span] = []
        self.headers: list[Mapping[str, str]] = []
        self.asked = threading.Semaphore(0)
        self._go_on = threading.Event()
        if not hangs:
            self._go_on.set()

    def reply(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> Reply:
        self.asked.release()
        self._go_on.wait()
        if path != '/v1/traces':
            return 404, {}, b''
        self.headers.append(headers)
        self.spans += spans(ExportTraceServiceRequest.FromString(body))
        answer = ExportTraceServiceResponse().SerializeToString()
        return 200, {'Content-Type': 'application/x-protobuf'}, answer

    def __exit__(self, *exception: object) -> None:
        self._go_on.set()
        super().__exit__(*exception)


def spans(request: ExportTraceServiceRequest) -> list[Span]:
    """The spans of a request to the collector."""
    found = []
    for of_process in request.resource_spans:
        resource = plain(of_process.resource.attributes)
        for of_library in of_process.scope_spans:
            found += [a_span(resource, message) for message in of_library.spans]
    return found


def a_span(resource: dict[str, Any], message: Any) -> Span:
    return Span(
        resource,
        message.name,
        message.trace_id.hex(),
        message.span_id.hex(),
        message.parent_span_id.hex(),
        message.start_time_unix_nano,
        message.end_time_unix_nano,
        plain(message.attributes),
        message.status.code == message.status.STATUS_CODE_ERROR,
    )


def plain(attributes: Any) -> dict[str, Any]:
    return {attribute.key: value(attribute.value) for attribute in attributes}


def value(any_value: Any) -> Any:
    kind = any_value.WhichOneof('value')
    content = getattr(any_value, kind)
    if kind == 'array_value':
        return [value(item) for item in content.values]
    return content


SOON = 60.0
OFTEN = {'OTEL_BSP_SCHEDULE_DELAY': '50'}
"""Milliseconds between two batches of spans."""

TRACE = '4bf92f3577b34da6a3ce929d0e0e4736'
PARENT = '00f067aa0ba902b7'
CALLER = f'00-{TRACE}-{PARENT}-01'


@pytest.fixture(scope='module')
def hosts(cloud):
    cloud.reset()
    for number in range(2):
        cloud.add_host(f'host-{number}', vcpus=1000, ram_mb=1_000_000, disk_gb=100_000)
    return cloud


def traced(address, workers=1):
    """Options of a daemon whose collector has the address."""
    return {
        'scheduler': {'workers': workers},
        'novasched': {'tracing_endpoint': f'http://{address}'},
    }


def place(caller, daemon, **context):
    """Place a server; the UUID of the server."""
    [server] = new_uuids()
    [[chosen]] = caller.call(
        'select_destinations',
        arguments_for(server),
        context={**CONTEXT, **context},
        server=daemon.host,
    )
    assert chosen['nova_object.data']['service_host'].startswith('host-')
    return server


def trace_of(server, collector):
    """Wait for the trace of a request; the span of the request, and the spans of the
    steps in order."""
    trace = []

    def has_arrived():
        received = [*collector.spans]
        trace.clear()
        for span in received:
            if span.values.get('openstack.server_ids') == [server]:
                trace.append(span)
        if not trace:
            return False
        trace.extend(span for span in received if span.parent == trace[0].id)
        return len(trace) > 1

    wait_until(has_arrived, SOON, f'trace of {server}')
    request, *steps = trace
    return request, sorted(steps, key=lambda span: span.start)


def check_trace(request, steps, daemon):
    """Check the spans of a request that came with the trace of :data:`CALLER`."""
    assert request.name == 'select_destinations'
    assert request.trace == TRACE
    assert request.parent == PARENT
    assert request.values['openstack.request_id'] == 'req-ours'
    assert request.values['novasched.headline'].endswith(': 2 of 2 hosts fit')
    assert request.resource['service.name'] == 'novasched'
    assert request.resource['host.name'] == daemon.host

    assert [step.name for step in steps] == [*STEPS]
    next_start = request.start
    for step in steps:
        assert step.trace == TRACE
        assert step.resource['process.pid'] == request.resource['process.pid']
        assert step.start == next_start
        next_start = step.end
    assert request.start < request.end == next_start


def test_two_workers_send_traces_of_requests_to_the_collector(hosts, caller):
    """The request of a worker is a trace, or a part of the caller's trace. The spans of
    the steps have no gaps. The daemon sends the password for the collector to the
    collector only."""
    password = a_secret()
    with (
        Collector() as collector,
        Daemon(
            hosts, traced(f'me:{password}@{collector.address}', 2), environment=OFTEN
        ) as daemon,
    ):
        pids = {process.pid for process in psutil.Process(daemon.pid).children()}
        began = time.time_ns()
        servers = []

        def all_workers_are_heard():
            """Place a server, and tell if spans of all workers have arrived."""
            server = place(caller, daemon, request_id='req-ours', traceparent=CALLER)
            servers.append(server)
            trace_of(server, collector)
            return pids == {span.resource['process.pid'] for span in collector.spans}

        wait_until(all_workers_are_heard, SOON, 'trace of each worker')
        ended = time.time_ns()
        for server in servers:
            request, steps = trace_of(server, collector)
            check_trace(request, steps, daemon)
            assert began < request.start
            assert request.end < ended

        untraced = place(caller, daemon)
        request, _ = trace_of(untraced, collector)
        assert request.parent == ''
        assert request.trace != TRACE

        assert daemon.stop() == 0
        assert 'Traces' not in daemon.text()
        assert password not in daemon.text()

    authorization = base64.b64encode(f'me:{password}'.encode()).decode()
    received = {headers['Authorization'] for headers in collector.headers}
    assert received == {f'Basic {authorization}'}


@pytest.mark.parametrize('has_own_endpoint', [False, True])
def test_a_request_is_traced_within_the_span_of_oslo_messaging(
    hosts, caller, has_own_endpoint
):
    """If oslo.messaging traces messages, its span of the message is a part of the
    caller's trace, and the request is a part of this span. All spans come from the same
    source, and go to the collector of novasched if it is set."""
    with Collector() as collector, Collector() as other:
        config = {
            'oslo_messaging_tracing': {
                'tracing_enabled': True,
                'otel_exporter_otlp_endpoint': f'http://{collector.address}',
                'tracing_service_name': 'nova',
            }
        }
        name = 'nova'
        if has_own_endpoint:
            config['oslo_messaging_tracing']['otel_exporter_otlp_endpoint'] = (
                f'http://{other.address}'
            )
            config.update(traced(collector.address))
            name = 'novasched'
        with Daemon(hosts, config, environment=OFTEN) as daemon:
            server = place(caller, daemon, traceparent=CALLER)
            request, steps = trace_of(server, collector)
            assert daemon.stop() == 0

    [message] = [span for span in collector.spans if span.id == request.parent]
    assert message.name == 'select_destinations receive'
    assert (message.trace, message.parent) == (TRACE, PARENT)
    assert request.trace == TRACE
    assert [step.name for step in steps] == [*STEPS]
    assert message.resource == request.resource
    assert request.resource['service.name'] == name
    assert request.resource['host.name'] == daemon.host
    assert other.spans == []


def test_a_stopping_worker_sends_the_remaining_spans(hosts, caller):
    """A worker sends its remaining spans before it stops."""
    with Collector() as collector:
        with Daemon(hosts, traced(collector.address)) as daemon:
            server = place(caller, daemon)
            assert daemon.stop() == 0
        _, steps = trace_of(server, collector)
        assert [step.name for step in steps] == [*STEPS]


def test_requests_are_answered_while_the_collector_hangs(hosts, caller):
    """Every request is answered and the daemon stops in order, although the collector
    takes no spans. The unit tests cover a collector that is not there."""
    with (
        Collector(hangs=True) as collector,
        Daemon(hosts, traced(collector.address), environment=OFTEN) as daemon,
    ):
        place(caller, daemon)

        assert collector.asked.acquire(timeout=SOON)
        for _ in range(10):
            place(caller, daemon)
        assert daemon.stop() == 0
