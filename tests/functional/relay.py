# SPDX-License-Identifier: Apache-2.0
"""A wire that can be cut: between a scheduler and the broker."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit, urlunsplit


class Relay(socketserver.ThreadingTCPServer):
    """Hands on what comes to a port of its own, both ways."""

    daemon_threads = True

    def __init__(self, url: str) -> None:
        super().__init__(('127.0.0.1', 0), _Handler)
        self._parts = urlsplit(url)
        self.target = (str(self._parts.hostname), int(self._parts.port or 0))
        self.open: set[socket.socket] = set()

    @property
    def url(self) -> str:
        """The URL of what is behind it, by way of here."""
        user = self._parts.netloc.rpartition('@')[0]
        here = f'{user}@127.0.0.1:{self.server_address[1]}'
        return urlunsplit(self._parts._replace(netloc=here))

    def cut(self) -> None:
        """End all connections that there are; new ones can be made."""
        for each in list(self.open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


class _Handler(socketserver.BaseRequestHandler):
    server: Relay

    def handle(self) -> None:
        with socket.create_connection(self.server.target) as far:
            ends = {self.request, far}
            self.server.open |= ends
            back = threading.Thread(target=_pump, args=(far, self.request))
            back.start()
            _pump(self.request, far)
            back.join()
            self.server.open -= ends


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while read := source.recv(2**16):
            sink.sendall(read)
    for end in (source, sink):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@contextmanager
def relay_to(url: str) -> Iterator[Relay]:
    """A relay, at work as long as the block lasts."""
    with Relay(url) as server:
        threading.Thread(target=server.serve_forever, kwargs={'poll_interval': 0.05}).start()
        yield server
        server.cut()
        server.shutdown()
