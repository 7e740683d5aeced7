# SPDX-License-Identifier: Apache-2.0
"""Health as probes see it while real servers go and come, and processes hang and die.
What takes half a minute to be seen runs with the faults."""

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
"""Seconds for which requests wait for Placement and for databases, here."""
SMALL = Flavor()


class Site:
    """A daemon of two workers, and ways to all that it needs, which can be cut."""

    def __init__(self, cloud, client, folder, stack):
        cloud.reset()
        cloud.add_host('host-1', 'cell1', ram_mb=100_000, vcpus=1000)
        cloud.add_host('host-2', 'cell2', ram_mb=100_000, vcpus=1000)
        self.cloud = cloud
        self.client = client
        self.rabbit = stack.enter_context(Tunnel(cloud.amqp_url))
        self.placement = stack.enter_context(Proxy(cloud.placement_url))
        self.cells = {
            name: stack.enter_context(Tunnel(cloud.cells[name].url))
            for name in ('cell1', 'cell2')
        }
        for name, way in self.cells.items():
            cloud.map_cell(name, database_connection=way.url)
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
        """A request, with an answer or without one."""
        try:
            self.client.select_destinations(new_uuids(), SMALL)
        except Refused:
            return False
        return True

    def workers(self):
        return self.children('worker')

    def children(self, role):
        found = []
        for each in psutil.Process(self.daemon.pid).children():
            with suppress(psutil.NoSuchProcess):  # it has just ended
                if f': {role} ' in ' '.join(each.cmdline()):
                    found.append(each)
        return found

    def says(self, path, status, name='', its=None, ask_too=False):
        """Wait until a question is answered so, as a whole and for one item."""
        last = {}

        def does():
            if ask_too:
                self.request()
            last.update(ask(self.address, path))
            item = last['checks'].get(name, {}) if name else {}
            return last['status'] == status and (not its or item.get('status') == its)

        try:
            wait_until(does, WAIT, f'{path} {status} {name} {its}')
        finally:
            print(json.dumps(last))
        return last['checks'].get(name)

    def passes(self):
        self.says('/ready', 'pass', ask_too=True)
        self.says('/health', 'pass')

    def lives(self):
        """A process that waits long for a processor is a warning, and no more."""
        return ask(self.address, '/health')['status'] != 'fail'


@pytest.fixture(scope='module')
def site(cloud, client, tmp_path_factory):
    with ExitStack() as stack:
        yield Site(cloud, client, tmp_path_factory.mktemp('health'), stack)


def test_nothing_is_asked_for_a_probe(site):
    """However often health is asked, neither Placement nor a database hears of it: a
    tunnel that hands on nothing finds nothing to keep, and the proxy is asked
    nothing."""
    site.passes()
    asked = len(site.placement.asked)
    for _ in range(100):
        for path in ('/health', '/ready', '/status'):
            assert ask(site.address, path)['status'] == 'pass'
    assert len(site.placement.asked) == asked


@pytest.mark.long
def test_rabbitmq_is_away(site):
    """First it is a warning, then a scheduler that is not ready; it is alive all the
    time, and ready again without a restart."""
    site.passes()
    before = site.workers()
    site.rabbit.refuse()
    try:
        check = site.says('/ready', 'warn', 'message_bus', 'warn')
        assert 'no connection for' in check['output']
        site.says('/ready', 'warn', 'peers', 'warn')
        site.says('/ready', 'fail', 'message_bus', 'fail')
        assert site.lives()
    finally:
        site.rabbit.accept()
    site.passes()
    assert site.workers() == before


@pytest.mark.parametrize('way', ['refuses', 'hangs'])
def test_placement_is_away(site, way):
    """A warning as soon as a request has met it, a failure when requests are refused
    for it, and neither when one is answered again, or a probe of the circuit
    breaker."""
    site.passes()

    @contextmanager
    def hangs():
        site.placement.shut()
        try:
            yield
        finally:
            site.placement.open()

    with site.placement.down() if way == 'refuses' else hangs():
        site.client.send('select_destinations', **a_call(new_uuids(), SMALL))
        site.says('/ready', 'warn', 'placement', 'warn')
        with pytest.raises(Refused):
            site.client.receive(WAIT)
        site.says('/ready', 'warn', 'placement', 'warn')
        for _ in range(2):  # the other worker meets it, too
            site.request()
        check = site.says('/ready', 'fail', 'placement', 'fail', ask_too=True)
        assert 'no answer for' in check['output']
        assert site.lives()
    site.passes()


def test_cells_are_away(site):
    """One of them is a warning, all of them are a failure, and so it goes back."""
    site.passes()
    site.cells['cell1'].refuse()
    site.says('/ready', 'warn', 'cell:cell1', 'warn', ask_too=True)
    assert ask(site.address, '/ready')['checks']['cell:cell2']['status'] == 'pass'
    site.cells['cell2'].shut()
    site.says('/ready', 'fail', 'cell:cell2', 'fail', ask_too=True)
    assert site.lives()
    site.cells['cell1'].accept()
    site.says('/ready', 'warn', 'cell:cell1', 'pass', ask_too=True)
    site.cells['cell2'].open()
    site.passes()


