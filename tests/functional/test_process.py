# SPDX-License-Identifier: Apache-2.0
"""The daemon as a process: signals, probes, and the reports of the process."""

import os
import re
import signal
import socket
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from urllib.parse import urlsplit

import oslo_messaging
import psutil
import pytest

from tests.lab import broker
from tests.lab.daemon import Daemon, new_uuids
from tests.lab.nova_cloud import PROJECT
from tests.lab.processes import wait_until
from tests.lab.proxy import WAIT, Proxy
from tests.lab.rpc_load import arguments_for, load
from tests.lab.wire import a_spec

from .signals import reload, report, workers

SECONDS = int(os.environ.get('NOVASCHED_TEST_SECONDS', '3'))
QUEUE = broker.TOPIC
SECRET = 'kG7bQz2mXw9RtLp4'
NEWEST = 20
"""Number of decisions in a Guru Meditation Report."""
BEGUN = 'Starting to schedule for instances'


@pytest.fixture(scope='module', autouse=True)
def from_the_console_script():
    """Start the daemons by the console script, as operators do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Daemon, 'forked', False)
        yield


@pytest.fixture(scope='module')
def hosts(cloud):
    """Hosts with practically endless resources. The weighers prefer the larger hosts of
    the second cell."""
    cloud.reset()
    sizes = {'cell1': 50_000_000, 'cell2': 90_000_000}
    for number in range(20):
        cell = ('cell1', 'cell2')[number % 2]
        cloud.add_host(
            f'{cell}-{number}',
            cell,
            vcpus=100_000,
            ram_mb=sizes[cell],
            disk_gb=1_000_000,
        )
    return cloud


@pytest.fixture(autouse=True)
def fresh(hosts):
    """Release all allocations before a test."""
    for server in hosts.placement.all_allocations():
        hosts.placement.release(server)


@pytest.fixture(scope='module')
def notified(directory):
    """The socket where systemd would listen."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(directory / 'notify'))
        listener.settimeout(WAIT)
        yield listener


@pytest.fixture(scope='module')
def daemon(hosts, notified):
    """A scheduler for the hosts that runs for all tests of this module."""
    neutron = {
        'auth_type': 'password',
        'auth_url': 'http://127.0.0.1:1/',
        'password': SECRET,
    }
    environment = {'NOTIFY_SOCKET': notified.getsockname()}
    with Daemon(hosts, {'neutron': neutron}, environment=environment) as running:
        yield running


def servers_of(requests):
    """The servers of all answered requests."""
    return {answer.server for answer in requests.answers}


class TestReload:
    """SIGHUP. Reloads of cell mappings are in test_cells.py."""

    def test_no_request_fails_while_sighup_reloads_the_daemon(
        self, hosts, daemon, caller
    ):
        """With a SIGHUP every second, all requests get hosts from the same process."""
        before = workers(daemon)

        with load(caller, 2, server=daemon.host) as requests:
            for _ in range(SECONDS):
                reload(daemon)
                time.sleep(1)  # the interval between two signals

        taken_ms = [answer.seconds * 1000 for answer in requests.answers]
        median = statistics.median(taken_ms)
        longest = max(taken_ms)
        print(
            f'{len(taken_ms)} requests, median {median:.0f} ms, longest {longest:.0f} ms'
        )
        assert requests.failures() == []
        assert workers(daemon) == before
        assert hosts.all_allocations().keys() == servers_of(requests)

    def test_sighup_keeps_the_configuration_if_reading_fails(
        self, hosts, daemon, caller
    ):
        """The daemon keeps the configuration and logs a failure while nova.conf or the
        cell mappings cannot be read. With a valid nova.conf, the daemon reloads the
        mutable options."""
        valid = daemon.config.read_text()
        daemon.config.write_text(valid + 'nonsense\n')
        reload(daemon)
        assert 'SIGHUP: options not reloaded' in daemon.text()

        hosts.api.rename('cell_mappings', 'lost')
        try:
            failed = 'SIGHUP: reload failed, keeping the current configuration'
            reload(daemon, f'{failed}: [api_database] connection')
            assert caller.place(server=daemon.host).error is None
        finally:
            hosts.api.rename('lost', 'cell_mappings')

        daemon.config.write_text(valid.replace('debug = True', 'debug = False'))
        reload(daemon)
        length = len(daemon.text())
        assert caller.place(server=daemon.host).error is None
        assert ' DEBUG ' not in daemon.text()[length:]

        daemon.config.write_text(valid)
        reload(daemon)


