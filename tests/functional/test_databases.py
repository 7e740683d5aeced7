# SPDX-License-Identifier: Apache-2.0
"""A database server that fails, and what its cells' hosts are to requests meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager

import pytest
import sqlalchemy as sa

from novasched.cells.engines import connect
from novasched.cells.snapshot import HostReader
from novasched.errors import DatabaseUnavailable
from novasched.sandbox import databases as tables
from tests.builders import a_request
from tests.nova_databases import NovaDatabases

from .processes import wait_until
from .servers import MariaDB, create_database

SECONDS = 30
PATIENCE = 2
BOTH = {'h1', 'h2'}
WAITING = "SELECT id FROM information_schema.processlist WHERE state LIKE 'Waiting for table%%'"


@pytest.fixture(scope='module')
def server() -> Iterator[MariaDB]:
    """A server of our own, with which a test does as it likes."""
    with closing(MariaDB()) as made:
        made.start()
        yield made


@pytest.fixture
def databases(server: MariaDB, request: pytest.FixtureRequest) -> Iterator[NovaDatabases]:
    """nova's tables, with a host in each cell."""
    prefix = request.node.name
    made = NovaDatabases(lambda name: create_database(server.url, f'{prefix}_{name}'), PATIENCE)
    made.add_host('h1', 'cell1')
    made.add_host('h2', 'cell2')
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def reader(databases: NovaDatabases) -> Iterator[HostReader]:
    """Who reads them, and has done so."""
    with closing(databases.reader(cell_timeout=PATIENCE)) as made:
        assert hosts(made) == BOTH
        yield made


def hosts(reader: HostReader) -> set[str]:
    """What a request finds."""
    found = reader.read(None, a_request(), instances=True).hosts
    return {host.host for host in found.values()}


@contextmanager
def locked(engine: sa.Engine, table: str) -> Iterator[sa.Connection]:
    """Nobody else reads the table meanwhile."""
    with engine.connect() as connection:
        connection.exec_driver_sql(f'LOCK TABLES {table} WRITE')
        try:
            yield connection
        finally:
            connection.exec_driver_sql('UNLOCK TABLES')


def test_a_restart(server: MariaDB, reader: HostReader) -> None:
    """The first request after it sees all hosts, from however many connections there were."""
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(hosts, [reader] * 8)) == [BOTH] * 8
    server.stop()
    assert hosts(reader) == set()
    server.start()
    assert hosts(reader) == BOTH


def test_a_server_that_hangs(server: MariaDB, reader: HostReader) -> None:
    """However many requests come, those that do not find it left alone yet are the only ones
    that leave a thread with it; it is used again when it goes on."""
    server.freeze()
    try:
        assert hosts(reader) == set()
        threads = threading.active_count()
        assert [hosts(reader) for _ in range(20)] == [set()] * 20
        assert threading.active_count() <= threads + 1  # the timer of a probe
    finally:
        server.thaw()
    wait_until(lambda: hosts(reader) == BOTH, SECONDS, 'use of the cells')


def test_a_connection_that_is_cut(databases: NovaDatabases, reader: HostReader) -> None:
    """What was being read is read once more, by the same request."""
    with ThreadPoolExecutor(1) as pool, locked(databases.engines['cell1'], 'services') as own:
        asked = pool.submit(hosts, reader)

        def waiting() -> set[int]:
            return set(own.exec_driver_sql(WAITING).scalars())

        wait_until(lambda: bool(waiting()), SECONDS, 'query')
        [first] = waiting()
        own.exec_driver_sql(f'KILL {first}')
        wait_until(lambda: bool(waiting() - {first}), SECONDS, 'second query')
        own.exec_driver_sql('UNLOCK TABLES')
        assert asked.result() == BOTH


def test_a_table_that_is_locked(databases: NovaDatabases, reader: HostReader) -> None:
    """Probes find out that it would be waited for, too, though the server answers."""
    [cell1] = [cell for cell in reader.cells.all() if cell.name == 'cell1']
    with locked(databases.engines['cell1'], 'compute_nodes') as own:
        assert hosts(reader) == {'h2'}
        probed = "SELECT count(*) FROM information_schema.processlist WHERE info LIKE '%% LIMIT 1'"
        wait_until(lambda: own.exec_driver_sql(probed).scalar_one() > 0, SECONDS, 'probe')
        assert hosts(reader) == {'h2'}
        with pytest.raises(DatabaseUnavailable, match='no answer within'):
            cell1.database.rows(sa.select(sa.literal(1)))
    wait_until(lambda: hosts(reader) == BOTH, SECONDS, 'use of the cell')


def test_no_connection_is_left(
    server: MariaDB, databases: NovaDatabases, caplog: pytest.LogCaptureFixture
) -> None:
    """The cell is left out, with the server's own words, as long as that is so."""
    name = databases.engines['cell1'].url.database
    admin = databases.engines['cell2']
    with admin.begin() as connection:
        connection.exec_driver_sql("CREATE USER few IDENTIFIED BY 'x' WITH MAX_USER_CONNECTIONS 9")
        connection.exec_driver_sql(f'GRANT SELECT ON {name}.* TO few')
    url = databases.engines['cell1'].url.set(username='few', password='x')
    with databases.api.begin() as connection:
        mapping = tables.cell_mappings
        values = {'database_connection': url.render_as_string(False)}
        connection.execute(sa.update(mapping).where(mapping.c.name == 'cell1').values(values))
    with closing(databases.reader(cell_timeout=PATIENCE)) as reader:
        others = sa.create_engine(url, poolclass=sa.NullPool)
        with ExitStack() as held:
            for _ in range(9):
                held.enter_context(others.connect())
            assert hosts(reader) == {'h2'}
            assert 'max_user_connections' in caplog.text
        wait_until(lambda: hosts(reader) == BOTH, SECONDS, 'connection')


def test_a_deadlock(databases: NovaDatabases) -> None:
    """A transaction that another one keeps from its end is done again."""
    engine = databases.engines['cell1']
    base = connect(databases.options, engine.url.render_as_string(False), 'cell1')
    with engine.begin() as connection:
        connection.exec_driver_sql('CREATE TABLE pair (id INT PRIMARY KEY, n INT)')
        connection.exec_driver_sql('INSERT INTO pair VALUES (1, 0), (2, 0), (3, 0), (4, 0)')
    plus = 'UPDATE pair SET n = n + 1 WHERE id = {}'.format
    has_one, attempts = threading.Event(), []

    def both(connection: sa.Connection) -> None:
        attempts.append(connection)
        connection.exec_driver_sql(plus(1))
        has_one.set()
        connection.exec_driver_sql(plus(2))

    with ThreadPoolExecutor(1) as pool, closing(base), engine.connect() as other:
        # It has more to lose, so that the server lets it go on.
        for number in (2, 3, 4):
            other.exec_driver_sql(plus(number))
        done = pool.submit(base.write, both)
        assert has_one.wait(SECONDS)
        other.exec_driver_sql(plus(1))
        other.commit()
        done.result()
    assert len(attempts) == 2
    with engine.connect() as connection:
        found = connection.exec_driver_sql('SELECT n FROM pair ORDER BY id').scalars().all()
    assert found == [2, 2, 1, 1]
