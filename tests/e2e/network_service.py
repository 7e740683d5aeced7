# SPDX-License-Identifier: Apache-2.0
"""What nova asks of Neutron for servers without networks: lists, all of them empty."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit


class _Handler(BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def do_GET(self) -> None:
        """``GET /v2.0/ports.json`` is answered with ``{"ports": []}``, whatever the noun."""
        noun = urlsplit(self.path).path.rpartition('/')[2].removesuffix('.json')
        body = json.dumps({noun.replace('-', '_'): []}).encode()
        self.send_response(200)
        self.send_header('Content-Type', 'application/json')
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        """Nobody reads it."""


class NetworkService:
    """A Neutron that has nothing, in threads of this process."""

    def __init__(self) -> None:
        self._server = ThreadingHTTPServer(('127.0.0.1', 0), _Handler)
        self._server.daemon_threads = True
        self.url = f'http://127.0.0.1:{self._server.server_port}'

    def start(self) -> None:
        """Serve until close()."""
        threading.Thread(target=self._server.serve_forever, name='neutron', daemon=True).start()

    def close(self) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()
