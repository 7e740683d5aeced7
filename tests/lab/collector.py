# SPDX-License-Identifier: Apache-2.0
"""A collector of traces: OTLP over HTTP, as far as a client needs it."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from .http_stub import HttpStub, Reply


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
    """See the module. What it ``hears`` are spans; it answers none while it ``hangs``."""

    def __init__(self, hangs: bool = False) -> None:
        super().__init__()
        self.heard: list[Seen] = []
        self.headers: list[Mapping[str, str]] = []
        self.asked = threading.Semaphore(0)
        self._go_on = threading.Event()
        if not hangs:
            self._go_on.set()

    def reply(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Reply:
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
    return [value(each) for each in found.values] if kind == 'array_value' else found
