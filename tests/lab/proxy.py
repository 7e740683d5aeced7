# SPDX-License-Identifier: Apache-2.0
"""A service behind HTTP that is a function of this process; a way to any server that can be shut; and an
HTTP proxy in front of one server, which lets go wrong what a rule says::

    with Proxy(placement_url) as proxy:
        proxy.faults = lambda method, path, body: lost() if method == 'PUT' else None
        ...  # clients talk to proxy.url; proxy.asked lists what they asked
        proxy.faults = None

The rule is called once for each request, in the thread that serves it. A request that
hangs does so until ``release()`` or the end of the proxy, and ``wait_for_hanging()``
returns when one more does. Within ``with proxy.down():`` connections are refused. With
an identity it speaks TLS, as a load balancer does before a server that speaks none.
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
    """One connection, in a thread of its own."""

    stub: 'HttpStub'
    protocol_version = 'HTTP/1.1'
    # Head and body leave in two writes: without this a client waits for 40 ms.
    disable_nagle_algorithm = True

    def do_GET(self):
        """Serve one request of any method."""
        self.stub.serve(
            self, self.rfile.read(int(self.headers.get('Content-Length', 0)))
        )

    do_PUT = do_POST = do_DELETE = do_PATCH = do_HEAD = do_GET  # noqa: N815

    def send_head(self, status, headers, size):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if status != http.HTTPStatus.NO_CONTENT:
            self.send_header('Content-Length', str(size))
        self.end_headers()

    def log_message(self, format, *args):
        """Nobody reads it."""


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
        """A client that has gone, mostly: no matter for the tests' output."""


class HttpStub:
    """Serves on a loopback port, from ``with`` to its end, what ``reply()`` of a
    subclass says; with an identity over TLS."""

    def __init__(self, identity=None):
        self._identity = identity
        self._handler = type('Handler', (Handler,), {'stub': self})
        self._server = _Server(0, self._handler)
        self._port = self._server.server_port
        self.address = f'127.0.0.1:{self._port}'

    def reply(self, method, path, headers, body):
        """The answer to a request, worked out in a thread of its own."""
        raise NotImplementedError

    def serve(self, handler, body):
        """Answer a request of which the body has been read."""
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
        """Listen no more, and end every connection."""
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
    """What becomes of one request, in the order of the fields; by default nothing
    bad."""

    before: float = 0.0  # seconds until the server is asked; HANG: until the release
    work: bool = True  # whether the server is asked, and does the work, at all
    after: float = 0.0  # seconds until its answer is passed on; HANG: until the release
    status: int | None = None  # instead of the server's
    body: bytes | None = None  # instead of the server's
    content_type: str | None = None  # instead of the server's
    size: int | None = None  # so many bytes of body, written piece by piece
    part: float = (
        1.0  # how much of the body is sent; less than 1: then the connection ends
    )
    silent: bool = False  # nothing at all is sent, and the connection ends


def slow(seconds):
    return Fault(after=seconds)


def hang(work=True):
    """No answer until the release; the server does the work then, if at all."""
    return Fault(before=HANG, work=work)


def hang_after():
    """The server does the work at once, but its answer waits for the release."""
    return Fault(after=HANG)


def answer(status, body=b'', work=False, content_type='application/json'):
    """Another answer; with ``work``, after the server has done what it is asked."""
    return Fault(work=work, status=status, body=body, content_type=content_type)


def lost():
    """The server does the work, and the connection ends before its answer."""
    return Fault(silent=True)


def dropped():
    """The connection ends before the server hears of the request."""
    return Fault(work=False, silent=True)


def half():
    """The connection ends in the middle of the server's answer, as to its length or,
    where it has no body, as to its head."""
    return Fault(part=0.5)


def huge(size):
    return Fault(work=False, status=200, size=size)


def garbage(work=True):
    status = None if work else 200
    return Fault(
        work=work,
        status=status,
        body=b'<html>\xff\x00 It works! {"',
        content_type='application/json',
    )


