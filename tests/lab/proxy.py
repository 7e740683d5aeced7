# SPDX-License-Identifier: Apache-2.0
"""A stub of an HTTP server; a tunnel to any server that can be closed; and an HTTP proxy
in front of a server, which fails requests by a rule::

    with Proxy(placement_url) as proxy:
        proxy.faults = lambda method, path, body: lost() if method == 'PUT' else None
        ...  # clients send requests to proxy.url; proxy.asked lists the requests
        proxy.faults = None

The proxy calls the rule once for each request, in the thread of the request. A request
that hangs waits for ``release()`` or for the end of the proxy, and
``wait_for_hanging()`` returns when another request hangs. Within ``with proxy.down():``
connections are refused. With an identity the proxy speaks TLS, like a load balancer
before a server without TLS.
"""

import http
import http.client
import math
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import sqlalchemy as sa

JSON = {'Content-Type': 'application/json'}
Reply = tuple[int, Mapping[str, str], bytes]
"""Status, headers and body."""


class Handler(BaseHTTPRequestHandler):
    """A connection, served in a new thread."""

    stub: 'HttpStub'
    protocol_version = 'HTTP/1.1'
    # Head and body are written one after the other: with Nagle's algorithm a client
    # waits for 40 ms.
    disable_nagle_algorithm = True

    def do_GET(self):
        """Serve a request of any method."""
        length = int(self.headers.get('Content-Length', 0))
        self.stub.serve(self, self.rfile.read(length))

    do_PUT = do_POST = do_DELETE = do_PATCH = do_HEAD = do_GET  # noqa: N815

    def send_head(self, status, headers, size):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if status != http.HTTPStatus.NO_CONTENT:
            self.send_header('Content-Length', str(size))
        self.end_headers()

    def log_message(self, format, *args):
        """Print nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, port, handler):
        self.connections: set[socket.socket] = set()
        super().__init__(('127.0.0.1', port), handler)

    def process_request(self, request, address):
        self.connections.add(request)
        super().process_request(request, address)

    def shutdown_request(self, request):
        self.connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request, address):
        """Print nothing: most errors come from clients that have disconnected."""


class HttpStub:
    """Serves a loopback port in a ``with`` block. A subclass implements
    :meth:`reply`."""

    def __init__(self, identity=None):
        self._identity = identity
        self._handler = type('Handler', (Handler,), {'stub': self})
        self._server = _Server(0, self._handler)
        self._port = self._server.server_port
        self.address = f'127.0.0.1:{self._port}'

    def reply(self, method, path, headers, body):
        """The answer to a request. Each connection has a thread."""
        raise NotImplementedError

    def serve(self, handler, body):
        """Answer a request whose body has been read."""
        status, headers, content = self.reply(
            handler.command, handler.path, dict(handler.headers), body
        )
        handler.send_head(status, headers, len(content))
        handler.wfile.write(content)

    def __enter__(self):
        self._start()
        return self

    def __exit__(self, *_exception):
        self._stop()

    def _start(self):
        if self._identity:
            self._server.socket = self._identity.accepting().wrap_socket(
                self._server.socket, server_side=True
            )
        threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        ).start()

    def _stop(self):
        """Close the listener and all connections."""
        self._server.shutdown()
        self._server.server_close()
        for connection in [*self._server.connections]:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _restart(self):
        self._server = _Server(self._port, self._handler)
        self._start()


HANG = math.inf
WAIT = 60.0
PIECE = 1 << 16
HOP_BY_HOP = {'connection', 'keep-alive', 'transfer-encoding', 'content-length', 'host'}


@dataclass(frozen=True)
class Fault:
    """The fate of a request. The default is an ordinary answer.

    :ivar before: seconds until the proxy asks the server. HANG: until the release.
    :ivar work: the proxy asks the server.
    :ivar after: seconds until the proxy answers. HANG: until the release.
    :ivar status: a status in place of the status of the server.
    :ivar body: a body in place of the body of the server.
    :ivar content_type: a type in place of the type of the server.
    :ivar size: the size of a body that is written in pieces.
    :ivar part: the share of the body that is sent. After less than 1 the connection
        ends.
    :ivar silent: the connection ends without an answer.
    """

    before: float = 0.0
    work: bool = True
    after: float = 0.0
    status: int | None = None
    body: bytes | None = None
    content_type: str | None = None
    size: int | None = None
    part: float = 1.0
    silent: bool = False


def slow(seconds):
    return Fault(after=seconds)


def hang(work=True):
    """Wait for the release. The server does the work afterwards, if ``work``."""
    return Fault(before=HANG, work=work)


def hang_after():
    """Do the work at once, and let the answer wait for the release."""
    return Fault(after=HANG)


def answer(status, body=b'', work=False, content_type='application/json'):
    """Replace the answer. With ``work`` the server does the work nevertheless."""
    return Fault(work=work, status=status, body=body, content_type=content_type)


def lost():
    """Do the work, and end the connection before the answer."""
    return Fault(silent=True)


def dropped():
    """End the connection before the server gets the request."""
    return Fault(work=False, silent=True)


def half():
    """End the connection in the middle of the body of the answer, or in the middle of
    the head of an answer without a body."""
    return Fault(part=0.5)


def huge(size):
    return Fault(work=False, status=200, size=size)


def garbage(work=True):
    """Answer with bytes that are not JSON."""
    status = None
    if not work:
        status = 200
    return Fault(
        work=work,
        status=status,
        body=b'<html>\xff\x00 It works! {"',
        content_type='application/json',
    )


Rule = Callable[[str, str, bytes], Fault | None]
"""Takes method, path with query, and body. None lets the request pass."""


def every(method, path, fault):
    """A rule that fails all requests of a method below a path."""

    def rule(request_method, request_path, _body):
        if request_method == method and request_path.startswith(path):
            return fault
        return None

    return rule


class Proxy(HttpStub):
    """An HTTP proxy that fails requests by a rule, see the module.

    :ivar faults: the rule.
    :ivar asked: method and path of all requests in order.
    :ivar heard: a function that takes method, path and body of each request that the
        server got, and the status of the server.
    :ivar gate: set when the requests that hang now are released.
    """

    def __init__(self, upstream, identity=None):
        super().__init__(identity)
        scheme = 'http'
        if identity:
            scheme = 'https'
        self.url = f'{scheme}://{self.address}'
        split = urlsplit(upstream)
        self.upstream = (split.hostname, split.port or 80)
        self.prefix = split.path.rstrip('/')
        self.faults: Rule | None = None
        self.asked: list[str] = []
        self.heard: Callable[[str, str, bytes, int], object] | None = None
        self.gate = threading.Event()
        self._hanging = threading.Semaphore(0)

    def __exit__(self, *exception):
        self.release()
        super().__exit__(*exception)

    def count(self, text):
        """The number of requests with a text in method and path."""
        return sum(text in request for request in [*self.asked])

    @contextmanager
    def down(self):
        """Close the listener and all connections in a block."""
        self._stop()
        try:
            yield
        finally:
            self._restart()

    def release(self):
        """Release the requests that hang now. Later requests hang again."""
        gate = self.gate
        self.gate = threading.Event()
        gate.set()
        self._hanging = threading.Semaphore(0)

    def shut(self):
        """Let the server work, and hold back all answers until ``open()``."""
        self.faults = lambda method, path, body: hang_after()

    def open(self):
        """Release all answers."""
        self.faults = None
        self.release()

    def wait_for_hanging(self, count=1):
        """Wait until ``count`` more requests hang."""
        for _ in range(count):
            assert self._hanging.acquire(timeout=WAIT)

    def serve(self, handler, body):
        """Serve a request with the fault of the rule."""
        # A release after the arrival of the request shall release the request.
        gate = self.gate
        rule = self.faults
        request = (handler.command, handler.path)
        self.asked.append(' '.join(request))
        fault = (rule and rule(*request, body)) or Fault()

        self._pause(fault.before, gate)
        status = 200
        headers = dict[str, str]()
        content = b''
        if fault.work:
            status, headers, content = self.reply(*request, handler.headers, body)
            if self.heard:
                self.heard(*request, body, status)

        self._pause(fault.after, gate)
        if fault.content_type is not None:
            headers['Content-Type'] = fault.content_type
        if fault.body is not None:
            content = fault.body
        self._answer(handler, fault, (fault.status or status, headers, content))

    def reply(self, method, path, headers, body):
        """The answer of the server."""
        connection = http.client.HTTPConnection(*self.upstream, timeout=WAIT)
        sent_headers = _end_to_end(headers.items())
        try:
            connection.request(method, self.prefix + path, body or None, sent_headers)
            response = connection.getresponse()
            content = response.read()
        finally:
            connection.close()
        return response.status, _end_to_end(response.getheaders()), content

    def _pause(self, seconds, gate):
        if seconds == HANG:
            self._hanging.release()
            gate.wait()
        elif seconds:
            gate.wait(seconds)

    def _answer(self, handler, fault, reply):
        status, headers, content = reply
        handler.close_connection |= fault.silent or fault.part < 1
        if fault.silent:
            return
        if fault.part < 1 and not content:
            handler.wfile.write(b'HTTP/1.1 2')
            return

        if fault.size is not None:
            handler.send_head(status, headers, fault.size)
            for start in range(0, fault.size, PIECE):
                handler.wfile.write(b'x' * min(PIECE, fault.size - start))
            return

        size = len(content)
        handler.send_head(status, headers, size)
        if handler.command != 'HEAD' and status != http.HTTPStatus.NO_CONTENT:
            handler.wfile.write(content[: int(size * fault.part)])


def _end_to_end(headers):
    """The headers that a proxy passes on."""
    return {name: value for name, value in headers if name.lower() not in HOP_BY_HOP}


class Tunnel:
    """Passes on the bytes between clients and a server.

    A closed tunnel accepts connections and passes on nothing, like a server that hangs.

    :ivar held: set as soon as a closed tunnel has bytes to pass on.
    """

    def __init__(self, url):
        self._url = sa.make_url(url)
        self._flow = threading.Event()
        self._flow.set()
        self.held = threading.Event()
        self._listener = socket.create_server(('127.0.0.1', 0))
        self._port = self._listener.getsockname()[1]
        self.url = self._url.set(host='127.0.0.1', port=self._port).render_as_string(
            False
        )
        self._ends: list[socket.socket] = []
        self._accept()

    def shut(self):
        self.held.clear()
        self._flow.clear()

    def open(self):
        self._flow.set()

    def refuse(self):
        """End all connections and refuse new connections, as if no server ran."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def cut(self):
        """End all connections. New connections are accepted."""
        ends = self._ends
        self._ends = []
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def accept(self):
        self._listener = socket.create_server(('127.0.0.1', self._port))
        self._accept()

    def __enter__(self):
        return self

    def __exit__(self, *_exception):
        self.refuse()
        self.open()

    def _accept(self):
        threading.Thread(target=self._take, args=[self._listener], daemon=True).start()

    def _take(self, listener):
        with suppress(OSError):  # the end of the listener
            while True:
                client, _ = listener.accept()
                server = socket.create_connection(
                    (self._url.host, self._url.port or 3306)
                )
                self._ends += [client, server]
                for way in ((client, server), (server, client)):
                    threading.Thread(
                        target=self._hand_on, args=way, daemon=True
                    ).start()

    def _hand_on(self, source, target):
        with suppress(OSError):
            while data := source.recv(65536):
                if not self._flow.is_set():
                    self.held.set()
                    self._flow.wait()
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
