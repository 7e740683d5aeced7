# SPDX-License-Identifier: Apache-2.0
"""The HTTP server on a real socket, rude and slow clients, and the options of the HTTP
process."""

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
from novasched.observe.web import server as module
from novasched.observe.web import wiring
from novasched.observe.web.server import HttpServer, Limits, listen, routed
from novasched.observe.web.wiring import HttpProcess, metrics_files
from tests.lab.processes import free_port, wait_until

WAIT = 10.0
LIMITS = Limits(connection_s=1.0)
MAX_NICENESS = 19
"""The kernel raises the niceness of a thread no further."""


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


def large(environ, start):
    """An answer larger than the buffer of a socket."""
    body = b'x' * 50_000_000
    start('200 OK', [('Content-Length', str(len(body)))])
    return [body]


class Served:
    """A running server with applications."""

    def __init__(self, limits=LIMITS, **routes):
        address = Address('127.0.0.1', free_port())
        self.where = (address.host, address.port)
        routes = {f'/{name}': app for name, app in routes.items()}
        app = routed({'/text': hello, '/fail': fail, **routes}, echo)
        self.listener = listen(address, 'option')
        self.server = HttpServer('web', self.listener, app, limits)
        self.server.start()

    def close(self):
        self.server.stop()
        self.listener.close()

    def connect(self):
        return socket.create_connection(self.where, WAIT)

    def ask(self, method, path):
        connection = http.client.HTTPConnection(*self.where, timeout=WAIT)
        connection.request(method, path)
        return connection.getresponse()

    def raw(self, sent):
        """The bytes received until the server closes the connection. The kernel may
        lose a part of the answer while the client still sends."""
        received = b''
        with self.connect() as connection:
            with contextlib.suppress(ConnectionResetError, BrokenPipeError):
                connection.sendall(sent)
            with contextlib.suppress(ConnectionResetError):
                while piece := connection.recv(4096):
                    received += piece
        return received


@pytest.fixture
def served():
    with contextlib.closing(Served()) as server:
        yield server


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
def test_a_path_leads_to_the_application_and_writes_are_refused(
    served, method, path, status, body
):
    """A path leads to its application, and unknown paths to the default application.
    Methods that write are refused. A bug is not shown to the client."""
    answer = served.ask(method, path)
    assert (answer.status, answer.read()) == (status, body)
    assert answer.getheader('Server') is None


def test_head_has_the_length_of_get(served):
    assert served.ask('HEAD', '/text').getheader('Content-Length') == '6'


def test_a_refused_method_gets_the_allowed_methods(served):
    assert served.ask('POST', '/text').getheader('Allow') == 'GET, HEAD'


def test_a_bug_is_logged_once_and_a_connection_answered_once(served, caplog):
    """A bug is logged once, and a connection gets a single answer."""
    for _ in range(5):
        served.ask('GET', '/fail')
    assert caplog.messages == ['An HTTP request fails']

    received = served.raw(2 * b'GET /text HTTP/1.1\r\nHost: a\r\n\r\n')
    assert received.count(b'HTTP/1.1 200 OK') == 1
    assert received.count(b'Connection: close') == 1
    assert received.endswith(b'\r\n\r\nhello\n')


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
def test_garbage_gets_a_short_refusal_and_no_log_line(served, sent, caplog, capfd):
    """The refusal of garbage is short and does not repeat the garbage. The server
    closes the connection, and the log stays empty."""
    received = served.raw(sent)
    statuses = ([b'400'], [b'413'], [b'414'], [b'431'], [b'501'])
    assert received.split(b' ')[1:2] in statuses or len(sent) > 9000
    assert len(received) < 500
    assert b'nonsense' not in received
    assert caplog.messages == []
    assert capfd.readouterr() == ('', '')
    assert served.ask('GET', '/text').status == 200


def connections_to(served, count):
    return [served.connect() for _ in range(count)]


def test_endless_requests_delay_no_other_request(served):
    """Endless requests do not delay other requests. The server closes a connection
    after its time, or when there are too many connections."""
    connections = connections_to(served, 2 * LIMITS.waiting)
    gone = contextlib.suppress(ConnectionResetError, BrokenPipeError)
    for connection in connections:
        with gone:
            connection.sendall(b'GET /text HTTP/1.1\r\nX: ')

    assert served.ask('GET', '/text').status == 200
    for connection in connections:
        with connection, gone:
            assert connection.recv(1) == b''


