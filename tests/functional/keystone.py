# SPDX-License-Identifier: Apache-2.0
"""A keystone that knows one password and gives one token, which expires on demand."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from .placement_api import TOKEN

USER, PASSWORD = 'novasched', 'a-word-that-nobody-may-read'


class Keystone:
    """The v3 API, as far as keystoneauth1 looks at it.

    The token is the one that Placement takes. ``given`` is how often it was given, and
    ``expired`` is true until it is given anew.
    """

    def __init__(self) -> None:
        self.given = 0
        self.expired = False
        keystone = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = 'HTTP/1.1'

            def do_GET(self) -> None:
                self._answer(200, {'version': {'id': 'v3.14', 'status': 'stable', 'links': []}})

            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers['Content-Length'])))
                user = asked['auth']['identity']['password']['user']
                if user['password'] != PASSWORD:
                    self._answer(401, {'error': {'code': 401, 'message': 'who are you?'}})
                    return
                keystone.given += 1
                keystone.expired = False
                self._answer(201, {'token': _token()}, {'X-Subject-Token': TOKEN})

            def _answer(
                self, status: int, body: Any, headers: dict[str, str] | None = None
            ) -> None:
                text = json.dumps(body).encode()
                self.send_response(status)
                self.send_header('Content-Type', 'application/json')
                self.send_header('Content-Length', str(len(text)))
                for name, value in (headers or {}).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *args: object) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(('127.0.0.1', 0), Handler)
        self._server.daemon_threads = True
        self.url = f'http://127.0.0.1:{self._server.server_port}/v3'

    def __enter__(self) -> Keystone:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def options(self) -> dict[str, object]:
        """What a group of nova.conf says to use it."""
        return {
            'auth_type': 'v3password',
            'auth_url': self.url,
            'username': USER,
            'password': PASSWORD,
            'user_domain_name': 'Default',
            'project_name': 'service',
            'project_domain_name': 'Default',
        }


def _token() -> dict[str, Any]:
    domain = {'id': 'default', 'name': 'Default'}
    return {
        'methods': ['password'],
        'user': {'id': 'u', 'name': USER, 'domain': domain},
        'project': {'id': 'p', 'name': 'service', 'domain': domain},
        'roles': [{'id': 'r', 'name': 'service'}],
        'catalog': [],
        'issued_at': '2026-01-01T00:00:00.000000Z',
        'expires_at': '2096-01-01T00:00:00.000000Z',
        'audit_ids': ['x'],
    }
