# SPDX-License-Identifier: Apache-2.0
"""Change tracking in SQLite, without digests, and with digests that the test computes.
The functional tests read MariaDB and PostgreSQL."""

import re
import zlib
from contextlib import closing, contextmanager
from types import SimpleNamespace

import pytest
import sqlalchemy as sa

from novasched.cells import change_tracking
from novasched.cells.change_tracking import (
    BUCKET_SIZE,
    MAX_CHANGED_ROWS,
    MAX_STALE_BUCKETS,
    ChangeTrackedTable,
    DigestFunctions,
    digest_functions,
    plain_row,
)
from novasched.cells.database import Database

THINGS = sa.Table(
    'things',
    sa.MetaData(),
    sa.Column('id', sa.Integer, primary_key=True),
    sa.Column('name', sa.String(20)),
    sa.Column('kind', sa.String(20)),
    sa.Column('deleted', sa.Integer, default=0),
)


def crc_of_row(columns):
    """The SQL digest of a row, as :func:`with_digests` defines it."""
    return sa.func.crc(*columns, type_=sa.BigInteger)


@pytest.fixture
def engine(tmp_path):
    """A database with the function ``crc`` and the table ``things``, with ids 1 to 3 in
    the first bucket and one id in the second."""
    engine = sa.create_engine(f'sqlite:///{tmp_path}/things')

    @sa.event.listens_for(engine, 'connect')
    def define_crc(connection, _record):
        connection.create_function(
            'crc', -1, lambda *row: zlib.crc32(repr(row).encode())
        )

    THINGS.create(engine)
    ids = (1, 2, 3, BUCKET_SIZE)
    rows = [{'id': id, 'name': f'thing {id}', 'kind': 'a'} for id in ids]
    with engine.begin() as connection:
        connection.execute(sa.insert(THINGS), rows)
    return engine


@pytest.fixture
def base(engine):
    with closing(Database(engine, 'test database')) as made:
        yield made


@pytest.fixture
def with_digests(monkeypatch):
    functions = DigestFunctions(crc_of_row, '/')
    monkeypatch.setattr(change_tracking, 'digest_functions', lambda dialect: functions)


@pytest.fixture(params=['without digests', 'with digests'])
def any_database(request):
    """Both ways to notice changes."""
    if request.param == 'with digests':
        request.getfixturevalue('with_digests')


def sql(base, statement):
    with base.engine.begin() as connection:
        connection.execute(sa.text(statement))


class Names(ChangeTrackedTable):
    """The names of things.

    :ivar built: the ids of the rows that were built.
    """

    def __init__(self, base, columns=('name',), **parameters):
        super().__init__(base, 'things', columns, self._name, **parameters)
        self.built = []

    def _name(self, row):
        self.built.append(row.id)
        return row.name

    def read(self, base, **parameters):
        self.built.clear()
        return base.read(lambda connection: self.refresh(connection, **parameters))


@contextmanager
def statements(base):
    """The statements that the database gets meanwhile."""
    executed = []

    def note(connection, cursor, statement, *rest):
        executed.append(statement)

    sa.event.listen(base.engine, 'before_cursor_execute', note)
    try:
        yield executed
    finally:
        sa.event.remove(base.engine, 'before_cursor_execute', note)


@pytest.mark.parametrize(
    ('change', 'changed', 'built', 'names'),
    [
        ('SELECT 1', set(), [], [1, 2, 3, BUCKET_SIZE]),
        ("UPDATE things SET name = 'x' WHERE id = 2", {2}, [2], [1, 2, 3, BUCKET_SIZE]),
        (
            "UPDATE things SET kind = 'x' WHERE id = 2",
            set(),
            [],
            [1, 2, 3, BUCKET_SIZE],
        ),
        (
            'UPDATE things SET name = NULL WHERE id = 2',
            {2},
            [2],
            [1, 2, 3, BUCKET_SIZE],
        ),
        (
            "UPDATE things SET name = 'x' WHERE id IN (1, 2)",
            {1, 2},
            [1, 2],
            [1, 2, 3, BUCKET_SIZE],
        ),
        (
            "INSERT INTO things VALUES (4, 'x', 'a', 0)",
            {4},
            [4],
            [1, 2, 3, 4, BUCKET_SIZE],
        ),
        ('UPDATE things SET deleted = id WHERE id = 2', {2}, [], [1, 3, BUCKET_SIZE]),
        ('DELETE FROM things WHERE id = 2', {2}, [], [1, 3, BUCKET_SIZE]),
        (f'DELETE FROM things WHERE id = {BUCKET_SIZE}', {BUCKET_SIZE}, [], [1, 2, 3]),
        ('DELETE FROM things', {1, 2, 3, BUCKET_SIZE}, [], []),
        ('UPDATE things SET id = 5 WHERE id = 2', {2, 5}, [5], [1, 3, 5, BUCKET_SIZE]),
    ],
)
def test_a_reading_returns_changed_ids_and_builds_changed_rows_only(
    any_database, base, change, changed, built, names
):
    """A reading returns the ids of rows that are new, changed or gone, and builds the
    values of new and changed rows only."""
    table = Names(base)
    assert table.read(base) == {1, 2, 3, BUCKET_SIZE}
    sql(base, change)
    assert table.read(base) == changed
    assert table.built == built
    assert sorted(table.values) == names
    for id in built:
        assert table.values[id] != f'thing {id}'
    assert table.read(base) == set()


