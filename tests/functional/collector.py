# SPDX-License-Identifier: Apache-2.0
"""A collector of traces: OTLP over HTTP, as far as a client needs it."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


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


class Collector:
    """See the module. What it ``hears`` are spans; it answers none while it ``hangs``."""

    def __init__(self, hangs: bool = False) -> None:
        self.heard: list[Seen] = []
        self.headers: list[dict[str, str]] = []
        self.asked = threading.Semaphore(0)
        self._go_on = threading.Event()
        if not hangs:
            self._go_on.set()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                collector.asked.release()
                body = self.rfile.read(int(self.headers['Content-Length']))
                collector._go_on.wait()
                if self.path != '/v1/traces':
                    self.send_error(404)
                    return
                collector.headers.append(dict(self.headers))
                collector.heard += spans(ExportTraceServiceRequest.FromString(body))
                answer = ExportTraceServiceResponse().SerializeToString()
                self.send_response(200)
                self.send_header('Content-Type', 'application/x-protobuf')
                self.send_header('Content-Length', str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(('127.0.0.1', 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        """Where it listens."""
        return f'127.0.0.1:{self._server.server_port}'

    def __enter__(self) -> Collector:
        return self

    def __exit__(self, *exc: object) -> None:
        self._go_on.set()
        self._server.shutdown()
        self._server.server_close()


def spans(request: ExportTraceServiceRequest) -> list[Seen]:
    """What is in a message."""
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
    """Attributes by name."""
    return {each.key: value(each.value) for each in attributes}


def value(any_value: Any) -> Any:
    """One of them."""
    kind = any_value.WhichOneof('value')
    found = getattr(any_value, kind)
    return [value(each) for each in found.values] if kind == 'array_value' else found
