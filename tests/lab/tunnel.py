# SPDX-License-Identifier: Apache-2.0
"""A way to a server that can be shut."""

import contextlib
import socket
import threading

import sqlalchemy as sa


class Tunnel:
    """Hands on what comes to a server, and what it answers.

    While it is shut, it takes connections and hands on nothing, as a server does that
    hangs; ``held`` is set as soon as there is something that it keeps.
    """

    def __init__(self, url: str) -> None:
        self._url = sa.make_url(url)
        self._flow = threading.Event()
        self._flow.set()
        self.held = threading.Event()
        self._listener = socket.create_server(('127.0.0.1', 0))
        self._port = self._listener.getsockname()[1]
        self.url = self._url.set(host='127.0.0.1', port=self._port).render_as_string(False)
        self._ends: list[socket.socket] = []
        self._accept()

    def shut(self) -> None:
        self.held.clear()
        self._flow.clear()

    def open(self) -> None:
        self._flow.set()

    def refuse(self) -> None:
        """End every connection and take no new ones, as where no server runs."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """End every connection; new ones can be made."""
        ends, self._ends = self._ends, []
        for each in ends:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def accept(self) -> None:
        self._listener = socket.create_server(('127.0.0.1', self._port))
        self._accept()

    def __enter__(self) -> 'Tunnel':
        return self

    def __exit__(self, *_exception: object) -> None:
        self.refuse()
        self.open()

    def _accept(self) -> None:
        threading.Thread(target=self._take, args=[self._listener], daemon=True).start()

    def _take(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):  # the end of the listener
            while True:
                client, _ = listener.accept()
                server = socket.create_connection((self._url.host, self._url.port or 3306))
                self._ends += [client, server]
                for way in ((client, server), (server, client)):
                    threading.Thread(target=self._hand_on, args=way, daemon=True).start()

    def _hand_on(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if not self._flow.is_set():
                    self.held.set()
                    self._flow.wait()
                target.sendall(data)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
