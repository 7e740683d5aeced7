# SPDX-License-Identifier: Apache-2.0
"""The daemon as a process: signals, probes, and what it says of itself."""

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
"""So many decisions are in a Guru Meditation Report."""
BEGUN = 'Starting to schedule for instances'


@pytest.fixture(scope='module', autouse=True)
def from_the_console_script():
    """The whole way of an operator's start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Daemon, 'forked', False)
        yield


@pytest.fixture(scope='module')
def hosts(cloud):
    """Hosts without end; those of the second cell are larger, and are preferred."""
    cloud.reset()
    for number in range(20):
        cell = ('cell1', 'cell2')[number % 2]
        ram_mb = (50_000_000, 90_000_000)[number % 2]
        cloud.add_host(
            f'{cell}-{number}', cell, vcpus=100_000, ram_mb=ram_mb, disk_gb=1_000_000
        )
    return cloud


@pytest.fixture(autouse=True)
def fresh(hosts):
    """Nothing is placed."""
    for server in hosts.placement.all_allocations():
        hosts.placement.release(server)


@pytest.fixture(scope='module')
def notified(directory):
    """What systemd listens to."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        made.bind(str(directory / 'notify'))
        made.settimeout(WAIT)
        yield made


@pytest.fixture(scope='module')
def daemon(hosts, notified):
    """A scheduler for them, which runs as long as these tests do."""
    neutron = {
        'auth_type': 'password',
        'auth_url': 'http://127.0.0.1:1/',
        'password': SECRET,
    }
    environment = {'NOTIFY_SOCKET': notified.getsockname()}
    with Daemon(hosts, {'neutron': neutron}, environment=environment) as running:
        yield running


class TestReload:
    """SIGHUP. That cells come and go by it is in test_cells.py."""

    def test_no_request_fails(self, hosts, daemon, caller):
        """Every second a SIGHUP; each request gets its host, from the same process."""
        before = workers(daemon)
        with load(caller, 2, server=daemon.host) as found:
            for _ in range(SECONDS):
                reload(daemon)
                time.sleep(1)  # the pace that is asked for
        taken = [each.seconds for each in found.answers]
        print(
            f'{len(taken)} requests, median {statistics.median(taken) * 1000:.0f} ms, longest {max(taken) * 1000:.0f} ms'
        )
        assert found.failures() == []
        assert workers(daemon) == before
        assert hosts.all_allocations().keys() == {each.server for each in found.answers}

    def test_what_cannot_be_read(self, hosts, daemon, caller):
        """With a nova.conf that is broken, or without cell mappings, all stays as it
        was, and the log says so; once it is mended, options that may change do."""
        whole = daemon.config.read_text()
        daemon.config.write_text(whole + 'nonsense\n')
        reload(daemon)
        assert 'SIGHUP: options not reloaded' in daemon.text()
        hosts.api.rename('cell_mappings', 'lost')
        try:
            failed = 'SIGHUP: reload failed, keeping the current configuration'
            reload(daemon, f'{failed}: [api_database] connection')
            assert caller.place(server=daemon.host).error is None
        finally:
            hosts.api.rename('lost', 'cell_mappings')
        daemon.config.write_text(whole.replace('debug = True', 'debug = False'))
        reload(daemon)
        length = len(daemon.text())
        assert caller.place(server=daemon.host).error is None
        assert ' DEBUG ' not in daemon.text()[length:]
        daemon.config.write_text(whole)
        reload(daemon)


class TestEnd:
    """SIGTERM and SIGINT."""

    def test_under_load(self, hosts, daemon, caller):
        """Of two schedulers that share the queue one ends, and comes again, and ends:
        each time with status 0, each request is answered, and nothing is claimed for
        nobody."""
        second = Daemon(hosts)
        with closing(second), load(caller, 4, pause=0.05) as found:
            for change in (second.start, second.stop) * 2:
                assert change() in (None, 0)
                moment = time.monotonic()
                wait_until(lambda: len(found.since(moment)) > 20, WAIT, 'requests')  # noqa: B023
        assert found.failures() == []
        assert hosts.all_allocations().keys() == {each.server for each in found.answers}

    def test_what_is_in_progress(self, hosts, daemon, caller):
        """A scheduler that ends leaves the queue to others at once, and answers what it
        has taken, however long that lasts."""
        with (
            Proxy(hosts.placement_url) as gate,
            Daemon(hosts, {'placement': {'endpoint': gate.url}}) as gated,
            ThreadPoolExecutor(5) as pool,
        ):
            gate.shut()
            taken = [pool.submit(caller.place, server=gated.host) for _ in range(5)]
            wait_until(lambda: gated.text().count(BEGUN) == 5, WAIT, 'requests')
            os.kill(gated.pid, signal.SIGTERM)
            wait_until(
                lambda: broker.consumers(hosts.amqp_url, QUEUE) == 1, WAIT, 'leaving'
            )
            with load(caller, 4) as found:
                wait_until(lambda: len(found.answers) > 40, WAIT, 'requests')
            assert found.failures() == []
            assert not any(each.done() for each in taken)
            gate.open()
            assert gated.wait(WAIT) == 0
            assert [each.result().error for each in taken] == [None] * 5

    @pytest.mark.parametrize('timeout', [60, 1], ids=['second signal', 'time is up'])
    def test_what_is_given_up(self, hosts, caller, timeout):
        """Requests not finished within graceful_shutdown_timeout, or when the second
        signal comes."""
        with Proxy(hosts.placement_url) as gate, ThreadPoolExecutor(1) as pool:
            config = {
                'DEFAULT': {'graceful_shutdown_timeout': timeout},
                'placement': {'endpoint': gate.url},
            }
            with Daemon(hosts, config) as running:
                gate.shut()
                asked = pool.submit(caller.place, server=running.host, timeout=5)
                gate.wait_for_hanging()
                os.kill(running.pid, signal.SIGINT)
                wait_until(lambda: 'Stopping: waiting' in running.text(), WAIT, 'word')
                assert (running.wait() if timeout == 1 else running.stop(WAIT)) == 1
                assert 'MessagingTimeout' in str(asked.result().error)


