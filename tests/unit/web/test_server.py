# SPDX-License-Identifier: Apache-2.0
"""HTTP as it is served: a real server, and whoever comes to its port."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from novasched.conf.address import Address
from novasched.errors import ConfigError
from novasched.web import brief
from novasched.web.routing import routed, text
from novasched.web.server import LIMITS, MOST, RATE, listening
from tests.functional.processes import free_port

WAIT = 10.0


def fail(environ, start):
    """An application with a bug."""
    raise RuntimeError('as told')


def echo(environ, start):
    """What else there may be."""
    return text(lambda: environ['PATH_INFO'].encode())(environ, start)


class Served:
    """A port, and what comes from it."""

    def __init__(self, longest: float = WAIT, rate: int = RATE) -> None:
        self.address = Address('127.0.0.1', free_port())
        routes = {'/text': text(lambda: b'hello\n'), '/fail': fail}
        listens = listening(self.address, 'option')
        self.server = brief.BriefServer(routed(routes, echo), listens, longest, MOST, rate, LIMITS)

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.address.host, self.address.port, timeout=WAIT)

    def ask(self, method: str, path: str) -> http.client.HTTPResponse:
        connection = self.connection()
        connection.request(method, path)
        return connection.getresponse()

    def raw(self, sent: bytes) -> bytes:
        """What comes back until the connection is closed. Of an answer to somebody who still
        talks, the system may lose a part."""
        found = b''
        with socket.create_connection((self.address.host, self.address.port), WAIT) as made:
            with contextlib.suppress(ConnectionResetError, BrokenPipeError):
                made.sendall(sent)
            with contextlib.suppress(ConnectionResetError):
                while piece := made.recv(4096):
                    found += piece
        return found


@contextmanager
def serving(made: Served) -> Iterator[Served]:
    """It at work."""
    thread = threading.Thread(target=made.server.run, daemon=True)
    thread.start()
    yield made
    made.server.end()
    thread.join(WAIT)


@pytest.fixture
def served() -> Iterator[Served]:
    """A server at work."""
    with serving(Served(longest=1.0)) as made:
        yield made


@pytest.mark.parametrize(
    ('method', 'path', 'status', 'body'),
    [
        ('GET', '/text', 200, b'hello\n'),
        ('HEAD', '/text', 200, b''),
        ('GET', '/text?a=b', 200, b'hello\n'),
        ('GET', '/another', 200, b'/another'),
        ('POST', '/text', 405, b'405 Method Not Allowed\n'),
        ('DELETE', '/another', 405, b'405 Method Not Allowed\n'),
        ('OPTIONS', '/text', 405, b'405 Method Not Allowed\n'),
        ('GET', '/fail', 500, b'500 Internal Server Error\n'),
    ],
)
def test_answers(served: Served, method: str, path: str, status: int, body: bytes) -> None:
    """Paths lead to their applications, others to the one for the rest, whoever does not read
    is refused, and a bug is not shown."""
    answer = served.ask(method, path)
    assert (answer.status, answer.read()) == (status, body)
    assert answer.getheader('Server') is None


def test_a_bug_is_told_once(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    """However often it is asked for."""
    for _ in range(5):
        served.ask('GET', '/fail')
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    'sent',
    [
        b'\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n',
        b'nonsense\r\n\r\n',
        b'GET /text HTTP/1.1\r\nContent-Length: many\r\n\r\n',
        b'GET /text HTTP/1.1\r\nContent-Length: 999999\r\n\r\n',
        b'GET /text HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n',
        b'GET /' + b'x' * 10_000 + b' HTTP/1.1\r\n\r\n',
        b'GET /text HTTP/1.1\r\n' + b'A: b\r\n' * 10_000,
    ],
    ids=['tls', 'words', 'length', 'body', 'coding', 'path', 'headers'],
)
def test_garbage(served: Served, sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """It is refused in a few words, the connection is closed, and the log has none of it."""
    found = served.raw(sent)
    assert found.split(b' ')[1:2] in ([b'400'], [b'413'], [b'431'], [b'501']) or len(sent) > 9000
    assert len(found) < 500
    heard = [each for each in caplog.records if each.name.startswith(('novasched.web', 'waitress'))]
    assert heard == []
    assert served.ask('GET', '/text').status == 200


def test_who_trickles_is_not_waited_for(served: Served) -> None:
    """However many requests never come to an end, who asks at once is answered, and each of
    them is closed when its time is over."""
    several = [
        socket.create_connection((served.address.host, served.address.port), WAIT)
        for _ in range(2 * MOST)
    ]
    gone = contextlib.suppress(ConnectionResetError, BrokenPipeError)  # as good as closed
    for each in several:
        with gone:
            each.sendall(b'GET /text HTTP/1.1\r\nX: ')
    assert served.ask('GET', '/text').status == 200
    for each in several:
        with each, gone:
            assert each.recv(1) == b''


def test_no_more_in_a_second() -> None:
    """Who is one too many waits, and is answered in the next."""
    with serving(Served(rate=3)) as served:
        began = time.monotonic()
        assert [served.ask('GET', '/text').status for _ in range(7)] == [200] * 7
        assert time.monotonic() - began >= 2.0


def test_one_answer_a_connection(served: Served) -> None:
    """More requests on it are not answered."""
    found = served.raw(2 * b'GET /text HTTP/1.1\r\nHost: a\r\n\r\n')
    assert found.count(b'HTTP/1.1 200 OK') == 1
    assert found.count(b'Connection: close') == 1
    assert found.endswith(b'\r\n\r\nhello\n')


def test_a_port_in_use() -> None:
    """It is told with the option and its value."""
    address = Address('127.0.0.1', free_port())
    with (
        listening(address, '[novasched] metrics_bind'),
        pytest.raises(ConfigError, match=rf'\[novasched\] metrics_bind = {address}: Address'),
    ):
        listening(address, '[novasched] metrics_bind')


def test_nothing_is_imported_unless_it_is_wanted() -> None:
    """Who does not switch it on needs neither of the libraries."""
    program = (
        'import sys; import novasched.cmd.novasched; '
        "print(*sorted({'prometheus_client', 'waitress'} & sys.modules.keys()))"
    )
    found = subprocess.run(
        [sys.executable, '-c', program], capture_output=True, text=True, check=True, env=os.environ
    )
    assert found.stdout.strip() == ''
