# SPDX-License-Identifier: Apache-2.0
"""nova's databases, in any release.

Columns come and go between releases: a query names its columns, and one that is not
there is None.
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
"""OSError is of drivers that cannot read the TLS files of a URL."""
QUICK_FAILURE_S = 1.0
"""Failures that are quicker than that open no circuit: a server that refuses
connections is used again as soon as it accepts them."""
SHUTDOWN_CODES = (1053, 1317, 1927, '57P01', '57P02', '57014')
"""The errors of MySQL and PostgreSQL for a shutdown, and a killed query or
connection."""
SCHEMA_CHANGED_CODES = (1054, 1146, 1412, '42703', '42P01')
"""The errors of MySQL and PostgreSQL for a column and a table that are not there, and
MySQL's for a table that has changed since the transaction began."""
SQLITE_SCHEMA_CHANGED = re.compile(
    r'no such (column|table)'
    r'|table \S+ has no column named'
)
"""The same in the words of SQLite, which has no numbers for it."""
PROBE_TIMEOUT_S = 5.0

MAX_ATTEMPTS_IN_DEADLOCK = 3
MAX_DEADLOCK_PAUSE_S = 0.5

Answer = TypeVar('Answer')
Work = Callable[[sa.Connection], Answer]


class _Transaction(NamedTuple):
    """A thread's connection, and the tables as they were known when it began."""

    connection: sa.Connection
    tables: dict[str, sa.Table]


