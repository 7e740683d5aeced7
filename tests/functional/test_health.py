# SPDX-License-Identifier: Apache-2.0
"""Health probes while servers of the cloud fail and recover, and processes hang and
die. Probes that take half a minute run with the faults."""

import json
import os
import select
import socket
import subprocess
import sys
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil
import pytest
import yaml

from novasched.conf.options import parse_bind
from novasched.tools.health import ask
from tests.lab.compute_rows import Flavor
from tests.lab.daemon import Daemon, Refused, a_call, new_uuids
from tests.lab.http_flood import flood
from tests.lab.processes import free_port, wait_until
from tests.lab.proxy import Proxy, Tunnel

ETC = Path(__file__).parents[2] / 'etc'
BIN = Path(sys.executable).parent
WAIT = 120.0
PATIENCE = 3
"""Seconds that a request waits for Placement and for databases in these tests."""
SMALL = Flavor()


class Site:
    """A daemon of two workers, and its connections, which a test can cut.

    :ivar notified: the socket where systemd would listen.
    """

    def __init__(self, cloud, client, folder, stack):
        cloud.reset()
        cloud.add_host('host-1', 'cell1', ram_mb=100_000, vcpus=1000)
        cloud.add_host('host-2', 'cell2', ram_mb=100_000, vcpus=1000)
        self.cloud = cloud
        self.client = client
        self.rabbit = stack.enter_context(Tunnel(cloud.amqp_url))
        self.placement = stack.enter_context(Proxy(cloud.placement_url))
        self.cells = {}
        for name in ('cell1', 'cell2'):
            tunnel = stack.enter_context(Tunnel(cloud.cells[name].url))
            self.cells[name] = tunnel
            cloud.map_cell(name, database_connection=tunnel.url)
        stack.callback(cloud.restore_cells)

        self.notified = stack.enter_context(
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        )
        self.notified.bind(str(folder / 'notify'))
        self.notified.setblocking(False)

        config = {
            'DEFAULT': {'state_path': folder, 'transport_url': self.rabbit.url},
            'placement': {'endpoint': self.placement.url, 'timeout': 1},
            'scheduler': {'workers': 2},
            'novasched': {
                'health_bind': 'unix:$state_path/novasched/health.sock',
                'decisions_file': '$state_path/novasched/decisions.sqlite',
                'placement_patience': PATIENCE,
                'database_patience': PATIENCE,
                'cell_timeout': PATIENCE,
            },
        }
        environment = {
            'NOTIFY_SOCKET': str(folder / 'notify'),
            'WATCHDOG_USEC': '60000000',
        }
        self.daemon = stack.enter_context(
            Daemon(cloud, config, environment=environment)
        )
        self.address = parse_bind(f'unix:{folder}/novasched/health.sock')

    def request(self):
        """Request an instance; True if the request is answered with a host."""
        try:
            self.client.select_destinations(new_uuids(), SMALL)
        except Refused:
            return False
        return True

    def workers(self):
        return self.children('worker')

    def children(self, role):
        """The child processes with a role."""
        of_role = []
        for process in psutil.Process(self.daemon.pid).children():
            with suppress(psutil.NoSuchProcess):  # the process has just ended
                if f': {role} ' in ' '.join(process.cmdline()):
                    of_role.append(process)
        return of_role

    def wait_for(self, path, status, name='', check_status=None, with_requests=False):
        """Wait until a probe has the status, and a check of the probe its own status.

        :param name: the name of the check.
        :param with_requests: request an instance before every probe.
        :returns: the check.
        """
        last = {}

        def is_met():
            if with_requests:
                self.request()
            last.update(ask(self.address, path))
            check = last['checks'].get(name, {}) if name else {}
            if last['status'] != status:
                return False
            return not check_status or check.get('status') == check_status

        try:
            wait_until(is_met, WAIT, f'{path} {status} {name} {check_status}')
        finally:
            print(json.dumps(last))
        return last['checks'].get(name)

    def wait_until_healthy(self):
        self.wait_for('/ready', 'pass', with_requests=True)
        self.wait_for('/health', 'pass')

    def is_alive(self):
        """True unless /health fails. A process that waits long for a processor is only
        a warning."""
        return ask(self.address, '/health')['status'] != 'fail'


@pytest.fixture(scope='module')
def site(cloud, client, tmp_path_factory):
    with ExitStack() as stack:
        yield Site(cloud, client, tmp_path_factory.mktemp('health'), stack)


def test_a_health_probe_asks_neither_placement_nor_a_database(site):
    """Probes ask neither Placement nor a database. A tunnel that forwards nothing would
    hold a query, and the proxy counts requests."""
    site.wait_until_healthy()
    requests_before = len(site.placement.asked)
    for _ in range(100):
        for path in ('/health', '/ready', '/status'):
            assert ask(site.address, path)['status'] == 'pass'
    assert len(site.placement.asked) == requests_before


