# SPDX-License-Identifier: Apache-2.0
"""Health over HTTP, and systemd's watchdog.

The HTTP process judges and answers, so that a worker or a main process that hangs is
noticed. Each process reports once a second over a pair of datagram sockets. The main
process creates the sockets before the fork, and a restarted process inherits them. An
answer to a client costs no I/O but the reading of the waiting reports.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import socket
import stat
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
from oslo_config import cfg

from novasched.conf.errors import ConfigError
from novasched.conf.settings import Address, ServiceSettings, Settings, SocketFile
from novasched.observe.health.state import FAIL, MAIN, Checks, HealthState, from_json
from novasched.observe.health.vitals import Vitals
from novasched.observe.web.server import (
    BACKLOG,
    Environ,
    StartResponse,
    WsgiApp,
    bind,
    listen,
)

LOG = logging.getLogger(__name__)
OPTION = '[novasched] health_bind'
HEALTH_TYPE = 'application/health+json'
JSON_TYPE = 'application/json'
FOLDER_MODE = 0o750
SOCKET_UMASK = 0o117
"""The owner and the group may enter the folder, and connect."""

IN_USE = (
    'another process serves there, and novaschedctl health gets the answers of that '
    'process; give each novasched on a machine its own [novasched] health_bind or '
    '[DEFAULT] state_path'
)
MAX_SOCKET_PATH_BYTES = 107
"""Bytes of ``sun_path`` in Linux, without the end of the text."""
MAX_DATAGRAM_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class HealthService:
    """The sockets and facts that the main process prepares before a fork.

    :ivar listener: where probes connect; None if only systemd's watchdog is fed.
    :ivar inbox: receives the reports of all processes.
    :ivar outbox: sends reports.
    :ivar names: the processes that report.
    :ivar patience: seconds for which requests wait for Placement, and for databases.
    :ivar watchdog: address of systemd's notification socket; empty without a watchdog.
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
        """The reports of a worker. Call it in the worker's process: a worker that
        outlives the main process must not keep the listening socket."""
        if self.listener:
            self.listener.close()
        return self.vitals(worker_name(number))


def worker_name(number: int) -> str:
    """The name of a worker among the processes that report."""
    return f'worker:{number}'


@contextlib.contextmanager
def health_service(
    conf: cfg.ConfigOpts, settings: Settings, service: ServiceSettings, release: str
) -> Iterator[HealthService | None]:
    """Sockets for health, for as long as the main process runs; None if neither an
    address nor a watchdog is configured.

    :raises ConfigError: the address of an operator cannot be used. If the default
        address cannot be used, a warning is logged.
    """
    # systemd.notify_once removes the variable from the environment once the workers
    # run.
    watchdog = ''
    if os.environ.get('WATCHDOG_USEC'):
        watchdog = os.environ.get('NOTIFY_SOCKET', '')

    with contextlib.ExitStack() as stack:
        listener = None
        if (address := service.health_bind) is not None:
            try:
                listener = stack.enter_context(_listening(address))
            except ConfigError as error:
                if is_set_by_operator(conf):
                    raise
                LOG.warning('Health is not served: %s', error)
        if listener is None and not watchdog:
            yield None
            return

        inbox, outbox = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        for channel in (inbox, outbox):
            stack.enter_context(channel)
            channel.setblocking(False)
        outbox.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MAX_DATAGRAM_BYTES)
        workers = map(worker_name, range(service.workers))
        yield HealthService(
            listener=listener,
            inbox=inbox,
            outbox=outbox,
            names=(MAIN, *workers),
            host=service.host,
            release=release,
            patience=(settings.placement_patience, settings.database_patience),
            watchdog=watchdog,
        )


def is_set_by_operator(conf: cfg.ConfigOpts) -> bool:
    """True unless ``health_bind`` has its default. If the default cannot be used,
    health is not served."""
    origin = conf.get_location('health_bind', 'novasched')
    return origin is None or origin.location.is_user_controlled


def check_address(address: Address | SocketFile) -> None:
    """Check that a daemon can listen on an address, without listening and without a
    change of files.

    :raises ConfigError: the address cannot be used.
    """
    if isinstance(address, Address):
        bind(address, OPTION).close()
        return

    folder = os.path.dirname(address.path)
    if not os.path.isdir(folder):
        # The daemon makes the folder, but not the folder above.
        folder = os.path.dirname(folder)
    try:
        os.stat(folder)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        if len(os.fsencode(address.path)) > MAX_SOCKET_PATH_BYTES:
            raise OSError('AF_UNIX path too long')
        _check_socket_file(address.path)
    except OSError as error:
        raise ConfigError(OPTION, address, error.strerror or str(error)) from None


