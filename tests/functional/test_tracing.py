# SPDX-License-Identifier: Apache-2.0
"""Traces of the decisions of a real daemon, sent to a collector."""

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
class Seen:
    """A span as it came; ``who`` is what the process says of itself."""

    who: dict[str, Any]
    name: str
    trace: str
    id: str
    parent: str
    start: int  # nanoseconds
    end: int
    values: dict[str, Any] = field(default_factory=dict)
    failed: bool = False


class Collector(HttpStub):
    """See the module. What it ``hears`` are spans; it answers none while it
    ``hangs``."""

    def __init__(self, hangs: bool = False) -> None:
        super().__init__()
        self.heard: list[Seen] = []
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
        self.heard += spans(ExportTraceServiceRequest.FromString(body))
        answer = ExportTraceServiceResponse().SerializeToString()
        return 200, {'Content-Type': 'application/x-protobuf'}, answer

    def __exit__(self, *exception: object) -> None:
        self._go_on.set()
        super().__exit__(*exception)


def spans(request: ExportTraceServiceRequest) -> list[Seen]:
    return [
        Seen(
            plain(of_process.resource.attributes),
            span.name,
            span.trace_id.hex(),
            span.span_id.hex(),
            span.parent_span_id.hex(),
            span.start_time_unix_nano,
            span.end_time_unix_nano,
            plain(span.attributes),
            span.status.code == span.status.STATUS_CODE_ERROR,
        )
        for of_process in request.resource_spans
        for of_library in of_process.scope_spans
        for span in of_library.spans
    ]


def plain(attributes: Any) -> dict[str, Any]:
    return {each.key: value(each.value) for each in attributes}


def value(any_value: Any) -> Any:
    kind = any_value.WhichOneof('value')
    found = getattr(any_value, kind)
    if kind == 'array_value':
        return [value(each) for each in found.values]
    return found


SOON = 60.0
OFTEN = {'OTEL_BSP_SCHEDULE_DELAY': '50'}
"""So many milliseconds pass until a batch goes out."""

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
    """Options for a daemon whose collector is there."""
    return {
        'scheduler': {'workers': workers},
        'novasched': {'tracing_endpoint': f'http://{address}'},
    }


def place(caller, daemon, **context):
    """Ask for a server; it gets its host, and this is its UUID."""
    [server] = new_uuids()
    [[chosen]] = caller.call(
        'select_destinations',
        arguments_for(server),
        context={**CONTEXT, **context},
        server=daemon.host,
    )
    assert chosen['nova_object.data']['service_host'].startswith('host-')
    return server


def of(server, collector):
    """The span of a request, and those below it, when they are there."""
    found = []

    def is_told():
        heard = [*collector.heard]
        found[:] = [
            s for s in heard if s.values.get('openstack.server_ids') == [server]
        ]
        found.extend(s for s in heard if found and s.parent == found[0].id)
        return len(found) > 1

    wait_until(is_told, SOON, f'trace of {server}')
    return found[0], sorted(found[1:], key=lambda span: span.start)


def test_two_workers(hosts, caller):
    """Each request of each worker is a trace, or a part of its caller's; it lasts from
    its first step to its last, and no password is told to anybody but the collector."""
    password = a_secret()
    with (
        Collector() as collector,
        Daemon(
            hosts, traced(f'me:{password}@{collector.address}', 2), environment=OFTEN
        ) as daemon,
    ):
        workers = {each.pid for each in psutil.Process(daemon.pid).children()}
        began = time.time_ns()
        servers = []

        def all_heard():
            servers.append(
                place(caller, daemon, request_id='req-ours', traceparent=CALLER)
            )
            whole, _ = of(servers[-1], collector)
            return workers == {
                span.who['process.pid'] for span in collector.heard
            } and bool(whole)

        wait_until(all_heard, SOON, 'trace of each worker')
        ended = time.time_ns()
        for server in servers:
            whole, steps = of(server, collector)
            assert (whole.name, whole.trace, whole.parent) == (
                'select_destinations',
                TRACE,
                PARENT,
            )
            assert whole.values['openstack.request_id'] == 'req-ours'
            assert whole.values['novasched.headline'].endswith(': 2 of 2 hosts fit')
            assert whole.who['service.name'] == 'novasched'
            assert whole.who['host.name'] == daemon.host
            assert [step.name for step in steps] == [*STEPS]
            assert {(step.trace, step.who['process.pid']) for step in steps} == {
                (TRACE, whole.who['process.pid'])
            }
            edges = [whole.start, *(step.end for step in steps)]
            assert [step.start for step in steps] == edges[:-1]
            assert began < whole.start < whole.end == edges[-1] < ended
        alone, _ = of(place(caller, daemon), collector)
        assert (alone.parent, alone.trace == TRACE) == ('', False)
        assert daemon.stop() == 0
        assert 'Traces' not in daemon.text()
        assert password not in daemon.text()
    authorization = base64.b64encode(f'me:{password}'.encode()).decode()
    assert {each['Authorization'] for each in collector.headers} == {
        f'Basic {authorization}'
    }


def test_what_is_left_when_it_ends(hosts, caller):
    """A worker that ends sends what it has."""
    with Collector() as collector:
        with Daemon(hosts, traced(collector.address)) as daemon:
            server = place(caller, daemon)
            assert daemon.stop() == 0
        _, steps = of(server, collector)
        assert [step.name for step in steps] == [*STEPS]


def test_a_collector_that_hangs(hosts, caller):
    """Every request is answered, and the daemon ends in order, though what it has to
    tell is never heard. One that is away is told of once, see the unit tests."""
    with (
        Collector(hangs=True) as collector,
        Daemon(hosts, traced(collector.address), environment=OFTEN) as daemon,
    ):
        place(caller, daemon)
        assert collector.asked.acquire(timeout=SOON)
        for _ in range(10):
            place(caller, daemon)
        assert daemon.stop() == 0
