# SPDX-License-Identifier: Apache-2.0
"""The real Placement in this process, over WSGI, with the fixtures of its own tests."""

import io
import json
import os
from contextlib import contextmanager
from urllib.parse import quote, urlsplit

from placement import deploy
from placement.tests.functional.fixtures import gabbits

ADMINISTRATOR = {
    'accept': 'application/json',
    'x-auth-token': 'admin',
    'openstack-api-version': 'placement 1.39',
}


class Answer:
    """An answer of Placement.

    :ivar status: the status as a number.
    :ivar body: the decoded JSON; None for an empty answer.
    """

    def __init__(self, status, body):
        self.status = status
        self.body = body

    def __repr__(self):
        return f'{self.status} {json.dumps(self.body)[:500]}'


class PlacementInProcess:
    """A client that calls the application of Placement."""

    def __init__(self, application):
        self._application = application

    def call(self, method, url, body=None, headers=None):
        """The answer to a request.

        :param url: the path, with the query string.
        :param headers: headers in place of the headers of an administrator.
        """
        parts = urlsplit(url)
        content = b''
        if body is not None:
            content = json.dumps(body).encode()
        environ = {
            'REQUEST_METHOD': method,
            'SCRIPT_NAME': '',
            'PATH_INFO': parts.path,
            # Placement's files break long query strings with spaces.
            'QUERY_STRING': quote(parts.query, safe='=&:,!%+'),
            'SERVER_NAME': 'placement',
            'SERVER_PORT': '80',
            'SERVER_PROTOCOL': 'HTTP/1.1',
            'CONTENT_TYPE': 'application/json',
            'CONTENT_LENGTH': str(len(content)),
            'wsgi.url_scheme': 'http',
            'wsgi.input': io.BytesIO(content),
            'wsgi.errors': io.StringIO(),
        }
        for name, value in (headers or ADMINISTRATOR).items():
            environ['HTTP_' + name.upper().replace('-', '_')] = value
        statuses = []

        def start_response(status, headers, error=None):
            statuses.append(int(status.split()[0]))

        content = b''.join(self._application(environ, start_response))
        if content and statuses[-1] != 204:
            return Answer(statuses[-1], json.loads(content))
        return Answer(statuses[-1], None)

    def get(self, url):
        """The body of a successful GET."""
        answer = self.call('GET', url)
        assert answer.status == 200, f'GET {url}: {answer}'
        return answer.body


@contextmanager
def placement_with(fixture):
    """Run Placement in a block, with an SQLite database in memory and the providers of
    a fixture of Placement's tests."""
    environ = dict(os.environ)
    started = getattr(gabbits, fixture)()
    started.start_fixture()
    try:
        yield PlacementInProcess(deploy.loadapp(gabbits.CONF))
    finally:
        started.stop_fixture()
        # The fixtures pass UUIDs to the files in environment variables.
        os.environ.clear()
        os.environ.update(environ)
