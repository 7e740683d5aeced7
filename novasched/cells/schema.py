# SPDX-License-Identifier: Apache-2.0
"""nova's tables, as far as a scheduler reads them, in whatever release they are.

Columns come and go between releases: each query names what it would like, and reads
those that exist. A missing column yields None.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import sqlalchemy as sa
import tenacity
from oslo_db import exception as db_exc
from sqlalchemy import exc as sa_exc

from novasched.breaker import Breaker
from novasched.cells.lines import Lines
from novasched.errors import DatabaseUnavailable
from novasched.processes import let_go
from novasched.secrets import hide

LOG = logging.getLogger(__name__)
DATABASE_ERRORS = (db_exc.DBError, sa_exc.SQLAlchemyError, OSError)
"""The last of them of a driver that cannot read the files of TLS that a URL names."""

QUICK = 1.0
"""Seconds. Who fails sooner than that has hardly waited, and may try again each time: so a
server that refuses connections is used again as soon as it takes them."""

GOODBYES = (1053, 1317, 1927)
"""MySQL's errors for a shutdown, and for a query and a connection that were killed."""

PROBE, MOST = 5.0, 5.0
"""Seconds that a probe waits, and that lie between two of them in the end."""

DEADLOCKS, PAUSE = 3, 0.5
"""So often is a transaction begun which others keep from its end, after up to so many seconds."""

Answer = TypeVar('Answer')
Work = Callable[[sa.Connection], Answer]


