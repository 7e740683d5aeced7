# SPDX-License-Identifier: Apache-2.0
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import sqlalchemy as sa

from novasched.cells.database import Database
from novasched.cells.discovery import Discovery
from novasched.cells.engines import connect
from novasched.cells.mappings import Cells
from novasched.cells.servicegroup import DatabaseServiceGroup
from novasched.tools.sandbox import databases as tables
from tests.lab.builders import a_request
from tests.lab.nova_databases import NOW


class Schedulers:
    """Controllers ctl1 and ctl2, whose services are in the first cell's database, which is
    as good as any."""

    def __init__(self, cloud):
        self.cloud = cloud
        self.add('ctl2')
        self.add('ctl1')

    def add(self, host, **changes):
        values = {'binary': 'nova-scheduler', 'disabled': False, 'forced_down': False}
        self.cloud.add_service(host, self.cloud.engines['cell1'], **{**values, **changes})

    def change(self, host, **values):
        table = tables.services
        with self.cloud.engines['cell1'].begin() as connection:
            where = table.c.host == host
            connection.execute(sa.update(table).where(where).values(report_count=1, **values))

    def on(self, host):
        own = Database(self.cloud.engines['cell1'], '[database] connection')
        api = connect(self.cloud.options, self.cloud.urls['api'], 'API database')
        cells = Cells(api, self.cloud.options)
        return Discovery(cells, own, DatabaseServiceGroup(60), host, lambda: self.cloud.now)

    def run(self, host='ctl1'):
        discovery = self.on(host)
        discovery.run()
        discovery.close()


@pytest.fixture
def schedulers(cloud):
    return Schedulers(cloud)


def add(cloud, host, cell='cell1', node=None, **changes):
    """A compute that nobody has mapped yet."""
    values = {'mapped': 0, 'uuid': node or host, **changes}
    cloud.add_host(host, cell, node=node or host, service=node is None, **values)


def mappings(cloud):
    """Hosts to the ids of their cells; cell1's is 2, and cell2's is 3."""
    with cloud.api.connect() as connection:
        rows = connection.execute(sa.select(tables.host_mappings)).all()
    return {row.host: row.cell_id for row in rows}


def marked(cloud, cell='cell1'):
    """The nodes that are marked as mapped."""
    with cloud.engines[cell].connect() as connection:
        rows = connection.execute(sa.select(tables.compute_nodes)).all()
    return {row.hypervisor_hostname: row.mapped for row in rows}


def said(caplog, *levels):
    return [
        record.getMessage()
        for record in caplog.records
        if record.name == 'nova.scheduler.manager' and record.levelname in (levels or ('INFO',))
    ]


def test_new_computes_are_mapped(cloud, schedulers, caplog):
    """Each goes to the cell that it is in, is marked, and is named in one line."""
    caplog.set_level('INFO')
    add(cloud, 'h2', 'cell2')
    add(cloud, 'h1')
    add(cloud, 'h0')
    schedulers.run()
    assert mappings(cloud) == {'h0': 2, 'h1': 2, 'h2': 3}
    assert {**marked(cloud), **marked(cloud, 'cell2')} == {'h0': 1, 'h1': 1, 'h2': 1}
    schedulers.run()
    assert said(caplog) == ['Discovered 3 new hosts: cell1:h1,cell1:h0,cell2:h2']


def test_the_rows_say_when(cloud, schedulers):
    """A mapping has the time at which it was made, and a node that of its change."""
    add(cloud, 'h1', updated_at=None)
    cloud.now = NOW + timedelta(seconds=7)
    schedulers.run()
    with cloud.api.connect() as connection:
        assert (
            connection.execute(sa.select(tables.host_mappings.c.created_at)).scalar() == cloud.now
        )
    with cloud.engines['cell1'].connect() as connection:
        assert (
            connection.execute(sa.select(tables.compute_nodes.c.updated_at)).scalar() == cloud.now
        )


def test_the_next_request_finds_the_cell(cloud, schedulers):
    """A request for the host by name is answered as soon as it is mapped."""
    add(cloud, 'h1')
    reader = cloud.reader()
    assert cloud.cells.of_host('h1') is None
    schedulers.run()
    assert reader.aimed(a_request(force_hosts=('h1',))).in_tree == 'h1'


@pytest.mark.parametrize('mapped_to', [2, 3])
def test_what_is_mapped_stays(cloud, schedulers, mapped_to, caplog):
    """In this cell or another one; its node is left alone, as nova does."""
    caplog.set_level('INFO')
    add(cloud, 'h1')
    cloud.add(cloud.api, tables.host_mappings, cell_id=mapped_to, host='h1')
    schedulers.run()
    assert mappings(cloud) == {'h1': mapped_to}
    assert marked(cloud) == {'h1': 0}
    assert said(caplog) == []


def test_a_host_of_several_nodes(cloud, schedulers):
    """It is mapped once, and its first node is marked, as nova does."""
    for node in ('n1', 'n2', 'n3'):
        add(cloud, 'iron', node=node)
    schedulers.run()
    assert mappings(cloud) == {'iron': 2}
    assert marked(cloud) == {'n1': 1, 'n2': 0, 'n3': 0}


def test_rows_that_are_left_alone(cloud, schedulers):
    """Deleted nodes, and those that are marked although there is no mapping."""
    add(cloud, 'deleted', deleted=3)
    add(cloud, 'marked', mapped=1)
    schedulers.run()
    assert mappings(cloud) == {}


