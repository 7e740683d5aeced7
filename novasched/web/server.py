# SPDX-License-Identifier: Apache-2.0
"""The process that serves HTTP, whatever is sent to it.

It yields to all others, has a bounded number of connections, keeps each for a bounded time and
takes a bounded number in a second.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import Callable
from typing import Any

from novasched.conf.address import Address
from novasched.errors import ConfigError
from novasched.web.routing import App

LOG = logging.getLogger(__name__)

BACKLOG = 64  # connections that wait with the system
LONGEST = 10.0
"""Seconds that a connection lasts, but for a request that is being answered."""
MOST = 40
"""So many connections there are. For one more, the oldest that asks nothing is closed: who asks
does so at once, and who holds a place is to leave it to others."""
RATE = 200
"""So many connections begin within a second, each for one request; the rest waits with the
system. Prometheus and those who look at pages need a few."""
LIMITS: dict[str, Any] = {
    'threads': 2,
    'connection_limit': 2 * MOST,
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
"""waitress's own."""


def listening(address: Address, option: str) -> socket.socket:
    """A socket that listens there.

    :raises ConfigError: the port is in use, or the address is none of this machine.
    """
    try:
        family, _, _, _, where = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        dual = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
        return socket.create_server(where[:2], family=family, backlog=BACKLOG, dualstack_ipv6=dual)
    except OSError as error:
        raise ConfigError(option, address, error.strerror or str(error)) from None


class Web:
    """Serves an application. Implements :class:`novasched.supervisor.Service`."""

    def __init__(
        self, listens: socket.socket, app: App, renew: Callable[[], None] | None = None
    ) -> None:
        """:param renew: reads anew what may have changed."""
        self._socket, self._app, self._renew = listens, app, renew
        self._server: Any = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to serve."""
        from novasched.web.brief import BriefServer

        # Each stranger's mistake would be a line otherwise, and each wait for a thread.
        logging.getLogger('waitress').setLevel(logging.ERROR)
        self._server = BriefServer(self._app, self._socket, LONGEST, MOST, RATE, LIMITS)
        self._thread = threading.Thread(target=self._run, name='http', daemon=True)
        self._thread.start()

    def reload(self) -> None:
        """Read anew what may have changed, if there is anything."""
        if self._renew is not None:
            self._renew()

    def stop(self) -> None:
        """Close every connection."""
        server, self._server = self._server, None
        server.task_dispatcher.shutdown()
        server.end()
        if self._thread is not None:
            self._thread.join(LONGEST)

    def _run(self) -> None:
        try:
            self._server.run()
        except Exception:
            if self._server is None:
                return
            LOG.exception('HTTP cannot be served; a new process is to do so')
            os.kill(os.getpid(), signal.SIGTERM)
