# SPDX-License-Identifier: Apache-2.0
"""The HTTP server of the standard library, with bounds for the clients of an open port.

``http.server`` and ``wsgiref`` parse requests and write answers. A thread accepts the
connections of an address, and each connection has a thread for its one request. The
bounds are added here, since the library has none: the size of a request, the duration
and the number of connections, and the number of simultaneous answers.
"""

import contextlib
import http.client
import io
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.server import HTTPServer
from socketserver import ThreadingMixIn
from typing import IO, Any, TypeAlias, cast
from wsgiref.handlers import SimpleHandler
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from novasched.conf.errors import ConfigError
from novasched.conf.settings import Address

LOG = logging.getLogger(__name__)

Environ: TypeAlias = dict[str, Any]
StartResponse: TypeAlias = Callable[..., Any]
WsgiApp: TypeAlias = Callable[[Environ, StartResponse], Iterable[bytes]]

PLAIN_TEXT = 'text/plain; charset=utf-8'
READING_METHODS = ('GET', 'HEAD')
MAX_HEAD_BYTES = 8192
BACKLOG = 1024
"""Connections that wait in the kernel to be accepted."""

STOP_TIMEOUT_S = 5.0
"""Seconds that a stopping server waits for answers in progress."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of an address.

    :ivar connection_s: seconds until a client has sent the request, and likewise until
        the client has taken the answer.
    :ivar waiting: largest number of connections that have not sent a request. A further
        connection takes the place of the oldest.
    :ivar answers: largest number of requests that are answered at a time.
    :ivar per_second: largest number of connections accepted in a second; 0 for no
        limit. Further connections wait in the kernel.
    :ivar niceness: added to the niceness of the threads that serve the address.
    """

    connection_s: float
    waiting: int = 40
    answers: int = 2
    per_second: int = 0
    niceness: int = 0


def routed(routes: Mapping[str, WsgiApp], default: WsgiApp | None = None) -> WsgiApp:
    """Dispatch requests to applications by path.

    Methods other than GET and HEAD are refused, and an error of an application is
    answered with status 500.
    """
    logged: set[tuple[str, type]] = set()

    def route(environ: Environ, start: StartResponse) -> Iterable[bytes]:
        method = environ.get('REQUEST_METHOD')
        path = environ.get('PATH_INFO', '')
        if method not in READING_METHODS:
            allow = ('Allow', ', '.join(READING_METHODS))
            return _status(start, '405 Method Not Allowed', allow)
        app = routes.get(path, default)
        if app is None:
            return _status(start, '404 Not Found')

        try:
            body = b''.join(app(environ, start))
        except Exception as error:
            # Clients can repeat the request; each kind of error is logged once.
            key = path if path in routes else '', type(error)
            if key not in logged:
                logged.add(key)
                LOG.exception('An HTTP request fails')
            return _status(start, '500 Internal Server Error')
        if method == 'HEAD':
            return []
        return [body]

    return route


def _status(
    start: StartResponse, status: str, *headers: tuple[str, str]
) -> Iterable[bytes]:
    body = f'{status}\n'.encode()
    start(
        status,
        [('Content-Type', PLAIN_TEXT), ('Content-Length', str(len(body))), *headers],
    )
    return [body]