Rule = Callable[[str, str, bytes], Fault | None]
"""Gets method, path (with its query) and body; None lets the request pass as it is."""


def every(method, path, fault):
    """A rule: what happens to all requests of that kind."""
    return lambda asked, whole, body: (
        fault if asked == method and whole.startswith(path) else None
    )


class Proxy(HttpStub):
    """See the module. One thread for each connection, each on its own."""

    def __init__(self, upstream, identity=None):
        super().__init__(identity)
        self.url = f'{"https" if identity else "http"}://{self.address}'
        split = urlsplit(upstream)
        self.upstream = (split.hostname, split.port or 80)
        self.prefix = split.path.rstrip('/')
        self.faults: Rule | None = None
        self.asked: list[str] = []
        self.heard: Callable[[str, str, bytes, int], object] | None = None
        """Told method, path, body and the server's own status of each request that it
        was given."""
        self.gate = threading.Event()
        self._hanging = threading.Semaphore(0)

    def __exit__(self, *exception):
        self.release()
        super().__exit__(*exception)

    @contextmanager
    def down(self):
        """Nobody listens, and who is connected no longer is."""
        self._stop()
        try:
            yield
        finally:
            self._restart()

    def release(self):
        """Let go on whatever hangs now; what comes later hangs again."""
        gate = self.gate
        self.gate = threading.Event()
        gate.set()
        self._hanging = threading.Semaphore(0)

    def shut(self):
        """Let the server do what it is asked, and hold back each answer until
        ``open()``."""
        self.faults = lambda method, path, body: hang_after()

    def open(self):
        """Hold back nothing any more."""
        self.faults = None
        self.release()

    def wait_for_hanging(self, count=1):
        """Return when so many more requests hang."""
        for _ in range(count):
            assert self._hanging.acquire(timeout=WAIT)

    def serve(self, handler, body):
        """Let a request meet its fault. The gate is the one that was there when it
        came."""
        gate = self.gate
        rule = self.faults
        asked = (handler.command, handler.path)
        self.asked.append(' '.join(asked))
        fault = (rule and rule(*asked, body)) or Fault()
        self._pause(fault.before, gate)
        status = 200
        headers = dict[str, str]()
        content = b''
        if fault.work:
            status, headers, content = self.reply(*asked, handler.headers, body)
            if self.heard:
                self.heard(*asked, body, status)
        self._pause(fault.after, gate)
        if fault.content_type is not None:
            headers['Content-Type'] = fault.content_type
        content = content if fault.body is None else fault.body
        self._answer(handler, fault, (fault.status or status, headers, content))

    def reply(self, method, path, headers, body):
        """Ask the server."""
        connection = http.client.HTTPConnection(*self.upstream, timeout=WAIT)
        sent = {k: v for k, v in headers.items() if k.lower() not in HOP_BY_HOP}
        try:
            connection.request(method, self.prefix + path, body or None, sent)
            response = connection.getresponse()
            content = response.read()
        finally:
            connection.close()
        kept = {k: v for k, v in response.getheaders() if k.lower() not in HOP_BY_HOP}
        return response.status, kept, content

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
        size = len(content) if fault.size is None else fault.size
        handler.send_head(status, headers, size)
        if fault.size is not None:
            for start in range(0, size, PIECE):
                handler.wfile.write(b'x' * min(PIECE, size - start))
        elif handler.command != 'HEAD' and status != http.HTTPStatus.NO_CONTENT:
            handler.wfile.write(content[: int(size * fault.part)])


class Tunnel:
    """Hands on what comes to a server, and what it answers.

    While it is shut, it takes connections and hands on nothing, as a server does that
    hangs; ``held`` is set as soon as there is something that it keeps.
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
        """End every connection and take no new ones, as where no server runs."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def cut(self):
        """End every connection; new ones can be made."""
        ends = self._ends
        self._ends = []
        for each in ends:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

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
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