def _check_socket_file(path: str) -> None:
    """Check that a path does not exist, or is the socket file of a killed process.

    :raises OSError: there is another file.
    :raises ConfigError: another process serves the socket.
    """
    if not os.path.lexists(path):
        return
    if not _is_stale_socket(path):
        raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


@contextlib.contextmanager
def _listening(address: Address | SocketFile) -> Iterator[socket.socket]:
    """A socket that listens on an address. The file of a Unix socket is removed in the
    end.

    :raises ConfigError: the address cannot be used.
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
            if os.path.lexists(path) and _is_stale_socket(path):
                os.unlink(path)
            # The umask decides the permissions of the file from its creation on.
            umask = os.umask(SOCKET_UMASK)
            try:
                listener.bind(path)
            finally:
                os.umask(umask)
            listener.listen(BACKLOG)
        except OSError as error:
            raise ConfigError(OPTION, address, error.strerror or str(error)) from None

        inode = os.stat(path).st_ino
        try:
            yield listener
        finally:
            # Another daemon may have put its own socket there.
            with contextlib.suppress(OSError):
                if os.lstat(path).st_ino == inode:
                    os.unlink(path)


def _is_stale_socket(path: str) -> bool:
    """True for the socket file of a killed process; False for a file of another kind,
    which bind() reports.

    :raises OSError: the file cannot be examined.
    :raises ConfigError: another process serves the socket.
    """
    if not stat.S_ISSOCK(os.lstat(path).st_mode):
        return False

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            return True
    raise ConfigError(OPTION, SocketFile(path), IN_USE)


class HealthApp:
    """Answers ``/health``, ``/ready`` and ``/status``, and feeds systemd's watchdog.

    :ivar state: the reports of the processes.
    """

    def __init__(self, service: HealthService) -> None:
        self.state = HealthState(service.names, *service.patience)
        self._service = service
        # The main thread and the threads of HTTP read reports and judge.
        self._lock = threading.Lock()

    def beat(self) -> None:
        """Read reports, and feed the watchdog. Called once a second."""
        with self._lock:
            self._read_reports()
            is_alive = self._document(self.state.liveness())['status'] != FAIL
        if self._service.watchdog and is_alive:
            _notify(self._service.watchdog)

    def routes(self) -> dict[str, WsgiApp]:
        """The application of each path."""
        return {
            '/health': self._liveness,
            '/ready': self._readiness,
            '/status': self._status,
        }

    def _liveness(self, _: Environ, start: StartResponse) -> Iterable[bytes]:
        with self._lock:
            self._read_reports()
            document = self._document(self.state.liveness())
        return _judged(start, document)

    def _readiness(self, _: Environ, start: StartResponse) -> Iterable[bytes]:
        with self._lock:
            self._read_reports()
            document = self._document(self.state.readiness())
        return _judged(start, document)

    def _status(self, _: Environ, start: StartResponse) -> Iterable[bytes]:
        with self._lock:
            self._read_reports()
            document = self.state.status(self._service.host, self._service.release)
        return _json(start, '200 OK', JSON_TYPE, document)

    def _read_reports(self) -> None:
        """Read the waiting reports. The caller holds the lock."""
        with contextlib.suppress(BlockingIOError):
            while True:
                text = self._service.inbox.recv(MAX_DATAGRAM_BYTES)
                with contextlib.suppress(msgspec.MsgspecError):
                    self.state.hear(from_json(text))

    def _document(self, checks: Checks) -> dict[str, Any]:
        return self.state.document(checks, self._service.host)


def _judged(start: StartResponse, document: dict[str, Any]) -> Iterable[bytes]:
    """The answer for a probe."""
    if document['status'] == FAIL:
        return _json(start, '503 Service Unavailable', HEALTH_TYPE, document)
    return _json(start, '200 OK', HEALTH_TYPE, document)


def _json(
    start: StartResponse, status: str, kind: str, document: dict[str, Any]
) -> Iterable[bytes]:
    body = json.dumps(document, indent=2).encode() + b'\n'
    start(
        status,
        [
            ('Content-Type', kind),
            ('Content-Length', str(len(body))),
            ('Cache-Control', 'no-cache'),
        ],
    )
    return [body]


def _notify(watchdog: str) -> None:
    """Send a keep-alive to systemd (sd_notify, ``WatchdogSec``)."""
    address = watchdog
    if watchdog[0] == '@':
        address = watchdog.replace('@', '\0', 1)  # an abstract socket
    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender,
    ):
        # While systemd does not read, probes are answered all the same.
        sender.setblocking(False)
        sender.connect(address)
        sender.send(b'WATCHDOG=1')
