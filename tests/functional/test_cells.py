# SPDX-License-Identifier: Apache-2.0
"""Cells in the configurations of operators: templates, and changes with SIGHUP."""

import json
import os
import socket
import subprocess

import pytest

from novasched.cells.engines import filled
from tests.lab.daemon import Daemon
from tests.lab.nova_release import ENVIRONMENT
from tests.lab.processes import wait_until
from tests.lab.proxy import Tunnel

from .signals import reload

PATIENCE = 30
SHORT = 5
"""[novasched] cell_timeout, in seconds."""

TEMPLATES = [
    'mysql://u:p@h/db',
    '{scheme}://{username}:{password}@{hostname}:{port}/cell1?{query}',
    '{scheme}://{username}:{password}@[{hostname}]:{port}/{path}_cell1?{query}#{fragment}',
    '{scheme}://{username1}:{password1}@{hostname1}:{port1},{username2}:{password2}@{hostname2}/',
    '{{literal}}://{hostname}',
    '{unknown}://{password}',
    '{}{0}',
    '{',
    'x}',
    '',
]
CONNECTIONS = [
    None,
    'mysql+pymysql://nova:secret@db.example:3306/nova?charset=utf8',
    'mysql+pymysql://nova:p%40ss%2Fw%25rd%3A@db.example/nova',
    'mysql+pymysql://nova:secret@DB.example:3306/nova?ssl_ca=/etc/ssl/ca.pem&charset=utf8mb4#x',
    'mysql+pymysql://nova@[FD00::1]:3306/nova',
    'mysql+pymysql://nova:secret@[fd00::1]/nova',
    'mysql://db.example',
    'mysql://nova:p:q@db.example:/',
    'mysql://nova:secret@h1:3306,h2:3307/nova',
    'mysql://nova:secret@h1,h2/nova',
    'rabbit://u1:p1@h1:5672,u2:p2@h2:5673/vhost',
    'rabbit://u1:p1@[fd00::1]:5672,u2@[fd00::2],h3:5674//',
    'rabbit://h1,h2/',
    'mysql://nova:secret@db.example:port/nova',
    'mysql://nova:secret@[fd00::1/nova',
    'sqlite:////var/lib/nova.sqlite',
    'nonsense',
]

NOVAS = """
import json, sys
from nova.objects.cell_mapping import CellMapping, CONF
filled = []
for template, connection in json.load(sys.stdin):
    CONF.set_override('connection', connection, group='database')
    filled.append(CellMapping.format_db_url(template))
print(json.dumps(filled))
"""


