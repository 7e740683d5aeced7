# SPDX-License-Identifier: Apache-2.0
"""A service behind HTTP that is a function of this process."""

from __future__ import annotations

import http
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from .certificates import Identity

JSON = {'Content-Type': 'application/json'}
Reply = tuple[int, Mapping[str, str], bytes]
"""Status, headers and body."""


class Handler(BaseHTTPRequestHandler):
    """One connection, in a thread of its own."""

    stub: HttpStub
    protocol_version = 'HTTP/1.1'
    # Head and body leave in two writes: without this a client waits for 40 ms.
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        """Serve one request of any method."""
        self.stub.serve(self, self.rfile.read(int(self.headers.get('Content-Length', 0))))

    do_PUT = do_POST = do_DELETE = do_PATCH = do_HEAD = do_GET  # noqa: N815

    def send_head(self, status: int, headers: Mapping[str, str], size: int) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if status != http.HTTPStatus.NO_CONTENT:
            self.send_header('Content-Length', str(size))
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, port: int, handler: type[Handler]) -> None:
        self.connections: set[socket.socket] = set()
        super().__init__(('127.0.0.1', port), handler)

    def process_request(self, request: socket.socket, address: object) -> None:
        self.connections.add(request)
        super().process_request(request, address)

    def shutdown_request(self, request: socket.socket) -> None:
        self.connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: object, address: object) -> None:
        """A client that has gone, mostly: no matter for the tests' output."""


class HttpStub:
    """Serves on a loopback port, from ``with`` to its end, what ``reply()`` of a subclass says;
    with an identity over TLS."""

    def __init__(self, identity: Identity | None = None) -> None:
        self._identity = identity
        self._handler = type('Handler', (Handler,), {'stub': self})
        self._server = _Server(0, self._handler)
        self._port = self._server.server_port
        self.address = f'127.0.0.1:{self._port}'

    def reply(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Reply:
        """The answer to a request, worked out in a thread of its own."""
        raise NotImplementedError

    def serve(self, handler: Handler, body: bytes) -> None:
        """Answer a request of which the body has been read."""
        status, headers, content = self.reply(
            handler.command, handler.path, dict(handler.headers), body
        )
        handler.send_head(status, headers, len(content))
        handler.wfile.write(content)

    def __enter__(self):  # type: ignore[no-untyped-def]  # Self is of Python 3.11
        self._start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._stop()

    def _start(self) -> None:
        if self._identity:
            self._server.socket = self._identity.accepting().wrap_socket(
                self._server.socket, server_side=True
            )
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def _stop(self) -> None:
        """Listen no more, and end every connection."""
        self._server.shutdown()
        self._server.server_close()
        for connection in [*self._server.connections]:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _restart(self) -> None:
        self._server = _Server(self._port, self._handler)
        self._start()
