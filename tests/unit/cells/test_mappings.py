# SPDX-License-Identifier: Apache-2.0
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa

from novasched.cells import mappings
from novasched.scheduler.errors import NoValidHost
from novasched.scheduler.model.basis import Basis
from novasched.scheduler.model.request import Destination
from novasched.tools.sandbox import databases as tables
from tests.lab.builders import a_request, a_uuid
from tests.lab.nova_databases import hosts_of


def update(changes):
    """A statement that changes the mapping of the first cell."""
    return f"UPDATE cell_mappings SET {changes} WHERE name = 'cell1'"


URL_OF_CELL2 = "(SELECT database_connection FROM cell_mappings WHERE name = 'cell2')"
MOVE = update(f'database_connection = {URL_OF_CELL2}')


def databases_of(cells):
    return [cell.database for cell in cells]


def disposals(cells):
    """A list that gets the name of a cell whenever the connections of the cell are
    closed."""
    names = []
    for cell in cells.all():
        sa.event.listen(
            cell.database.engine,
            'engine_disposed',
            lambda _, name=cell.name: names.append(name),
        )
    return names


def names_of(cells):
    return [cell.name for cell in cells.all()]


@pytest.mark.parametrize(
    ('change', 'cells', 'found', 'closed'),
    [
        (update('disabled = true'), ['cell1', 'cell2'], ['h2'], []),
        (update("name = 'renamed'"), ['renamed', 'cell2'], ['h1', 'h2'], []),
        (MOVE, ['cell1', 'cell2'], ['h2'], ['cell1']),
        (
            "DELETE FROM cell_mappings WHERE name = 'cell1'",
            ['cell2'],
            ['h2'],
            ['cell1'],
        ),
    ],
)
def test_changed_cell_mappings_count_after_the_next_renewal(
    two_cells, change, cells, found, closed
):
    """A change of the cell mappings counts from the next renewal on. Connections to
    unused databases are closed. cell0 is left out."""
    reader = two_cells.reader()
    assert names_of(two_cells.cells) == ['cell1', 'cell2']

    disposed = disposals(two_cells.cells)
    two_cells.sql('api', change)
    assert [*hosts_of(reader)] == ['h1', 'h2']

    reader.renew()
    assert names_of(two_cells.cells) == cells
    assert [*hosts_of(reader)] == found
    assert disposed == closed


@pytest.mark.parametrize(
    'url', ['nonsense', 'no+such://h/db', 'mysql+pymysql://h:None/db', '']
)
def test_a_cell_with_an_unusable_url_is_left_out(two_cells, url, caplog):
    """A cell with an unusable URL is left out, and the log names the cell without the
    URL. All other cells stay."""
    reader = two_cells.reader()
    two_cells.sql('api', update(f"database_connection = '{url}'"))
    reader.renew()
    assert [*hosts_of(reader)] == ['h2']
    errors = []
    for record in caplog.records:
        if record.levelname == 'ERROR':
            errors.append(record.getMessage())
    [line] = errors
    assert line.startswith('A cell is left out: cell cell1 = (not shown): unusable: ')


def test_releasing_unused_mappings_closes_no_database_in_use(cloud):
    """Mappings that were only read share the databases in use, hence their circuit
    breakers. Releasing the mappings closes no database in use."""
    cloud.cells.refresh()
    closed = disposals(cloud.cells)
    mapped = cloud.cells.read()
    assert databases_of(mapped.values()) == databases_of(cloud.cells.all())
    cloud.cells.release(mapped)
    assert closed == []

    cloud.sql('api', MOVE)
    cloud.cells.refresh()
    assert closed == ['cell1']


@pytest.fixture
def late(two_cells):
    """A reader that has read the mappings before the second cell was mapped, and a
    function that maps the cell."""
    [row] = two_cells.sql('api', "SELECT * FROM cell_mappings WHERE name = 'cell2'")
    two_cells.sql('api', "DELETE FROM cell_mappings WHERE name = 'cell2'")
    reader = two_cells.reader()
    assert [*hosts_of(reader)] == ['h1']

    def map_cell2(**changes):
        two_cells.add(
            two_cells.api, tables.cell_mappings, **{**row._mapping, **changes}
        )

    return reader, map_cell2


def lookups(asked):
    """The statements that read the cell mappings."""
    return [statement for statement, _ in asked if 'FROM cell_mappings' in statement]


def to_cell2(**fields):
    return a_request(
        requested_destination=Destination(cell_uuid=a_uuid('cell2'), **fields)
    )


@pytest.mark.parametrize(('disabled', 'later'), [(False, ['h1', 'h2']), (True, ['h1'])])
def test_a_request_that_names_a_new_cell_finds_the_hosts(late, disabled, later):
    """A request that names a new cell finds its hosts, and so do later requests. In a
    disabled cell, only moves within the cell find hosts."""
    reader, map_cell2 = late
    map_cell2(disabled=disabled)

    assert [*hosts_of(reader)] == ['h1']
    assert [*hosts_of(reader, to_cell2())] == ['h2']
    assert [*hosts_of(reader)] == later


FORCED = a_request(force_hosts=('h2',))


@pytest.mark.parametrize(
    'asked',
    [
        FORCED,
        a_request(requested_destination=Destination(host='h2')),
        to_cell2(host='h2'),
    ],
)
def test_the_new_cell_of_a_named_host_is_looked_up_and_read(late, asked):
    """The new cell of a named host is looked up, and read before the request needs the
    host, even if other requests have read the cells in between."""
    reader, map_cell2 = late
    map_cell2()
    aimed = reader.with_requested_destination(asked)
    assert aimed.in_tree == a_uuid('h2')
    found = hosts_of(reader, aimed, [a_uuid('h2')], Basis(began=0.0), instances=True)
    assert [*found] == ['h2']


def test_an_unknown_cell_is_looked_up_once_per_interval(cloud, late, monkeypatch):
    """Many requests with an unknown cell read the mappings once, and again after an
    interval. A host without a mapping does not read the cell mappings."""
    reader, map_cell2 = late
    with cloud.watched() as asked:
        with pytest.raises(NoValidHost):
            reader.with_requested_destination(a_request(force_hosts=('h9',)))
        assert lookups(asked) == []
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda _: hosts_of(reader, to_cell2()), range(40)))
    assert found == [{}] * 40
    assert len(lookups(asked)) == 1

    with pytest.raises(NoValidHost):
        reader.with_requested_destination(FORCED)
    map_cell2()
    assert hosts_of(reader, to_cell2()) == {}

    monkeypatch.setattr(mappings, 'LOOKUP_INTERVAL_S', 0)
    assert reader.with_requested_destination(FORCED).in_tree == a_uuid('h2')
    assert [*hosts_of(reader, to_cell2())] == ['h2']