class Database:
    """One of nova's databases; the columns of its tables are looked up once.

    Who has waited for it in vain spares the others the same: until a probe has been
    answered, whoever asks is told at once that there is no answer.
    """

    def __init__(self, engine: sa.Engine, name: str, patience: float | None = None) -> None:
        """The server may be silent for ``patience`` seconds while it is asked."""
        self.engine = engine
        self.name = name
        self._tables: dict[str, sa.Table] = {}
        self._lines = Lines(patience)
        self._lines.watch(engine)
        self._breaker = Breaker(self._probe, DATABASE_ERRORS, most=MOST)
        self._patience = math.inf if patience is None else patience
        self._quick = min(QUICK, self._patience / 2)
        self._undeadlocked = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(db_exc.DBDeadlock),
            stop=tenacity.stop_after_attempt(DEADLOCKS) | tenacity.stop_after_delay(self._patience),
            wait=tenacity.wait_random(0, PAUSE),
            reraise=True,
        )

    def table(self, name: str) -> sa.Table:
        """A table as it exists.

        :raises DatabaseUnavailable: it does not, or the database does not answer.
        """
        if name not in self._tables:
            table = self.read(lambda connection: self._reflected(name, connection))
            # Threads that look at once go on with the same one: two of them in a statement
            # are two tables.
            self._tables.setdefault(name, table)
        return self._tables[name]

    def _reflected(self, name: str, connection: sa.Connection) -> sa.Table:
        try:
            return sa.Table(name, sa.MetaData(), autoload_with=connection, resolve_fks=False)
        except sa_exc.NoSuchTableError:
            raise DatabaseUnavailable(f'{self.name} has no table {name}') from None

    def select(self, name: str, columns: Sequence[str], **equal: object) -> sa.Select[Any]:
        """A SELECT of those columns of the rows that nova has not deleted, and in which the
        columns of ``equal`` have those values."""
        table = self.table(name)
        chosen = [
            table.c[column] if column in table.c else sa.null().label(column) for column in columns
        ]
        statement = sa.select(*chosen).select_from(table)
        if 'deleted' in table.c:
            statement = statement.where(table.c.deleted == 0)
        return statement.where(*(table.c[column] == value for column, value in equal.items()))

    def read(self, work: Work[Answer]) -> Answer:
        """What comes of reading in one transaction, which MySQL and MariaDB let see one
        moment. Where the connection is lost meanwhile, all of it is done once more.

        :raises DatabaseUnavailable: the database does not answer.
        """
        return self._asked(self._twice, self.engine.connect, work)

    def write(self, work: Work[Answer]) -> Answer:
        """What comes of a transaction that writes. All of it is done again after a deadlock.

        :raises DatabaseUnavailable: the database does not answer, or cannot be written.
        :raises DBDuplicateEntry: somebody else has written the same.
        """
        return self._asked(self._undeadlocked, self.engine.begin, work)

    def rows(
        self, statement: sa.Select[tuple[object, ...]]
    ) -> Sequence[sa.Row[tuple[object, ...]]]:
        """Run a SELECT in a transaction of its own.

        :raises DatabaseUnavailable: the database does not answer.
        """
        return self.read(lambda connection: connection.execute(statement).all())

    @property
    def left_alone(self) -> bool:
        """Whether it is, until it answers again."""
        return self._breaker.why is not None

    def give_up(self, why: str) -> None:
        """Let nobody wait from now on, until it answers again."""
        if self._breaker.trip(why):
            LOG.warning('%s is left alone until it answers: %s', self.name, why)

    def close(self) -> None:
        """Close pooled connections, so that none is shared with a forked process, and look
        after the server no more. Whoever still uses it may go on."""
        self._breaker.close()
        self.engine.dispose()

    def _asked(
        self,
        retrying: Callable[[Callable[[], Answer]], Answer],
        connect: Callable[[], AbstractContextManager[sa.Connection]],
        work: Work[Answer],
    ) -> Answer:
        def once() -> Answer:
            with connect() as connection:
                try:
                    return work(connection)
                except DATABASE_ERRORS as error:
                    if is_goodbye(error):
                        connection.invalidate()
                    raise

        began = time.monotonic()
        try:
            with self._lines.asking() as first:
                # What has begun may end: it takes long perhaps because there is much.
                if first and (why := self._breaker.why) is not None:
                    raise DatabaseUnavailable(f'{self.name}: {why}')
                return retrying(once)
        except db_exc.DBDuplicateEntry:
            raise
        except DATABASE_ERRORS as error:
            why, waited = reason(error), self._was_waited_for(began, error)
            let_go(error)
        # Past the handler: in there, oslo.log adds the error in hand to what is logged.
        if waited:
            self.give_up(why)
        raise DatabaseUnavailable(f'{self.name}: {why}')

    def _twice(self, once: Callable[[], Answer]) -> Answer:
        """A server that restarts ends every connection, and takes new ones soon."""
        began = time.monotonic()
        try:
            return once()
        except DATABASE_ERRORS as error:
            lost = isinstance(error, db_exc.DBConnectionError) or is_goodbye(error)
            if not lost or time.monotonic() - began >= self._patience:
                raise
        return once()

    def _was_waited_for(self, began: float, error: Exception) -> bool:
        """Whether it took long, and not because we or another transaction did."""
        took = time.monotonic() - began
        return took > self._quick and not (
            is_refusal(error) or isinstance(error, db_exc.DBDeadlock)
        )

    def _probe(self) -> None:
        """See whether whoever asks now hears something soon, were it a refusal.

        The tables that are in use are looked at, since one of them may be locked. What is
        waited for when a probe is not answered is not worth waiting for.
        """
        engine = self.engine
        if engine.dialect.name == 'mysql':  # the pool's connections may be dead ends
            engine = sa.create_engine(engine.url, poolclass=sa.NullPool)
            self._lines.watch(engine)
        began = time.monotonic()
        end = threading.Timer(PROBE, self._lines.cut)
        end.daemon = True
        end.start()
        try:
            with engine.connect() as connection:
                for table in list(self._tables.values()):
                    connection.execute(sa.select(sa.literal(1)).select_from(table).limit(1))
        except DATABASE_ERRORS as error:
            if self._was_waited_for(began, error):
                raise
        finally:
            end.cancel()
        LOG.info('%s is asked again', self.name)


def is_goodbye(error: BaseException) -> bool:
    """Whether the server ends what it was asked, and the connection next."""
    arguments: tuple[object, ...] = getattr(_origin(error), 'args', ())
    return bool(arguments) and arguments[0] in GOODBYES


def is_refusal(error: BaseException) -> bool:
    """Whether there is no server at the address."""
    # PyMySQL's name for what the socket has raised.
    return isinstance(getattr(_origin(error), 'original_exception', None), ConnectionRefusedError)


def reason(error: Exception) -> str:
    """A database error in one line, without the statement, the URL or what is secret in it."""
    text = str(_origin(error))
    return hide(text.splitlines()[0]) if text else type(error).__name__


def _origin(error: BaseException) -> object:
    """What the driver has raised."""
    wrapped = getattr(error, 'inner_exception', None) or error
    return getattr(wrapped, 'orig', None) or wrapped
