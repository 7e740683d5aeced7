# SPDX-License-Identifier: Apache-2.0
"""Metrics for Prometheus: what a real daemon exposes, and what a real Prometheus makes of it."""

from __future__ import annotations

import psutil
import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families

from .client import NovaClient, Refused, new_uuids
from .compute_rows import Flavor
from .daemon import Daemon
from .nova_cloud import NovaCloud
from .processes import free_port, wait_until

WAIT = 30.0
SMALL, LARGE = Flavor(ram_mb=512), Flavor(ram_mb=60_000)


def samples(bind: str) -> dict[tuple[str, ...], float]:
    """What is exposed now: values by name and labels' values."""
    found = requests.get(f'http://{bind}/metrics', timeout=WAIT).text
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(found)
        for sample in family.samples
    }


def children(daemon: Daemon, role: str) -> list[psutil.Process]:
    """Its processes of a role."""
    every = psutil.Process(daemon.pid).children()
    return [each for each in every if f'nova-scheduler: {role} ' in ' '.join(each.cmdline())]


def test_what_is_served(cloud: NovaCloud) -> None:
    """One path, to be read; the port is not for two."""
    cloud.reset()
    bind = f'127.0.0.1:{free_port()}'
    config = {'novasched': {'metrics_bind': bind}}
    with Daemon(cloud, config) as daemon:
        for method, path, status in (
            ('GET', '/metrics', 200), ('HEAD', '/metrics', 200), ('POST', '/metrics', 405),
            ('GET', '/', 404),
        ):  # fmt: skip
            assert (
                requests.request(method, f'http://{bind}{path}', timeout=WAIT).status_code == status
            )
        second = Daemon(cloud, config)
        assert second.run_to_end() == 1
        assert f'[novasched] metrics_bind = {bind}: Address already in use' in second.text()
        assert daemon.stop() == 0


@pytest.mark.parametrize(
    'value', ['9100', 'localhost', ':9100', '::1:9100', 'a:b', '[::1]', 'a:0', 'a:70000']
)
def test_a_wrong_value(cloud: NovaCloud, value: str) -> None:
    """It stops the start with one line that names option and value."""
    daemon = Daemon(cloud, {'novasched': {'metrics_bind': value}})
    assert daemon.run_to_end() == 1
    assert f'[novasched] metrics_bind = {value}: HOST:PORT or [::1]:PORT is wanted' in daemon.text()


def test_counts(cloud: NovaCloud, client: NovaClient) -> None:
    """With two workers, every request is counted once by what came of it; what a worker has
    counted stays when it is killed, and how things stood in it does not."""
    cloud.reset()
    for name in ('host-1', 'host-2'):
        cloud.add_host(name, ram_mb=16_384)
    bind = f'127.0.0.1:{free_port()}'
    config = {'novasched': {'metrics_bind': bind}, 'scheduler': {'workers': 2}}

    def ask(placed: int, refused: int) -> None:
        for server in new_uuids(placed):
            client.select_destinations([server], SMALL)
        for server in new_uuids(refused):
            with pytest.raises(Refused):
                client.select_destinations([server], LARGE)

    def counted(placed: int, refused: int) -> bool:
        found, now = wanted(placed, refused), samples(bind)
        return {each: now.get(each) for each in found} == found

    with Daemon(cloud, config) as daemon:
        both = lambda: samples(bind).get(('novasched_workers',)) == 2  # noqa: E731
        wait_until(both, WAIT, 'both workers')
        ask(6, 3)
        wait_until(lambda: counted(6, 3), WAIT, 'counts')
        worker = children(daemon, 'worker')[0]
        worker.kill()
        worker.wait(WAIT)
        ask(4, 2)
        wait_until(lambda: counted(10, 5) and both(), WAIT, 'counts that go on')
        assert daemon.stop() == 0


def wanted(placed: int, refused: int) -> dict[tuple[str, ...], float]:
    """What is to be shown of so many requests, each for one server."""
    return {
        ('novasched_requests_total', 'placed'): placed,
        ('novasched_requests_total', 'refused'): refused,
        ('novasched_requests_total', 'failed'): 0,
        ('novasched_servers_placed_total',): placed,
        ('novasched_request_duration_seconds_count',): placed + refused,
        ('novasched_step_duration_seconds_count', 'placement'): placed + refused,
        ('novasched_step_duration_seconds_count', 'claim'): placed,
        ('novasched_filter_hosts_in_total', 'ComputeFilter'): 2 * placed,
        ('novasched_filter_hosts_out_total', 'ComputeFilter'): 2 * placed,
        ('novasched_claims_refused_total',): 0,
        ('novasched_message_wait_seconds_count',): placed + refused,
        ('novasched_messages_waiting',): 0,
        ('novasched_snapshot_hosts',): 2,
    }
