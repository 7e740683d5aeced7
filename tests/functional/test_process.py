# SPDX-License-Identifier: Apache-2.0
"""The daemon as a process: signals, probes, and what it says of itself."""

from __future__ import annotations

import os
import re
import signal
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from urllib.parse import urlsplit

import oslo_messaging
import psutil
import pytest

from tests.lab import broker
from tests.lab.client import new_uuids
from tests.lab.daemon import Daemon, is_reference
from tests.lab.nova_cloud import PROJECT, NovaCloud
from tests.lab.processes import wait_until
from tests.lab.proxy import WAIT, Proxy
from tests.lab.steady import Caller, arguments_for, load
from tests.lab.wire import a_spec

SECONDS = int(os.environ.get('NOVASCHED_TEST_SECONDS', '10'))
QUEUE = broker.TOPIC
SECRET = 'kG7bQz2mXw9RtLp4'
RELOADED = 'SIGHUP: reloaded'
NEWEST = 20
"""So many decisions are in a Guru Meditation Report."""
BEGUN = 'Starting to schedule for instances'
STAY_UP = {'DEFAULT': {'service_down_time': 3600}}
"""The computes report no more, and a machine may be slow."""

pytestmark = pytest.mark.skipif(is_reference(), reason='nova-scheduler stops serving')


