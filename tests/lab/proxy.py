# SPDX-License-Identifier: Apache-2.0
"""An HTTP proxy in front of one server, which lets go wrong what a rule says::

    with Proxy(placement_url) as proxy:
        proxy.faults = lambda method, path, body: lost() if method == 'PUT' else None
        ...  # clients talk to proxy.url; proxy.asked lists what they asked
        proxy.faults = None

The rule is called once for each request, in the thread that serves it. A request that hangs
does so until ``release()`` or the end of the proxy, and ``wait_for_hanging()`` returns when
one more does. Within ``with proxy.down():`` connections are refused. With an identity it speaks
TLS, as a load balancer does before a server that speaks none.
"""

from __future__ import annotations

import http.client
import math
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from .certificates import Identity

HANG = math.inf
WAIT = 60.0
PIECE = 1 << 16
JSON = 'application/json'
HOP_BY_HOP = {'connection', 'keep-alive', 'transfer-encoding', 'content-length', 'host'}


@dataclass(frozen=True)
class Fault:
    """What becomes of one request, in the order of the fields; by default nothing bad."""

    before: float = 0.0  # seconds until the server is asked; HANG: until the release
    work: bool = True  # whether the server is asked, and does the work, at all
    after: float = 0.0  # seconds until its answer is passed on; HANG: until the release
    status: int | None = None  # instead of the server's
    body: bytes | None = None  # instead of the server's
    content_type: str | None = None  # instead of the server's
    size: int | None = None  # so many bytes of body, written piece by piece
    part: float = 1.0  # how much of the body is sent; less than 1: then the connection ends
    silent: bool = False  # nothing at all is sent, and the connection ends
    drip: float = 0.0  # seconds between one byte of the body and the next


def slow(seconds: float) -> Fault:
    return Fault(after=seconds)


def hang(work: bool = True) -> Fault:
    """No answer until the release; the server does the work then, if at all."""
    return Fault(before=HANG, work=work)


def hang_after() -> Fault:
    """The server does the work at once, but its answer waits for the release."""
    return Fault(after=HANG)


def answer(status: int, body: bytes = b'', work: bool = False, content_type: str = JSON) -> Fault:
    """Another answer; with ``work``, after the server has done what it is asked."""
    return Fault(work=work, status=status, body=body, content_type=content_type)


def lost() -> Fault:
    """The server does the work, and the connection ends before its answer."""
    return Fault(silent=True)


def dropped() -> Fault:
    """The connection ends before the server hears of the request."""
    return Fault(work=False, silent=True)


def half() -> Fault:
    """The connection ends in the middle of the server's answer, as to its length or, where
    it has no body, as to its head."""
    return Fault(part=0.5)


def huge(size: int) -> Fault:
    return Fault(work=False, status=200, size=size)


def garbage(work: bool = True) -> Fault:
    status = None if work else 200
    return Fault(work=work, status=status, body=b'<html>\xff\x00 It works! {"', content_type=JSON)


Rule = Callable[[str, str, bytes], Fault | None]
"""Gets method, path (with its query) and body; None lets the request pass as it is."""


def every(method: str, path: str, fault: Fault) -> Rule:
    """A rule: what happens to all requests of that kind."""
    return lambda asked, whole, body: fault if asked == method and whole.startswith(path) else None


