# SPDX-License-Identifier: Apache-2.0
"""A keystone that knows one password and gives one token, which expires on demand."""

import json
from collections.abc import Mapping
from typing import Any

from .http_stub import JSON, HttpStub, Reply
from .placement_api import TOKEN

USER, PASSWORD = 'novasched', 'a-word-that-nobody-may-read'


class Keystone(HttpStub):
    """The v3 API, as far as keystoneauth1 looks at it.

    The token is the one that Placement takes. ``given`` is how often it was given, and
    ``expired`` is true until it is given anew.
    """

    def __init__(self) -> None:
        super().__init__()
        self.given = 0
        self.expired = False
        self.url = f'http://{self.address}/v3'

    def reply(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Reply:
        if method == 'GET':
            version = {'id': 'v3.14', 'status': 'stable', 'links': []}
            return 200, JSON, json.dumps({'version': version}).encode()
        user = json.loads(body)['auth']['identity']['password']['user']
        if user['password'] != PASSWORD:
            error = {'code': 401, 'message': 'who are you?'}
            return 401, JSON, json.dumps({'error': error}).encode()
        self.given += 1
        self.expired = False
        return 201, {**JSON, 'X-Subject-Token': TOKEN}, json.dumps({'token': _token()}).encode()

    def options(self) -> dict[str, object]:
        """What a group of nova.conf says to use it."""
        return {
            'auth_type': 'v3password', 'auth_url': self.url, 'username': USER, 'password': PASSWORD,
            'user_domain_name': 'Default', 'project_name': 'service', 'project_domain_name': 'Default',
        }  # fmt: skip


def _token() -> dict[str, Any]:
    domain = {'id': 'default', 'name': 'Default'}
    return {
        'methods': ['password'], 'user': {'id': 'u', 'name': USER, 'domain': domain},
        'project': {'id': 'p', 'name': 'service', 'domain': domain},
        'roles': [{'id': 'r', 'name': 'service'}], 'catalog': [], 'audit_ids': ['x'],
        'issued_at': '2026-01-01T00:00:00.000000Z', 'expires_at': '2096-01-01T00:00:00.000000Z',
    }  # fmt: skip
