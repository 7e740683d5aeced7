# SPDX-License-Identifier: Apache-2.0
"""nova's databases, in all releases.

Columns come and go between releases, so a query names its columns. A missing column is
NULL in the answer.
"""

import logging
import math
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, TypeVar

import sqlalchemy as sa
import tenacity
from oslo_db import exception as db_exc
from sqlalchemy import exc as sa_exc

from novasched.cells.connections import TrackedConnections
from novasched.concurrency import clear_frames
from novasched.concurrency.circuit_breaker import CircuitBreaker
from novasched.conf.redaction import hide
from novasched.scheduler.errors import DatabaseUnavailable

LOG = logging.getLogger(__name__)
DATABASE_ERRORS = (db_exc.DBError, sa_exc.SQLAlchemyError, OSError)
"""Errors of a database operation. Drivers raise OSError if they cannot read the TLS
files of a URL."""
QUICK_FAILURE_S = 1.0
"""Failures within this time, in seconds, do not open the circuit: a server that refuses
connections is used again as soon as it accepts connections."""
SHUTDOWN_CODES = (1053, 1317, 1927, '57P01', '57P02', '57014')
"""Errors of MySQL and PostgreSQL for a shutdown, a killed query and a killed
connection."""
SCHEMA_CHANGED_CODES = (1054, 1146, 1412, '42703', '42P01')
"""Errors of MySQL and PostgreSQL for an unknown column and an unknown table, and of
MySQL for a table that has changed since the transaction began."""
SQLITE_SCHEMA_CHANGED = re.compile(
    r'no such (column|table)'
    r'|table \S+ has no column named'
)
"""The messages of SQLite for a changed schema; SQLite has no error numbers for it."""
PROBE_TIMEOUT_S = 5.0
"""Seconds after which a probe aborts all operations in progress."""

MAX_ATTEMPTS_IN_DEADLOCK = 3
MAX_DEADLOCK_PAUSE_S = 0.5

Answer = TypeVar('Answer')
Work = Callable[[sa.Connection], Answer]


class _Transaction(NamedTuple):
    """A thread's connection, and the tables as reflected when the transaction began."""

    connection: sa.Connection
    tables: dict[str, sa.Table]