@pytest.mark.long
def test_ready_warns_and_then_fails_while_rabbitmq_is_away(site):
    """Without RabbitMQ /ready warns first, and fails later. The scheduler is alive all
    the time, and is ready again without a restart."""
    site.wait_until_healthy()
    before = site.workers()

    site.rabbit.refuse()
    try:
        check = site.wait_for('/ready', 'warn', 'message_bus', 'warn')
        assert 'no connection for' in check['output']
        site.wait_for('/ready', 'warn', 'peers', 'warn')
        site.wait_for('/ready', 'fail', 'message_bus', 'fail')
        assert site.is_alive()
    finally:
        site.rabbit.accept()

    site.wait_until_healthy()
    assert site.workers() == before


@contextmanager
def hanging(proxy):
    """Let Placement hang while the context lasts."""
    proxy.shut()
    try:
        yield
    finally:
        proxy.open()


@pytest.mark.parametrize('way', ['refuses', 'hangs'])
def test_ready_warns_and_then_fails_while_placement_is_away(site, way):
    """/ready warns as soon as a request meets a failure of Placement, and fails when
    requests are refused for the failure. It passes again when a request, or a probe of
    the circuit breaker, is answered."""
    site.wait_until_healthy()
    is_away = site.placement.down() if way == 'refuses' else hanging(site.placement)
    with is_away:
        site.client.send('select_destinations', **a_call(new_uuids(), SMALL))
        site.wait_for('/ready', 'warn', 'placement', 'warn')
        with pytest.raises(Refused):
            site.client.receive(WAIT)
        site.wait_for('/ready', 'warn', 'placement', 'warn')

        for _ in range(2):  # so that both workers meet the failure
            site.request()
        check = site.wait_for('/ready', 'fail', 'placement', 'fail', with_requests=True)
        assert 'no answer for' in check['output']
        assert site.is_alive()
    site.wait_until_healthy()


def test_ready_warns_of_a_lost_cell_and_fails_without_any_cell(site):
    """A cell that is away is a warning; all cells that are away are a failure. The
    checks recover with the cells."""
    site.wait_until_healthy()

    site.cells['cell1'].refuse()
    site.wait_for('/ready', 'warn', 'cell:cell1', 'warn', with_requests=True)
    assert ask(site.address, '/ready')['checks']['cell:cell2']['status'] == 'pass'

    site.cells['cell2'].shut()
    site.wait_for('/ready', 'fail', 'cell:cell2', 'fail', with_requests=True)
    assert site.is_alive()

    site.cells['cell1'].accept()
    site.wait_for('/ready', 'warn', 'cell:cell1', 'pass', with_requests=True)
    site.cells['cell2'].open()
    site.wait_until_healthy()


def watchdog_was_fed(site):
    """True if the daemon has notified systemd's watchdog since the last call."""
    messages = b''
    try:
        while True:
            messages += site.notified.recv(1000)
    except BlockingIOError:
        return b'WATCHDOG=1' in messages


@pytest.mark.long
def test_probes_and_watchdog_notice_a_hanging_worker(site):
    """Health probes and systemd's watchdog notice a hanging worker, and the second
    worker serves. When the worker goes on, the probes pass."""
    site.wait_until_healthy()
    wait_until(lambda: watchdog_was_fed(site), WAIT, 'watchdog')

    worker = site.workers()[1]
    worker.suspend()
    try:
        check = site.wait_for('/health', 'warn', 'worker:1', 'warn')
        assert 'no report for' in check['output']
        site.wait_for('/ready', 'warn', 'workers', 'warn')
        site.wait_for('/health', 'fail', 'worker:1', 'fail')
        watchdog_was_fed(site)  # reads the messages from before the failure
        readable, _, _ = select.select([site.notified], [], [], 3.0)
        assert not readable, 'in three seconds it would come thrice'
    finally:
        worker.resume()

    site.wait_for('/health', 'pass')
    wait_until(lambda: watchdog_was_fed(site), WAIT, 'watchdog')
    site.wait_until_healthy()


@pytest.mark.long
def test_a_killed_worker_is_restarted_and_shown_by_the_probes(site):
    """A killed worker is started again. The probes show the restart for a while, and do
    not fail."""
    worker = site.workers()[0]
    worker.kill()

    check = site.wait_for('/health', 'warn', 'worker:0', 'warn')
    assert f'process {worker.pid} has ended, and was started again' in check['output']
    site.wait_for('/ready', 'pass')
    site.wait_for('/health', 'pass')
    assert ask(site.address, '/status')['processes'][1]['restarts'] == 1


@pytest.mark.long
def test_the_health_probe_fails_while_the_main_process_hangs(site):
    """The process of the health server notices a hanging main process."""
    main = psutil.Process(site.daemon.pid)
    main.suspend()
    try:
        site.wait_for('/health', 'fail', 'main', 'fail')
    finally:
        main.resume()
    site.wait_for('/health', 'pass')


def test_a_killed_health_server_is_replaced(site):
    """A new process takes the place of a killed health server, on the same socket."""
    [server] = site.children('http')
    server.kill()
    wait_until(
        lambda: site.children('http') not in ([], [server]), WAIT, 'another process'
    )
    site.wait_until_healthy()