@pytest.fixture(scope='module', autouse=True)
def from_the_console_script() -> Iterator[None]:
    """The whole way of an operator's start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Daemon, 'forked', False)
        yield


@pytest.fixture(scope='module')
def caller(cloud: NovaCloud) -> Iterator[Caller]:
    """A client."""
    with Caller(cloud.config('caller')) as made:
        yield made


@pytest.fixture
def hosts(cloud: NovaCloud) -> NovaCloud:
    """Hosts without end; those of the second cell are larger, and are preferred."""
    cloud.reset()
    for number in range(20):
        cell = ('cell1', 'cell2')[number % 2]
        ram_mb = (50_000_000, 90_000_000)[number % 2]
        cloud.add_host(f'{cell}-{number}', cell, vcpus=100_000, ram_mb=ram_mb, disk_gb=1_000_000)
    return cloud


@pytest.fixture
def daemon(hosts: NovaCloud) -> Iterator[Daemon]:
    """A scheduler for them."""
    with Daemon(hosts, STAY_UP) as running:
        yield running


def reload(daemon: Daemon) -> None:
    """SIGHUP; returns when it is handled."""
    before = daemon.text().count(RELOADED)
    os.kill(daemon.pid, signal.SIGHUP)
    wait_until(lambda: daemon.text().count(RELOADED) > before, WAIT, 'reload')


def workers(daemon: Daemon) -> list[psutil.Process]:
    """Its worker processes."""
    return psutil.Process(daemon.pid).children()


class TestReload:
    """SIGHUP, while requests come all the time."""

    def test_no_request_fails(self, hosts: NovaCloud, daemon: Daemon, caller: Caller) -> None:
        """Every second a SIGHUP; each request gets its host, from the same process."""
        before = workers(daemon)
        with load(caller, 2, server=daemon.host) as found:
            for _ in range(SECONDS):
                reload(daemon)
                time.sleep(1)  # the pace that is asked for
        taken = [each.taken for each in found.answers]
        print(
            f'{len(taken)} requests, median {statistics.median(taken) * 1000:.0f} ms, longest {max(taken) * 1000:.0f} ms'
        )
        assert found.failures() == []
        assert workers(daemon) == before
        assert hosts.all_allocations().keys() == {each.server for each in found.answers}

    def test_cells(self, hosts: NovaCloud, daemon: Daemon, caller: Caller) -> None:
        """A cell that is disabled, enabled, taken away or added counts from the next request
        on that comes after the reload."""

        def cells_since_reload() -> set[str]:
            reload(daemon)
            moment = time.monotonic()
            wait_until(lambda: len(found.since(moment)) > 3, WAIT, 'requests')
            return {str(each.host).partition('-')[0] for each in found.since(moment)}

        uuid = hosts.cell_uuids['cell2']
        [mapping] = hosts.api.rows('cell_mappings', uuid=uuid)
        with load(caller, 2, server=daemon.host) as found:
            hosts.api.update('cell_mappings', {'disabled': True}, uuid=uuid)
            assert cells_since_reload() == {'cell1'}
            hosts.api.update('cell_mappings', {'disabled': False}, uuid=uuid)
            assert cells_since_reload() == {'cell2'}
            hosts.api.clear(['host_mappings'])
            hosts.api.delete('cell_mappings', uuid=uuid)
            assert cells_since_reload() == {'cell1'}
            hosts.api.insert('cell_mappings', [mapping])
            assert cells_since_reload() == {'cell2'}
        assert found.failures() == []

    def test_what_cannot_be_read(self, hosts: NovaCloud, daemon: Daemon, caller: Caller) -> None:
        """With a nova.conf that is broken, or without cell mappings, all stays as it was, and
        the log says so; once it is mended, options that may change do."""
        whole = daemon.config.read_text()
        daemon.config.write_text(whole + 'nonsense\n')
        reload(daemon)
        assert 'SIGHUP: options stay as they were' in daemon.text()
        hosts.api.rename('cell_mappings', 'lost')
        try:
            os.kill(daemon.pid, signal.SIGHUP)
            wait_until(lambda: 'SIGHUP: all stays' in daemon.text(), WAIT, 'complaint')
            assert caller.place(server=daemon.host).error is None
        finally:
            hosts.api.rename('lost', 'cell_mappings')
        daemon.config.write_text(whole.replace('debug = True', 'debug = False'))
        reload(daemon)
        length = len(daemon.text())
        assert caller.place(server=daemon.host).error is None
        assert ' DEBUG ' not in daemon.text()[length:]


@pytest.fixture
def gate(hosts: NovaCloud) -> Iterator[Proxy]:
    """A Placement for one scheduler alone, shut as soon as that runs."""
    with Proxy(hosts.placement_url) as server:
        yield server


@pytest.fixture
def gated(hosts: NovaCloud, gate: Proxy) -> Iterator[Daemon]:
    """A scheduler whose requests take until the gate is opened."""
    with Daemon(hosts, {'placement': {'endpoint': gate.url}}) as running:
        gate.shut()
        yield running


class TestEnd:
    """SIGTERM and SIGINT."""

    def test_under_load(self, hosts: NovaCloud, daemon: Daemon, caller: Caller) -> None:
        """Of two schedulers that share the queue one ends, then the other after a third has
        come: each with status 0, each request is answered, and nothing is claimed for nobody."""

        def more() -> None:
            moment = time.monotonic()
            wait_until(lambda: len(found.since(moment)) > 20, WAIT, 'requests')

        third = Daemon(hosts, STAY_UP)
        with closing(third), Daemon(hosts, STAY_UP) as second, load(caller, 8) as found:
            more()
            assert daemon.stop() == 0
            more()
            third.start()
            assert second.stop() == 0
            more()
        assert found.failures() == []
        assert hosts.all_allocations().keys() == {each.server for each in found.answers}

    @pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGINT])
    def test_what_is_in_progress(
        self, hosts: NovaCloud, gated: Daemon, gate: Proxy, caller: Caller, number: int
    ) -> None:
        """A scheduler that ends leaves the queue to others at once, and answers what it has
        taken, however long that lasts."""
        with ThreadPoolExecutor(5) as pool:
            taken = [pool.submit(caller.place, server=gated.host) for _ in range(5)]
            wait_until(lambda: gated.text().count(BEGUN) == 5, WAIT, 'requests')
            os.kill(gated.pid, number)
            wait_until(lambda: broker.consumers(hosts.amqp_url, QUEUE) == 0, WAIT, 'leaving')
            with Daemon(hosts):
                with load(caller, 4) as found:
                    wait_until(lambda: len(found.answers) > 40, WAIT, 'requests')
                assert found.failures() == []
                assert not any(each.done() for each in taken)
            gate.open()
            assert gated.wait(WAIT) == 0
            assert [each.result().error for each in taken] == [None] * 5

    def test_the_second_time(self, gated: Daemon, gate: Proxy, caller: Caller) -> None:
        """The second signal ends it at once."""
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(caller.place, server=gated.host, timeout=5)
            gate.wait_for_hanging()
            os.kill(gated.pid, signal.SIGTERM)
            wait_until(lambda: 'Stopping: requests in progress' in gated.text(), WAIT, 'word')
            assert gated.stop(WAIT) == 1
            assert 'MessagingTimeout' in str(asked.result().error)

    def test_time_is_up(self, hosts: NovaCloud, gate: Proxy, caller: Caller) -> None:
        """Requests not finished within graceful_shutdown_timeout are given up."""
        config = {
            'DEFAULT': {'graceful_shutdown_timeout': 1},
            'placement': {'endpoint': gate.url},
        }
        with Daemon(hosts, config) as running, ThreadPoolExecutor(1) as pool:
            gate.shut()
            asked = pool.submit(caller.place, server=running.host, timeout=5)
            gate.wait_for_hanging()
            assert running.stop(WAIT) == 1
            assert 'MessagingTimeout' in str(asked.result().error)


class TestWorkers:
    """[scheduler] workers."""

    def test_more_than_one(self, hosts: NovaCloud, caller: Caller) -> None:
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

    def test_without_a_master(self, hosts: NovaCloud) -> None:
        """A worker does not outlive the master that would have restarted it."""
        with Daemon(hosts) as running:
            [worker] = workers(running)
            os.kill(running.pid, signal.SIGKILL)
            wait_until(lambda: not worker.is_running(), WAIT, 'end of the worker')


def connected(process: psutil.Process, port: int | None) -> bool:
    """True if it has a connection to a port."""
    return any(
        each.raddr and each.raddr.port == port and each.status == psutil.CONN_ESTABLISHED
        for each in process.net_connections('tcp')
    )


class TestProbes:
    """Health probes of deployments."""

    def test_the_name(self, hosts: NovaCloud, daemon: Daemon) -> None:
        """kolla searches command lines for nova-scheduler, openstack-helm compares the name
        of the process; either wants a connection to the broker from such a process."""
        ours = [psutil.Process(daemon.pid), *workers(daemon)]
        assert {each.name() for each in ours} == {'nova-scheduler'}
        assert all('nova-scheduler' in ' '.join(each.cmdline()) for each in ours)
        port = urlsplit(hosts.amqp_url).port
        assert any(connected(each, port) for each in ours)

    def test_ping(self, daemon: Daemon, caller: Caller) -> None:
        """openstack-helm's probe of nova's services pings; another tool asks for a port."""
        how = {'namespace': 'baseapi', 'version': '1.1', 'server': daemon.host}
        assert caller.call('ping', {'arg': None}, **how) == {'service': 'scheduler', 'arg': None}
        assert caller.call('get_backdoor_port', {}, **how) is None

    def test_unknown_methods(self, daemon: Daemon, caller: Caller) -> None:
        """Its other probes call what nobody has, and are content with oslo.messaging's own
        words; however often they do, no thread is left behind."""
        [worker] = workers(daemon)

        def probe() -> None:
            for how in ({'version': '1.0'}, {'version': '4.5'}):
                with pytest.raises(oslo_messaging.RemoteError, match='Endpoint does not support'):
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

    def test_heartbeats(self, gated: Daemon, gate: Proxy, caller: Caller) -> None:
        """A caller that gives up after two seconds of silence waits for five."""
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(caller.place, server=gated.host, call_monitor_timeout=2)
            gate.wait_for_hanging()
            time.sleep(5)  # the time that has to pass
            assert not asked.done()
            gate.open()
            assert asked.result().error is None


def test_the_first_words(hosts: NovaCloud, daemon: Daemon) -> None:
    """The log says what starts, and what the options are; no secret among them."""
    assert ' INFO nova.service ' in daemon.text()
    assert 'Starting scheduler node (version ' in daemon.text()
    assert 'api_database.connection        = ****' in daemon.text()
    for secret in (hosts.api.url, hosts.cell0.url, hosts.amqp_url):
        assert secret not in daemon.text()


@pytest.mark.parametrize('whose', ['master', 'worker'])
def test_guru_meditation(hosts: NovaCloud, whose: str) -> None:
    """SIGUSR2 has a process tell its threads and options, and no secret."""
    config = {
        'neutron': {'auth_type': 'password', 'auth_url': 'http://127.0.0.1:1/', 'password': SECRET}
    }
    with Daemon(hosts, config) as running:
        [worker] = workers(running)
        length = len(running.text())
        os.kill(running.pid if whose == 'master' else worker.pid, signal.SIGUSR2)
        wait_until(lambda: 'report_interval = 1' in running.text(), WAIT, 'report')
        report = running.text()[length:]
        assert 'Guru Meditation' in report
        assert 'novasched' in report
        assert 'in wait' in report
        assert 'connection = ***' in report
        assert SECRET not in report
        for secret in (hosts.api.url, hosts.cell0.url, hosts.amqp_url):
            assert secret not in report
        assert ('Decisions' in report) is (whose == 'worker')


def test_decisions_in_a_meditation(hosts: NovaCloud, caller: Caller) -> None:
    """A worker's report has the first lines of its twenty newest decisions, the newest first,
    and of what is secret nothing."""
    config = {
        'neutron': {'auth_type': 'password', 'auth_url': 'http://127.0.0.1:1/', 'password': SECRET}
    }
    with Daemon(hosts, config) as running:
        [worker] = workers(running)
        placed = [caller.place(server=running.host) for _ in range(25)]
        spec = a_spec(num_instances=1, project_id=PROJECT, force_hosts=[SECRET])
        arguments = {**arguments_for(new_uuids()[0]), 'spec_obj': spec}
        with pytest.raises(oslo_messaging.MessagingException):
            caller.call('select_destinations', arguments, server=running.host)
        first, last = 'Refused before Placement was asked', placed[-NEWEST + 1].server
        lines: list[str] = []

        def told() -> bool:
            """Records are made after the answer."""
            before = len(running.text())
            os.kill(worker.pid, signal.SIGUSR2)
            wait_until(lambda: last in running.text()[before:], WAIT, 'report')
            section = running.text()[before:].partition('Decisions')[2]
            lines[:] = [line for line in section.splitlines() if ' UTC ' in line]
            return first in section

        wait_until(told, WAIT, 'refusal in the report')
    assert len(lines) == NEWEST
    assert 'No such host - host: ***' in lines[0]
    assert SECRET not in '\n'.join(lines)
    for line, answer in zip(lines[1:], reversed(placed), strict=False):
        assert f' {answer.server}: {answer.host}: 20 of 20 hosts fit' in line
        assert re.match(r'\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC req-\S+ ', line)