class Database:
    """A database of nova.

    Columns of a table are reflected when the table is first used, and again after a
    migration has changed the table.

    A circuit breaker opens when an operation has waited without an answer. Until a
    probe gets an answer, new operations fail at once.

    :param patience: longest wait of an operation for an answer, in seconds.
    """

    def __init__(
        self, engine: sa.Engine, name: str, patience: float = math.inf
    ) -> None:
        self.engine = engine
        # A reading must see one moment. REPEATABLE READ is the default of MySQL and
        # MariaDB. On PostgreSQL the readers set it, and the writers do not: of two
        # concurrent writers the second would fail.
        isolation = {'isolation_level': 'REPEATABLE READ'}
        self._readers = engine
        if engine.dialect.name == 'postgresql':
            self._readers = engine.execution_options(**isolation)
        self.name = name
        self._tables: dict[str, sa.Table] = {}
        self._thread = threading.local()
        self._connections = TrackedConnections(patience)
        self._connections.track(engine)
        self.breaker = CircuitBreaker(
            self._probe, DATABASE_ERRORS, on_change=self._log_circuit
        )
        self._patience = patience
        self._quick = min(QUICK_FAILURE_S, self._patience / 2)
        self._undeadlocked = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(db_exc.DBDeadlock),
            stop=tenacity.stop_after_attempt(MAX_ATTEMPTS_IN_DEADLOCK)
            | tenacity.stop_after_delay(self._patience),
            wait=tenacity.wait_random(0, MAX_DEADLOCK_PAUSE_S),
            reraise=True,
        )

    def table(self, name: str) -> sa.Table:
        """The table with its present columns; the same object throughout a transaction.

        :raises DatabaseUnavailable: the table does not exist, or the database does not
            answer.
        """
        within: _Transaction | None = getattr(self._thread, 'transaction', None)
        if within is None:
            tables = self._tables
            if name in tables:
                return tables[name]
            return self.read(lambda _: self.table(name))

        if name not in within.tables:
            # setdefault(): threads that reflect the table at the same time go on with
            # one object, since SQLAlchemy takes two objects for two tables.
            within.tables.setdefault(name, self._reflected(name, within.connection))
        return within.tables[name]

    def _reflected(self, name: str, connection: sa.Connection) -> sa.Table:
        try:
            return sa.Table(
                name, sa.MetaData(), autoload_with=connection, resolve_fks=False
            )
        except sa_exc.NoSuchTableError:
            raise DatabaseUnavailable(f'{self.name} has no table {name}') from None

    def select(
        self, name: str, columns: Sequence[str], /, **equal: object
    ) -> sa.Select[Any]:
        """A SELECT of columns of the rows that nova has not deleted.

        :param equal: columns, and the required values in the columns.
        """
        table = self.table(name)
        selected: list[sa.ColumnElement[Any]] = []
        for column in columns:
            if column in table.c:
                selected.append(table.c[column])
            else:
                selected.append(sa.null().label(column))

        statement = sa.select(*selected).select_from(table)
        if 'deleted' in table.c:
            statement = statement.where(table.c.deleted == 0)
        for column, value in equal.items():
            statement = statement.where(table.c[column] == value)
        return statement

    def read(self, work: Work[Answer]) -> Answer:
        """Read in a transaction with a consistent view of a single moment.

        :param work: called once more if the connection is lost, or a table has changed.
            Builds all statements itself, for the present tables.
        :raises DatabaseUnavailable: the database does not answer.
        """
        return self._run(self._twice, self._readers.connect, work)

    def write(self, work: Work[Answer]) -> Answer:
        """Write in one transaction.

        :param work: called again after a deadlock, or if a table has changed.
        :raises DatabaseUnavailable: the database does not answer, or is read-only.
        :raises DBDuplicateEntry: a unique key exists already.
        """
        return self._run(self._undeadlocked, self.engine.begin, work)

    def rows(
        self,
        name: str,
        columns: Sequence[str],
        where: Callable[[Any], sa.ColumnElement[bool]] = lambda _: sa.true(),
        /,
        **equal: object,
    ) -> Sequence[sa.Row[Any]]:
        """Read the rows of :meth:`select`.

        :param where: makes a further condition of the columns of the table.
        :raises DatabaseUnavailable: the database does not answer.
        """

        def work(connection: sa.Connection) -> Sequence[sa.Row[Any]]:
            select = self.select(name, columns, **equal)
            return connection.execute(select.where(where(self.table(name).c))).all()

        return self.read(work)

    def look_again(self) -> None:
        """Reflect the tables in use again, to notice new columns."""
        before = dict(self._tables)

        def reflect(connection: sa.Connection) -> dict[str, sa.Table]:
            return {name: self._reflected(name, connection) for name in before}

        try:
            after = self.read(reflect)
        except DatabaseUnavailable as error:
            LOG.debug('No look at columns: %s', error)
            return

        changed = []
        for name, table in after.items():
            if _columns(table) != _columns(before[name]):
                changed.append(name)
        if changed:
            LOG.info('%s: columns of %s have changed', self.name, ', '.join(changed))
            self._tables = after

    @property
    def circuit_open(self) -> bool:
        """True while operations fail at once, until a probe gets an answer."""
        return self.breaker.reason is not None

    def close(self) -> None:
        """Close pooled connections, so a forked process shares no connection, and stop
        probing. Operations in progress may end."""
        self.breaker.stop()
        self.engine.dispose()

    def _run(
        self,
        retrying: Callable[[Callable[[], Answer]], Answer],
        connect: Callable[[], AbstractContextManager[sa.Connection]],
        work: Work[Answer],
    ) -> Answer:
        def once() -> Answer:
            outer = getattr(self._thread, 'transaction', None)
            with connect() as connection:
                # This thread keeps its tables until the transaction ends, even if
                # another thread reflects changed tables in the meantime.
                self._thread.transaction = _Transaction(connection, self._tables)
                try:
                    return work(connection)
                except DATABASE_ERRORS as error:
                    if _code(error) in SHUTDOWN_CODES:
                        connection.invalidate()
                    raise
                finally:
                    self._thread.transaction = outer

        began = time.monotonic()
        try:
            with self._connections.operation() as is_outermost:
                # An operation that has begun may end, even if the circuit has opened:
                # perhaps it is slow because there is much to read.
                if is_outermost and (why := self.breaker.reason) is not None:
                    raise DatabaseUnavailable(
                        f'{self.name}: {why}', self.breaker.wait_closed
                    )
                answer = retrying(lambda: self._with_present_tables(once))
            self.breaker.succeeded()
            return answer
        except db_exc.DBDuplicateEntry:
            raise
        except DATABASE_ERRORS as error:
            why = reason(error)
            has_waited = self._has_waited(began, error)
            clear_frames(error)

        # Outside the handler: oslo.log adds the handled error to log messages.
        self.breaker.missed(why)
        if has_waited:
            self.breaker.failed(why, began)
        raise DatabaseUnavailable(f'{self.name}: {why}', self.breaker.wait_closed)

    def _with_present_tables(self, once: Callable[[], Answer]) -> Answer:
        """Run an operation. If a migration has dropped a column or table of a
        statement, reflect the tables and run the operation again."""
        try:
            return once()
        except DATABASE_ERRORS as error:
            code = _code(error)
            if code not in SCHEMA_CHANGED_CODES and not SQLITE_SCHEMA_CHANGED.match(
                str(code)
            ):
                raise
            LOG.info(
                '%s has changed, and is looked at anew: %s', self.name, reason(error)
            )

        self._tables = {}
        return once()

    def _twice(self, once: Callable[[], Answer]) -> Answer:
        """Try again on a new connection: a restart of the database ends all
        connections."""
        began = time.monotonic()
        try:
            return once()
        except DATABASE_ERRORS as error:
            is_lost = (
                isinstance(error, db_exc.DBConnectionError)
                or _code(error) in SHUTDOWN_CODES
            )
            if not is_lost or time.monotonic() - began >= self._patience:
                raise
        return once()

    def _has_waited(self, began: float, error: Exception) -> bool:
        """True if an operation failed because the database was slow to answer.

        Deadlocks do not count, nor do addresses on which no server listens: both fail
        without a wait for the server, and the time went into retries or our own work.
        """
        # PyMySQL's name for the error of the socket.
        socket_error = getattr(_origin(error), 'original_exception', None)
        if isinstance(socket_error, ConnectionRefusedError):
            return False
        if isinstance(error, db_exc.DBDeadlock):
            return False
        return time.monotonic() - began > self._quick

    def _probe(self) -> None:
        """Check whether the database would soon answer or refuse an operation.

        The probe reads from all tables in use, since a single table may be locked. A
        probe without an answer aborts all operations in progress.
        """
        engine = self.engine
        if engine.dialect.name != 'sqlite':
            # Not from the pool: its connections may lead to a server that is gone.
            engine = sa.create_engine(engine.url, poolclass=sa.NullPool)
            self._connections.track(engine)

        began = time.monotonic()
        end = threading.Timer(PROBE_TIMEOUT_S, self._connections.abort)
        end.daemon = True
        end.start()
        try:
            with engine.connect() as connection:
                for table in list(self._tables.values()):
                    connection.execute(
                        sa.select(sa.literal(1)).select_from(table).limit(1)
                    )
        except DATABASE_ERRORS as error:
            if self._has_waited(began, error):
                # The timer may not have run yet: drivers may have shorter timeouts.
                self._connections.abort()
                raise
        finally:
            end.cancel()

    def _log_circuit(self, why: str | None) -> None:
        if why is None:
            LOG.info('%s: circuit closed, queries are sent again', self.name)
        else:
            LOG.warning(
                '%s: circuit open, queries fail fast until a probe succeeds: %s',
                self.name,
                why,
            )


def reason(error: Exception) -> str:
    """A database error as a single line, without the statement, the URL and secrets."""
    text = str(_origin(error))
    if text:
        return hide(text.splitlines()[0])
    return type(error).__name__


def _columns(table: sa.Table) -> Mapping[str, str]:
    return {column.name: repr(column.type) for column in table.columns}


def _code(error: BaseException) -> object:
    """MySQL's error number, PostgreSQL's SQLSTATE, or else the text of the driver."""
    origin = _origin(error)
    first, *_ = getattr(origin, 'args', ()) or (None,)
    if isinstance(first, int):
        return first
    # psycopg2 has pgcode, psycopg has sqlstate.
    return getattr(origin, 'pgcode', None) or getattr(origin, 'sqlstate', None) or first


def _origin(error: BaseException) -> object:
    """The error of the driver inside the errors of oslo.db and SQLAlchemy."""
    wrapped = getattr(error, 'inner_exception', None) or error
    return getattr(wrapped, 'orig', None) or wrapped
