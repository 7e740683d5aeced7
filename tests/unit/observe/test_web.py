# SPDX-License-Identifier: Apache-2.0
"""HTTP as it is served: a real server, whoever comes to its port, and what nova.conf
enables."""

import contextlib
import http.client
import os
import re
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from novasched.conf import loading
from novasched.conf.errors import ConfigError
from novasched.conf.settings import Address
from novasched.observe.web import wiring
from novasched.observe.web.server import (
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_S,
    HttpServer,
    routed,
)
from novasched.observe.web.wiring import listen, metrics_files
from tests.lab.processes import free_port

WAIT = 10.0


def fail(environ, start):
    raise RuntimeError('as told')


def hello(environ, start):
    return echo({'PATH_INFO': 'hello\n'}, start)


def echo(environ, start):
    body = environ['PATH_INFO'].encode()
    start(
        '200 OK', [('Content-Type', 'text/plain'), ('Content-Length', str(len(body)))]
    )
    return [body]


class Served:
    """A server at work."""

    def __init__(self, longest=1.0, rate=MAX_CONNECTIONS_PER_S):
        address = Address('127.0.0.1', free_port())
        self.where = address.host, address.port
        app = routed({'/text': hello, '/fail': fail}, echo)
        self.server = HttpServer(listen(address, 'option'), app, longest, rate)
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()

    def close(self):
        """Stop. Its sockets are its loop's, whose thread alone may close them."""
        self.server.stop()
        with contextlib.suppress(OSError):  # the loop may have ended just now
            loop = self.server.asyncore
            map = self.server._map
            self.server.trigger.pull_trigger(lambda: loop.close_all(map))
        self.thread.join(WAIT)

    def ask(self, method, path):
        connection = http.client.HTTPConnection(*self.where, timeout=WAIT)
        connection.request(method, path)
        return connection.getresponse()

    def raw(self, sent):
        """What comes back until the connection is closed. Of an answer to somebody who
        still talks, the system may lose a part."""
        found = b''
        with socket.create_connection(self.where, WAIT) as made:
            with contextlib.suppress(ConnectionResetError, BrokenPipeError):
                made.sendall(sent)
            with contextlib.suppress(ConnectionResetError):
                while piece := made.recv(4096):
                    found += piece
        return found


@pytest.fixture
def served():
    with contextlib.closing(Served()) as made:
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
def test_answers(served, method, path, status, body):
    """Paths lead to their applications, others to the one for the rest, whoever does
    not read is refused, and a bug is not shown."""
    answer = served.ask(method, path)
    assert (answer.status, answer.read()) == (status, body)
    assert answer.getheader('Server') is None


def heard(caplog):
    """What the server has logged; that a request waits for a thread tells of a busy
    machine."""
    loggers = ('novasched.observe.web', 'waitress')
    ours = [each for each in caplog.records if each.name.startswith(loggers)]
    return [each.getMessage() for each in ours if each.name != 'waitress.queue']


def test_many_requests(served, caplog):
    """A bug is told once, and a connection has one answer."""
    for _ in range(5):
        served.ask('GET', '/fail')
    assert len(heard(caplog)) == 1
    found = served.raw(2 * b'GET /text HTTP/1.1\r\nHost: a\r\n\r\n')
    assert found.count(b'HTTP/1.1 200 OK') == found.count(b'Connection: close') == 1
    assert found.endswith(b'\r\n\r\nhello\n')


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
def test_garbage(served, sent, caplog):
    """It is refused in a few words, the connection is closed, and the log has none of
    it."""
    found = served.raw(sent)
    assert (
        found.split(b' ')[1:2] in ([b'400'], [b'413'], [b'431'], [b'501'])
        or len(sent) > 9000
    )
    assert len(found) < 500
    assert heard(caplog) == []
    assert served.ask('GET', '/text').status == 200


