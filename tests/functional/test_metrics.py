# SPDX-License-Identifier: Apache-2.0
"""Metrics for Prometheus: what a real daemon exposes, and what a real Prometheus makes of it."""

from __future__ import annotations

import pytest
import requests

from .daemon import Daemon
from .nova_cloud import NovaCloud
from .processes import free_port

WAIT = 30.0


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
            assert requests.request(method, f'http://{bind}{path}', timeout=WAIT).status_code == status
        second = Daemon(cloud, config)
        assert second.run_to_end() == 1
        assert f'[novasched] metrics_bind = {bind}: Address already in use' in second.text()
        assert daemon.stop() == 0


@pytest.mark.parametrize('value', ['9100', 'localhost', ':9100', '::1:9100', 'a:b', '[::1]', 'a:0', 'a:70000'])
def test_a_wrong_value(cloud: NovaCloud, value: str) -> None:
    """It stops the start with one line that names option and value."""
    daemon = Daemon(cloud, {'novasched': {'metrics_bind': value}})
    assert daemon.run_to_end() == 1
    assert f'[novasched] metrics_bind = {value}: HOST:PORT or [::1]:PORT is wanted' in daemon.text()
