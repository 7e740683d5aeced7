# SPDX-License-Identifier: Apache-2.0
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress

import pytest
import sqlalchemy as sa
from oslo_db import exception as db_exc
from psycopg import errors
from pymysql import err
from sqlalchemy import exc as sa_exc

from novasched.cells.database import Database
from novasched.scheduler.errors import DatabaseUnavailable


def test_threads_share_a_table(cloud):
    """Threads reflecting a table at the same time get the same object: a statement with
    two objects would be a self-join."""
    engine = cloud.engines['cell1']
    both = threading.Barrier(2)

    def meet(*_):
        with suppress(threading.BrokenBarrierError):
            both.wait(1)

    sa.event.listen(engine, 'before_cursor_execute', meet)
    database = Database(engine, 'cell1')
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(database.table, ['services', 'services'])
    assert first is second is database.table('services')


@pytest.fixture
def database(cloud):
    with closing(Database(cloud.engines['cell1'], 'cell1', patience=60)) as made:
        yield made


class Troubled:
    """Work in a transaction. The work raises errors in turn before a success."""

    def __init__(self, *errors):
        self.errors = list(errors)
        self.begun = 0

    def __call__(self, connection):
        self.begun += 1
        if self.errors:
            raise self.errors.pop(0)
        return connection.execute(sa.select(sa.literal('done'))).scalar_one()


def mysql(*arguments):
    """An error of MySQL as SQLAlchemy raises it."""
    return sa_exc.OperationalError('SELECT 1', {}, err.OperationalError(*arguments))


def postgresql(error):
    """An error of PostgreSQL as SQLAlchemy raises it."""
    return sa_exc.ProgrammingError('SELECT 1', {}, error)


LOST = db_exc.DBConnectionError(mysql(2013, 'Lost connection'))
KILLED = mysql(1317, 'Query execution was interrupted')
STOPS = mysql(1053, 'Server shutdown in progress')
FULL = mysql(1040, 'Too many connections')
DROPPED = mysql(1054, "Unknown column 'x' in 'SELECT'")
RENAMED = mysql(1146, "Table 'nova.x' doesn't exist")
ALTERED = mysql(1412, 'Table definition has changed, please retry transaction')
ENDED = postgresql(errors.AdminShutdown('terminating connection'))
COLUMNLESS = postgresql(errors.UndefinedColumn('column x does not exist'))
TABLELESS = postgresql(errors.UndefinedTable('relation x does not exist'))
DENIED = postgresql(errors.InsufficientPrivilege('permission denied'))
DEADLOCK = db_exc.DBDeadlock(mysql(1213, 'Deadlock found'))


@pytest.mark.parametrize(
    ('operation', 'errors', 'begun', 'why'),
    [
        ('read', [], 1, None),
        *(
            ('read', [error], 2, None)
            for error in (
                LOST,
                KILLED,
                STOPS,
                ENDED,
                DROPPED,
                RENAMED,
                ALTERED,
                COLUMNLESS,
                TABLELESS,
            )
        ),
        ('read', [LOST, DROPPED], 3, None),
        ('read', [DROPPED, DROPPED], 2, 'Unknown column'),
        ('read', [DENIED], 1, 'permission denied'),
        ('read', [LOST, LOST], 2, 'Lost connection'),
        ('read', [FULL], 1, 'Too many connections'),
        ('read', [DEADLOCK], 1, 'Deadlock found'),
        ('write', [], 1, None),
        ('write', [DEADLOCK, DEADLOCK], 3, None),
        ('write', [DEADLOCK] * 3, 3, 'Deadlock found'),
        ('write', [DROPPED], 2, None),
        ('write', [LOST], 1, 'Lost connection'),
    ],
)
def test_reads_are_repeated_if_useful_and_writes_only_if_refused(
    database, operation, errors, begun, why
):
    """A read is repeated once if a new connection may help, and once if reflecting the
    tables again may help. A lost write may have succeeded, so a write is repeated only
    if the server has refused it."""
    work = Troubled(*errors)
    ask = getattr(database, operation)
    if why is None:
        assert ask(work) == 'done'
    else:
        with pytest.raises(DatabaseUnavailable, match=f'^cell1: .*{why}'):
            ask(work)
    assert work.begun == begun


def test_new_operations_fail_while_the_circuit_is_open(database, monkeypatch):
    """While the circuit is open, new operations fail with the reason. An operation in
    progress may end."""
    work = Troubled()
    probed = threading.Event()
    monkeypatch.setattr(database.breaker, '_probe', lambda: probed.wait(10))

    def give_up(connection):
        database.breaker.failed('no answer within 60 s', time.monotonic())
        return database.read(work)

    assert database.read(give_up) == 'done'
    with pytest.raises(
        DatabaseUnavailable, match=r'^cell1: no answer within 60 s$'
    ) as error:
        database.read(work)
    assert work.begun == 1
    assert not error.value.is_over(0)

    probed.set()
    assert error.value.is_over(10)


def test_a_slow_read_among_answered_reads_keeps_the_circuit_closed(database, caplog):
    """One slow read does not open the circuit while further reads are answered."""
    began = time.monotonic()
    assert database.read(Troubled()) == 'done'
    database.breaker.failed('no answer within 60 s', began)
    assert not database.circuit_open
    assert 'circuit open' not in caplog.text
