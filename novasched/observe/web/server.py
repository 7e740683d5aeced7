# SPDX-License-Identifier: Apache-2.0
"""The HTTP server: the metrics of all workers in Prometheus' text format, and the page
under all other paths. waitress has bounds here for connections that ask too slowly or
too often."""

import logging
import math
import os
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from waitress.channel import HTTPChannel
from waitress.server import TcpWSGIServer
from waitress.task import WSGITask

LOG = logging.getLogger(__name__)

Environ: TypeAlias = dict[str, Any]
StartResponse: TypeAlias = Callable[..., Any]
WsgiApp: TypeAlias = Callable[[Environ, StartResponse], Iterable[bytes]]

PLAIN_TEXT = 'text/plain; charset=utf-8'
PROMETHEUS_TEXT = 'text/plain; version=0.0.4; charset=utf-8'
READING_METHODS = ('GET', 'HEAD')

METRICS_CACHE_S = 1.0
"""Seconds for which a text is served again."""

MAX_CONNECTION_S = 10.0
"""Seconds that a connection lasts, unless a request is being answered."""

MAX_CONNECTIONS = 40
"""For one more, the oldest connection that waits for a request is closed."""

MAX_CONNECTIONS_PER_S = 200
"""Further connections wait in the system's queue. Prometheus and the page need a
few."""

WAITRESS_OPTIONS: dict[str, Any] = {
    'threads': 2,
    'connection_limit': 2 * MAX_CONNECTIONS,
    'channel_timeout': 5,
    'cleanup_interval': 1,
    'max_request_header_size': 8192,
    'max_request_body_size': 1024,
    'recv_bytes': 8192,
    'asyncore_use_poll': True,
    'log_socket_errors': False,
    'expose_tracebacks': False,
    'ident': None,
}


class MetricsText:
    """The metrics of all workers, read from their files once a second at the most.

    :param directory: where the workers keep their metrics.
    """

    def __init__(
        self, directory: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._registry = CollectorRegistry()
        MultiProcessCollector(self._registry, directory)
        self._clock = clock
        self._lock = threading.Lock()
        self._read_at = -math.inf
        self._text = b''

    def __call__(self, _: Environ, start: StartResponse) -> Iterable[bytes]:
        """Serve the text."""
        body = self.read()
        start(
            '200 OK',
            [('Content-Type', PROMETHEUS_TEXT), ('Content-Length', str(len(body)))],
        )
        return [body]

    def read(self) -> bytes:
        with self._lock:
            now = self._clock()
            if now - self._read_at >= METRICS_CACHE_S:
                self._text = generate_latest(self._registry)
                self._read_at = now
            return self._text


def routed(routes: Mapping[str, WsgiApp], default: WsgiApp | None = None) -> WsgiApp:
    """Applications by path. Methods that do more than read are refused, and an error in
    an application is answered with status 500."""
    logged: set[tuple[str, type]] = set()

    def route(environ: Environ, start: StartResponse) -> Iterable[bytes]:
        method = environ.get('REQUEST_METHOD')
        path = environ.get('PATH_INFO', '')
        if method not in READING_METHODS:
            return _status(
                start, '405 Method Not Allowed', ('Allow', ', '.join(READING_METHODS))
            )
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
                LOG.exception('What is asked for by HTTP cannot be served')
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


class OneAnswerTask(WSGITask):  # type: ignore[misc]
    """Closes the connection after its answer."""

    def build_response_header(self) -> bytes:
        self.set_close_on_finish()
        header: bytes = super().build_response_header()
        return header


class OneAnswerChannel(HTTPChannel):  # type: ignore[misc]
    """A connection for one request."""

    task_class = OneAnswerTask


class HttpServer(TcpWSGIServer):  # type: ignore[misc]
    """Serves a WSGI application. Implements
    :class:`novasched.service.supervisor.ProcessService`.

    waitress closes connections on which nothing happens, and accepts none beyond its
    limit. This one also closes connections on which too little happens, makes room for
    new ones, and bounds how many it accepts within a second.
    """

    channel_class = OneAnswerChannel

    def __init__(
        self,
        listener: socket.socket,
        app: WsgiApp,
        max_connection_s: float = MAX_CONNECTION_S,
        max_per_s: int = MAX_CONNECTIONS_PER_S,
    ) -> None:
        # Otherwise each client's mistake and each wait for a thread is a line.
        logging.getLogger('waitress').setLevel(logging.ERROR)
        self._max_connection_s = max_connection_s
        self._accepted: deque[float] = deque(maxlen=max_per_s)
        super().__init__(
            app,
            _sock=listener,
            sockinfo=(
                listener.family,
                listener.type,
                listener.proto,
                listener.getsockname(),
            ),
            bind_socket=False,
            **WAITRESS_OPTIONS,
        )

    def start(self) -> None:
        """Serve in a thread of its own; if that fails, end the process, which is
        replaced."""

        def serve() -> None:
            try:
                self.run()
            except Exception:
                LOG.exception('HTTP cannot be served; a new process is to do so')
                os.kill(os.getpid(), signal.SIGTERM)

        threading.Thread(target=serve, name='http', daemon=True).start()

    def beat(self) -> None:
        """Do nothing: whether it moves is no matter of the daemon's health."""

    def reload(self) -> None:
        """Do nothing: what is served is read anew all the time."""

    def stop(self) -> None:
        """Finish the answers under way. Connections end with the process."""
        self.task_dispatcher.shutdown()

    def maintenance(self, now: float) -> None:
        super().maintenance(now)
        for channel in self._idle_channels():
            if channel.creation_time < now - self._max_connection_s:
                channel.will_close = True

    def readable(self) -> bool:
        is_full = len(self._accepted) == self._accepted.maxlen
        may_accept = not is_full or time.monotonic() - self._accepted[0] >= 1.0
        return bool(super().readable()) and may_accept

    def handle_accept(self) -> None:
        self._accepted.append(time.monotonic())
        if len(self.active_channels) >= MAX_CONNECTIONS and (
            idle := self._idle_channels()
        ):
            # Closed in the next round: events of this one name channels by file number.
            min(idle, key=lambda channel: channel.creation_time).will_close = True
        super().handle_accept()

    def _idle_channels(self) -> list[Any]:
        """The connections on which no request is being answered."""
        channels = self.active_channels.values()
        return [x for x in channels if not x.requests and not x.will_close]
