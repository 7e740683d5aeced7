# SPDX-License-Identifier: Apache-2.0
"""Health on real sockets of both kinds, rude and slow clients, systemd's watchdog, and
the command of probes."""

import contextlib
import json
import os
import re
import socket
import stat
import threading
import time

import pytest

from novasched.cmd import novaschedctl
from novasched.conf import loading
from novasched.conf.errors import ConfigError, NovaschedError
from novasched.conf.settings import Address, SocketFile
from novasched.observe.health.service import HealthApp, health_service
from novasched.observe.health.state import ProcessReport
from novasched.observe.web import wiring
from novasched.observe.web.server import Limits
from novasched.observe.web.wiring import http_process
from novasched.tools.health import ask
from tests.lab.processes import free_port, wait_until

WAIT = 20.0
LIMITS = Limits(connection_s=1.0, answers=8)
GET = b'GET /health HTTP/1.1\r\nHost: a\r\n\r\n'


def connected(address):
    """A connection to the server."""
    if isinstance(address, Address):
        return socket.create_connection((address.host, address.port), WAIT)
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(WAIT)
    connection.connect(address.path)
    return connection


def exchanged(address, sent):
    """The bytes received until the server closes the connection."""
    received = b''
    with connected(address) as connection:
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            connection.sendall(sent)
        with contextlib.suppress(ConnectionResetError):
            while piece := connection.recv(4096):
                received += piece
    return received


class Served:
    """The HTTP process of a daemon with a single worker, inside the test process."""

    def __init__(self, service, address):
        self.service = service
        self.address = address
        self.process = http_process(None, service, None)
        self.process.start()

    def report(self, name, ago=0.0):
        """Make a process report, now or ``ago`` seconds ago."""
        report = ProcessReport(name, os.getpid(), time.time(), time.monotonic() - ago)
        self.process._health.state.hear(report)


def opened(load, text):
    conf = load(text)
    return health_service(
        conf, loading.settings(conf), loading.service_settings(conf), '1.0.0'
    )


@pytest.fixture(params=['unix', 'tcp'])
def served(request, load, tmp_path, monkeypatch):
    """A server on a Unix socket and on a TCP socket."""
    monkeypatch.setattr(wiring, 'HEALTH_LIMITS', LIMITS)
    if request.param == 'tcp':
        address = Address('127.0.0.1', free_port())
    else:
        address = SocketFile(str(tmp_path / 'n' / 'health.sock'))
    with opened(load, f'[novasched]\nhealth_bind = {address}\n') as service:
        served = Served(service, address)
        yield served
        served.process.stop()


@pytest.mark.parametrize(
    ('sent', 'status', 'kind'),
    [
        (GET, b'200 OK', b'application/health+json'),
        (GET.replace(b'1.1', b'1.0'), b'200 OK', b'application/health+json'),
        (GET.replace(b'health', b'health?a=b'), b'200 OK', b'application/health+json'),
        (
            GET.replace(b'health', b'ready'),
            b'503 Service Unavailable',
            b'application/health+json',
        ),
        (GET.replace(b'health', b'status'), b'200 OK', b'application/json'),
        (GET.replace(b'health', b''), b'404 Not Found', b'text/plain'),
        (GET.replace(b'GET', b'POST'), b'405 Method Not Allowed', b'text/plain'),
        (b'\x16\x03\x01\r\n\r\n', b'400 Bad Request', b'text/plain'),
    ],
)
def test_an_answer_has_the_status_and_the_content_type(served, sent, status, kind):
    """An answer has its status and its type, and ends the connection."""
    head, _, body = exchanged(served.address, sent).partition(b'\r\n\r\n')
    assert head.startswith(b'HTTP/1.1 ' + status + b'\r\n')
    assert b'\r\nContent-Type: ' + kind in head
    assert f'\r\nContent-Length: {len(body)}'.encode() in head
    assert b'\r\nConnection: close' in head
    if b'json' in kind:
        assert json.loads(body)
        assert b'\r\nCache-Control: no-cache' in head
    else:
        assert body == status + b'\n'


def test_the_answer_to_head_has_no_body(served):
    """The answer to HEAD is the answer to GET without a body."""
    answer = exchanged(served.address, GET.replace(b'GET', b'HEAD'))
    head, _, body = answer.partition(b'\r\n\r\n')
    assert head.startswith(b'HTTP/1.1 200 OK')
    assert b'Content-Length: 0' not in head
    assert body == b''


def test_slow_and_endless_requests_do_not_delay_health(served):
    """Endless requests do not delay other requests. The server closes a connection
    after its time, or when there are too many connections."""
    connections = [connected(served.address) for _ in range(2 * LIMITS.waiting)]
    gone = contextlib.suppress(ConnectionResetError, BrokenPipeError)
    for connection in connections:
        with gone:
            connection.sendall(b'GET /health HTTP/1.1\r\nX: ')

    assert ask(served.address, '/health')['status'] == 'pass'
    for connection in connections:
        with connection, gone:
            assert connection.recv(1) == b''

    for head in (b'GET /' + b'x' * 1_000_000, GET[:-2] + b'A: b\r\n' * 10_000):
        answer = exchanged(served.address, head)
        assert answer == b'' or answer.split(b' ')[1] in (b'414', b'431')
    assert ask(served.address, '/health')['status'] == 'pass'


