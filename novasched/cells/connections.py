# SPDX-License-Identifier: Apache-2.0
"""Database connections that can be aborted.

Timeouts of the drivers are for each wait: one operation may wait twice, on a connection
and on the one that replaces it, and a database that sends a byte now and then is waited
for for ever. None of PyMySQL, psycopg2 and psycopg has an option for the whole
operation.
"""

import contextlib
import functools
import os
import socket
import ssl
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pymysql
import sqlalchemy as sa

from novasched.concurrency import clear_frames

PYMYSQL = 'pymysql'
LIBPQ_DRIVERS = ('psycopg2', 'psycopg')
"""Drivers whose connections are tracked. Others have their own timeouts only."""
CANNOT_CONNECT = 2003
CANNOT_AUTHENTICATE = 2059  # MySQL's error numbers
NO_CRYPTOGRAPHY = (
    'MySQL checks the password of this user with caching_sha2_password or'
    ' sha256_password: install PyMySQL[rsa], or have the URL ask for TLS (?ssl_ca=...)'
)


class SharedContextConnection(pymysql.Connection):  # type: ignore[misc]
    """Uses one TLS context where the URL does not mention TLS. PyMySQL loads the
    system's authorities for each connection, in 20 ms and a MiB, and verifies nothing
    with them."""

    _default_context: ssl.SSLContext | None = None

    def _create_ssl_ctx(self, options: Any) -> ssl.SSLContext:
        if options:
            context: ssl.SSLContext = super()._create_ssl_ctx(options)
            return context
        if SharedContextConnection._default_context is None:
            SharedContextConnection._default_context = super()._create_ssl_ctx(options)
        return SharedContextConnection._default_context


class TrackedConnections:
    """The connections of some engines to one database.

    :param timeout: seconds after which an operation makes no new connection.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._operation = threading.local()
        self._lock = threading.Lock()
        self._connections: weakref.WeakSet[Any] = weakref.WeakSet()
        self._sockets: weakref.WeakKeyDictionary[Any, socket.socket] = (
            weakref.WeakKeyDictionary()
        )

    def track(self, engine: sa.Engine) -> None:
        """Track the future connections of an engine, too."""
        if engine.dialect.driver == PYMYSQL:
            sa.event.listen(engine, 'do_connect', self._connect_pymysql)
        elif engine.dialect.driver in LIBPQ_DRIVERS:
            sa.event.listen(engine, 'do_connect', self._connect_libpq)
            # Before SQLAlchemy's own listener, which sends a query.
            sa.event.listen(engine, 'connect', self._libpq_connected, insert=True)

    @contextmanager
    def operation(self) -> Iterator[bool]:
        """Begin an operation of this thread; False within another one, which goes
        on."""
        if getattr(self._operation, 'began', None) is not None:
            yield False
            return
        self._operation.began = time.monotonic()
        try:
            yield True
        finally:
            self._operation.began = None

    def abort(self) -> None:
        """Shut every connection down, whichever thread waits on it."""
        with self._lock:
            sockets = [
                getattr(connection, '_sock', None) for connection in self._connections
            ]
            sockets += self._sockets.values()
        for sock in sockets:
            if sock is not None:
                # SSLSocket.shutdown is for the thread that reads; this one is not.
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(sock, socket.SHUT_RDWR)

    def _connect_pymysql(
        self, _dialect: object, _record: object, args: Any, options: Any
    ) -> Any:
        """Connect, tracked before anything is received."""
        self._check_timeout(functools.partial(pymysql.OperationalError, CANNOT_CONNECT))
        connection = SharedContextConnection(
            *args, **{**options, 'defer_connect': True}
        )
        with self._lock:
            self._connections.add(connection)
        try:
            connection.connect()
        except pymysql.Error as error:
            # A TLS context of its own may be a MiB.
            clear_frames(error)
            del connection
            raise
        except (
            RuntimeError
        ):  # PyMySQL's, where the package is missing that encrypts passwords
            raise pymysql.OperationalError(
                CANNOT_AUTHENTICATE, NO_CRYPTOGRAPHY
            ) from None
        return connection

    def _connect_libpq(
        self, dialect: Any, _record: object, _args: Any, _options: Any
    ) -> None:
        """Leave it to libpq to connect, which bounds the time for that, unless it is
        too late."""
        self._check_timeout(dialect.loaded_dbapi.OperationalError)

    def _libpq_connected(self, connection: Any, _record: object) -> None:
        """Track a duplicate of libpq's socket, whose file number may be reused once
        closed."""
        with self._lock:
            self._sockets[connection] = socket.socket(
                fileno=os.dup(connection.fileno())
            )

    def _check_timeout(self, error: Callable[[str], Exception]) -> None:
        began = getattr(self._operation, 'began', None)
        if began is not None and time.monotonic() - began >= self._timeout:
            raise error(f'no answer within {self._timeout:g} s')