class TestEnd:
    """SIGTERM and SIGINT."""

    def test_no_request_fails_while_a_scheduler_starts_and_stops(
        self, hosts, daemon, caller
    ):
        """Two schedulers share the queue, and one of the two starts and stops twice. It
        stops with status 0, every request is answered, and every allocation belongs to
        an answered request."""
        second = Daemon(hosts)
        with closing(second), load(caller, 4, pause=0.05) as requests:
            for change in (second.start, second.stop) * 2:
                assert change() in (None, 0)
                moment = time.monotonic()
                wait_until(
                    lambda moment=moment: len(requests.since(moment)) > 20,
                    WAIT,
                    'requests',
                )

        assert requests.failures() == []
        assert hosts.all_allocations().keys() == servers_of(requests)

    def test_a_stopping_scheduler_answers_requests_in_progress(
        self, hosts, daemon, caller
    ):
        """A scheduler that stops leaves the queue to a second scheduler at once, and
        still answers its requests in progress, however long the answers take."""
        with (
            Proxy(hosts.placement_url) as gate,
            Daemon(hosts, {'placement': {'endpoint': gate.url}}) as gated,
            ThreadPoolExecutor(5) as pool,
        ):
            gate.shut()
            in_progress = [
                pool.submit(caller.place, server=gated.host) for _ in range(5)
            ]
            wait_until(lambda: gated.text().count(BEGUN) == 5, WAIT, 'requests')

            os.kill(gated.pid, signal.SIGTERM)
            wait_until(
                lambda: broker.consumers(hosts.amqp_url, QUEUE) == 1, WAIT, 'leaving'
            )
            with load(caller, 4) as requests:
                wait_until(lambda: len(requests.answers) > 40, WAIT, 'requests')
            assert requests.failures() == []
            assert not any(future.done() for future in in_progress)

            gate.open()
            assert gated.wait(WAIT) == 0
            for future in in_progress:
                assert future.result().error is None

    @pytest.mark.parametrize('timeout', [60, 1], ids=['second signal', 'time is up'])
    def test_requests_in_progress_end_at_the_timeout_or_a_second_signal(
        self, hosts, caller, timeout
    ):
        """A scheduler gives up its requests in progress after
        graceful_shutdown_timeout, or at a second signal."""
        with Proxy(hosts.placement_url) as gate, ThreadPoolExecutor(1) as pool:
            config = {
                'DEFAULT': {'graceful_shutdown_timeout': timeout},
                'placement': {'endpoint': gate.url},
            }
            with Daemon(hosts, config) as running:
                gate.shut()
                request = pool.submit(caller.place, server=running.host, timeout=5)
                gate.wait_for_hanging()

                os.kill(running.pid, signal.SIGINT)
                wait_until(lambda: 'Stopping: waiting' in running.text(), WAIT, 'word')
                if timeout == 1:
                    assert running.wait() == 1
                else:
                    assert running.stop(WAIT) == 1
                assert 'MessagingTimeout' in str(request.result().error)


def test_a_killed_worker_of_two_is_replaced(hosts, caller):
    """Two workers share a services row. The daemon replaces a killed worker, and both
    workers stop with the daemon."""
    with Daemon(hosts, {'scheduler': {'workers': 2}}) as running:

        def both_listen():
            queue = f'{QUEUE}.{running.host}'
            return broker.consumers(hosts.amqp_url, queue) == 2

        wait_until(both_listen, WAIT, 'second consumer')
        first, second = workers(running)

        first.kill()
        wait_until(lambda: first not in workers(running), WAIT, 'end of a worker')
        wait_until(both_listen, WAIT, 'second consumer again')
        assert caller.place(server=running.host).error is None
        assert second in workers(running)

        rows = hosts.service_rows('nova-scheduler')
        assert [row['host'] for row in rows].count(running.host) == 1

        last_workers = workers(running)
        assert running.stop() == 0
        for worker in last_workers:
            assert not worker.is_running()