def test_templates_of_cell_urls_are_filled_as_by_nova(nova):
    """novasched fills every template from every connection like nova."""
    pairs = []
    for template in TEMPLATES:
        for connection in CONNECTIONS:
            pairs.append((template, connection))
    process = subprocess.run(
        [str(nova.python), '-c', NOVAS],
        input=json.dumps(pairs),
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert process.returncode == 0, process.stderr
    urls = json.loads(process.stdout.splitlines()[-1])

    for (template, connection), url in zip(pairs, urls, strict=True):
        assert filled(template, connection, 'cell') == url, (template, connection)


BOTH = {'host-1', 'host-2'}


@pytest.fixture
def cells(cloud):
    """A host in both cells. The original cell mappings are restored after the test."""
    cloud.reset()
    cloud.add_host('host-1', 'cell1')
    cloud.add_host('host-2', 'cell2')
    yield cloud
    cloud.restore_cells()


def lines(daemon, text):
    return daemon.text().count(text)


def test_changes_of_cells_are_known_after_sighup(cells, client):
    """After SIGHUP the scheduler knows that a cell was disabled, enabled, moved to
    another database, removed or added. Before the signal nothing changes. Requests are
    answered all the time. The values for a template are parts of [database]
    connection."""
    url1 = cells.cells['cell1'].url
    url2 = cells.cells['cell2'].url
    mappings = cells.api.rows('cell_mappings')
    [cell2] = [row for row in mappings if row['name'] == 'cell2']
    name = url1.rpartition('/')[2]
    template = '{scheme}://{username}:{password}@{hostname}:{port}/' + name
    cells.map_cell('cell1', database_connection=template + '?{query}')

    with Daemon(cells) as daemon:
        assert client.reached() == BOTH

        cells.map_cell('cell1', disabled=True)
        assert client.reached() == BOTH
        reload(daemon)
        assert client.reached() == {'host-2'}

        cells.map_cell('cell1', disabled=False)
        reload(daemon)
        assert client.reached() == BOTH

        cells.map_cell('cell1', database_connection=url2)
        cells.map_cell('cell2', database_connection=url1, disabled=True)
        reload(daemon)
        assert client.reached() == {'host-2'}

        cells.map_cell('cell1', database_connection=url1)
        cells.api.delete('host_mappings')
        cells.api.delete('cell_mappings', uuid=cell2['uuid'])
        reload(daemon)
        assert client.reached() == {'host-1'}

        cells.api.insert('cell_mappings', [cell2])
        reload(daemon)
        assert client.reached() == BOTH
        assert 'Traceback' not in daemon.text()


def test_a_cell_that_is_down_at_start_or_sighup_is_left_out(cells, client):
    """A cell that is down at the start, or at SIGHUP, is logged and left out, and the
    second cell answers. A server that accepts connections and does not answer is left
    out after cell_timeout, and delays neither the start nor the stop of the daemon."""
    discovery = {'discover_hosts_in_cells_interval': 1, 'workers': 1}
    quick = {'novasched': {'cell_timeout': SHORT}, 'scheduler': discovery}

    with socket.create_server(('127.0.0.1', 0)) as frozen:
        silent = f'mysql+pymysql://nova:secret@127.0.0.1:{frozen.getsockname()[1]}/away'
        cells.map_cell('cell1', database_connection=silent)
        with Daemon(cells, quick) as daemon:
            assert client.reached() == {'host-2'}
            assert f' computes for cell {cells.cell_uuids["cell1"]}' in daemon.text()

            for url, hosts in (
                (cells.cells['cell1'].url, BOTH),
                ('{unknown}', {'host-2'}),
                (silent, {'host-2'}),
            ):
                cells.map_cell('cell1', database_connection=url)
                reload(daemon)
                assert client.reached() == hosts
            assert 'The URL of cell cell1 cannot be filled: KeyError' in daemon.text()
            assert 'A cell is left out: cell cell1 = (not shown)' in daemon.text()

            assert daemon.stop() == 0
            assert 'secret' not in daemon.text()
            assert 'Traceback' not in daemon.text()


def test_a_lost_cell_is_left_out_until_the_cell_answers_again(cells, client):
    """The hosts of a cell that refuses connections are missing; the next request after
    the cell has come back finds the hosts. A single request waits for a silent cell.
    Later requests leave the cell out at once, with a warning for every request, until
    the cell has answered a probe."""
    uuid = cells.cell_uuids['cell1']
    failed = f'Failed to get computes for cell {uuid}: cell cell1: '
    with Tunnel(cells.cells['cell1'].url) as tunnel:
        cells.map_cell('cell1', database_connection=tunnel.url)
        with Daemon(cells, {'novasched': {'cell_timeout': SHORT}}) as daemon:
            assert client.reached() == BOTH

            tunnel.refuse()
            assert client.reached() == {'host-2'}
            tunnel.accept()
            assert client.reached() == BOTH

            tunnel.shut()
            assert client.reached() == {'host-2'}
            timeouts = lines(daemon, 'Timeout getting')
            failures = lines(daemon, failed)
            assert client.reached() == {'host-2'}
            assert lines(daemon, 'Timeout getting') == timeouts
            assert lines(daemon, failed) > failures
            assert lines(daemon, 'cell cell1: circuit open, queries fail fast') == 1

            tunnel.open()
            wait_until(lambda: client.reached() == BOTH, PATIENCE, 'use of the cell')
            assert lines(daemon, 'cell cell1: circuit closed') == 1
            assert 'Traceback' not in daemon.text()


def test_last_known_aggregates_count_while_the_api_database_fails(cells, client):
    """The last known aggregates count on, with a single warning, whether the API
    database refuses connections or is silent. A request that names a host is refused,
    since the host's cell is unknown."""
    for number in (1, 2):
        cells.add_aggregate(f'rack-{number}', [f'host-{number}'], zone=f'z{number}')

    def check_zones():
        assert client.chosen(zone='z1') == ['host-1']
        assert client.chosen(zone='z2') == ['host-2']

    with Tunnel(cells.api.url) as tunnel:
        config = {
            'novasched': {'cell_timeout': SHORT, 'database_patience': 0},
            'api_database': {'connection': tunnel.url},
        }
        with Daemon(cells, config) as daemon:
            check_zones()

            tunnel.refuse()
            check_zones()
            check_zones()
            client.refusal(force_hosts=['host-2'])
            refused = 'Cannot schedule, since a database fails: [api_database]'
            assert lines(daemon, refused) == 1
            stale = 'Aggregates cannot be read, and stay as they were'
            assert lines(daemon, stale) == 1

            tunnel.accept()
            assert client.chosen(force_hosts=['host-2']) == ['host-2']
            assert lines(daemon, 'Aggregates can be read again') == 1

            tunnel.shut()
            check_zones()
            check_zones()
            assert (
                lines(daemon, '[api_database] connection: circuit open, queries') == 1
            )

            tunnel.open()
            wait_until(
                lambda: lines(daemon, 'connection: circuit closed') == 1,
                PATIENCE,
                'probe',
            )
            assert client.chosen(force_hosts=['host-2']) == ['host-2']
            assert 'Traceback' not in daemon.text()


def test_the_daemon_stops_while_a_database_is_silent(cells, client):
    """The daemon stops while its heartbeat waits for a silent database."""
    with Tunnel(cells.cell0.url) as tunnel:
        patient = {
            'novasched': {'cell_timeout': 1000},
            'database': {'connection': tunnel.url},
        }
        with Daemon(cells, patient) as daemon:
            assert client.reached() == BOTH
            tunnel.shut()
            assert tunnel.held.wait(PATIENCE), 'no heartbeat'
            assert daemon.stop() == 0