def fed(site):
    """True if systemd's watchdog has heard of the daemon since the last call."""
    heard = b''
    try:
        while True:
            heard += site.notified.recv(1000)
    except BlockingIOError:
        return b'WATCHDOG=1' in heard


@pytest.mark.long
def test_a_worker_that_hangs(site):
    """It is seen as such, and by systemd's watchdog, too; the other one serves. When it
    goes on, all passes."""
    site.passes()
    wait_until(lambda: fed(site), WAIT, 'watchdog')
    worker = site.workers()[1]
    worker.suspend()
    try:
        check = site.says('/health', 'warn', 'worker:1', 'warn')
        assert 'no report for' in check['output']
        site.says('/ready', 'warn', 'workers', 'warn')
        site.says('/health', 'fail', 'worker:1', 'fail')
        fed(site)
        readable, _, _ = select.select([site.notified], [], [], 3.0)
        assert not readable, 'in three seconds it would come thrice'
    finally:
        worker.resume()
    site.says('/health', 'pass')
    wait_until(lambda: fed(site), WAIT, 'watchdog')
    site.passes()


@pytest.mark.long
def test_a_worker_that_dies(site):
    """It is started again, which is shown for a while and fails no probe."""
    worker = site.workers()[0]
    worker.kill()
    check = site.says('/health', 'warn', 'worker:0', 'warn')
    assert f'process {worker.pid} has ended, and was started again' in check['output']
    site.says('/ready', 'pass')
    site.says('/health', 'pass')
    assert ask(site.address, '/status')['processes'][1]['restarts'] == 1


@pytest.mark.long
def test_the_main_process_hangs(site):
    """It is seen by the process that serves health."""
    main = psutil.Process(site.daemon.pid)
    main.suspend()
    try:
        site.says('/health', 'fail', 'main', 'fail')
    finally:
        main.resume()
    site.says('/health', 'pass')


def test_the_server_dies(site):
    """Another one takes its place, on the same socket."""
    [server] = site.children('http')
    server.kill()
    wait_until(
        lambda: site.children('http') not in ([], [server]), WAIT, 'another process'
    )
    site.passes()


def test_status(site, tool):
    """It tells of processes, cells, hosts and decisions. Hosts are counted every few
    seconds."""
    site.passes()
    wait_until(
        lambda: ask(site.address, '/status')['hosts'] == {'up': 2}, WAIT, 'both hosts'
    )
    status, found = tool('status', site.daemon.config)
    assert status == 0
    assert (found['health'], found['ready'], found['hosts']) == (
        'pass',
        'pass',
        {'up': 2},
    )
    assert {each['pid'] for each in found['processes']} == {
        site.daemon.pid,
        *(each.pid for each in site.workers()),
    }
    assert sum(each.get('done', 0) for each in found['processes']) > 0
    assert [(each['name'], each['hosts']) for each in found['cells']] == [
        ('cell1', 1),
        ('cell2', 1),
    ]
    assert 'host-' in found['decisions'][0]
    assert len(found['decisions']) == 5
    print(
        ran(
            [BIN / 'novaschedctl', 'status', '--config-file', site.daemon.config]
        ).stdout
    )
    print(
        ran(
            [
                BIN / 'novaschedctl',
                'health',
                '--ready',
                '--config-file',
                site.daemon.config,
            ]
        ).stdout
    )


def ran(command, **environment):
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
    return [
        probes[kind]['params']['exec']['command'] for kind in ('liveness', 'readiness')
    ]


@pytest.mark.parametrize('probes', [kolla_probe, helm_probes])
def test_probes_of_deployments(small_cloud, tmp_path, probes):
    """As they stand in the samples, they pass while the daemon is well, and fail once
    it hangs or is gone; only its paths are those of the test. kolla's finds nova.conf
    by itself."""
    commands = probes()
    options = {
        'DEFAULT': {'state_path': tmp_path},
        # The default, where a test has none.
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

        def replaced(word):
            for there, here in paths.items():
                word = word.replace(there, here)
            return word

        def statuses():
            return [
                ran(map(replaced, command), HOME=str(tmp_path)).returncode
                for command in commands
            ]

        wait_until(lambda: statuses() == [0] * len(commands), WAIT, 'health')
        daemon.kill()
        assert statuses() == [1] * len(commands)


def test_a_flood(small_cloud, client):
    """Strangers who ask, send garbage and never come to an end take no request its
    answer, no process its life and no probe its answer."""
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


def test_an_address_that_cannot_be(small_cloud, tmp_path):
    """The operator's own stops the start, with one line that names it."""
    path = tmp_path / 'none' / 'none' / 'x'
    daemon = Daemon(small_cloud, {'novasched': {'health_bind': f'unix:{path}'}})
    assert daemon.run_to_end() == 1
    said = f'[novasched] health_bind = unix:{path}: No such file or directory'
    assert said in daemon.text()