def test_process_names_and_command_lines_contain_nova_scheduler(hosts, daemon):
    """Command lines contain nova-scheduler, as kolla expects, and the processes are
    named nova-scheduler, as openstack-helm expects. Both tools look for a connection
    of such a process to the broker."""
    processes = [psutil.Process(daemon.pid), *workers(daemon)]

    ports = set()
    for process in processes:
        assert process.name() == 'nova-scheduler'
        assert 'nova-scheduler' in ' '.join(process.cmdline())
        for connection in process.net_connections('tcp'):
            if connection.status == psutil.CONN_ESTABLISHED:
                ports.add(connection.raddr.port)

    assert urlsplit(hosts.amqp_url).port in ports


def test_the_daemon_answers_a_ping(daemon, caller):
    """The daemon answers the ping of openstack-helm's probe, and the question for the
    port of the backdoor."""
    target = {'namespace': 'baseapi', 'version': '1.1', 'server': daemon.host}
    assert caller.call('ping', {'arg': None}, **target) == {
        'service': 'scheduler',
        'arg': None,
    }
    assert caller.call('get_backdoor_port', {}, **target) is None


def test_calls_of_unknown_methods_get_an_error_and_leave_no_thread(daemon, caller):
    """openstack-helm's remaining probes call unknown methods and accept the error of
    oslo.messaging. However many probes come, no thread remains."""
    [worker] = workers(daemon)

    def probe():
        for version in ('1.0', '4.5'):
            with pytest.raises(
                oslo_messaging.RemoteError, match='Endpoint does not support'
            ):
                caller.call(
                    'pod_health_probe_method_ignore_errors',
                    {},
                    server=daemon.host,
                    call_monitor_timeout=20,
                    version=version,
                )

    for _ in range(70):  # more probes than the daemon has threads
        probe()
    before = worker.num_threads()

    for _ in range(20):
        probe()
    # A few threads come and go. If every probe left a thread, there would be twenty
    # more.
    assert worker.num_threads() < before + 20


def test_log_and_guru_meditation_report_show_options_without_secrets(
    hosts, daemon, notified
):
    """The log shows the start and the options, and systemd gets READY. The Guru
    Meditation Report of a process shows threads and options, and decisions if the
    process is a worker. The log shows no secrets."""
    assert b'READY=1' in notified.recv(1024)  # Type=notify
    assert ' INFO nova.service ' in daemon.text()
    assert 'Starting scheduler node (version ' in daemon.text()
    assert 'api_database.connection        = ****' in daemon.text()

    [worker] = workers(daemon)
    for pid in (daemon.pid, worker.pid):
        text = report(daemon, pid)
        for words in ('Guru Meditation', 'novasched', 'in wait', 'connection = ***'):
            assert words in text
        assert ('Decisions' in text) is (pid == worker.pid)

    for secret in (SECRET, hosts.api.url, hosts.cell0.url, hosts.amqp_url):
        assert secret not in daemon.text()


def test_a_guru_meditation_report_shows_the_newest_decisions(daemon, caller):
    """The report of a worker has the first lines of the twenty newest decisions, the
    newest first, without secrets."""
    [worker] = workers(daemon)
    placed = [caller.place(server=daemon.host) for _ in range(25)]
    spec = a_spec(num_instances=1, project_id=PROJECT, force_hosts=[SECRET])
    arguments = {**arguments_for(new_uuids()[0]), 'spec_obj': spec}
    with pytest.raises(oslo_messaging.MessagingException):
        caller.call('select_destinations', arguments, server=daemon.host)

    lines = []

    def refusal_is_reported():
        """True once the report has the refusal: records are made after the answer."""
        section = report(daemon, worker.pid).partition('Decisions')[2]
        lines[:] = [line for line in section.splitlines() if ' UTC ' in line]
        return 'Refused before Placement was asked' in section

    wait_until(refusal_is_reported, WAIT, 'refusal in the report')

    assert len(lines) == NEWEST
    assert 'No such host - host: ***' in lines[0]
    assert SECRET not in '\n'.join(lines)
    for line, answer in zip(lines[1:], reversed(placed), strict=False):
        assert f' {answer.server}: {answer.host}: 20 of 20 hosts fit' in line
        assert re.match(r'\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC req-\S+ ', line)