def test_a_client_that_does_not_read_is_disconnected(served):
    """The connection ends although the client does not read the answer."""
    with connected(served.address) as connection:
        connection.sendall(GET)
        assert ask(served.address, '/health')['status'] == 'pass'
        [server] = served.process._servers
        wait_until(lambda: not server._connections, WAIT, 'end of the connection')


class TestTheFile:
    """The file of a Unix socket, and its folder."""

    def test_the_socket_file_permits_the_owner_and_the_group(self, load, tmp_path):
        """The owner and the group may connect. The file is removed in the end."""
        path = tmp_path / 'novasched' / 'health.sock'
        before = os.umask(0)
        try:
            with opened(load, f'[DEFAULT]\nstate_path = {tmp_path}\n') as service:
                assert service.listener
                assert stat.S_IMODE(path.stat().st_mode) == 0o660
                assert stat.S_IMODE(path.parent.stat().st_mode) == 0o750
        finally:
            os.umask(before)
        assert not path.exists()

    def test_the_socket_file_of_a_killed_daemon_is_replaced(self, load, tmp_path):
        """The file is replaced."""
        path = tmp_path / 'health.sock'
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(str(path))
        with opened(load, f'[novasched]\nhealth_bind = unix:{path}\n') as service:
            assert service.listener

    def test_a_second_daemon_does_not_take_a_socket_file_in_use(
        self, load, tmp_path, caplog
    ):
        """A second daemon leaves the file alone. With an address in nova.conf, the
        second daemon does not start. With the default address, the second daemon warns
        once and runs. The line names the options, and the daemon that answers."""
        text = f'[DEFAULT]\nstate_path = {tmp_path}\n'
        own = f'[novasched]\nhealth_bind = unix:{tmp_path}/novasched/health.sock\n'
        why = (
            r'health_bind = unix:.*/novasched/health.sock: another process serves there, and '
            r'novaschedctl health gets the answers of that process; .* its own '
            r'\[novasched\] health_bind or \[DEFAULT\] state_path$'
        )

        with opened(load, text) as first:
            with opened(load, text) as second:
                assert second is None
            assert [record.levelname for record in caplog.records] == ['WARNING']
            assert re.search(why, caplog.messages[0])
            with pytest.raises(ConfigError, match=why), opened(load, own):
                pass
            assert first.listener
            assert (tmp_path / 'novasched' / 'health.sock').exists()

    @pytest.mark.parametrize(
        'path', ['/nonexistent/folder/x', '/proc/x', '/' + 200 * 'x']
    )
    def test_an_unusable_path_stops_the_start_only_if_configured(
        self, load, path, caplog
    ):
        """The path of an operator stops the start. The default path is a warning."""
        own = f'[novasched]\nhealth_bind = unix:{path}\n'
        option = r'^\[novasched\] health_bind = unix:/'

        with pytest.raises(ConfigError, match=option), opened(load, own):
            pass
        assert caplog.messages == []

        with opened(load, f'[DEFAULT]\nstate_path = {path}\n') as service:
            assert service is None
        [message] = caplog.messages
        assert message.startswith(
            'Health is not served: [novasched] health_bind = unix:/'
        )

    def test_a_file_that_is_not_a_socket_stays(self, load, tmp_path):
        """A file that is no socket stays."""
        path = tmp_path / 'file'
        path.write_text('theirs')
        with (
            pytest.raises(ConfigError),
            opened(load, f'[novasched]\nhealth_bind = unix:{path}\n'),
        ):
            pass
        assert path.read_text() == 'theirs'

    def test_an_empty_health_bind_disables_health_without_a_log_line(
        self, load, caplog
    ):
        """Neither a server nor a line in the log appears."""
        with opened(load, '[novasched]\nhealth_bind =\n') as service:
            assert service is None
        assert caplog.messages == []