def test_a_change_and_the_change_back_are_both_noticed(any_database, base):
    """Both changes are noticed."""
    table = Names(base)
    table.read(base)
    for name in ('x', 'thing 1'):
        sql(base, f"UPDATE things SET name = '{name}' WHERE id = 1")
        assert table.read(base) == {1}
        assert table.values[1] == name


def test_a_row_that_loses_the_required_value_counts_as_gone(any_database, base):
    """A row that gets another value counts as gone."""
    sql(base, "UPDATE things SET kind = 'b' WHERE id = 3")
    table = Names(base, kind='a')
    assert table.read(base) == {1, 2, BUCKET_SIZE}
    sql(base, "UPDATE things SET kind = 'b' WHERE id = 1")
    assert table.read(base) == {1}
    assert sorted(table.values) == [2, BUCKET_SIZE]


def test_a_changed_computed_column_changes_the_row(any_database, base):
    """The change of a computed column changes the row."""

    def is_large(table):
        return [(table.c.id > sa.bindparam('size')).label('is_large')]

    table = ChangeTrackedTable(base, 'things', ('name',), plain_row, is_large)

    def read(size):
        return base.read(lambda connection: table.refresh(connection, size=size))

    assert read(10) == {1, 2, 3, BUCKET_SIZE}
    assert read(2) == {3}
    large = [row.id for row in table.values.values() if row.is_large]
    assert sorted(large) == [3, BUCKET_SIZE]


def test_a_failed_reading_keeps_all_values_and_loses_no_change(any_database, base):
    """All values stay as they were, and the next reading notices the change."""
    table = Names(base)
    table.read(base)
    sql(base, "UPDATE things SET name = 'x'")
    failures = [ValueError('broken row')]
    build = table._build

    def fail_once(row):
        if row.id == 3 and failures:
            raise failures.pop()
        return build(row)

    table._build = fail_once
    with pytest.raises(ValueError, match='broken row'):
        table.read(base)
    assert table.values[1] == 'thing 1'
    assert table.read(base) == {1, 2, 3, BUCKET_SIZE}
    assert set(table.values.values()) == {'x'}


def test_an_added_column_is_read_after_reflecting_the_table(any_database, base):
    """A column that a migration adds is read with all rows, once the table is looked at
    again. Until then the column is NULL."""
    table = ChangeTrackedTable(base, 'things', ('name', 'size'), plain_row)
    base.read(table.refresh)
    sql(base, 'ALTER TABLE things ADD COLUMN size INTEGER DEFAULT 7')
    assert base.read(table.refresh) == set()
    assert table.values[1].size is None
    base.look_again()
    assert base.read(table.refresh) == {1, 2, 3, BUCKET_SIZE}
    assert table.values[1].size == 7


def test_only_changed_rows_of_stale_buckets_are_read(with_digests, base):
    """A reading without changes is one statement. A change costs a statement for the
    digests of its bucket, and a new or changed row another one."""
    table = Names(base)
    table.read(base)
    with statements(base) as executed:
        table.read(base)
    [digests] = executed
    assert 'GROUP BY' in digests
    sql(base, f"UPDATE things SET name = 'x' WHERE id = {BUCKET_SIZE}")
    with statements(base) as executed:
        table.read(base)
    assert executed[0] == digests
    row_digests, rows = executed[1:]
    assert row_digests.count('BETWEEN') == 1
    assert 'things.id IN (?)' in rows

    sql(base, 'DELETE FROM things WHERE id = 2')
    with statements(base) as executed:
        table.read(base)
    assert executed == [digests, row_digests]


@pytest.mark.parametrize(
    ('buckets', 'rows_by_id', 'conditions'),
    [
        (MAX_STALE_BUCKETS - 1, MAX_CHANGED_ROWS, ['BETWEEN', 'id IN']),
        (MAX_STALE_BUCKETS - 1, 10, ['BETWEEN', '']),
        (MAX_STALE_BUCKETS, MAX_CHANGED_ROWS, ['']),
    ],
)
def test_many_changes_cause_a_reading_of_the_whole_table(
    with_digests, base, engine, monkeypatch, buckets, rows_by_id, conditions
):
    """From a number of stale buckets, or of changed rows, on, the whole table is
    read."""
    monkeypatch.setattr(change_tracking, 'MAX_CHANGED_ROWS', rows_by_id)
    rows = [{'id': number * BUCKET_SIZE, 'name': 'x'} for number in range(buckets)]
    table = Names(base)
    with engine.begin() as connection:
        connection.execute(sa.delete(THINGS))
        connection.execute(sa.insert(THINGS), rows)
    table.read(base)
    with engine.begin() as connection:
        connection.execute(sa.update(THINGS).values(name='y'))

    with statements(base) as executed:
        assert len(table.read(base)) == buckets

    found = []
    for statement in executed[1:]:
        [condition] = re.findall('BETWEEN|id IN', statement)[:1] or ['']
        found.append(condition)
    assert found == conditions


@pytest.mark.parametrize(
    ('name', 'version', 'division'),
    [
        ('mysql', (8, 0), 'DIV'),
        ('mysql', None, 'DIV'),
        ('postgresql', (11, 1), '/'),
        ('postgresql', (10, 9), None),
        ('postgresql', None, None),
        ('sqlite', (3, 40), None),
    ],
)
def test_digests_are_used_on_mysql_and_since_postgresql_11(name, version, division):
    """PostgreSQL has 64-bit hashes of texts from version 11 on."""
    dialect = SimpleNamespace(name=name, server_version_info=version)
    functions = digest_functions(dialect)
    assert (functions and functions.division) == division