def test_a_connection_that_trickles_is_closed_after_the_timeout(served):
    """The connection of a client that sends byte by byte is closed after its time, and
    the application does not run for an incomplete request."""
    began = time.monotonic()
    with served.connect() as connection:
        connection.sendall(b'GET /text HTTP/1.1\r\nX: ')
        received = b''
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            while time.monotonic() - began < WAIT:
                connection.sendall(b'x')
                time.sleep(0.1)
            pytest.fail('the connection stays')
        with contextlib.suppress(ConnectionResetError):
            received = connection.recv(1000)
    assert received == b''
    assert time.monotonic() - began >= LIMITS.connection_s


def test_clients_that_do_not_read_answers_are_disconnected(capfd):
    """Clients that do not read their answers delay no other client, and are
    disconnected."""
    with contextlib.closing(Served(large=large)) as served:
        clients = connections_to(served, 5)
        for client in clients:
            client.sendall(b'GET /large HTTP/1.1\r\n\r\n')
        assert served.ask('GET', '/text').status == 200
        wait_until(lambda: not served.server._connections, WAIT, 'end of connections')
        for client in clients:
            client.close()
    assert capfd.readouterr() == ('', '')


def test_running_and_waiting_requests_are_limited():
    """The limits bound the requests that are answered, and the requests that wait, at
    the same time."""
    running = threading.Semaphore(0)
    release = threading.Event()
    count = []

    def slow(environ, start):
        count.append(1)
        running.release()
        assert release.wait(WAIT)
        return hello(environ, start)

    limits = Limits(connection_s=WAIT, waiting=5, answers=2)
    with contextlib.closing(Served(limits, slow=slow)) as served:
        clients = connections_to(served, 5)
        for client in clients:
            client.sendall(b'GET /slow HTTP/1.1\r\n\r\n')
        for _ in range(limits.answers):
            assert running.acquire(timeout=WAIT)
        all_clients = len(clients)
        wait_until(lambda: served.server.answering() == all_clients, WAIT, 'requests')

        assert served.raw(b'GET /text HTTP/1.1\r\n\r\n') == b''
        assert len(count) == limits.answers

        release.set()
        for client in clients:
            with client:
                assert client.recv(1000).startswith(b'HTTP/1.1 200 OK')


def test_connections_beyond_the_limit_wait_for_the_next_second():
    """Connections beyond the limit wait, and are answered in the next second."""
    limits = Limits(connection_s=WAIT, per_second=3)
    with contextlib.closing(Served(limits)) as served:
        began = time.monotonic()
        assert [served.ask('GET', '/text').status for _ in range(7)] == [200] * 7
        assert time.monotonic() - began >= 2.0


def test_stop_waits_for_answers(monkeypatch):
    """A request in progress is answered, and the server accepts no new request."""
    begun = threading.Event()

    def slow(environ, start):
        begun.set()
        time.sleep(0.5)
        return hello(environ, start)

    served = Served(slow=slow)
    with served.connect() as client:
        client.sendall(b'GET /slow HTTP/1.1\r\n\r\n')
        assert begun.wait(WAIT)
        served.close()
        assert client.recv(1000).startswith(b'HTTP/1.1 200 OK')
    with pytest.raises(ConnectionRefusedError):
        served.connect()


