# SPDX-License-Identifier: Apache-2.0
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import pytest
import sqlalchemy as sa

from novasched.cells import mappings
from novasched.scheduler.errors import NoValidHost
from novasched.scheduler.model.request import Destination
from novasched.tools.sandbox import databases as tables
from tests.lab.builders import a_request, a_uuid


def change(cloud, cell, **values):
    """Write to the mapping of a cell."""
    table = tables.cell_mappings
    with cloud.api.begin() as connection:
        connection.execute(sa.update(table).where(table.c.name == cell).values(values))


def names(cells):
    return [cell.name for cell in cells]


def hosts(reader):
    return sorted(x.host for x in reader.read(None, a_request(), instances=False).hosts.values())


def disposals(cells):
    """The names of the cells whose connections are closed from now on, as it happens."""
    names = []
    for cell in cells.all():
        sa.event.listen(
            cell.database.engine, 'engine_disposed', lambda _, name=cell.name: names.append(name)
        )
    return names


@pytest.fixture
def reader(cloud):
    """One host in each cell."""
    cloud.add_host('h1', 'cell1')
    cloud.add_host('h2', 'cell2')
    return cloud.reader()


def test_cells_come_in_the_order_of_their_ids(cloud):
    """cell0 is no cell for servers."""
    cloud.cells.refresh()
    assert names(cloud.cells.all()) == ['cell1', 'cell2']


def test_a_cell_that_is_disabled_and_enabled_again(cloud, reader):
    """What a renewal finds holds for the next request."""
    change(cloud, 'cell1', disabled=True)
    assert hosts(reader) == ['h1', 'h2']
    reader.renew()
    assert hosts(reader) == ['h2']
    assert names(cloud.cells.all()) == ['cell1', 'cell2']
    change(cloud, 'cell1', disabled=False)
    reader.renew()
    assert hosts(reader) == ['h1', 'h2']


def test_a_cell_whose_url_has_changed(cloud, reader):
    """The new database is read, and the connections to the old one are closed."""
    assert hosts(reader) == ['h1', 'h2']
    closed = disposals(cloud.cells)
    change(cloud, 'cell1', database_connection=cloud.urls['cell2'])
    reader.renew()
    assert closed == ['cell1']
    assert hosts(reader) == ['h2']


def test_a_cell_that_is_gone(cloud, reader):
    """Its hosts are gone with it, and its connections are closed."""
    assert hosts(reader) == ['h1', 'h2']
    closed = disposals(cloud.cells)
    table = tables.cell_mappings
    with cloud.api.begin() as connection:
        connection.execute(sa.delete(table).where(table.c.name == 'cell1'))
    reader.renew()
    assert closed == ['cell1']
    assert hosts(reader) == ['h2']


@pytest.mark.parametrize('url', ['nonsense', 'no+such://h/db', 'mysql+pymysql://h:None/db', ''])
def test_a_url_that_cannot_be_used(cloud, reader, url, caplog):
    """The cell is named and left out; the others stay; the URL is not told."""
    change(cloud, 'cell1', database_connection=url)
    reader.renew()
    assert hosts(reader) == ['h2']
    [line] = [record.getMessage() for record in caplog.records if record.levelname == 'ERROR']
    assert line.startswith('A cell is left out: cell cell1 = (not shown): unusable: ')


def test_two_who_look_by_themselves(cloud):
    """They share the databases that both know, so that one's silence is known to both, and
    one's look at the mappings closes nothing that the other has."""
    cloud.cells.refresh()
    closed = disposals(cloud.cells)
    others = cloud.cells.separate()
    others.refresh()
    assert [cell.database for cell in others.all()] == [x.database for x in cloud.cells.all()]
    change(cloud, 'cell1', database_connection=cloud.urls['cell2'])
    others.refresh()
    assert closed == []
    cloud.cells.refresh()
    assert closed == ['cell1']