def test_who_trickles_is_not_waited_for(served):
    """However many requests never come to an end, who asks at once is answered, and
    each of them is closed when its time is over."""
    several = [
        socket.create_connection(served.where, WAIT) for _ in range(2 * MAX_CONNECTIONS)
    ]
    gone = contextlib.suppress(
        ConnectionResetError, BrokenPipeError
    )  # as good as closed
    for each in several:
        with gone:
            each.sendall(b'GET /text HTTP/1.1\r\nX: ')
    assert served.ask('GET', '/text').status == 200
    for each in several:
        with each, gone:
            assert each.recv(1) == b''


def test_no_more_in_a_second():
    """Who is one too many waits, and is answered in the next."""
    with contextlib.closing(Served(WAIT, rate=3)) as served:
        began = time.monotonic()
        assert [served.ask('GET', '/text').status for _ in range(7)] == [200] * 7
        assert time.monotonic() - began >= 2.0


def test_a_port_in_use():
    """It is told with the option and its value."""
    address = Address('127.0.0.1', free_port())
    with (
        listen(address, '[novasched] metrics_bind'),
        pytest.raises(
            ConfigError, match=rf'\[novasched\] metrics_bind = {address}: Address'
        ),
    ):
        listen(address, '[novasched] metrics_bind')


BIND = 'metrics_bind = 127.0.0.1:18774\n'


def loaded(load, lines):
    conf = load(f'[novasched]\n{lines}')
    return conf, loading.settings(conf), loading.service_settings(conf)


def test_who_has_the_page(load):
    for lines in ('', BIND, f'{BIND}page = false'):
        assert wiring.page_factory(*loaded(load, lines)) is None
    assert wiring.page_factory(*loaded(load, f'{BIND}page = true')) is not None
    with pytest.raises(
        ConfigError, match=r'^\[novasched\] page = True: .*metrics_bind'
    ):
        wiring.page_factory(*loaded(load, 'page = true'))


OFF = """
import sys
import novasched.cmd.novasched, novasched.service.daemon, novasched.service.build
from novasched.conf import loading
service = loading.service_settings(loading.load([], 'novasched'))
assert service.tracing_endpoint is None
unused = ('prometheus_client', 'waitress', 'novasched.observe.page', 'opentelemetry', 'google.protobuf', 'eventlet')
print(*(name for name in sys.modules if name.startswith(unused)))
import eventlet
"""


def test_nothing_is_imported_unless_it_is_wanted():
    """A daemon without metrics, page and traces has neither their libraries nor their
    code. eventlet is for plugins alone, which find it."""
    done = subprocess.run([sys.executable, '-c', OFF], capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, ''), done.stderr


@pytest.mark.parametrize(
    ('missing', 'option', 'extra'),
    [
        ('jinja2', 'page = True', 'page'),
        ('prometheus_client', 'metrics_bind = 127.0.0.1:18774', 'metrics'),
        ('waitress', 'metrics_bind = 127.0.0.1:18774', 'metrics'),
    ],
)
def test_a_missing_library(load, monkeypatch, missing, option, extra):
    """It stops the start with one line that says how to get it."""
    conf, settings, service = loaded(load, f'{BIND}page = true')
    monkeypatch.setitem(sys.modules, missing, None)
    why = f'[novasched] {option}: {missing} is not installed: pip install novasched[{extra}]'

    def begin():
        wiring.page_factory(conf, settings, service)
        with metrics_files(service.metrics_bind):
            pass

    with pytest.raises(ConfigError, match=f'^{re.escape(why)}$'):
        begin()


def test_the_directory(monkeypatch):
    """It is there for us alone, as long as the master is; without an address there is
    none."""
    with metrics_files(None) as files:
        assert files is None
    monkeypatch.setenv('PROMETHEUS_MULTIPROC_DIR', '')
    with metrics_files(Address('127.0.0.1', free_port())) as files:
        directory = Path(files.directory)
        assert os.environ['PROMETHEUS_MULTIPROC_DIR'] == files.directory
        assert directory.stat().st_mode & 0o777 == 0o700
        files.worker_ended(0)
    assert not directory.exists()