def test_cells_are_looked_up_each_time(cloud, schedulers):
    """Hosts of cells that are new or disabled are mapped too, as nova does."""
    add(cloud, 'h1')
    add(cloud, 'h2', 'cell2')
    discovery = schedulers.on('ctl1')
    table = tables.cell_mappings
    with cloud.api.begin() as connection:
        connection.execute(sa.delete(table).where(table.c.name == 'cell2'))
    discovery.run()
    assert mappings(cloud) == {'h1': 2}
    cloud.add(
        cloud.api, table, id=3, uuid='cell2', name=None, disabled=True,
        database_connection=cloud.urls['cell2'],
    )  # fmt: skip
    discovery.run()
    discovery.close()
    assert mappings(cloud) == {'h1': 2, 'h2': 3}


@pytest.mark.parametrize(
    ('changes', 'leader'),
    [
        ({}, 'ctl1'),
        ({'last_seen_up': NOW - timedelta(seconds=61)}, 'ctl2'),
        ({'disabled': True}, 'ctl2'),
        ({'forced_down': True}, 'ctl2'),
        ({'deleted': 5}, 'ctl2'),
        ({'binary': 'nova-conductor'}, 'ctl2'),
    ],
)
def test_one_scheduler_leads(cloud, schedulers, changes, leader):
    """The first host by name whose scheduler is up and enabled; others do nothing."""
    schedulers.change('ctl1', **changes)
    add(cloud, 'h1')
    (follower,) = {'ctl1', 'ctl2'} - {leader}
    schedulers.run(follower)
    assert mappings(cloud) == {}
    schedulers.run(leader)
    assert mappings(cloud) == {'h1': 2}


def test_nobody_leads(cloud, schedulers, caplog):
    """Without a scheduler that is up nothing happens."""
    cloud.now = NOW + timedelta(hours=1)
    add(cloud, 'h1')
    schedulers.run()
    assert mappings(cloud) == {}
    assert said(caplog, 'WARNING', 'ERROR') == []


def test_somebody_else_is_faster(cloud, schedulers, caplog):
    """A mapping that appears between our look and our write is not ours: no error, and
    the others are mapped."""
    caplog.set_level('INFO')
    add(cloud, 'h1')
    add(cloud, 'h2')
    discovery = schedulers.on('ctl1')

    @sa.event.listens_for(discovery.cells.api.engine, 'before_cursor_execute')
    def be_faster(connection, cursor, statement, *rest):
        if statement.startswith('INSERT') and not mappings(cloud):
            cloud.add(cloud.api, tables.host_mappings, cell_id=2, host='h1')

    discovery.run()
    assert mappings(cloud) == {'h1': 2, 'h2': 2}
    assert marked(cloud) == {'h1': 0, 'h2': 1}
    assert said(caplog, 'INFO', 'ERROR') == ['Discovered 1 new hosts: cell1:h2']


def test_two_at_once(cloud, schedulers):
    """Whoever takes itself for the leader at the same time does no harm."""
    for number in range(40):
        add(cloud, f'h{number}', ('cell1', 'cell2')[number % 2])
    discoveries = [schedulers.on('ctl1') for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(each.run) for each in discoveries]:
            done.result()
    assert mappings(cloud) == {f'h{number}': 2 + number % 2 for number in range(40)}
    assert set(marked(cloud).values()) == {1}


def test_a_dead_cell_is_named(cloud, schedulers, caplog):
    """The hosts of the other cells are mapped all the same."""
    caplog.set_level('INFO')
    add(cloud, 'h2', 'cell2')
    tables.compute_nodes.drop(cloud.engines['cell1'])
    schedulers.run()
    assert mappings(cloud) == {'h2': 3}
    error, found = said(caplog, 'INFO', 'ERROR')
    assert error.startswith('Unable to discover hosts in cell ')
    assert error.endswith('(cell1): cell cell1 has no table compute_nodes')
    assert found == 'Discovered 1 new hosts: cell2:h2'


@pytest.mark.parametrize(
    ('drop', 'why'),
    [
        (tables.cell_mappings, 'API database has no table cell_mappings'),
        (tables.services, '[database] connection has no table services'),
    ],
)
def test_no_database_to_begin_with(cloud, schedulers, drop, why, caplog):
    """One line says why nothing is discovered."""
    drop.drop(cloud.api if drop.metadata is tables.api else cloud.engines['cell1'])
    schedulers.run()
    assert said(caplog, 'INFO', 'ERROR') == [f'Unable to discover hosts: {why}']


def test_a_database_that_cannot_be_written(cloud, schedulers, caplog):
    """The log says so for each cell with something new, and nothing is half done."""
    caplog.set_level('INFO')
    add(cloud, 'h1')
    with cloud.api.begin() as connection:
        connection.execute(
            sa.text(
                'create trigger readonly before insert on host_mappings'
                " begin select raise(abort, 'read-only'); end"
            )
        )
    schedulers.run()
    assert (mappings(cloud), marked(cloud)) == ({}, {'h1': 0})
    [line] = said(caplog, 'INFO', 'ERROR')
    assert line.startswith('Unable to discover hosts in cell ')
    assert line.endswith('(cell1): API database: read-only')
