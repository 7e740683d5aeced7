# SPDX-License-Identifier: Apache-2.0
"""Tables in memory, of which only the rows that have changed are read.

The time of a row's last change does not help: it counts whole seconds, comes from the
clock of whoever wrote it, and goes back with a backup. So MySQL, MariaDB and PostgreSQL
compute a digest for each bucket of neighbouring ids, and the buckets are read whose
digest differs from that of the rows in memory. Other databases are read whole. What was
built of unchanged rows stays; the rows are not kept, since their texts are most of the
memory that a large cloud would take.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import sqlalchemy as sa

from novasched.cells.database import Database

BUCKET_SIZE = 32
"""Ids that share a digest, and are read together."""
MAX_STALE_BUCKETS = 100
"""From so many stale buckets on, the whole table is read."""
POSTGRESQL_WITH_HASHES = (11,)
"""The first version of PostgreSQL with 64 bit hashes of texts."""
ROWS_PER_FETCH = 200
"""Rows in memory while a table is read."""
Row = sa.Row[Any]
Value = TypeVar('Value')


def plain_row(row: Row) -> Row:
    """Keep a row as it is."""
    return row


@dataclass(frozen=True, slots=True)
class _Entry(Generic[Value]):
    digest: int
    value: Value


Bucket = Mapping[int, _Entry[Value]]


class _Statements(NamedTuple):
    table: sa.Table
    rows: sa.Select[Any]
    digests: sa.Select[Any] | None


class ChangeTrackedTable(Generic[Value]):
    """Values built of the rows that nova has not deleted, by id. For one thread at a
    time.

    :param build: makes a value of a row.
    :param computed: makes columns of a table that rows have besides.
    :param equal: columns, and the values that rows must have in them.
    """

    def __init__(
        self,
        base: Database,
        name: str,
        columns: Sequence[str],
        build: Callable[[Row], Value],
        computed: Callable[
            [sa.Table], Sequence[sa.ColumnElement[Any]]
        ] = lambda table: (),
        **equal: object,
    ) -> None:
        self.values: dict[int, Value] = {}
        self._base = base
        self._name = name
        self._columns = ('id', *columns)
        self._equal = equal
        self._build = build
        self._computed = computed
        self._parameters: Mapping[str, object] = {}
        self._has_digests = False
        self._buckets: dict[int, Bucket[Value]] = {}
        self._digests: dict[int, int] = {}
        self._cached_statements: _Statements | None = None

    def refresh(self, connection: sa.Connection, **parameters: object) -> set[int]:
        """Bring :attr:`values` up to date; the ids of rows that are new, changed or
        gone.

        :param parameters: those of computed columns.
        :raises DBError: the database does not answer; all is as before.
        """
        self._has_digests = _has_digests(connection.dialect)
        self._parameters = parameters
        statement = self._statements.digests
        if statement is None:
            return self._replace(self._read(connection, {0}), {0})
        digests = {
            row.bucket: int(row.digest)
            for row in connection.execute(statement, parameters)
        }
        stale = {
            key for key, digest in digests.items() if self._digests.get(key) != digest
        }
        gone = self._buckets.keys() - digests.keys()
        buckets = self._read(connection, stale) if stale else {}
        changed = self._replace(buckets, stale | gone)
        for key in gone:
            del self._digests[key]
        for key in stale:
            self._digests[key] = sum(
                x.digest for x in self._buckets.get(key, {}).values()
            )
        return changed

    def _read(
        self, connection: sa.Connection, keys: Collection[int]
    ) -> Mapping[int, Bucket[Value]]:
        """Read buckets, row after row, so that few rows are in memory at the same
        time."""
        select = self._statements.rows
        if self._has_digests and len(keys) < MAX_STALE_BUCKETS:
            first_ids = [key * BUCKET_SIZE for key in sorted(keys)]
            id = self._base.table(self._name).c.id
            select = select.where(
                sa.or_(
                    *(id.between(first, first + BUCKET_SIZE - 1) for first in first_ids)
                )
            )
        buckets: dict[int, dict[int, _Entry[Value]]] = {}
        options = {'yield_per': ROWS_PER_FETCH}
        for row in connection.execute(
            select, self._parameters, execution_options=options
        ):
            key = row.id // BUCKET_SIZE if self._has_digests else 0
            if key in keys:
                before = self._buckets.get(key, {}).get(row.id)
                buckets.setdefault(key, {})[row.id] = self._entry(row, before)
        return buckets

    def _replace(
        self, buckets: Mapping[int, Bucket[Value]], stale: Collection[int]
    ) -> set[int]:
        changed: set[int] = set()
        for key in stale:
            before = self._buckets.pop(key, {})
            after = buckets.get(key, {})
            gone = before.keys() - after.keys()
            new = {id for id, entry in after.items() if entry is not before.get(id)}
            for id in gone:
                del self.values[id]
            self.values.update((id, after[id].value) for id in new)
            if after:
                self._buckets[key] = after
            changed |= gone | new
        return changed

    def _entry(self, row: Row, before: _Entry[Value] | None) -> _Entry[Value]:
        digest = row.digest if self._has_digests else hash(tuple(row))
        if before and before.digest == digest:
            return before
        return _Entry(digest, self._build(row))

    @property
    def _statements(self) -> _Statements:
        """The SELECT of rows, and where there are digests, that of buckets. Each row
        comes with its own digest, so a bucket's digest is always that of the very rows
        that were read.

        They are cached until the table changes. If it then has other columns of ours,
        all digests differ, and all rows are read again.
        """
        table = self._base.table(self._name)
        if (
            self._cached_statements is None
            or self._cached_statements.table is not table
        ):
            computed = self._computed(table)
            rows = self._base.select(
                self._name, self._columns, **self._equal
            ).add_columns(*computed)
            digests = None
            if self._has_digests:
                named = [table.c[name] for name in self._columns if name in table.c]
                columns = [*named, *computed]
                is_mysql = self._base.engine.dialect.name == 'mysql'
                if is_mysql:
                    digest = _mysql_digest(columns)
                else:
                    digest = _postgresql_digest(columns)
                rows = rows.add_columns(digest.label('digest'))
                bucket = table.c.id.op('DIV' if is_mysql else '/')(BUCKET_SIZE)
                digests = self._base.select(self._name, (), **self._equal).add_columns(
                    bucket.label('bucket'), sa.func.sum(digest).label('digest')
                )
                digests = digests.group_by(bucket)
            self._cached_statements = _Statements(table, rows, digests)
        return self._cached_statements


def _has_digests(dialect: sa.Dialect) -> bool:
    version = getattr(dialect, 'server_version_info', None) or ()
    is_postgresql = dialect.name == 'postgresql' and version >= POSTGRESQL_WITH_HASHES
    return dialect.name == 'mysql' or is_postgresql


def _mysql_digest(columns: Sequence[sa.ColumnElement[Any]]) -> sa.ColumnElement[int]:
    """The CRC-32 of a row, times an odd number that is its own.

    CRC-32 is linear: without that number, rows of a bucket that change in the same way,
    as when each gets an instance of the same flavor, could leave the sum of their
    digests unchanged.

    :param columns: the first one is the id.
    """
    parts = [sa.func.coalesce(column, '~') for column in columns]
    crc = sa.func.crc32(sa.func.concat_ws('|', *parts), type_=sa.BigInteger)
    return crc * sa.func.crc32(columns[0], type_=sa.BigInteger).op('|')(1)


def _postgresql_digest(
    columns: Sequence[sa.ColumnElement[Any]],
) -> sa.ColumnElement[int]:
    """PostgreSQL's 64 bit hash for hash indexes. MD5 takes half as long again, and is
    refused where OpenSSL is restricted to FIPS."""
    parts = [sa.func.coalesce(sa.cast(column, sa.Text), '~') for column in columns]
    return sa.func.hashtextextended(
        sa.func.concat_ws('|', *parts), 0, type_=sa.BigInteger
    )