def test_status_shows_processes_cells_hosts_and_decisions(site, tool):
    """``novaschedctl status`` shows processes, cells, hosts and decisions."""
    for _ in range(5):
        site.request()
    status = {}

    def shows_a_healthy_scheduler():
        site.request()
        exit_status, shown = tool('status', site.daemon.config)
        status.update(shown)
        states = (shown['health'], shown['ready'], shown['hosts'])
        return (exit_status, *states) == (0, 'pass', 'pass', {'up': 2})

    # The daemon counts hosts every few seconds. On a busy machine, Placement or a
    # database may need more time for an answer than this scheduler waits: then the
    # scheduler warns until the next request.
    wait_until(shows_a_healthy_scheduler, WAIT, 'healthy scheduler')

    workers = {process.pid for process in site.workers()}
    pids = {process['pid'] for process in status['processes']}
    assert pids == {site.daemon.pid, *workers}
    assert sum(process.get('done', 0) for process in status['processes']) > 0
    hosts_of_cells = [(cell['name'], cell['hosts']) for cell in status['cells']]
    assert hosts_of_cells == [('cell1', 1), ('cell2', 1)]
    assert 'host-' in status['decisions'][0]
    assert len(status['decisions']) == 5

    config = ['--config-file', site.daemon.config]
    print(execute([BIN / 'novaschedctl', 'status', *config]).stdout)
    print(execute([BIN / 'novaschedctl', 'health', '--ready', *config]).stdout)


def execute(command, **environment):
    return subprocess.run(
        [*map(str, command)],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )


def kolla_probe():
    """The command of kolla's probe."""
    text = (ETC / 'kolla' / 'globals.yml').read_text()
    kind, command = yaml.safe_load(text)['nova_scheduler_healthcheck_test']
    assert kind == 'CMD-SHELL'
    return [['/bin/sh', '-c', command]]


def helm_probes():
    """The commands of openstack-helm's probes."""
    values = yaml.safe_load((ETC / 'openstack-helm' / 'values.yaml').read_text())
    probes = values['pod']['probes']['scheduler']['default']
    commands = []
    for kind in ('liveness', 'readiness'):
        commands.append(probes[kind]['params']['exec']['command'])
    return commands


@pytest.mark.parametrize('probes', [kolla_probe, helm_probes])
def test_probes_of_kolla_and_helm_pass_until_the_daemon_is_gone(
    small_cloud, tmp_path, probes
):
    """The probes of the samples pass while the daemon is well, and fail once the daemon
    is gone. The test replaces only the paths of the samples. kolla's probe finds
    nova.conf without an option."""
    commands = probes()
    options = {
        'DEFAULT': {'state_path': tmp_path},
        # The default value, which the configuration of the tests overrides.
        'novasched': {'health_bind': 'unix:$state_path/novasched/health.sock'},
    }
    with Daemon(small_cloud, options) as daemon:
        home = tmp_path / '.nova'
        home.mkdir()
        (home / 'nova.conf').symlink_to(daemon.config)
        paths = {
            '/opt/novasched/bin': str(BIN),
            '/etc/nova/nova.conf.d': str(tmp_path),
            '/etc/nova/nova.conf': str(daemon.config),
        }

        def replace_paths(word):
            for sample_path, path in paths.items():
                word = word.replace(sample_path, path)
            return word

        def statuses():
            """The exit statuses of the probes."""
            codes = []
            for command in commands:
                words = map(replace_paths, command)
                codes.append(execute(words, HOME=str(tmp_path)).returncode)
            return codes

        wait_until(lambda: statuses() == [0] * len(commands), WAIT, 'health')
        daemon.kill()
        assert statuses() == [1] * len(commands)


def test_probes_and_requests_are_answered_in_a_flood_of_http(small_cloud, client):
    """Thousands of HTTP clients ask for health, send garbage or never finish a request.
    All scheduling requests and all probes are answered, and all processes live on."""
    bind = f'127.0.0.1:{free_port()}'
    with Daemon(small_cloud, {'novasched': {'health_bind': bind}}) as daemon:
        before = psutil.Process(daemon.pid).children()
        with flood(bind) as flooding:
            for _ in range(10):
                assert client.chosen() == ['host-1']
                assert ask(parse_bind(bind), '/health')['status'] == 'pass'
            wait_until(lambda: len(flooding) > 2_000, 4 * WAIT, 'flood')
            assert ask(parse_bind(bind), '/health')['status'] == 'pass'
        assert psutil.Process(daemon.pid).children() == before
        assert daemon.stop() == 0


def test_an_impossible_health_bind_stops_the_start(small_cloud, tmp_path):
    """An impossible health_bind stops the start, and a line names the option."""
    path = tmp_path / 'none' / 'none' / 'x'
    daemon = Daemon(small_cloud, {'novasched': {'health_bind': f'unix:{path}'}})
    assert daemon.run_to_end() == 1
    line = f'[novasched] health_bind = unix:{path}: No such file or directory'
    assert line in daemon.text()
