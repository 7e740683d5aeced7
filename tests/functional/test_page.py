# SPDX-License-Identifier: Apache-2.0
"""The page for people, as a real daemon serves it."""

from __future__ import annotations

from pathlib import Path

import pytest
import requests

from tests.lab.client import NovaClient, Refused, new_uuids
from tests.lab.compute_rows import Flavor
from tests.lab.daemon import Daemon
from tests.lab.nova_cloud import NovaCloud
from tests.lab.processes import free_port, wait_until
from tests.lab.tunnel import Tunnel

WAIT = 30.0
SMALL, LARGE = Flavor(ram_mb=512), Flavor(ram_mb=6000)


def test_hosts_and_decisions(cloud: NovaCloud, client: NovaClient, tmp_path: Path) -> None:
    """The page has the hosts of all cells as they are, and each decision with its reasons;
    metrics stand beside it, and nothing secret is in it."""
    cloud.reset()
    cloud.add_host('host-1', ram_mb=4096)
    cloud.add_host('host-2', cell='cell2', ram_mb=8192)
    cloud.add_aggregate('rack-1', ['host-1'], zone='south')
    bind = f'127.0.0.1:{free_port()}'
    config = {'novasched': {
        'decisions_file': tmp_path / 'decisions.sqlite', 'metrics_bind': bind, 'page': True,
    }}  # fmt: skip
    placed, refused = new_uuids(2)

    def get(path: str, status: int = 200) -> str:
        answer = requests.get(f'http://{bind}{path}', timeout=WAIT)
        assert answer.status_code == status, answer.text
        assert answer.headers['X-Content-Type-Options'] == 'nosniff'
        assert "default-src 'none'" in answer.headers['Content-Security-Policy']
        return answer.text

    with Daemon(cloud, config) as daemon:
        client.select_destinations([placed], SMALL)
        with pytest.raises(Refused):
            client.select_destinations([refused], LARGE, zone='south')
        text = get('/?by=zone')
        assert '<strong>2</strong> hosts' in text
        assert 'south' in text
        assert 'host-2: 8.00 of 8.00 GiB free' in text
        assert 'rack-1' in get('/hosts/host-1')
        assert 'host-2: 2 of 2 hosts fit' in get(f'/decisions?q={placed}')
        wait_until(lambda: 'but would without' in get(f'/decisions?q={refused}'), WAIT, 'inquiry')
        assert 'host-2: 2 of 2 hosts fit' in get('/hosts/host-2')
        assert requests.get(f'http://{bind}/metrics', timeout=WAIT).status_code == 200
        get('/hosts/host-3', 404)

        cloud.cells['cell1'].update('services', {'disabled': True}, host='host-1')
        cloud.add_host('host-3')
        wait_until(lambda: 'host-3' in get('/'), WAIT, 'host-3')
        wait_until(lambda: '1 disabled' in get('/'), WAIT, 'a host that is disabled')
        assert '://' not in text
        assert daemon.stop() == 0


def test_databases_that_come_and_go(cloud: NovaCloud) -> None:
    """The page goes on to show what it knows: of a cell that refuses or is silent with its age,
    and the cells that there are now, which nobody has to tell it."""
    cloud.reset()
    cloud.add_host('host-1', 'cell1')
    cloud.add_host('host-2', 'cell2')
    bind = f'127.0.0.1:{free_port()}'
    config = {'novasched': {'metrics_bind': bind, 'page': True, 'cell_timeout': 1}}

    def text() -> str:
        answer = requests.get(f'http://{bind}/', timeout=WAIT)
        assert answer.status_code == 200
        return answer.text

    def says(words: str) -> None:
        wait_until(lambda: words in text(), WAIT, words)
        assert 'title="host-2: ' in text()

    with Tunnel(cloud.cells['cell1'].url) as tunnel:
        cloud.map_cell('cell1', database_connection=tunnel.url)
        with Daemon(cloud, config) as daemon:
            says('title="host-1: ')
            for fail, mend in ((tunnel.refuse, tunnel.accept), (tunnel.shut, tunnel.open)):
                fail()
                says('Cell cell1 does not answer: its hosts are shown as they were')
                says('title="host-1: ')
                mend()
                wait_until(lambda: 'does not answer' not in text(), WAIT, 'cell1')
            cloud.map_cell('cell1', disabled=True)
            wait_until(lambda: 'host-1' not in text(), WAIT, 'end of cell1')
            assert daemon.stop() == 0
    cloud.restore_cells()
