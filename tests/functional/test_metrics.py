# SPDX-License-Identifier: Apache-2.0
"""Metrics for Prometheus: what a real daemon exposes, and what a real Prometheus makes
of it."""

import contextlib
import json
import math
import os
import re
import signal
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests
import yaml
from prometheus_client.parser import text_string_to_metric_families

from novasched.observe.metrics import COUNTER, GAUGE, HISTOGRAM, METRICS
from novasched.scheduler.decision import RESULTS
from tests.functional.signals import reload
from tests.lab.compute_rows import Flavor
from tests.lab.daemon import Daemon, Refused, new_uuids
from tests.lab.http_flood import flood
from tests.lab.processes import START, Process, Service, free_port, program, wait_until
from tests.lab.proxy import Proxy
from tests.lab.rpc_load import concurrent_callers

PACKAGE = 'prometheus'
ETC = Path(__file__).parents[2] / 'etc'
RULES = ETC / 'prometheus' / 'novasched.rules.yml'
DASHBOARD = ETC / 'grafana' / 'novasched.json'
EVERY = '1s'
"""Between two scrapes, and between two looks at the rules."""


def promtool(*arguments: str, text: str = '') -> str:
    """What it says; the end of the test where it is not content."""
    done = subprocess.run(
        [program(PACKAGE, 'promtool'), *arguments],
        input=text,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class Prometheus(Service):
    """It, with the rules; for a with statement.

    :param target: HOST:PORT that it scrapes.
    """

    def __init__(self, folder: Path, target: str) -> None:
        config = folder / 'prometheus.yml'
        jobs = [{'job_name': 'novasched', 'static_configs': [{'targets': [target]}]}]
        every = {'scrape_interval': EVERY, 'evaluation_interval': EVERY}
        text = {'global': every, 'rule_files': [str(RULES)], 'scrape_configs': jobs}
        config.write_text(yaml.safe_dump(text))
        address = f'127.0.0.1:{free_port()}'
        self._url = f'http://{address}/'
        self._log = folder / 'prometheus.log'
        self._command = [
            program(PACKAGE, 'prometheus'),
            f'--config.file={config}',
            f'--storage.tsdb.path={folder / "data"}',
            f'--web.listen-address={address}',
        ]

    def start(self) -> None:
        self._process = Process(self._command, self._log)
        self._process.ready(self._is_ready, START, 'Prometheus')

    def query(self, expression: str) -> list[float]:
        """The values that an expression has now.

        :raises HTTPError: it is no expression.
        """
        found = self._get('api/v1/query', {'query': expression})
        return [float(each['value'][1]) for each in found['result']]

    def rules(self) -> list[dict[str, Any]]:
        return [
            rule
            for group in self._get('api/v1/rules')['groups']
            for rule in group['rules']
        ]

    def _is_ready(self) -> bool:
        try:
            return requests.get(self._url + '-/ready', timeout=START).status_code == 200
        except requests.ConnectionError:
            return False

    def _get(self, path: str, parameters: Mapping[str, str] | None = None) -> Any:
        answer = requests.get(self._url + path, parameters, timeout=START)
        answer.raise_for_status()
        return answer.json()['data']


def expressions() -> list[str]:
    """Those of the dashboard's panels, with Grafana's variables filled in."""
    panels = json.loads(DASHBOARD.read_text())['panels']
    return [
        target['expr'].replace('$__rate_interval', '1m').replace('$instance', '.*')
        for panel in panels
        for target in panel.get('targets', ())
    ]


WAIT = 30.0
SMALL = Flavor(ram_mb=512)
LARGE = Flavor(ram_mb=1_000_000)


@pytest.fixture(scope='module', autouse=True)
def temporary(tmp_path_factory):
    """What a daemon that is killed leaves behind goes with the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('TMPDIR', str(tmp_path_factory.mktemp('metrics')))
        yield


def samples(bind):
    """What is exposed now: values by name and labels' values."""
    found = requests.get(f'http://{bind}/metrics', timeout=WAIT).text
    return {
        (
            sample.name,
            *(value for _, value in sorted(sample.labels.items())),
        ): sample.value
        for family in text_string_to_metric_families(found)
        for sample in family.samples
    }


def children(daemon, role):
    """Its processes of a role."""
    found = []
    for each in psutil.Process(daemon.pid).children():
        with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended
            if f'nova-scheduler: {role} ' in ' '.join(each.cmdline()):
                found.append(each)
    return found


@pytest.fixture(scope='class')
def served(cloud):
    """A daemon with room for everybody, and where its metrics are."""
    cloud.reset()
    for name in ('host-1', 'host-2'):
        cloud.add_host(name, ram_mb=100_000, vcpus=1_000, disk_gb=10_000)
    bind = f'127.0.0.1:{free_port()}'
    with Daemon(cloud, {'novasched': {'metrics_bind': bind}}) as daemon:
        yield daemon, bind


def names(queries):
    """The series that expressions look at."""
    return {
        name
        for query in queries
        for name in re.findall(r'\bnovasched[_:][\w:]+', query)
    }


def are_numbers(found):
    """Whether there are any, and nothing else."""
    return bool(found) and not any(map(math.isnan, found))


def test_rules():
    """They are rules, and each alert fires when it should and not when it should
    not."""
    promtool('check', 'rules', str(RULES))
    cases = Path(__file__).parent / 'rules' / 'novasched.test.yml'
    promtool('test', 'rules', str(cases))
    alerts = set(re.findall(r'alert: (\w+)', RULES.read_text()))
    assert alerts == set(re.findall(r'alertname: (\w+)', cases.read_text()))


class TestServed:
    """One daemon, which the last test ends."""

    def test_what_prometheus_makes_of_it(self, served, client, tmp_path):
        """promtool finds nothing to complain of, every metric is there, and once there
        are requests every expression of the dashboard and every value of the rules has
        numbers; no alert fires."""
        bind = served[1]
        with Prometheus(tmp_path, bind) as prometheus:
            rules = prometheus.rules()
            recorded = [rule['query'] for rule in rules if rule['type'] == 'recording']
            left = [
                *expressions(),
                *recorded,
                *sorted(names(rule['query'] for rule in rules)),
            ]
            assert len(left) > 40

            def all_have_numbers():
                client.select_destinations(new_uuids(1), SMALL)
                with pytest.raises(Refused):
                    client.select_destinations(new_uuids(1), LARGE)
                left[:] = [
                    each for each in left if not are_numbers(prometheus.query(each))
                ]
                return not left

            try:
                wait_until(all_have_numbers, WAIT, 'numbers')
            finally:
                print('without numbers:', left)
            assert {rule['health'] for rule in prometheus.rules()} == {'ok'}
            firing = [
                rule['name']
                for rule in prometheus.rules()
                if rule.get('state') == 'firing'
            ]
            assert firing == []
            text = requests.get(f'http://{bind}/metrics', timeout=WAIT).text
            promtool('check', 'metrics', text=text)
            shown = {sample[0] for sample in samples(bind)}
            endings = {COUNTER: '', GAUGE: '', HISTOGRAM: '_bucket'}
            assert {metric.name + endings[metric.kind] for metric in METRICS} <= shown

    def test_the_process_that_serves(self, served, client):
        """HTTP has a process of its own, and the threads for metrics get less of the
        processors. A killed process is replaced, SIGHUP does no harm, the process ends
        with the daemon, and the workers outlive the process."""
        daemon, bind = served
        assert requests.get(f'http://{bind}/', timeout=WAIT).status_code == 404
        placed = lambda: samples(bind).get(('novasched_instances_placed_total',), 0)  # noqa: E731
        [worker] = children(daemon, 'worker')
        [web] = children(daemon, 'http')
        threads = [
            os.getpriority(os.PRIO_PROCESS, thread.id) for thread in web.threads()
        ]
        assert web.nice() == worker.nice() < max(threads)
        wait_until(lambda: ('novasched_workers',) in samples(bind), WAIT, 'metrics')
        before = placed()
        reload(daemon)
        assert children(daemon, 'http') == [web]
        web.kill()
        wait_until(
            lambda: children(daemon, 'http') not in ([web], []), WAIT, 'another process'
        )
        client.select_destinations(new_uuids(1), SMALL)
        wait_until(lambda: placed() > before, WAIT, 'metrics')
        assert children(daemon, 'worker') == [worker]
        [web] = children(daemon, 'http')
        directory = Path(
            re.findall(r'/\S*novasched-metrics-[^/]+', str(worker.memory_maps()))[0]
        )
        assert directory.stat().st_mode & 0o777 == 0o700
        assert daemon.stop() == 0
        assert not web.is_running()
        assert not directory.exists()


def test_counts(cloud, client):
    """With two workers, every request is counted once by what came of it; what a worker
    has counted stays when it is killed, and how things stood in it does not."""
    cloud.reset()
    for name in ('host-1', 'host-2'):
        cloud.add_host(name, ram_mb=16_384)
    bind = f'127.0.0.1:{free_port()}'
    config = {'novasched': {'metrics_bind': bind}, 'scheduler': {'workers': 2}}

    def ask(placed, refused):
        for server in new_uuids(placed):
            client.select_destinations([server], SMALL)
        for server in new_uuids(refused):
            with pytest.raises(Refused):
                client.select_destinations([server], LARGE)

    def counted(placed, refused):
        found = wanted(placed, refused)
        now = samples(bind)
        return {each: now.get(each) for each in found} == found

    with Daemon(cloud, config) as daemon:
        both = lambda: samples(bind).get(('novasched_workers',)) == 2  # noqa: E731
        wait_until(both, WAIT, 'both workers')
        client('sync_instance_info', host='host-1', instance_uuids=[])
        ask(6, 3)
        wait_until(lambda: counted(6, 3), WAIT, 'counts')
        worker = children(daemon, 'worker')[0]
        worker.kill()
        worker.wait(WAIT)
        ask(4, 2)
        wait_until(lambda: counted(10, 5) and both(), WAIT, 'counts that go on')
        assert daemon.stop() == 0


def wanted(placed, refused):
    """What is to be shown of so many requests, each for one server."""
    return {
        ('novasched_requests_total', 'placed'): placed,
        ('novasched_requests_total', 'refused'): refused,
        ('novasched_requests_total', 'failed'): 0,
        ('novasched_instances_placed_total',): placed,
        ('novasched_request_duration_seconds_count',): placed + refused,
        ('novasched_step_duration_seconds_count', 'placement'): placed + refused,
        ('novasched_step_duration_seconds_count', 'claim'): placed,
        ('novasched_filter_hosts_in_total', 'ComputeFilter'): 2 * placed,
        ('novasched_filter_hosts_out_total', 'ComputeFilter'): 2 * placed,
        ('novasched_claims_refused_total',): 0,
        ('novasched_casts_total', 'ignored'): 2,  # one that each of the workers heard
        ('novasched_message_wait_seconds_count',): placed + refused,
        ('novasched_messages_waiting',): 0,
        ('novasched_snapshot_hosts',): 2,
    }


def test_what_fails(cloud, client):
    """While Placement is silent requests fail, and are not counted as refused; it is
    seen that it is left alone, until it answers again. When the master dies nobody
    lives on, nor keeps the port."""
    cloud.reset()
    cloud.add_host('host-1')
    port = free_port()
    bind = f'127.0.0.1:{port}'

    def breaker_open():
        return samples(bind).get(('novasched_breaker_open', '', 'placement'))

    with Proxy(cloud.placement_url) as gate:
        placement = {'endpoint': gate.url, 'timeout': 1}
        own = {'metrics_bind': bind, 'placement_patience': 0}
        with Daemon(cloud, {'novasched': own, 'placement': placement}) as daemon:
            wait_until(lambda: breaker_open() == 0, WAIT, 'metrics')
            gate.shut()
            with pytest.raises(Refused):
                client.select_destinations(new_uuids(1), SMALL)
            wait_until(lambda: breaker_open() == 1, WAIT, 'open breaker')
            results = {
                each: samples(bind)['novasched_requests_total', each]
                for each in RESULTS
            }
            assert results == {'placed': 0, 'refused': 0, 'failed': 1}
            gate.open()
            wait_until(lambda: breaker_open() == 0, WAIT, 'closed breaker')
            left = [*children(daemon, 'worker'), *children(daemon, 'http')]
            assert len(left) == 2
            os.kill(daemon.pid, signal.SIGKILL)
            wait_until(
                lambda: not any(each.is_running() for each in left), WAIT, 'end of all'
            )
            socket.create_server(('127.0.0.1', port)).close()


def test_a_flood(cloud):
    """Thousands who ask for metrics, who send garbage and who never come to an end take
    no request its answer and no process its life, nor anybody who comes afterwards the
    metrics."""
    cloud.reset()
    cloud.add_host('host-1', vcpus=100_000, ram_mb=50_000_000, disk_gb=1_000_000)
    bind = f'127.0.0.1:{free_port()}'
    config = {'novasched': {'metrics_bind': bind}, 'DEFAULT': {'debug': False}}
    with Daemon(cloud, config) as daemon, concurrent_callers(cloud.amqp_url) as callers:
        before = psutil.Process(daemon.pid).children()
        with flood(bind) as flooding:
            servers = [*callers.ask(30)]
            callers.listen(
                lambda: callers.answered(servers), 4 * WAIT, 'answer for all'
            )
            wait_until(lambda: len(flooding) > 2_000, 4 * WAIT, 'flood')
            servers += callers.ask(30)
            callers.listen(
                lambda: callers.answered(servers), 4 * WAIT, 'answer for all'
            )
        assert callers.answers == dict.fromkeys(servers, 1)
        assert None not in callers.hosts.values()
        counted = lambda: samples(bind)['novasched_instances_placed_total',] == 60  # noqa: E731
        wait_until(counted, WAIT, 'metrics')
        assert psutil.Process(daemon.pid).children() == before
        assert len(daemon.text()) < 200_000
        assert daemon.stop() == 0