class _Head:
    """The stream of a connection, for the head of a request, of bounded size."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._remaining = MAX_HEAD_BYTES

    def readline(self, limit: int = -1) -> bytes:
        """Read a line of the head.

        :raises LineTooLong: the head is larger than :data:`MAX_HEAD_BYTES`.
        :raises ConnectionAbortedError: the connection ends within the head.
        """
        line: bytes = self._stream.readline(self._remaining + 1)
        self._remaining -= len(line)
        if self._remaining < 0:
            raise http.client.LineTooLong('head')
        if not line.endswith(b'\n'):
            # To the parser of the library the end of the stream ends the head.
            raise ConnectionAbortedError('the request is incomplete')
        return line

    def close(self) -> None:
        self._stream.close()


class _Answer(SimpleHandler):
    """Runs an application, and writes its answer."""

    http_version = '1.1'
    server_software = None
    os_environ: Environ = {}

    def cleanup_headers(self) -> None:
        super().cleanup_headers()
        self.headers['Connection'] = 'close'  # type: ignore[attr-defined]

    def log_exception(self, exc_info: Any) -> None:
        """Log nothing. :func:`routed` logs errors of applications; the remaining errors
        are slow clients."""


class _RequestHandler(WSGIRequestHandler):
    """Reads one request of a connection, in the connection's thread."""

    server: 'HttpServer'
    protocol_version = 'HTTP/1.1'
    default_request_version = 'HTTP/1.1'  # a malformed request gets a whole answer
    error_content_type = PLAIN_TEXT
    error_message_format = '%(code)d %(message)s\n'

    def setup(self) -> None:
        self.request.settimeout(self.server.limits.connection_s)
        super().setup()
        self.rfile = _Head(self.rfile)  # type: ignore[assignment]

    def handle(self) -> None:
        try:
            self.raw_requestline = self.rfile.readline()
        except http.client.LineTooLong:
            self.requestline = ''
            self.request_version = self.default_request_version
            self.command = ''
            self.send_error(HTTPStatus.REQUEST_URI_TOO_LONG)
            return

        if not self.parse_request():
            return  # the parser has refused the request
        length = self.headers.get('Content-Length', '0')
        if length != '0' or 'Transfer-Encoding' in self.headers:
            # A request to read has no body.
            self.send_error(HTTPStatus.BAD_REQUEST)
            return

        self.server.begin_answer(self.request)
        stdout = cast('IO[bytes]', self.wfile)
        answer = _Answer(io.BytesIO(), stdout, self.get_stderr(), self.get_environ())
        answer.run(self.server.answer)

    def send_error(
        self, code: int, message: str | None = None, explain: str | None = None
    ) -> None:
        """Refuse a malformed request. The library's messages quote the request; these
        do not."""
        super().send_error(code)

    def version_string(self) -> str:
        return 'novasched'

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: clients decide how often they ask."""


@dataclass
class _Connection:
    """A connection, accepted at the moment ``since`` (monotonic seconds)."""

    since: float
    is_waiting: bool = True


class HttpServer(ThreadingMixIn, WSGIServer):
    """Serves a WSGI application on one address.

    :param listener: a listening socket of TCP or Unix.
    """

    daemon_threads = True

    def __init__(
        self,
        name: str,
        listener: socket.socket,
        app: WsgiApp,
        limits: Limits,
    ) -> None:
        HTTPServer.__init__(
            self,
            ('', 0),
            _RequestHandler,
            bind_and_activate=False,
        )
        self.socket.close()
        listener.setblocking(False)  # a client may leave before accept()
        self.socket = listener
        self.server_name = name
        self.server_port = 0
        self.setup_environ()
        self.limits = limits
        self._application = app
        self._answers = threading.BoundedSemaphore(limits.answers)
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._accepted_at: deque[float] = deque(maxlen=limits.per_second)
        # The accepting thread and the threads of connections change the table.
        self._lock = threading.Lock()
        self._connections: dict[Any, _Connection] = {}  # the oldest first

    def start(self) -> None:
        """Serve in a thread. A failure ends the process; the main process starts
        another."""
        self._thread.start()

    def _serve(self) -> None:
        try:
            # On Linux these calls concern the calling thread. The threads of
            # connections inherit the values.
            if self.limits.niceness:
                os.nice(self.limits.niceness)
                if hasattr(os, 'SCHED_BATCH'):
                    # A thread of this policy does not preempt a thread that schedules.
                    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
            self.serve_forever()
        except Exception:
            LOG.exception('HTTP cannot be served; a new process is to do so')
            os.kill(os.getpid(), signal.SIGTERM)

    def stop(self) -> None:
        """Accept no more connections, and wait for answers in progress. Connections end
        with the process."""
        if self._thread.is_alive():
            self.shutdown()
        end = time.monotonic() + STOP_TIMEOUT_S
        while self.answering() and time.monotonic() < end:
            time.sleep(0.05)

    def answering(self) -> int:
        """The number of connections whose request has arrived."""
        with self._lock:
            return len(self._connections) - len(self._waiting())

    def begin_answer(self, request: Any) -> None:
        """Note the arrival of the request."""
        with self._lock:
            if connection := self._connections.get(request):
                connection.is_waiting = False

    def answer(self, environ: Environ, start: StartResponse) -> Iterable[bytes]:
        """Run the application. The bound on simultaneous answers excludes the sending,
        so that a slow client does not delay further clients."""
        with self._answers:
            return self._application(environ, start)

    def get_request(self) -> tuple[Any, Any]:
        connection, address = super().get_request()
        if not address:
            return connection, ('', 0)  # a client of a Unix socket has no address
        return connection, address

    def process_request(self, request: Any, client_address: Any) -> None:
        """Make room for a connection, and start its thread."""
        if self.limits.per_second:
            self._wait_for_turn()

        with self._lock:
            waiting = self._waiting()
            answering = len(self._connections) - len(waiting)
            if len(waiting) >= self.limits.waiting:
                self._abort(waiting[0])
            self._connections[request] = _Connection(time.monotonic())
        if answering >= self.limits.waiting:
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """Close connections without a request after the time limit. The library calls
        this function at least every half second."""
        super().service_actions()
        latest = time.monotonic() - self.limits.connection_s
        with self._lock:
            for request in self._waiting():
                if self._connections[request].since < latest:
                    self._abort(request)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._connections.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log an error unless it is the client's."""
        if not isinstance(sys.exc_info()[1], OSError):
            LOG.exception('An HTTP connection fails')

    def _wait_for_turn(self) -> None:
        """Sleep while the connections of the last second have reached the limit."""
        if len(self._accepted_at) == self._accepted_at.maxlen:
            time.sleep(max(0.0, self._accepted_at[0] + 1.0 - time.monotonic()))
        self._accepted_at.append(time.monotonic())

    def _waiting(self) -> list[Any]:
        """The connections that have not sent a request, the oldest first. The caller
        holds the lock."""
        items = self._connections.items()
        return [request for request, connection in items if connection.is_waiting]

    def _abort(self, request: Any) -> None:
        """End a connection. The thread of the connection notices the end. The caller
        holds the lock."""
        del self._connections[request]
        with contextlib.suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)


def listen(address: Address, option: str) -> socket.socket:
    """A socket that listens on a TCP address.

    :param option: the option of the address, for the error text.
    :raises ConfigError: the port is in use, or no interface has the address.
    """
    bound = bind(address, option)
    try:
        bound.listen(BACKLOG)
    except OSError as error:
        bound.close()
        raise ConfigError(option, address, error.strerror or str(error)) from None
    return bound


def bind(address: Address, option: str) -> socket.socket:
    """A socket that is bound to a TCP address and does not listen. While the socket
    exists, another process can still bind to the address and listen.

    :raises ConfigError: see :func:`listen`.
    """
    try:
        family, _, _, _, where = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return _bound(family, where[:2])
    except OSError as error:
        raise ConfigError(option, address, error.strerror or str(error)) from None


def _bound(family: int, where: Any) -> socket.socket:
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and socket.has_dualstack_ipv6():
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        bound.bind(where)
    except OSError:
        bound.close()
        raise
    return bound
