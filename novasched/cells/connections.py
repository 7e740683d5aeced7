# SPDX-License-Identifier: Apache-2.0
"""Database connections that can be aborted.

The drivers limit every wait on a socket, but no driver (PyMySQL, psycopg2, psycopg) has
an option for the whole operation. An operation may wait twice, on a connection and on
the replacement, and waits for ever on a database sending a byte now and then.
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
"""Drivers on libpq. Connections of these drivers and of PyMySQL are tracked."""
# Error numbers of MySQL.
CANNOT_CONNECT = 2003
CANNOT_AUTHENTICATE = 2059
NO_CRYPTOGRAPHY = (
    'MySQL checks the password of this user with caching_sha2_password or '
    'sha256_password: install PyMySQL[rsa], or have the URL ask for TLS (?ssl_ca=...)'
)


class SharedContextConnection(pymysql.Connection):  # type: ignore[misc]
    """A connection with a shared TLS context if the URL sets no TLS parameter.

    PyMySQL loads the system's certificate authorities for every connection (20 ms and 1
    MiB), and verifies nothing with the authorities.
    """

    _default_context: ssl.SSLContext | None = None

    def _create_ssl_ctx(self, options: Any) -> ssl.SSLContext:
        if options:
            context: ssl.SSLContext = super()._create_ssl_ctx(options)
            return context
        if SharedContextConnection._default_context is None:
            SharedContextConnection._default_context = super()._create_ssl_ctx(options)
        return SharedContextConnection._default_context


class TrackedConnections:
    """The connections of several engines to a database. :meth:`abort` can shut the
    connections down from another thread.

    :param timeout: seconds from the start of an operation after which the operation
        opens no new connection.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._operation = threading.local()
        # Guards the two collections: every pool thread adds, the probe's timer reads.
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
        """Begin an operation of this thread; yields False within an operation of the
        same thread: the start of the outer operation counts."""
        if getattr(self._operation, 'began', None) is not None:
            yield False
            return
        self._operation.began = time.monotonic()
        try:
            yield True
        finally:
            self._operation.began = None

    def abort(self) -> None:
        """Shut down every connection, also while a thread waits for an answer."""
        with self._lock:
            sockets: list[socket.socket | None] = list(self._sockets.values())
            for connection in self._connections:
                # PyMySQL has no public access to its socket; None before it connects.
                sockets.append(getattr(connection, '_sock', None))

        for sock in sockets:
            if sock is not None:
                # SSLSocket.shutdown() is only for the thread that reads the socket.
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(sock, socket.SHUT_RDWR)

    def _connect_pymysql(
        self, _dialect: object, _record: object, args: Any, options: Any
    ) -> Any:
        """Connect; the connection is tracked before the first byte is received."""
        self._check_timeout(functools.partial(pymysql.OperationalError, CANNOT_CONNECT))
        connection = SharedContextConnection(
            *args, **{**options, 'defer_connect': True}
        )
        with self._lock:
            self._connections.add(connection)

        try:
            connection.connect()
        except pymysql.Error as error:
            # The frames refer to the connection, whose TLS context may be 1 MiB.
            clear_frames(error)
            del connection
            raise
        except RuntimeError:
            # PyMySQL lacks the package that encrypts passwords.
            raise pymysql.OperationalError(
                CANNOT_AUTHENTICATE, NO_CRYPTOGRAPHY
            ) from None
        return connection

    def _connect_libpq(
        self, dialect: Any, _record: object, _args: Any, _options: Any
    ) -> None:
        """Refuse to connect after the timeout; otherwise SQLAlchemy connects, and
        libpq bounds the time."""
        self._check_timeout(dialect.loaded_dbapi.OperationalError)

    def _libpq_connected(self, connection: Any, _record: object) -> None:
        """Track a duplicate of libpq's socket: the system may reuse the original file
        number once libpq has closed the socket."""
        with self._lock:
            self._sockets[connection] = socket.socket(
                fileno=os.dup(connection.fileno())
            )

    def _check_timeout(self, error: Callable[[str], Exception]) -> None:
        began = getattr(self._operation, 'began', None)
        if began is not None and time.monotonic() - began >= self._timeout:
            raise error(f'no answer within {self._timeout:g} s')
