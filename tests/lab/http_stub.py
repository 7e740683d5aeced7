# SPDX-License-Identifier: Apache-2.0
"""A service behind HTTP that is a function of this process."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

JSON = {'Content-Type': 'application/json'}
Reply = tuple[int, Mapping[str, str], bytes]
"""Status, headers and body."""


class HttpStub:
    """Serves on a loopback port, from ``with`` to its end, what ``reply()`` of a subclass says."""

    def __init__(self) -> None:
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = 'HTTP/1.1'

            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get('Content-Length', 0)))
                headers = dict(self.headers)
                status, more, content = stub.reply(self.command, self.path, headers, body)
                self.send_response(status)
                for name, value in {**more, 'Content-Length': str(len(content))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            do_POST = do_GET  # noqa: N815

            def log_message(self, format: str, *args: object) -> None:
                """Nobody reads it."""

        self._server = ThreadingHTTPServer(('127.0.0.1', 0), Handler)
        self._server.daemon_threads = True
        self.address = f'127.0.0.1:{self._server.server_port}'

    def reply(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Reply:
        """The answer to a request, worked out in a thread of its own."""
        raise NotImplementedError

    def __enter__(self):  # type: ignore[no-untyped-def]  # Self is of Python 3.11
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._server.shutdown()
        self._server.server_close()
