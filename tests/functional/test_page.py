# SPDX-License-Identifier: Apache-2.0
"""The page for people, as a real daemon serves it."""

import pytest
import requests

from tests.lab.compute_rows import Flavor
from tests.lab.daemon import Daemon, Refused, new_uuids
from tests.lab.processes import free_port, wait_until
from tests.lab.proxy import Tunnel

WAIT = 30.0
SMALL, LARGE = Flavor(ram_mb=512), Flavor(ram_mb=6000)


def test_hosts_and_decisions(cloud, client, tmp_path):
    """The page has the hosts of all cells as they are, and each decision with its reasons;
    metrics stand beside it, and nothing secret is in it. Of a cell that is silent it shows what it
    knows, and the cells are those that there are now, which nobody has to tell it."""
    cloud.reset()
    cloud.add_host('host-1', ram_mb=4096)
    cloud.add_host('host-2', cell='cell2', ram_mb=8192)
    cloud.add_aggregate('rack-1', ['host-1'], zone='south')
    bind = f'127.0.0.1:{free_port()}'
    config = {'novasched': {
        'decisions_file': tmp_path / 'decisions.sqlite', 'metrics_bind': bind, 'page': True,
        'cell_timeout': 3,
    }}  # fmt: skip
    placed, refused = new_uuids(2)

    def get(path, status=200):
        answer = requests.get(f'http://{bind}{path}', timeout=WAIT)
        assert answer.status_code == status, answer.text
        assert answer.headers['X-Content-Type-Options'] == 'nosniff'
        assert "default-src 'none'" in answer.headers['Content-Security-Policy']
        return answer.text

    def says(words):
        wait_until(lambda: words in get('/'), WAIT, words)

    tunnel = Tunnel(cloud.cells['cell2'].url)
    cloud.map_cell('cell2', database_connection=tunnel.url)
    with tunnel, Daemon(cloud, config) as daemon:
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
        says('host-3')
        says('1 disabled')
        assert '://' not in text
        tunnel.shut()
        says('Cell cell2 does not answer: its hosts are shown as they were')
        assert 'title="host-2: ' in get('/')
        tunnel.open()
        wait_until(lambda: 'does not answer' not in get('/'), WAIT, 'cell2')
        cloud.map_cell('cell2', disabled=True)
        wait_until(lambda: 'title="host-2: ' not in get('/'), WAIT, 'end of cell2')
        assert daemon.stop() == 0
    cloud.restore_cells()