@pytest.mark.skipif(sys.platform != 'linux', reason='niceness is of a thread on Linux')
def test_niceness_applies_only_to_the_threads_of_the_address(monkeypatch):
    """The niceness applies to the threads of the address alone."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    of_threads = []
    increments = []
    real_nice = os.nice

    def recording_nice(increment):
        increments.append((threading.current_thread().name, increment))
        return real_nice(increment)

    def nice(environ, start):
        of_threads.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
        return hello(environ, start)

    monkeypatch.setattr(module.os, 'nice', recording_nice)
    with contextlib.closing(Served(Limits(1.0, niceness=3), nice=nice)) as served:
        assert served.ask('GET', '/nice').status == 200

    # A test run with a high niceness reaches the maximum. Then the increment tells.
    assert increments == [('web', 3)]
    assert of_threads == [min(before + 3, MAX_NICENESS)]
    assert os.getpriority(os.PRIO_PROCESS, 0) == before


def test_health_answers_while_the_page_is_busy():
    """The health address answers while the applications of the page compute in the same
    process, and before the page answers."""
    stop = threading.Event()

    def compute(environ, start):
        while not stop.is_set():
            sum(range(1000))
        return hello(environ, start)

    page = Served(Limits(WAIT, niceness=10), compute=compute)
    health = Served(Limits(WAIT))
    with contextlib.closing(page), contextlib.closing(health):
        clients = connections_to(page, 10)
        for client in clients:
            client.sendall(b'GET /compute HTTP/1.1\r\n\r\n')
        wait_until(lambda: page.server._answers._value == 0, WAIT, 'busy page')
        try:
            for _ in range(20):
                assert health.ask('GET', '/text').status == 200
            assert page.server._answers._value == 0
        finally:
            stop.set()
        for client in clients:
            client.close()


def test_a_failing_server_ends_the_process(monkeypatch, caplog):
    """The process gets a signal to end, so that the main process starts a new
    process."""
    signals = []
    monkeypatch.setattr(module.os, 'kill', lambda pid, number: signals.append(number))
    monkeypatch.setattr(
        HttpServer, 'serve_forever', lambda self: fail(None, None), raising=True
    )
    served = Served()
    wait_until(lambda: signals, WAIT, 'signal')
    assert caplog.messages == ['HTTP cannot be served; a new process is to do so']
    served.close()


def test_the_http_process_runs_without_servers():
    """The process runs without a server, for systemd's watchdog alone."""
    process = HttpProcess([], None)
    process.start()
    process.beat()
    process.stop()


def test_metrics_are_served_if_the_page_cannot_be_made(caplog):
    """The process serves metrics without the page."""
    with metrics_files(Address('127.0.0.1', free_port())) as files:
        process = wiring.http_process(files, None, lambda: fail(None, None))
        assert [server.server_name for server in process._servers] == ['metrics']
    assert caplog.messages == ['The page cannot be served']


def test_the_error_of_a_port_in_use_names_the_option():
    """The error names the option and its value."""
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


def test_the_page_needs_metrics_bind(load):
    """The page needs metrics_bind."""
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


def test_a_daemon_without_extras_imports_no_libraries_of_extras():
    """A daemon without metrics, page and traces imports neither the libraries nor the
    code of the extras. A plugin can import eventlet."""
    done = subprocess.run([sys.executable, '-c', OFF], capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, ''), done.stderr


@pytest.mark.parametrize(
    ('missing', 'option', 'extra'),
    [
        ('jinja2', 'page = True', 'page'),
        ('prometheus_client', 'metrics_bind = 127.0.0.1:18774', 'metrics'),
    ],
)
def test_a_missing_library_is_reported_with_the_extra(
    load, monkeypatch, missing, option, extra
):
    """The start ends with a line that names the extra to install."""
    conf, settings, service = loaded(load, f'{BIND}page = true')
    monkeypatch.setitem(sys.modules, missing, None)
    why = f'[novasched] {option}: {missing} is not installed: pip install novasched[{extra}]'

    def begin():
        wiring.page_factory(conf, settings, service)
        with metrics_files(service.metrics_bind):
            pass

    with pytest.raises(ConfigError, match=f'^{re.escape(why)}$'):
        begin()


def test_the_metrics_directory_is_private_and_removed_at_the_end(monkeypatch):
    """The directory is private, and exists as long as the main process. Without an
    address there is no directory."""
    with metrics_files(None) as files:
        assert files is None
    monkeypatch.setenv('PROMETHEUS_MULTIPROC_DIR', '')
    with metrics_files(Address('127.0.0.1', free_port())) as files:
        directory = Path(files.directory)
        assert os.environ['PROMETHEUS_MULTIPROC_DIR'] == files.directory
        assert directory.stat().st_mode & 0o777 == 0o700
        files.worker_ended(0)
    assert not directory.exists()
