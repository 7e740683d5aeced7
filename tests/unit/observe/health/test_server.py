# SPDX-License-Identifier: Apache-2.0
"""Health as it is served: a real server on a real socket, whoever comes to it, and the
command that probes run."""

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
from novasched.observe.health import server as module
from novasched.observe.health.server import (
    MAX_CONNECTIONS,
    HealthServer,
    health_service,
)
from novasched.observe.health.state import ProcessReport
from novasched.tools.health import ask
from tests.lab.processes import free_port, wait_until

WAIT = 20.0
LONGEST = 1.0
GET = b'GET /health HTTP/1.1\r\nHost: a\r\n\r\n'


def connected(address):
    """A connection to what serves."""
    if isinstance(address, Address):
        return socket.create_connection((address.host, address.port), WAIT)
    made = socket.socket(socket.AF_UNIX)
    made.settimeout(WAIT)
    made.connect(address.path)
    return made


def exchanged(address, sent):
    """What comes back until the connection is closed."""
    found = b''
    with connected(address) as made:
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            made.sendall(sent)
        with contextlib.suppress(ConnectionResetError):
            while piece := made.recv(4096):
                found += piece
    return found


class Served:
    """A server at work, with a worker that has reported long ago or just now."""

    def __init__(self, service, address):
        self.service = service
        self.address = address
        self.server = HealthServer(service)
        self.server.start()

    def report(self, name, ago=0.0):
        report = ProcessReport(name, os.getpid(), time.time(), time.monotonic() - ago)
        self.server.state.hear(report)


def opened(load, text):
    conf = load(text)
    return health_service(
        conf, loading.settings(conf), loading.service_settings(conf), '1.0.0'
    )


@pytest.fixture(params=['unix', 'tcp'])
def served(request, load, tmp_path, monkeypatch):
    """A server on each kind of socket."""
    monkeypatch.setattr(module, 'MAX_EXCHANGE_S', LONGEST)
    tcp = Address('127.0.0.1', free_port())
    if request.param == 'tcp':
        address = tcp
    else:
        address = SocketFile(str(tmp_path / 'n' / 'health.sock'))
    with opened(load, f'[novasched]\nhealth_bind = {address}\n') as service:
        made = Served(service, address)
        yield made
        made.server.stop()
        wait_until(
            lambda: not [x for x in threading.enumerate() if x.name == 'health'],
            WAIT,
            'end',
        )


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
        (b'\x16\x03\x01\r\n\r\n', b'405 Method Not Allowed', b'text/plain'),
    ],
)
def test_answers(served, sent, status, kind):
    """Each has its status and its type, and ends the connection."""
    head, _, body = exchanged(served.address, sent).partition(b'\r\n\r\n')
    assert head.startswith(b'HTTP/1.1 ' + status + b'\r\nContent-Type: ' + kind)
    assert f'Content-Length: {len(body)}'.encode() in head
    assert json.loads(body) if b'json' in kind else not body


def test_a_head(served):
    """It is that of GET, without a body."""
    head, _, body = exchanged(served.address, GET.replace(b'GET', b'HEAD')).partition(
        b'\r\n\r\n'
    )
    assert head.startswith(b'HTTP/1.1 200 OK')
    assert body == b''


def test_who_is_slow_or_endless(served):
    """However many requests never come to an end, who asks at once is answered; each of
    the others is closed when its time is over, or when there are too many."""
    several = [connected(served.address) for _ in range(2 * MAX_CONNECTIONS)]
    gone = contextlib.suppress(
        ConnectionResetError, BrokenPipeError
    )  # as good as closed
    for each in several:
        with gone:
            each.sendall(b'GET /health HTTP/1.1\r\nX: ')
    assert ask(served.address, '/health')['status'] == 'pass'
    for each in several:
        with each, gone:
            assert each.recv(1) == b''
    assert exchanged(served.address, b'GET /' + b'x' * 1_000_000) == b''
    assert exchanged(served.address, GET[:-2] + b'A: b\r\n' * 10_000) == b''
    assert ask(served.address, '/health')['status'] == 'pass'


def test_who_does_not_read(served):
    """A client that asks and takes nothing is closed, too."""
    with connected(served.address) as made:
        made.sendall(GET)
        assert ask(served.address, '/health')['status'] == 'pass'
        wait_until(
            lambda: not served.server._connections, WAIT, 'end of the connection'
        )