@pytest.fixture
def watchdog(tmp_path, monkeypatch):
    """The socket of systemd."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / 'notify'))
        systemd.setblocking(False)
        monkeypatch.setenv('NOTIFY_SOCKET', str(tmp_path / 'notify'))
        monkeypatch.setenv('WATCHDOG_USEC', '60000000')
        yield systemd


def messages(systemd):
    """The waiting messages in the socket of systemd."""
    received = []
    with contextlib.suppress(BlockingIOError):
        while True:
            received.append(systemd.recv(100))
    return received


def test_the_watchdog_is_fed_unless_a_process_hangs(load, watchdog):
    """A beat feeds the watchdog while the processes move, even without an address, and
    does not feed the watchdog while a process hangs."""
    with opened(load, '[novasched]\nhealth_bind =\n') as service:
        assert service.listener is None
        served = Served(service, None)
        for _ in range(2):
            served.process.beat()
        assert messages(watchdog) == [b'WATCHDOG=1'] * 2

        served.report('worker:0', ago=100)
        served.process.beat()
        assert messages(watchdog) == []

        served.report('worker:0')
        served.process.beat()
        assert messages(watchdog) == [b'WATCHDOG=1']
        served.process.stop()


def test_a_beat_reads_reports(load, watchdog):
    """The queue of reports does not fill up without requests for health."""
    with opened(load, '[novasched]\nhealth_bind =\n') as service:
        process = http_process(None, service, None)
        service.vitals('worker:0')()
        service.outbox.send(b'nonsense')
        service.vitals('main')()
        process.beat()
        assert set(process._health.state._processes) == {'worker:0', 'main'}
        with pytest.raises(BlockingIOError):
            service.inbox.recv(1)


def test_a_beat_does_not_wait_for_a_full_queue_of_systemd(load, watchdog):
    """A beat does not wait for systemd, however full the queue of systemd is."""
    with opened(load, '[novasched]\nhealth_bind =\n') as service:
        app = HealthApp(service)
        app.state.hear(ProcessReport('main', 1, 0.0, time.monotonic()))
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as filler:
            filler.setblocking(False)
            filler.connect(watchdog.getsockname())
            with contextlib.suppress(BlockingIOError):
                while True:
                    filler.send(b'READY=1')

        app.beat()
        assert watchdog.recv(100) == b'READY=1'
        app.beat()
        assert b'WATCHDOG=1' in messages(watchdog)


class TestTheCommand:
    """``novaschedctl health``."""

    @pytest.fixture
    def probe(self, served, tmp_path, capsys):
        """A function that runs the command: exit status, output, and error output."""

        def run(*arguments):
            options = ['--config-file', str(tmp_path / 'nova.conf')]
            status = novaschedctl.main(['health', *options, *arguments])
            return status, *capsys.readouterr()

        return run

    def test_the_exit_status_is_nonzero_only_for_a_failure(self, served, probe):
        """The exit status is 0, 0 and 1, with a line that gives the reason."""
        assert probe() == (0, 'pass\n', '')

        served.report('worker:0', ago=15)
        assert probe() == (0, 'warn - worker:0: no report for 15 s\n', '')

        served.report('worker:0', ago=45)
        assert probe() == (1, 'fail - worker:0: no report for 45 s\n', '')

        served.report('worker:0')
        status, text, _ = probe('--ready')
        assert (status, text) == (1, 'fail - message_bus: no requests are taken yet\n')
        status, text, _ = probe('--format', 'json')
        assert (status, json.loads(text)['checks']['worker:0']['status']) == (0, 'pass')

    def test_an_answer_of_another_host_is_printed_with_a_warning(
        self, served, probe, tmp_path
    ):
        """The answer of a daemon on another host is printed with a warning."""
        with (tmp_path / 'nova.conf').open('a') as conf:
            conf.write('[DEFAULT]\nhost = other\n')
        status, text, error = probe()
        assert (status, text) == (0, 'pass\n')
        own = served.service.host
        assert error == (
            f'novaschedctl health: {served.address}: the scheduler of host {own} answers, '
            'and [DEFAULT] host is other\n'
        )

    def test_the_command_fails_without_a_daemon(self, tmp_path, capsys):
        """The command fails without an answer."""
        conf = tmp_path / 'nova.conf'
        conf.write_text(f'[DEFAULT]\nstate_path = {tmp_path}\n')
        assert novaschedctl.main(['health', '--config-file', str(conf)]) == 1
        said = f'unix:{tmp_path}/novasched/health.sock: no answer of novasched: No such file'
        assert said in capsys.readouterr().err

    @pytest.mark.parametrize(
        ('text', 'status', 'said'),
        [
            ('[novasched]\nhealth_bind =\n', 2, 'health_bind is empty'),
            ('[novasched]\nhealth_bind = nonsense\n', 1, '[novasched] health_bind = '),
            ('nonsense', 1, '--config-file = '),
        ],
    )
    @pytest.mark.parametrize('command', ['health', 'status'])
    def test_a_configuration_without_an_address_is_an_error(
        self, tmp_path, capsys, command, text, status, said
    ):
        """The error output is a line with the reason."""
        conf = tmp_path / 'nova.conf'
        conf.write_text(text)
        assert novaschedctl.main([command, '--config-file', str(conf)]) == status
        error = capsys.readouterr().err
        assert said in error
        assert error.count('\n') == 1

    def test_answers_of_foreign_servers_are_rejected(self, tmp_path):
        """The command rejects silence and the answers of foreign servers."""
        for sent in (
            b'',
            b'HTTP/1.1 200 OK\r\n\r\n[]',
            b'HTTP/1.1 200 OK\r\n\r\nhello',
        ):
            with socket.create_server(('127.0.0.1', 0)) as listener:

                def serve(listener=listener, sent=sent):
                    connection, _ = listener.accept()
                    with connection:
                        connection.recv(1000)
                        connection.sendall(sent)

                threading.Thread(target=serve, daemon=True).start()
                with pytest.raises(NovaschedError, match='no answer of novasched'):
                    ask(Address(*listener.getsockname()), '/health')
