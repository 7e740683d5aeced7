# SPDX-License-Identifier: Apache-2.0
"""Cells as operators have them: templates, and changes that SIGHUP makes known."""

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
"""Seconds, for [novasched] cell_timeout."""

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
OWN = [
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
for template, own in json.load(sys.stdin):
    CONF.set_override('connection', own, group='database')
    filled.append(CellMapping.format_db_url(template))
print(json.dumps(filled))
"""


def test_templates_are_filled_as_nova_does(nova):
    """Whatever the template and the own URL, what comes out is what nova makes of
    them."""
    table = [(template, own) for template in TEMPLATES for own in OWN]
    done = subprocess.run(
        [str(nova.python), '-c', NOVAS],
        input=json.dumps(table),
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    novas = json.loads(done.stdout.splitlines()[-1])
    ours = [filled(template, own, 'cell') for template, own in table]
    assert [*zip(table, ours, strict=True)] == [*zip(table, novas, strict=True)]


BOTH = {'host-1', 'host-2'}


@pytest.fixture
def cells(cloud):
    """One host in each cell; what a test does to the mappings is undone."""
    cloud.reset()
    cloud.add_host('host-1', 'cell1')
    cloud.add_host('host-2', 'cell2')
    yield cloud
    cloud.restore_cells()


def lines(daemon, text):
    return daemon.text().count(text)


def test_changes_are_known_after_sighup(cells, client):
    """A cell that is disabled, enabled, moved to another database, removed or added;
    until the signal nothing changes, and requests are answered all the time. The parts
    of a template are those of our own [database] connection."""
    one = cells.cells['cell1'].url
    two = cells.cells['cell2'].url
    [row] = [
        each for each in cells.api.rows('cell_mappings') if each['name'] == 'cell2'
    ]
    template = (
        '{scheme}://{username}:{password}@{hostname}:{port}/' + one.rpartition('/')[2]
    )
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
        cells.map_cell('cell1', database_connection=two)
        cells.map_cell('cell2', database_connection=one, disabled=True)
        reload(daemon)
        assert client.reached() == {'host-2'}
        cells.map_cell('cell1', database_connection=one)
        cells.api.delete('host_mappings')
        cells.api.delete('cell_mappings', uuid=row['uuid'])
        reload(daemon)
        assert client.reached() == {'host-1'}
        cells.api.insert('cell_mappings', [row])
        reload(daemon)
        assert client.reached() == BOTH
        assert 'Traceback' not in daemon.text()


def test_a_cell_that_is_down(cells, client):
    """From the start, or from SIGHUP on, it is named and left out, and the other
    answers. A server that takes connections and says nothing is left out after
    cell_timeout, and keeps the daemon neither from starting nor from ending."""
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


def test_a_cell_that_goes_and_comes(cells, client):
    """If it refuses, its hosts are there for the very next request that finds it back.
    If it is silent, one request waits for it; the others leave it out at once, each
    with a warning, until it has answered a probe."""
    failed = (
        f'Failed to get computes for cell {cells.cell_uuids["cell1"]}: cell cell1: '
    )
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
            waited = lines(daemon, 'Timeout getting')
            left_out = lines(daemon, failed)
            assert client.reached() == {'host-2'}
            assert lines(daemon, 'Timeout getting') == waited
            assert lines(daemon, failed) > left_out
            assert lines(daemon, 'cell cell1: circuit open, queries fail fast') == 1
            tunnel.open()
            wait_until(lambda: client.reached() == BOTH, PATIENCE, 'use of the cell')
            assert lines(daemon, 'cell cell1: circuit closed') == 1
            assert 'Traceback' not in daemon.text()


def test_without_the_api_database(cells, client):
    """What aggregates were known goes on to count, with one warning, whether the
    database refuses or is silent. Who asks for a host by name is refused, as nobody
    knows its cell."""
    for number in (1, 2):
        cells.add_aggregate(f'rack-{number}', [f'host-{number}'], zone=f'z{number}')

    def works():
        assert [client.chosen(zone=zone) for zone in ('z1', 'z2')] == [
            ['host-1'],
            ['host-2'],
        ]

    with Tunnel(cells.api.url) as tunnel:
        own = {'cell_timeout': SHORT, 'database_patience': 0}
        quick = {'novasched': own, 'api_database': {'connection': tunnel.url}}
        with Daemon(cells, quick) as daemon:
            works()
            tunnel.refuse()
            works()
            works()
            client.refusal(force_hosts=['host-2'])
            assert (
                lines(daemon, 'Cannot schedule, since a database fails: [api_database]')
                == 1
            )
            assert (
                lines(daemon, 'Aggregates cannot be read, and stay as they were') == 1
            )
            tunnel.accept()
            assert client.chosen(force_hosts=['host-2']) == ['host-2']
            assert lines(daemon, 'Aggregates can be read again') == 1
            tunnel.shut()
            works()
            works()
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


def test_the_end_while_a_database_is_silent(cells, client):
    """Nothing that waits for it keeps the daemon alive."""
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
