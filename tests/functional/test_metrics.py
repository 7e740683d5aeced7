# SPDX-License-Identifier: Apache-2.0
"""Metrics of a real daemon, scraped by a real Prometheus."""

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
INTERVAL = '1s'
"""Time between two scrapes, and between two evaluations of the rules."""


def promtool(*arguments: str, text: str = '') -> str:
    """Run promtool without an error; its output."""
    process = subprocess.run(
        [program(PACKAGE, 'promtool'), *arguments],
        input=text,
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


class Prometheus(Service):
    """A Prometheus with novasched's rules; for a with statement.

    :param target: HOST:PORT of the metrics.
    """

    def __init__(self, folder: Path, target: str) -> None:
        config = folder / 'prometheus.yml'
        jobs = [{'job_name': 'novasched', 'static_configs': [{'targets': [target]}]}]
        options = {
            'global': {'scrape_interval': INTERVAL, 'evaluation_interval': INTERVAL},
            'rule_files': [str(RULES)],
            'scrape_configs': jobs,
        }
        config.write_text(yaml.safe_dump(options))
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
        """The current values of an expression.

        :raises HTTPError: the expression is invalid.
        """
        answer = self._get('api/v1/query', {'query': expression})
        return [float(series['value'][1]) for series in answer['result']]

    def rules(self) -> list[dict[str, Any]]:
        rules = []
        for group in self._get('api/v1/rules')['groups']:
            rules += group['rules']
        return rules

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
    """The expressions of the dashboard's panels, with values for Grafana's
    variables."""
    expressions = []
    for panel in json.loads(DASHBOARD.read_text())['panels']:
        for target in panel.get('targets', ()):
            expression = target['expr'].replace('$__rate_interval', '1m')
            expressions.append(expression.replace('$instance', '.*'))
    return expressions


WAIT = 30.0
SMALL = Flavor(ram_mb=512)
LARGE = Flavor(ram_mb=1_000_000)


@pytest.fixture(scope='module', autouse=True)
def temporary(tmp_path_factory):
    """Keep the files of a killed daemon in a directory of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('TMPDIR', str(tmp_path_factory.mktemp('metrics')))
        yield


def samples(bind):
    """The exposed metrics: name and values of the labels to value."""
    text = requests.get(f'http://{bind}/metrics', timeout=WAIT).text
    values = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = [value for _, value in sorted(sample.labels.items())]
            values[(sample.name, *labels)] = sample.value
    return values


def placed_total(bind):
    """The number of placed instances by the metrics."""
    return samples(bind).get(('novasched_instances_placed_total',), 0)


def children(daemon, role):
    """The child processes of a daemon with a role."""
    of_role = []
    for process in psutil.Process(daemon.pid).children():
        with contextlib.suppress(psutil.NoSuchProcess):  # the process has just ended
            if f'nova-scheduler: {role} ' in ' '.join(process.cmdline()):
                of_role.append(process)
    return of_role


@pytest.fixture(scope='class')
def served(cloud):
    """A daemon with room for all requests, and the address of its metrics."""
    cloud.reset()
    for name in ('host-1', 'host-2'):
        cloud.add_host(name, ram_mb=100_000, vcpus=1_000, disk_gb=10_000)
    bind = f'127.0.0.1:{free_port()}'
    with Daemon(cloud, {'novasched': {'metrics_bind': bind}}) as daemon:
        yield daemon, bind


def names(queries):
    """The names of novasched's series in expressions."""
    names = set()
    for query in queries:
        names.update(re.findall(r'\bnovasched[_:][\w:]+', query))
    return names


def are_numbers(values):
    """True if there are values, and no value is NaN."""
    return bool(values) and not any(map(math.isnan, values))


def test_every_alert_rule_is_valid_and_tested():
    """The rules are valid, and tests of the rules say when the alerts fire. Every alert
    has a test."""
    promtool('check', 'rules', str(RULES))
    cases = Path(__file__).parent / 'rules' / 'novasched.test.yml'
    promtool('test', 'rules', str(cases))
    alerts = set(re.findall(r'alert: (\w+)', RULES.read_text()))
    assert alerts == set(re.findall(r'alertname: (\w+)', cases.read_text()))


class TestServed:
    """Tests with a shared daemon, which the last test stops."""

    def test_every_dashboard_and_rule_expression_has_numbers(
        self, served, client, tmp_path
    ):
        """promtool accepts the metrics, and every metric is exposed. After requests,
        every expression of the dashboard and of the rules has numbers, and no alert
        fires."""
        bind = served[1]
        with Prometheus(tmp_path, bind) as prometheus:
            rules = prometheus.rules()
            series = names(rule['query'] for rule in rules)
            without_numbers = [*expressions(), *sorted(series)]
            for rule in rules:
                if rule['type'] == 'recording':
                    without_numbers.append(rule['query'])
            assert len(without_numbers) > 40

            def all_have_numbers():
                client.select_destinations(new_uuids(1), SMALL)
                with pytest.raises(Refused):
                    client.select_destinations(new_uuids(1), LARGE)
                for query in [*without_numbers]:
                    if are_numbers(prometheus.query(query)):
                        without_numbers.remove(query)
                return not without_numbers

            try:
                wait_until(all_have_numbers, WAIT, 'numbers')
            finally:
                print('without numbers:', without_numbers)

            for rule in prometheus.rules():
                assert rule['health'] == 'ok'
                assert rule.get('state') != 'firing', rule['name']

            text = requests.get(f'http://{bind}/metrics', timeout=WAIT).text
            promtool('check', 'metrics', text=text)
            shown = {sample[0] for sample in samples(bind)}
            endings = {COUNTER: '', GAUGE: '', HISTOGRAM: '_bucket'}
            for metric in METRICS:
                assert metric.name + endings[metric.kind] in shown

    def test_the_process_that_serves_metrics_is_replaced_when_killed(
        self, served, client
    ):
        """A process of its own serves HTTP, with less priority than the workers. The
        daemon replaces the process when it is killed, SIGHUP leaves it alone, and it
        stops with the daemon. The workers outlive it."""
        daemon, bind = served
        assert requests.get(f'http://{bind}/', timeout=WAIT).status_code == 404

        [worker] = children(daemon, 'worker')
        [web] = children(daemon, 'http')
        priorities = []
        for thread in web.threads():
            priorities.append(os.getpriority(os.PRIO_PROCESS, thread.id))
        assert web.nice() == worker.nice() < max(priorities)

        wait_until(lambda: ('novasched_workers',) in samples(bind), WAIT, 'metrics')
        before = placed_total(bind)
        reload(daemon)
        assert children(daemon, 'http') == [web]

        web.kill()
        wait_until(
            lambda: children(daemon, 'http') not in ([web], []), WAIT, 'another process'
        )
        client.select_destinations(new_uuids(1), SMALL)
        wait_until(lambda: placed_total(bind) > before, WAIT, 'metrics')
        assert children(daemon, 'worker') == [worker]

        [web] = children(daemon, 'http')
        mapped_files = str(worker.memory_maps())
        directory = Path(re.findall(r'/\S*novasched-metrics-[^/]+', mapped_files)[0])
        assert directory.stat().st_mode & 0o777 == 0o700

        assert daemon.stop() == 0
        assert not web.is_running()
        assert not directory.exists()


def test_each_request_is_counted_once_by_result(cloud, client):
    """With two workers, every request is counted once by its result. The counters of a
    killed worker stay, and its gauges go."""
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

    def are_counted(placed, refused):
        expected = expected_samples(placed, refused)
        exposed = samples(bind)
        return {name: exposed.get(name) for name in expected} == expected

    def both_workers_run():
        return samples(bind).get(('novasched_workers',)) == 2

    with Daemon(cloud, config) as daemon:
        wait_until(both_workers_run, WAIT, 'both workers')
        client('sync_instance_info', host='host-1', instance_uuids=[])
        ask(6, 3)
        wait_until(lambda: are_counted(6, 3), WAIT, 'counts')

        worker = children(daemon, 'worker')[0]
        worker.kill()
        worker.wait(WAIT)
        ask(4, 2)
        wait_until(
            lambda: are_counted(10, 5) and both_workers_run(),
            WAIT,
            'counts that go on',
        )
        assert daemon.stop() == 0


def expected_samples(placed, refused):
    """The metrics after placed and refused requests for a server."""
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
        ('novasched_casts_total', 'ignored'): 2,  # a cast that both workers heard
        ('novasched_message_wait_seconds_count',): placed + refused,
        ('novasched_messages_waiting',): 0,
        ('novasched_snapshot_hosts',): 2,
    }


