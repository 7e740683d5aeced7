# SPDX-License-Identifier: Apache-2.0
"""nova's tables, as far as a scheduler reads them, in whatever release they are.

Columns come and go between releases: each query names what it would like, and reads
those that exist. A missing column yields None.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from oslo_db import exception as db_exc
from sqlalchemy import exc as sa_exc

from novasched.errors import DatabaseUnavailable
from novasched.secrets import hide

DATABASE_ERRORS = (db_exc.DBError, sa_exc.SQLAlchemyError, OSError)
"""The last of them of a driver that cannot read the files of TLS that a URL names."""


class Database:
    """One of nova's databases; the columns of its tables are looked up once."""

    def __init__(self, engine: sa.Engine, name: str) -> None:
        self.engine = engine
        self.name = name
        self._tables: dict[str, sa.Table] = {}

    def table(self, name: str) -> sa.Table:
        """A table as it exists.

        :raises DatabaseUnavailable: it does not, or the database does not answer.
        """
        if name not in self._tables:
            try:
                table = sa.Table(name, sa.MetaData(), autoload_with=self.engine, resolve_fks=False)
            except sa_exc.NoSuchTableError:
                raise DatabaseUnavailable(f'{self.name} has no table {name}') from None
            except DATABASE_ERRORS as error:
                raise DatabaseUnavailable(f'{self.name}: {reason(error)}') from None
            # Threads that look at once go on with the same one: two of them in a statement
            # are two tables.
            self._tables.setdefault(name, table)
        return self._tables[name]

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

    @contextmanager
    def transaction(self) -> Iterator[sa.Connection]:
        """Read in one transaction, which MySQL and MariaDB let see one moment.

        :raises DatabaseUnavailable: the database does not answer.
        """
        try:
            with self.engine.connect() as connection:
                yield connection
        except DATABASE_ERRORS as error:
            raise DatabaseUnavailable(f'{self.name}: {reason(error)}') from None

    def rows(
        self, statement: sa.Select[tuple[object, ...]]
    ) -> Sequence[sa.Row[tuple[object, ...]]]:
        """Run a SELECT in a transaction of its own.

        :raises DatabaseUnavailable: the database does not answer.
        """
        with self.transaction() as connection:
            return connection.execute(statement).all()


def reason(error: Exception) -> str:
    """A database error in one line, without the statement, the URL or what is secret in it."""
    origin = getattr(error, 'inner_exception', None) or error
    text = str(getattr(origin, 'orig', None) or origin)
    return hide(text.splitlines()[0]) if text else type(error).__name__
