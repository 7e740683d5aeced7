# SPDX-License-Identifier: Apache-2.0
"""Connections to a database server that end when it is time.

A driver's timeouts are for each time that it waits: a server that is silent may be waited for
twice, for the connection at hand and for the new one in its place, and one that sends a byte
now and then for ever.
"""

from __future__ import annotations

import contextlib
import math
import socket
import ssl
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pymysql
import sqlalchemy as sa

from novasched.processes import let_go

DRIVER = 'pymysql'
"""What is said below is true of this driver. Others have but their own timeouts."""
CANNOT_CONNECT = 2003  # MySQL's number for it


class Connection(pymysql.Connection):  # type: ignore[misc]
    """Where the URL says nothing of TLS, what that needs is made once: PyMySQL loads the
    system's authorities for each connection, which takes 20 ms and a MiB, and believes any
    certificate all the same."""

    _plain: ssl.SSLContext | None = None

    def _create_ssl_ctx(self, options: Any) -> ssl.SSLContext:
        if options:
            made: ssl.SSLContext = super()._create_ssl_ctx(options)
            return made
        if Connection._plain is None:
            Connection._plain = super()._create_ssl_ctx(options)
        return Connection._plain


class Lines:
    """The connections that some engines have made to one server."""

    def __init__(self, patience: float | None) -> None:
        """Nobody who has asked for ``patience`` seconds tries a new connection."""
        self._patience = math.inf if patience is None else patience
        self._asking = threading.local()
        self._lock = threading.Lock()
        self._made: weakref.WeakSet[Any] = weakref.WeakSet()

    def watch(self, engine: sa.Engine) -> None:
        """Count what this engine will make, too."""
        if engine.dialect.driver == DRIVER:
            sa.event.listen(engine, 'do_connect', self._connected)

    @contextmanager
    def asking(self) -> Iterator[bool]:
        """This thread asks something. What it asks meanwhile belongs to that, and is not the
        first thing that it asks."""
        if getattr(self._asking, 'since', None) is not None:
            yield False
            return
        self._asking.since = time.monotonic()
        try:
            yield True
        finally:
            self._asking.since = None

    def cut(self) -> None:
        """End every connection, whoever waits for it."""
        with self._lock:
            made = list(self._made)
        for connection in made:
            line = getattr(connection, '_sock', None)
            if line is not None:
                # Not the method of an SSLSocket, which is for the thread that reads.
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(line, socket.SHUT_RDWR)

    def _connected(self, _dialect: object, _record: object, args: Any, options: Any) -> Any:
        """Make a connection that is known before the server has said a word."""
        since = getattr(self._asking, 'since', None)
        if since is not None and time.monotonic() - since >= self._patience:
            silence = f'no answer within {self._patience:g} s'
            raise pymysql.OperationalError(CANNOT_CONNECT, silence)
        connection = Connection(*args, **{**options, 'defer_connect': True})
        with self._lock:
            self._made.add(connection)
        try:
            connection.connect()
        except pymysql.Error as error:
            # What TLS would have needed may be a MiB.
            let_go(error)
            del connection
            raise
        return connection
