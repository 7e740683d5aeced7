# SPDX-License-Identifier: Apache-2.0
"""Discovery of hosts. The functional tests compare it with nova-scheduler."""

from datetime import timedelta

import pytest
import sqlalchemy as sa

from novasched.cells.database import Database
from novasched.cells.discovery import Discovery
from novasched.cells.engines import connect
from novasched.cells.mappings import Cells
from novasched.cells.servicegroup import DatabaseServiceGroup
from novasched.tools.sandbox import databases as tables
from tests.lab.builders import a_request, a_uuid
from tests.lab.nova_databases import NOW


@pytest.fixture
def cloud(cloud):
    """Schedulers on ctl1 and ctl2, with service records in the database of the first
    cell."""
    for host in ('ctl2', 'ctl1'):
        values = {'binary': 'nova-scheduler', 'disabled': False, 'forced_down': False}
        cloud.add_service(host, cloud.engines['cell1'], **values)
    return cloud


def scheduler(cloud, host='ctl1'):
    own = Database(cloud.engines['cell1'], '[database] connection')
    cells = Cells(
        connect(cloud.options, cloud.urls['api'], 'API database'), cloud.options
    )
    return Discovery(cells, own, DatabaseServiceGroup(60), host, lambda: cloud.now)


def discover(cloud, host='ctl1'):
    discovery = scheduler(cloud, host)
    discovery.run()
    discovery.cells.close()


def add(cloud, host, cell='cell1'):
    """Add a compute node that is not mapped yet."""
    cloud.add_host(host, cell, node=host, mapped=0, uuid=host)


def mappings(cloud):
    """Host name to cell id: cell1 has id 2, cell2 has id 3."""
    return dict(cloud.sql('api', 'SELECT host, cell_id FROM host_mappings'))


def marked(cloud, cell='cell1'):
    """Node name to the value of the column ``mapped``."""
    return dict(
        cloud.sql(cell, 'SELECT hypervisor_hostname, mapped FROM compute_nodes')
    )


@pytest.fixture
def said(caplog):
    """A function that returns the messages on nova's logger."""
    caplog.set_level('INFO')
    name = 'nova.scheduler.manager'
    return lambda: [each.getMessage() for each in caplog.records if each.name == name]


def test_new_computes_are_mapped(cloud, said):
    """Every host is mapped to its cell, its node is marked, and one line names all
    hosts. Mapping and node get the time of the discovery. Requests find the host at
    once."""
    for host, cell in (('h2', 'cell2'), ('h1', 'cell1'), ('h0', 'cell1')):
        add(cloud, host, cell)
    reader = cloud.reader()
    assert cloud.cells.of_host('h1') is None
    cloud.now = NOW + timedelta(seconds=7)
    for _ in range(2):
        discover(cloud)

    assert mappings(cloud) == {'h0': 2, 'h1': 2, 'h2': 3}
    assert {**marked(cloud), **marked(cloud, 'cell2')} == {'h0': 1, 'h1': 1, 'h2': 1}
    assert said() == ['Discovered 3 new hosts: cell1:h1,cell1:h0,cell2:h2']

    changed = cloud.sql('cell2', 'SELECT updated_at FROM compute_nodes')
    assert cloud.sql('api', 'SELECT DISTINCT created_at FROM host_mappings') == changed
    assert changed == [(f'{cloud.now}.000000',)]
    assert (
        reader.with_requested_destination(a_request(force_hosts=('h1',))).in_tree
        == 'h1'
    )


def test_hosts_of_new_and_disabled_cells_are_mapped(cloud):
    """As in nova, hosts of new cells and of disabled cells are mapped, too."""
    add(cloud, 'h1')
    add(cloud, 'h2', 'cell2')
    discovery = scheduler(cloud)
    cloud.sql('api', "DELETE FROM cell_mappings WHERE name = 'cell2'")
    discovery.run()
    assert mappings(cloud) == {'h1': 2}

    cloud.add(
        cloud.api, tables.cell_mappings, id=3, uuid='cell2', name=None, disabled=True,
        database_connection=cloud.urls['cell2'],
    )  # fmt: skip
    discovery.run()
    discovery.cells.close()
    assert mappings(cloud) == {'h1': 2, 'h2': 3}


@pytest.mark.parametrize(
    ('change', 'leader'),
    [
        ('report_count = 1', 'ctl1'),
        (f"last_seen_up = '{NOW - timedelta(seconds=61)}.000000'", 'ctl2'),
        ('disabled = true', 'ctl2'),
        ('forced_down = true', 'ctl2'),
        ('deleted = 5', 'ctl2'),
        ("binary = 'nova-conductor'", 'ctl2'),
    ],
)
def test_only_the_leading_scheduler_discovers_hosts(cloud, said, change, leader):
    """The leader is the first host by name whose scheduler is up and enabled. All other
    schedulers do nothing, and without a leader no scheduler does."""
    cloud.sql('cell1', f"UPDATE services SET {change} WHERE host = 'ctl1'")
    add(cloud, 'h1')
    (follower,) = {'ctl1', 'ctl2'} - {leader}
    discover(cloud, follower)
    assert mappings(cloud) == {}
    discover(cloud, leader)
    assert mappings(cloud) == {'h1': 2}

    add(cloud, 'h2')
    cloud.now += timedelta(hours=1)
    discover(cloud, leader)
    assert mappings(cloud) == {'h1': 2}
    assert said() == ['Discovered 1 new hosts: cell1:h1']


def test_a_host_mapped_by_another_process_is_skipped(cloud, said):
    """Another process may map a host between the reading and the writing. The discovery
    logs no error, and maps the remaining hosts."""
    add(cloud, 'h1')
    add(cloud, 'h2')
    discovery = scheduler(cloud)

    @sa.event.listens_for(discovery.cells.api.engine, 'before_cursor_execute')
    def be_faster(connection, cursor, statement, *rest):
        if statement.startswith('INSERT') and not mappings(cloud):
            cloud.add(cloud.api, tables.host_mappings, cell_id=2, host='h1')

    discovery.run()

    assert mappings(cloud) == {'h1': 2, 'h2': 2}
    assert marked(cloud) == {'h1': 0, 'h2': 1}
    assert said() == ['Discovered 1 new hosts: cell1:h2']


@pytest.mark.parametrize(
    ('where', 'table', 'why'),
    [
        ('api', 'cell_mappings', ': API database has no table cell_mappings'),
        ('cell1', 'services', ': [database] connection has no table services'),
        (
            'cell1',
            'compute_nodes',
            f' in cell {a_uuid("cell1")}(cell1): cell cell1 has no table compute_nodes',
        ),
    ],
)
def test_a_failed_discovery_logs_the_reason(cloud, said, where, table, why):
    """One line says why nothing is discovered, or in which cell."""
    cloud.sql(where, f'DROP TABLE {table}')
    discover(cloud)
    assert said() == [f'Unable to discover hosts{why}']
