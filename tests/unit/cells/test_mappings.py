# SPDX-License-Identifier: Apache-2.0
import pytest
import sqlalchemy as sa

from novasched.sandbox import databases as tables
from tests.builders import a_request


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