def test_more_than_one_worker(hosts, caller):
    """They share a services row; one that is killed is replaced; all end together."""
    with Daemon(hosts, {'scheduler': {'workers': 2}}) as running:
        queue = f'{QUEUE}.{running.host}'
        both = lambda: broker.consumers(hosts.amqp_url, queue) == 2  # noqa: E731
        wait_until(both, WAIT, 'second consumer')
        first, second = workers(running)
        first.kill()
        wait_until(lambda: first not in workers(running), WAIT, 'end of a worker')
        wait_until(both, WAIT, 'second consumer again')
        assert caller.place(server=running.host).error is None
        assert second in workers(running)
        rows = hosts.service_rows('nova-scheduler')
        assert len([row for row in rows if row['host'] == running.host]) == 1
        left = workers(running)
        assert running.stop() == 0
        assert [each for each in left if each.is_running()] == []


def test_the_name(hosts, daemon):
    """kolla searches command lines for nova-scheduler, openstack-helm compares the name
    of the process; either wants a connection to the broker from such a process."""
    ours = [psutil.Process(daemon.pid), *workers(daemon)]
    assert {each.name() for each in ours} == {'nova-scheduler'}
    assert all('nova-scheduler' in ' '.join(each.cmdline()) for each in ours)
    connections = [each for process in ours for each in process.net_connections('tcp')]
    peers = [
        each.raddr for each in connections if each.status == psutil.CONN_ESTABLISHED
    ]
    assert urlsplit(hosts.amqp_url).port in {peer.port for peer in peers}


def test_ping(daemon, caller):
    """openstack-helm's probe of nova's services pings; another tool asks for a port."""
    how = {'namespace': 'baseapi', 'version': '1.1', 'server': daemon.host}
    assert caller.call('ping', {'arg': None}, **how) == {
        'service': 'scheduler',
        'arg': None,
    }
    assert caller.call('get_backdoor_port', {}, **how) is None


def test_unknown_methods(daemon, caller):
    """Its other probes call what nobody has, and are content with oslo.messaging's
    own words; however often they do, no thread is left behind."""
    [worker] = workers(daemon)

    def probe():
        for how in ({'version': '1.0'}, {'version': '4.5'}):
            with pytest.raises(
                oslo_messaging.RemoteError, match='Endpoint does not support'
            ):
                caller.call(
                    'pod_health_probe_method_ignore_errors', {}, server=daemon.host,
                    call_monitor_timeout=20, **how,
                )  # fmt: skip

    for _ in range(70):  # more than there are threads to handle them
        probe()
    before = worker.num_threads()
    for _ in range(20):
        probe()
    # One more or less is at work just now; each probe would have left one.
    assert worker.num_threads() < before + 20


def test_the_first_words(hosts, daemon, notified):
    """The log says what starts, and what the options are; systemd hears that it is
    READY. When SIGUSR2 has a process tell its threads and options, a worker tells of
    decisions, too. No secret is among all that."""
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
    secrets = (SECRET, hosts.api.url, hosts.cell0.url, hosts.amqp_url)
    assert [secret for secret in secrets if secret in daemon.text()] == []


def test_decisions_in_a_meditation(daemon, caller):
    """A worker's report has the first lines of its twenty newest decisions, the newest
    first, and of what is secret nothing."""
    [worker] = workers(daemon)
    placed = [caller.place(server=daemon.host) for _ in range(25)]
    spec = a_spec(num_instances=1, project_id=PROJECT, force_hosts=[SECRET])
    arguments = {**arguments_for(new_uuids()[0]), 'spec_obj': spec}
    with pytest.raises(oslo_messaging.MessagingException):
        caller.call('select_destinations', arguments, server=daemon.host)
    lines = []

    def told():
        """Records are made after the answer."""
        section = report(daemon, worker.pid).partition('Decisions')[2]
        lines[:] = [line for line in section.splitlines() if ' UTC ' in line]
        return 'Refused before Placement was asked' in section

    wait_until(told, WAIT, 'refusal in the report')
    assert len(lines) == NEWEST
    assert 'No such host - host: ***' in lines[0]
    assert SECRET not in '\n'.join(lines)
    for line, answer in zip(lines[1:], reversed(placed), strict=False):
        assert f' {answer.server}: {answer.host}: 20 of 20 hosts fit' in line
        assert re.match(r'\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC req-\S+ ', line)