def test_requests_count_as_failed_while_placement_is_silent(cloud, client):
    """While Placement is silent, requests count as failed, not as refused, and the
    circuit breaker is shown open. When the master is killed, its children end and the
    port is free."""
    cloud.reset()
    cloud.add_host('host-1')
    port = free_port()
    bind = f'127.0.0.1:{port}'

    def breaker_open():
        return samples(bind).get(('novasched_breaker_open', '', 'placement'))

    with Proxy(cloud.placement_url) as gate:
        placement = {'endpoint': gate.url, 'timeout': 1}
        options = {'metrics_bind': bind, 'placement_patience': 0}
        with Daemon(cloud, {'novasched': options, 'placement': placement}) as daemon:
            wait_until(lambda: breaker_open() == 0, WAIT, 'metrics')

            gate.shut()
            with pytest.raises(Refused):
                client.select_destinations(new_uuids(1), SMALL)
            wait_until(lambda: breaker_open() == 1, WAIT, 'open breaker')
            results = {}
            for result in RESULTS:
                results[result] = samples(bind)['novasched_requests_total', result]
            assert results == {'placed': 0, 'refused': 0, 'failed': 1}

            gate.open()
            wait_until(lambda: breaker_open() == 0, WAIT, 'closed breaker')

            processes = [*children(daemon, 'worker'), *children(daemon, 'http')]
            assert len(processes) == 2
            os.kill(daemon.pid, signal.SIGKILL)

            def have_ended():
                return not any(process.is_running() for process in processes)

            wait_until(have_ended, WAIT, 'end of all')
            socket.create_server(('127.0.0.1', port)).close()


def test_requests_are_answered_in_a_flood_of_clients_for_metrics(cloud):
    """Thousands of HTTP clients ask for metrics, send garbage or never finish a
    request. All scheduling requests are answered, all processes live on, and later
    clients get the metrics."""
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
        wait_until(lambda: placed_total(bind) == 60, WAIT, 'metrics')
        assert psutil.Process(daemon.pid).children() == before
        assert len(daemon.text()) < 200_000
        assert daemon.stop() == 0