class Database:
    """One of nova's databases. Columns of a table are reflected when the table is first
    used, and again when a migration has changed them.

    A circuit breaker opens when an operation has waited in vain: until a probe is
    answered, other operations fail at once.

    :param patience: seconds that an operation may wait for its answer.
    """

    def __init__(
        self, engine: sa.Engine, name: str, patience: float = math.inf
    ) -> None:
        self.engine = engine
        # Without being asked, MySQL and MariaDB let a transaction see one moment. To
        # write is no use that way in PostgreSQL: who comes second fails.
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
            self._probe, DATABASE_ERRORS, on_change=self._tell
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
        """A table as it exists; the same one as long as a transaction lasts.

        :raises DatabaseUnavailable: it does not, or the database does not answer.
        """
        within: _Transaction | None = getattr(self._thread, 'transaction', None)
        if within is None:
            tables = self._tables
            if name in tables:
                return tables[name]
            return self.read(lambda _: self.table(name))
        if name not in within.tables:
            # Threads that look at once go on with the same one: two of them in a
            # statement are two tables.
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
        """A SELECT of those columns of the rows that nova has not deleted, and in which
        the columns of ``equal`` have those values."""
        table = self.table(name)
        chosen = [
            table.c[column] if column in table.c else sa.null().label(column)
            for column in columns
        ]
        statement = sa.select(*chosen).select_from(table)
        if 'deleted' in table.c:
            statement = statement.where(table.c.deleted == 0)
        return statement.where(
            *(table.c[column] == value for column, value in equal.items())
        )

    def read(self, work: Work[Answer]) -> Answer:
        """Read in one transaction, which sees one moment. If the connection is lost
        meanwhile, or a table has changed, ``work`` is called once more; it must build
        its statements itself.

        :raises DatabaseUnavailable: the database does not answer.
        """
        return self._asked(self._twice, self._readers.connect, work)

    def write(self, work: Work[Answer]) -> Answer:
        """Write in one transaction. ``work`` is called again after a deadlock, or if a
        table has changed.

        :raises DatabaseUnavailable: the database does not answer, or cannot be written.
        :raises DBDuplicateEntry: there is such a row.
        """
        return self._asked(self._undeadlocked, self.engine.begin, work)

    def rows(
        self,
        name: str,
        columns: Sequence[str],
        where: Callable[[Any], sa.ColumnElement[bool]] = lambda _: sa.true(),
        /,
        **equal: object,
    ) -> Sequence[sa.Row[Any]]:
        """The rows of :meth:`select` that meet a condition on the columns, read in a
        transaction of its own.

        :raises DatabaseUnavailable: the database does not answer.
        """

        def work(connection: sa.Connection) -> Sequence[sa.Row[Any]]:
            select = self.select(name, columns, **equal)
            return connection.execute(select.where(where(self.table(name).c))).all()

        return self.read(work)

    def look_again(self) -> None:
        """Reflect the tables that are in use again, to notice new columns."""
        before = dict(self._tables)
        try:
            after = self.read(
                lambda base: {name: self._reflected(name, base) for name in before}
            )
        except DatabaseUnavailable as error:
            LOG.debug('No look at columns: %s', error)
            return
        if changed := [
            name for name in after if _columns(after[name]) != _columns(before[name])
        ]:
            LOG.info('%s: columns of %s have changed', self.name, ', '.join(changed))
            self._tables = after

    @property
    def circuit_open(self) -> bool:
        """True while the database is not asked, until it answers a probe."""
        return self.breaker.reason is not None

    def close(self) -> None:
        """Close pooled connections, so that none is shared with a forked process, and
        send no more probes. Operations in progress may go on."""
        self.breaker.stop()
        self.engine.dispose()

    def _asked(
        self,
        retrying: Callable[[Callable[[], Answer]], Answer],
        connect: Callable[[], AbstractContextManager[sa.Connection]],
        work: Work[Answer],
    ) -> Answer:
        def once() -> Answer:
            before = getattr(self._thread, 'transaction', None)
            with connect() as connection:
                # For this thread, even if another one finds out meanwhile that they
                # have changed.
                self._thread.transaction = _Transaction(connection, self._tables)
                try:
                    return work(connection)
                except DATABASE_ERRORS as error:
                    if _code(error) in SHUTDOWN_CODES:
                        connection.invalidate()
                    raise
                finally:
                    self._thread.transaction = before

        began = time.monotonic()
        try:
            with self._connections.operation() as first:
                # What has begun may end: it takes long perhaps because there is much.
                if first and (why := self.breaker.reason) is not None:
                    raise DatabaseUnavailable(
                        f'{self.name}: {why}', self.breaker.wait_closed
                    )
                answer = retrying(lambda: self._up_to_date(once))
            self.breaker.succeeded()
            return answer
        except db_exc.DBDuplicateEntry:
            raise
        except DATABASE_ERRORS as error:
            why = reason(error)
            waited = self._was_waited_for(began, error)
            clear_frames(error)
        self.breaker.missed(why)
        # Past the handler: in there, oslo.log adds the error in hand to what is logged.
        if waited:
            self.breaker.failed(why, began)
        raise DatabaseUnavailable(f'{self.name}: {why}', self.breaker.wait_closed)

    def _up_to_date(self, once: Callable[[], Answer]) -> Answer:
        """Reflect tables again if a migration has dropped a column or table of a
        statement."""
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
        """Try again on a new connection: a database that restarts ends all of them."""
        began = time.monotonic()
        try:
            return once()
        except DATABASE_ERRORS as error:
            lost = (
                isinstance(error, db_exc.DBConnectionError)
                or _code(error) in SHUTDOWN_CODES
            )
            if not lost or time.monotonic() - began >= self._patience:
                raise
        return once()

    def _was_waited_for(self, began: float, error: Exception) -> bool:
        """True if it took long, and not because of a deadlock or of our own work; a
        server at whose address nothing listens is not waited for."""
        # PyMySQL's name for the error of the socket.
        refused = getattr(_origin(error), 'original_exception', None)
        is_excused = isinstance(refused, ConnectionRefusedError)
        is_excused |= isinstance(error, db_exc.DBDeadlock)
        return time.monotonic() - began > self._quick and not is_excused

    def _probe(self) -> None:
        """Check that an operation would soon be answered or refused.

        It reads from all tables in use, as one of them may be locked. If the probe is
        not answered, all operations in progress are aborted.
        """
        engine = self.engine
        if engine.dialect.name != 'sqlite':  # the pool's connections may be dead ends
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
            if self._was_waited_for(began, error):
                self._connections.abort()  # drivers may have shorter timeouts
                raise
        finally:
            end.cancel()

    def _tell(self, why: str | None) -> None:
        if why is None:
            LOG.info('%s is asked again', self.name)
        else:
            LOG.warning('%s is left alone until it answers: %s', self.name, why)


def reason(error: Exception) -> str:
    """A database error in one line, without the statement, the URL or what is secret in
    it."""
    text = str(_origin(error))
    if text:
        return hide(text.splitlines()[0])
    return type(error).__name__


def _columns(table: sa.Table) -> Mapping[str, str]:
    return {column.name: repr(column.type) for column in table.columns}


def _code(error: BaseException) -> object:
    """MySQL's number for an error, PostgreSQL's SQLSTATE, or else the driver's text."""
    origin = _origin(error)
    first, *_ = getattr(origin, 'args', ()) or (None,)
    if isinstance(first, int):
        return first
    return getattr(origin, 'pgcode', None) or getattr(origin, 'sqlstate', None) or first


def _origin(error: BaseException) -> object:
    """The error of the driver."""
    wrapped = getattr(error, 'inner_exception', None) or error
    return getattr(wrapped, 'orig', None) or wrapped