class Proxy:
    """See the module. One thread for each connection, each on its own."""

    def __init__(self, upstream: str, identity: Identity | None = None) -> None:
        split = urlsplit(upstream)
        assert split.hostname
        self.upstream = (split.hostname, split.port or 80)
        self._identity = identity
        self.prefix = split.path.rstrip('/')
        self.faults: Rule | None = None
        self.asked: list[str] = []
        self.heard: Callable[[str, str, bytes, int], object] | None = None
        """Told method, path, body and the server's own status of each request that it was given."""
        self.gate = threading.Event()
        self._hanging = threading.Semaphore(0)
        self._open: set[socket.socket] = set()
        self._server: ThreadingHTTPServer | None = None
        self._port = 0

    @property
    def url(self) -> str:
        return f'{"https" if self._identity else "http"}://127.0.0.1:{self._port}'

    def __enter__(self) -> Proxy:
        self._start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()
        self._stop()

    @contextmanager
    def down(self) -> Iterator[None]:
        """Nobody listens, and who is connected no longer is."""
        self._stop()
        try:
            yield
        finally:
            self._start()

    def release(self) -> None:
        """Let go on whatever hangs now; what comes later hangs again."""
        gate, self.gate = self.gate, threading.Event()
        gate.set()
        self._hanging = threading.Semaphore(0)

    def shut(self) -> None:
        """Let the server do what it is asked, and hold back each answer until ``open()``."""
        self.faults = lambda method, path, body: hang_after()

    def open(self) -> None:
        """Hold back nothing any more."""
        self.faults = None
        self.release()

    def wait_for_hanging(self, count: int = 1) -> None:
        """Return when so many more requests hang."""
        for _ in range(count):
            assert self._hanging.acquire(timeout=WAIT)

    def pause(self, seconds: float, gate: threading.Event) -> None:
        """Used by the threads that serve; over at the release of the gate that was there when
        the request came."""
        if seconds == HANG:
            self._hanging.release()
            gate.wait()
        elif seconds:
            gate.wait(seconds)

    def _start(self) -> None:
        proxy = self

        class Handler(_Handler):
            owner = proxy

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False
            request_queue_size = 128

            def process_request(self, request: socket.socket, address: object) -> None:
                proxy._open.add(request)
                super().process_request(request, address)

            def shutdown_request(self, request: socket.socket) -> None:
                proxy._open.discard(request)
                super().shutdown_request(request)

            def handle_error(self, request: object, address: object) -> None:
                """A client that has gone, mostly: no matter for the tests' output."""

        self._server = Server(('127.0.0.1', self._port), Handler)
        self._port = self._server.server_address[1]
        if self._identity:
            self._server.socket = self._identity.accepting().wrap_socket(
                self._server.socket, server_side=True
            )
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def _stop(self) -> None:
        assert self._server
        self._server.shutdown()
        self._server.server_close()
        for connection in [*self._open]:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    owner: Proxy
    protocol_version = 'HTTP/1.1'
    # Head and body leave in two writes: without this a client waits for 40 ms.
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        """Serve one request of any method."""
        length = int(self.headers.get('Content-Length', 0))
        body = self.rfile.read(length)
        self.owner.asked.append(f'{self.command} {self.path}')
        gate = self.owner.gate
        rule = self.owner.faults
        fault = (rule and rule(self.command, self.path, body)) or Fault()
        self.owner.pause(fault.before, gate)
        status, headers, content = self._work(body) if fault.work else (200, {}, b'')
        if fault.work and self.owner.heard:
            self.owner.heard(self.command, self.path, body, status)
        self.owner.pause(fault.after, gate)
        if fault.content_type is not None:
            headers['Content-Type'] = fault.content_type
        status = fault.status or status
        content = content if fault.body is None else fault.body
        self._answer(fault, status, headers, content, gate)

    do_PUT = do_POST = do_DELETE = do_PATCH = do_HEAD = do_GET  # noqa: N815

    def _work(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(*self.owner.upstream, timeout=WAIT)
        headers = {k: v for k, v in self.headers.items() if k.lower() not in HOP_BY_HOP}
        try:
            connection.request(self.command, self.owner.prefix + self.path, body or None, headers)
            response = connection.getresponse()
            content = response.read()
        finally:
            connection.close()
        kept = {k: v for k, v in response.getheaders() if k.lower() not in HOP_BY_HOP}
        return response.status, kept, content

    def _answer(
        self,
        fault: Fault,
        status: int,
        headers: dict[str, str],
        content: bytes,
        gate: threading.Event,
    ) -> None:
        if fault.silent or (fault.part < 1 and not content and fault.size is None):
            if not fault.silent:
                self.wfile.write(b'HTTP/1.1 2')
            self.close_connection = True
            return
        size = len(content) if fault.size is None else fault.size
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if status != http.HTTPStatus.NO_CONTENT:
            self.send_header('Content-Length', str(size))
        self.end_headers()
        if fault.size is not None:
            content = b'x' * PIECE
            for _ in range(size // PIECE):
                self.wfile.write(content)
            self.wfile.write(content[: size % PIECE])
        elif fault.drip:
            for byte in content:
                self.wfile.write(bytes([byte]))
                self.owner.pause(fault.drip, gate)
        elif self.command != 'HEAD' and status != http.HTTPStatus.NO_CONTENT:
            self.wfile.write(content[: int(size * fault.part)])
        self.close_connection = self.close_connection or fault.part < 1

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: ``asked`` tells it."""