@pytest.fixture
def late(cloud):
    """A reader that began before the second cell was mapped; the call that maps it."""
    cloud.add_host('h1', 'cell1')
    cloud.add_host('h2', 'cell2')
    table = tables.cell_mappings
    mine = table.c.name == 'cell2'
    with cloud.api.begin() as connection:
        row = dict(connection.execute(sa.select(table).where(mine)).mappings().one())
        connection.execute(sa.delete(table).where(mine))
    reader = cloud.reader()
    assert hosts(reader) == ['h1']
    return reader, lambda **changes: cloud.add(cloud.api, table, **{**row, **changes})


@contextmanager
def lookups(cloud):
    """The readings of the cell mappings."""
    engine, made = cloud.cells.api.engine, []

    def note(connection, cursor, statement, *rest):
        if 'FROM cell_mappings' in statement:
            made.append(statement)

    sa.event.listen(engine, 'before_cursor_execute', note)
    yield made
    sa.event.remove(engine, 'before_cursor_execute', note)


def to_cell2(**fields):
    return a_request(requested_destination=Destination(cell_uuid=a_uuid('cell2'), **fields))


def test_a_cell_that_is_new_to_us(late):
    """A request that names it finds its hosts, and so does whoever comes later."""
    reader, map_cell2 = late
    map_cell2()
    assert hosts(reader) == ['h1']
    found = reader.read(None, to_cell2(), instances=True).hosts
    assert [host.host for host in found.values()] == ['h2']
    assert hosts(reader) == ['h1', 'h2']


def test_a_new_cell_that_is_disabled(late):
    """An instance may move within it, and no other goes there."""
    reader, map_cell2 = late
    map_cell2(disabled=True)
    found = reader.read(None, to_cell2(), instances=False).hosts
    assert [host.host for host in found.values()] == ['h2']
    assert hosts(reader) == ['h1']


@pytest.mark.parametrize(
    'asked',
    [
        a_request(force_hosts=('h2',)),
        a_request(requested_destination=Destination(host='h2')),
        to_cell2(host='h2'),
    ],
)
def test_a_host_in_a_new_cell(late, asked):
    """Its cell is looked up, and read before the request needs the host, even where others
    have read the cells meanwhile."""
    reader, map_cell2 = late
    map_cell2()
    aimed = reader.aimed(asked)
    assert aimed.in_tree == a_uuid('h2')
    found = reader.read([a_uuid('h2')], replace(aimed, arrived=0.0), instances=True).hosts
    assert [host.host for host in found.values()] == ['h2']


def test_a_cell_that_nobody_knows(cloud, late):
    """The mappings are read once for however many requests that name it, and again only after
    a while."""
    reader, map_cell2 = late
    with lookups(cloud) as made, ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: reader.read(None, to_cell2(), False).hosts, range(40)))
    assert found == [{}] * 40
    assert len(made) == 1
    map_cell2()
    assert reader.read(None, to_cell2(), instances=False).hosts == {}


def test_a_cell_that_comes_after_it_was_looked_up(late, monkeypatch):
    """It is found when the mappings may be read again."""
    reader, map_cell2 = late
    assert reader.read(None, to_cell2(), instances=False).hosts == {}
    with pytest.raises(NoValidHost):
        reader.aimed(a_request(force_hosts=('h2',)))
    map_cell2()
    monkeypatch.setattr(mappings, 'LOOKUP_INTERVAL_S', 0)
    assert reader.aimed(a_request(force_hosts=('h2',))).in_tree == a_uuid('h2')
    assert len(reader.read(None, to_cell2(), instances=False).hosts) == 1


def test_a_host_that_is_mapped_nowhere(cloud, late):
    """The mappings of cells say nothing of it, and are not read."""
    reader, _ = late
    with lookups(cloud) as made, pytest.raises(NoValidHost):
        reader.aimed(a_request(force_hosts=('h9',)))
    assert made == []
