# SPDX-License-Identifier: Apache-2.0
"""What a scheduler asks of Placement: an HTTP server between them that keeps it."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

HOP_BY_HOP = frozenset(('connection', 'keep-alive', 'transfer-encoding', 'host', 'content-length'))
"""Headers that belong to one connection, not to the message."""


@dataclass(frozen=True)
class Exchange:
    """A request, its body, and the status of the answer."""

    method: str
    path: str
    query: str
    body: bytes
    status: int


class Proxy(ThreadingHTTPServer):
    """Hands everything on, both ways, and remembers the requests."""

    daemon_threads = True

    def __init__(self, upstream: str) -> None:
        super().__init__(('127.0.0.1', 0), _Handler)
        self.upstream = urlsplit(upstream).netloc
        self._exchanges: list[Exchange] = []

    @property
    def url(self) -> str:
        """Where it listens."""
        return f'http://127.0.0.1:{self.server_address[1]}'

    def keep(self, exchange: Exchange) -> None:
        """Remember a request."""
        self._exchanges.append(exchange)

    def drain(self) -> list[Exchange]:
        """The requests since the last time, in order."""
        kept, self._exchanges = self._exchanges, []
        return kept


@contextmanager
def proxy(upstream: str) -> Iterator[Proxy]:
    """A proxy that serves until the end of the block."""
    with Proxy(upstream) as server:
        threading.Thread(target=server.serve_forever, kwargs={'poll_interval': 0.05}).start()
        try:
            yield server
        finally:
            server.shutdown()


class _Handler(BaseHTTPRequestHandler):
    """One connection of a client; Placement gets one for each request."""

    protocol_version = 'HTTP/1.1'
    disable_nagle_algorithm = True
    server: Proxy

    def _hand_on(self) -> None:
        body = self.rfile.read(int(self.headers.get('Content-Length') or 0))
        headers = {k: v for k, v in self.headers.items() if k.lower() not in HOP_BY_HOP}
        with closing(http.client.HTTPConnection(self.server.upstream, timeout=60)) as upstream:
            upstream.request(self.command, self.path, body or None, headers)
            answer = upstream.getresponse()
            content = answer.read()
        target = urlsplit(self.path)
        # Kept before the client can know of it, so that nobody looks too early.
        self.server.keep(Exchange(self.command, target.path, target.query, body, answer.status))
        self.send_response_only(answer.status, answer.reason)
        for name, value in answer.getheaders():
            if name.lower() not in HOP_BY_HOP:
                self.send_header(name, value)
        self.send_header('Content-Length', str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_PUT = do_POST = do_DELETE = _hand_on  # noqa: N815
