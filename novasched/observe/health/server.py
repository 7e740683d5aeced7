# SPDX-License-Identifier: Apache-2.0
"""Health by HTTP, served by a process of its own, so that a worker or a main process
that hangs is seen; and the watchdog of systemd, which hears of it as long as the
processes move.

The reports of the others come by a pair of datagram sockets, which processes that are
started again inherit. Nothing that a client asks leads to I/O but its answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import msgspec
from oslo_config import cfg

from novasched.conf.errors import ConfigError
from novasched.conf.settings import Address, ServiceSettings, Settings, SocketFile
from novasched.observe.health.state import FAIL, MAIN, HealthState, from_json
from novasched.observe.health.vitals import Vitals
from novasched.observe.web.wiring import listen

LOG = logging.getLogger(__name__)
OPTION = '[novasched] health_bind'
HEALTH_TYPE = 'application/health+json'
JSON_TYPE = 'application/json'
TEXT_TYPE = 'text/plain'
FOLDER_MODE = 0o750
SOCKET_UMASK = 0o117
"""The owner and the group may look into the folder, and ask."""
IN_USE = (
    'another process serves there, and novaschedctl health gets the answers of that '
    'process; give each novasched on a machine its own [novasched] health_bind or '
    '[DEFAULT] state_path'
)
MAX_EXCHANGE_S = 5.0
"""Seconds that a connection lasts at most."""
MAX_CONNECTIONS = 40
"""For one more, the oldest is closed."""
BACKLOG = 1024
"""Connections that wait in the system's queue; of a Unix socket, one more is
refused."""
MAX_HEAD_BYTES = 8192
MAX_DATAGRAM_BYTES = 1 << 20
WATCHDOG_INTERVAL_S = 1.0


@dataclass(frozen=True, slots=True)
class HealthService:
    """The sockets and facts that the main process has ready for the others before a
    fork.

    :param listener: where probes ask; None where only systemd's watchdog wants to know.
    """

    listener: socket.socket | None
    inbox: socket.socket
    outbox: socket.socket
    names: tuple[str, ...]
    host: str
    release: str
    patience: tuple[float, float]
    watchdog: str

    def vitals(self, name: str) -> Vitals:
        """The reports of a process."""
        return Vitals(self.outbox, name)

    def worker_vitals(self, number: int) -> Vitals:
        """The reports of a worker. To be called in its process, which must not keep the
        socket when the main process has died."""
        if self.listener:
            self.listener.close()
        return self.vitals(worker_name(number))

    def server(self) -> HealthServer:
        """The server. To be called in its process. It has its full share of the
        processors: a probe that is not answered in time is a failure to an
        orchestrator."""
        return HealthServer(self)


def worker_name(number: int) -> str:
    """The name of a worker among the processes that report."""
    return f'worker:{number}'


@contextlib.contextmanager
def health_service(
    conf: cfg.ConfigOpts, settings: Settings, service: ServiceSettings, release: str
) -> Iterator[HealthService | None]:
    """Sockets to serve health, for as long as the main process runs; None where nobody
    wants to know.

    :raises ConfigError: an operator's address cannot be listened on. Where the default
        cannot, there is a warning.
    """
    # systemd.notify_once takes it out of the environment when the workers run.
    if os.environ.get('WATCHDOG_USEC'):
        watchdog = os.environ.get('NOTIFY_SOCKET', '')
    else:
        watchdog = ''
    with contextlib.ExitStack() as stack:
        listener = None
        if (address := service.health_bind) is not None:
            place = conf.get_location('health_bind', 'novasched')
            try:
                listener = stack.enter_context(_listening(address))
            except ConfigError as error:
                if place is None or place.location.is_user_controlled:
                    raise
                LOG.warning('Health is not served: %s', error)
        if listener is None and not watchdog:
            yield None
            return
        inbox, outbox = map(
            stack.enter_context, socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        )
        for each in (inbox, outbox):
            each.setblocking(False)
        outbox.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MAX_DATAGRAM_BYTES)
        names = MAIN, *map(worker_name, range(service.workers))
        patience = settings.placement_patience, settings.database_patience
        yield HealthService(
            listener, inbox, outbox, names, service.host, release, patience, watchdog
        )


@contextlib.contextmanager
def _listening(address: Address | SocketFile) -> Iterator[socket.socket]:
    """A socket that listens on an address; its file is removed in the end.

    :raises ConfigError: it cannot be had.
    """
    if isinstance(address, Address):
        with listen(address, OPTION) as listener:
            yield listener
        return
    path = address.path
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(os.path.dirname(path), FOLDER_MODE)
            _remove_left_over(path)
            before = os.umask(SOCKET_UMASK)
            try:
                listener.bind(path)
            finally:
                os.umask(before)
            listener.listen(BACKLOG)
        except OSError as error:
            raise ConfigError(OPTION, address, error.strerror or str(error)) from None
        made = os.stat(path).st_ino
        try:
            yield listener
        finally:
            with contextlib.suppress(OSError):
                if os.lstat(path).st_ino == made:
                    os.unlink(path)


def _remove_left_over(path: str) -> None:
    """Remove the socket of a process that was killed.

    :raises OSError: the path leads to something else than a socket.
    :raises ConfigError: the socket is in use.
    """
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            return  # to bind it fails
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
        else:
            raise ConfigError(OPTION, SocketFile(path), IN_USE)


class HealthServer:
    """Serves health. Implements
    :class:`novasched.service.supervisor.ProcessService`."""

    def __init__(self, service: HealthService) -> None:
        self._service = service
        self.state = HealthState(service.names, *service.patience)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended = asyncio.Event()
        self._connections: dict[asyncio.StreamWriter, None] = {}  # the oldest first

    def start(self) -> None:
        """Serve in a thread of its own; if that fails, end the process, which is
        replaced."""

        def serve() -> None:
            try:
                asyncio.run(self.run())
            except Exception:
                LOG.exception('Health cannot be served; a new process is to do so')
                os.kill(os.getpid(), signal.SIGTERM)

        threading.Thread(target=serve, name='health', daemon=True).start()

    def beat(self) -> None:
        """Do nothing: that this process is alive is seen by who asks."""

    def reload(self) -> None:
        """Do nothing: what is served is new all the time."""

    def stop(self) -> None:
        """Answer no more."""
        if self._loop:
            self._loop.call_soon_threadsafe(self._ended.set)

    async def run(self) -> None:
        """Hear reports, and answer."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._service.inbox, self._hear)
        if self._service.listener:
            await asyncio.start_server(
                self._serve,
                sock=self._service.listener,
                limit=MAX_HEAD_BYTES,
                backlog=BACKLOG,
            )
        while not self._ended.is_set():
            self._feed_watchdog()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._ended.wait(), WATCHDOG_INTERVAL_S)

    def _hear(self) -> None:
        with contextlib.suppress(BlockingIOError, msgspec.MsgspecError):
            self.state.hear(from_json(self._service.inbox.recv(MAX_DATAGRAM_BYTES)))

    def _feed_watchdog(self) -> None:
        """Tell systemd that the processes move, if they do."""
        where = self._service.watchdog
        if where and self._document(self.state.liveness)['status'] != FAIL:
            with (
                contextlib.suppress(OSError),
                socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender,
            ):
                sender.setblocking(
                    False
                )  # while systemd does not read, probes are answered
                sender.connect(
                    where.replace('@', '\0', 1) if where[0] == '@' else where
                )
                sender.send(b'WATCHDOG=1')

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Answer one request; whatever a client does, it is over soon."""
        self._connections[writer] = None
        if len(self._connections) > MAX_CONNECTIONS:
            next(iter(self._connections)).transport.abort()
        try:
            await asyncio.wait_for(self._exchange(reader, writer), MAX_EXCHANGE_S)
        except (
            asyncio.TimeoutError,
            asyncio.IncompleteReadError,
            asyncio.LimitOverrunError,
        ):
            pass
        except OSError:  # the client has gone
            pass
        finally:
            del self._connections[writer]
            writer.transport.abort()

    async def _exchange(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        head = await reader.readuntil(b'\r\n\r\n')
        method, _, rest = head.partition(b' ')
        writer.write(self.answer(method, rest.split(b' ', 1)[0].partition(b'?')[0]))
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    def answer(self, method: bytes, path: bytes) -> bytes:
        """The answer to a request, with its head."""
        if method not in (b'GET', b'HEAD'):
            return _response(
                HTTPStatus.METHOD_NOT_ALLOWED, TEXT_TYPE, b'', 'Allow: GET, HEAD'
            )
        judged = {b'/health': self.state.liveness, b'/ready': self.state.readiness}.get(
            path
        )
        status = HTTPStatus.OK
        kind = HEALTH_TYPE
        if judged:
            document = self._document(judged)
            if document['status'] == FAIL:
                status = HTTPStatus.SERVICE_UNAVAILABLE
        elif path == b'/status':
            document = self.state.status(self._service.host, self._service.release)
            kind = JSON_TYPE
        else:
            return _response(HTTPStatus.NOT_FOUND, TEXT_TYPE, b'')
        body = json.dumps(document, indent=2).encode() + b'\n'
        whole = _response(status, kind, body, 'Cache-Control: no-cache')
        if method == b'GET':
            return whole
        return whole.removesuffix(body)

    def _document(self, judged: Callable[[], Any]) -> dict[str, Any]:
        return self.state.document(judged(), self._service.host)


def _response(status: HTTPStatus, kind: str, body: bytes, *headers: str) -> bytes:
    lines = [
        f'HTTP/1.1 {status.value} {status.phrase}',
        f'Content-Type: {kind}',
        f'Content-Length: {len(body)}',
        'Connection: close',
        *headers,
    ]
    return '\r\n'.join([*lines, '', '']).encode() + body