class TestTheFile:
    """The socket's file, and its folder."""

    def test_permissions(self, load, tmp_path):
        """The owner and the group may ask; it is gone in the end."""
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

    def test_what_a_killed_one_has_left(self, load, tmp_path):
        """It is replaced."""
        path = tmp_path / 'health.sock'
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(path))
        with opened(load, f'[novasched]\nhealth_bind = unix:{path}\n') as service:
            assert service.listener

    def test_in_use(self, load, tmp_path, caplog):
        """A second daemon does not take it away: it does not start if it is to have it,
        and else warns once and goes on. The line names the options, and says who is
        asked instead."""
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
            assert [each.levelname for each in caplog.records] == ['WARNING']
            assert re.search(why, caplog.messages[0])
            with pytest.raises(ConfigError, match=why), opened(load, own):
                pass
            assert first.listener
            assert (tmp_path / 'novasched' / 'health.sock').exists()

    @pytest.mark.parametrize(
        'path', ['/nonexistent/folder/x', '/proc/x', '/' + 200 * 'x']
    )
    def test_where_none_can_be(self, load, path, caplog):
        """That is told of the operator's own path, with which nothing starts, and of
        the default."""
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

    def test_a_file_of_others(self, load, tmp_path):
        """It is left as it is."""
        path = tmp_path / 'file'
        path.write_text('theirs')
        with (
            pytest.raises(ConfigError),
            opened(load, f'[novasched]\nhealth_bind = unix:{path}\n'),
        ):
            pass
        assert path.read_text() == 'theirs'

    def test_switched_off(self, load, caplog):
        """Nothing is served or said."""
        with opened(load, '[novasched]\nhealth_bind =\n') as service:
            assert service is None
        assert caplog.messages == []


@pytest.fixture
def watchdog(tmp_path, monkeypatch):
    """What systemd listens to."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        made.bind(str(tmp_path / 'notify'))
        made.settimeout(WAIT)
        monkeypatch.setenv('NOTIFY_SOCKET', str(tmp_path / 'notify'))
        monkeypatch.setenv('WATCHDOG_USEC', '60000000')
        yield made


def test_the_watchdog(load, watchdog):
    """It hears of processes that move, also where nothing is served, and not of those
    that hang."""
    with opened(load, '[novasched]\nhealth_bind =\n') as service:
        assert service.listener is None
        made = Served(service, None)
        assert [watchdog.recv(100) for _ in range(2)] == [b'WATCHDOG=1'] * 2
        made.report('worker:0', ago=100)
        watchdog.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:  # what was sent before
                watchdog.recv(100)
        made.server._feed_watchdog()
        with pytest.raises(BlockingIOError):
            watchdog.recv(100)
        made.report('worker:0')
        watchdog.settimeout(WAIT)
        assert watchdog.recv(100) == b'WATCHDOG=1'
        made.server.stop()


def test_a_watchdog_that_does_not_listen(load, watchdog):
    """Nothing waits for it, however full its queue is."""
    with opened(load, '[novasched]\nhealth_bind =\n') as service:
        server = service.server()
        server.state.hear(ProcessReport('main', 1, 0.0, time.monotonic()))
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
            other.setblocking(False)
            other.connect(watchdog.getsockname())
            with contextlib.suppress(BlockingIOError):
                while True:
                    other.send(b'READY=1')
        server._feed_watchdog()
        assert watchdog.recv(100) == b'READY=1'
        server._feed_watchdog()
        watchdog.setblocking(False)
        heard = set()
        with contextlib.suppress(BlockingIOError):
            while True:
                heard.add(watchdog.recv(100))
        assert b'WATCHDOG=1' in heard


class TestTheCommand:
    """``novaschedctl health``."""

    @pytest.fixture
    def probe(self, served, tmp_path, capsys):
        """Runs it: the exit status, the output, and what went wrong."""

        def run(*arguments):
            options = ['--config-file', str(tmp_path / 'nova.conf')]
            status = novaschedctl.main(['health', *options, *arguments])
            return status, *capsys.readouterr()

        return run

    def test_pass_warn_and_fail(self, served, probe):
        """0, 0 and 1, with a line that says why."""
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

    def test_another_daemon(self, served, probe, tmp_path):
        """The answer of the daemon of another host is told, and that it is from
        there."""
        with (tmp_path / 'nova.conf').open('a') as conf:
            conf.write('[DEFAULT]\nhost = other\n')
        status, text, error = probe()
        assert (status, text) == (0, 'pass\n')
        own = served.service.host
        assert error == (
            f'novaschedctl health: {served.address}: the scheduler of host {own} answers, '
            'and [DEFAULT] host is other\n'
        )

    def test_nobody_there(self, tmp_path, capsys):
        """What does not answer fails."""
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
    def test_what_cannot_be_asked(self, tmp_path, capsys, command, text, status, said):
        """It is told in one line."""
        conf = tmp_path / 'nova.conf'
        conf.write_text(text)
        assert novaschedctl.main([command, '--config-file', str(conf)]) == status
        error = capsys.readouterr().err
        assert said in error
        assert error.count('\n') == 1

    def test_somebody_else(self, tmp_path):
        """What is no answer of ours is told as such, and so is silence."""
        for sent in (
            b'',
            b'HTTP/1.1 200 OK\r\n\r\n[]',
            b'HTTP/1.1 200 OK\r\n\r\nhello',
        ):
            with socket.create_server(('127.0.0.1', 0)) as other:

                def serve(other=other, sent=sent):
                    taken, _ = other.accept()
                    with taken:
                        taken.recv(1000)
                        taken.sendall(sent)

                threading.Thread(target=serve, daemon=True).start()
                with pytest.raises(NovaschedError, match='no answer of novasched'):
                    ask(Address(*other.getsockname()), '/health')
