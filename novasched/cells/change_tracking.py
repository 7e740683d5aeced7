# SPDX-License-Identifier: Apache-2.0
"""Tables in memory, updated by reading only the changed rows.

``updated_at`` does not identify changed rows: it counts whole seconds, comes from the
clock of the writer, and goes back when a backup is restored. Instead, MySQL, MariaDB
and PostgreSQL compute a digest for every bucket of neighbouring ids. If the digest
differs from that of the rows in memory, the digests of the single rows tell the rows to
read. All other databases are read whole. The rows themselves are not kept, only values
built from rows: the texts in the rows would take most of the memory of a large cloud.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

import sqlalchemy as sa

from novasched.cells.database import Database

BUCKET_SIZE = 32
"""Neighbouring ids that share a digest."""
LARGE_BUCKET = 1024
"""The bucket size of a table that rarely changes: few digests are sent."""
MAX_STALE_BUCKETS = 100
MAX_CHANGED_ROWS = 1000
"""From these numbers on, the whole table is read: the many conditions would cost more
than the rows that are read in vain."""
POSTGRESQL_WITH_HASHES = (11,)
"""The first version of PostgreSQL with 64-bit hashes of texts."""
ROWS_PER_FETCH = 200
"""Rows in memory while a table is read."""
Row = sa.Row[Any]
Columns = Sequence[sa.ColumnElement[Any]]
Value = TypeVar('Value')


def plain_row(row: Row) -> Row:
    """Keep a row as it is."""
    return row


def no_columns(table: sa.Table) -> Columns:
    """Compute no columns."""
    return ()


@dataclass(frozen=True, slots=True)
class _Entry(Generic[Value]):
    """The digest of a row, and the value built from the row."""

    digest: int
    value: Value


@dataclass(frozen=True, slots=True)
class _Bucket(Generic[Value]):
    """The entries of a bucket by id, and the sum of the digests."""

    entries: Mapping[int, _Entry[Value]]
    digest: int


class _Statements(NamedTuple):
    """The statements for a table.

    :ivar rows: selects the rows. With digests, a row comes with the digest of the row,
        so a bucket in memory always has the digest of the rows in memory.
    :ivar digests: selects the digest of every bucket; None without digests.
    :ivar row_digests: selects the id and the digest of every row; not used without
        digests.
    """

    table: sa.Table
    rows: sa.Select[Any]
    digests: sa.Select[Any] | None
    row_digests: sa.Select[Any]


@dataclass
class _Source:
    """Makes the statements for the rows of a table that nova has not deleted.

    :ivar columns: names of columns, ``id`` first.
    :ivar computed: makes further columns from the table.
    :ivar equal: columns, and the required values in the columns.
    :ivar bucket_size: the number of neighbouring ids that share a digest.
    """

    base: Database
    name: str
    columns: Sequence[str]
    computed: Callable[[sa.Table], Columns]
    equal: Mapping[str, object]
    bucket_size: int
    _last: _Statements | None = field(default=None, init=False)

    def statements(self) -> _Statements:
        """The statements, kept until the columns of the table change. Then all digests
        differ, and all rows are read again."""
        table = self.base.table(self.name)
        if self._last is None or self._last.table is not table:
            self._last = self._statements(table)
        return self._last

    def _statements(self, table: sa.Table) -> _Statements:
        computed = self.computed(table)
        rows = self.base.select(self.name, self.columns, **self.equal)
        rows = rows.add_columns(*computed)

        functions = digest_functions(self.base.engine.dialect)
        if functions is None:
            return _Statements(table, rows, None, rows)

        present = [table.c[name] for name in self.columns if name in table.c]
        digest = functions.of_row([*present, *computed])
        bucket = table.c.id.op(functions.division)(self.bucket_size)
        chosen = self.base.select(self.name, (), **self.equal)
        digests = chosen.add_columns(
            bucket.label('bucket'), sa.func.sum(digest).label('digest')
        )
        return _Statements(
            table,
            rows.add_columns(digest.label('digest')),
            digests.group_by(bucket),
            chosen.add_columns(table.c.id, digest.label('digest')),
        )


class ChangeTrackedTable(Generic[Value]):
    """Values built from the rows that nova has not deleted, by id. For one thread at a
    time.

    :param build: makes a value from a row.
    :param computed: makes further columns of the rows.
    :param bucket_size: the number of neighbouring ids that share a digest.
    :param equal: columns, and the required values in the columns.
    """

    def __init__(
        self,
        base: Database,
        name: str,
        columns: Sequence[str],
        build: Callable[[Row], Value],
        computed: Callable[[sa.Table], Columns] = no_columns,
        bucket_size: int = BUCKET_SIZE,
        **equal: object,
    ) -> None:
        self.values: dict[int, Value] = {}
        self._source = _Source(
            base, name, ('id', *columns), computed, equal, bucket_size
        )
        self._bucket_size = bucket_size
        self._build = build
        self._buckets: dict[int, _Bucket[Value]] = {}

    def refresh(self, connection: sa.Connection, **parameters: object) -> set[int]:
        """Bring :attr:`values` up to date.

        :param parameters: parameters of the computed columns.
        :return: the ids of new, changed and deleted rows.
        :raises DBError: the database does not answer; all values stay.
        """
        statements = self._source.statements()
        if statements.digests is None:
            rows = connection.execute(
                statements.rows,
                parameters,
                execution_options={'yield_per': ROWS_PER_FETCH},
            )
            return self._replace({0}, self._build_whole_table(rows))

        digests = {}
        for row in connection.execute(statements.digests, parameters):
            # MySQL and PostgreSQL return sums of large numbers as decimals.
            digests[row.bucket] = int(row.digest)
        stale = set()
        for number, digest in digests.items():
            bucket = self._buckets.get(number)
            if bucket is None or bucket.digest != digest:
                stale.add(number)

        buckets: Mapping[int, _Bucket[Value]] = {}
        if stale:
            buckets = self._read_buckets(connection, statements, stale, parameters)
        gone = self._buckets.keys() - digests.keys()
        return self._replace(stale | gone, buckets)

    def _read_buckets(
        self,
        connection: sa.Connection,
        statements: _Statements,
        stale: Collection[int],
        parameters: Mapping[str, object],
    ) -> Mapping[int, _Bucket[Value]]:
        """Read the changed rows of buckets, row after row, so few rows are in memory at
        a time."""
        select = statements.rows
        entries: dict[int, dict[int, _Entry[Value]]] = {}
        if self._buckets and len(stale) < MAX_STALE_BUCKETS:
            entries, changed = self._compare_rows(
                connection, statements, stale, parameters
            )
            if not changed:
                return _buckets(entries)
            if len(changed) < MAX_CHANGED_ROWS:
                select = select.where(statements.table.c.id.in_(changed))

        for row in connection.execute(
            select, parameters, execution_options={'yield_per': ROWS_PER_FETCH}
        ):
            number = row.id // self._bucket_size
            if number in stale:
                entry = self._entry(number, row, row.digest)
                entries.setdefault(number, {})[row.id] = entry
        return _buckets(entries)

    def _compare_rows(
        self,
        connection: sa.Connection,
        statements: _Statements,
        stale: Collection[int],
        parameters: Mapping[str, object],
    ) -> tuple[dict[int, dict[int, _Entry[Value]]], list[int]]:
        """The entries of buckets that are as in memory, by bucket and id, and the ids
        of the new and changed rows."""
        id = statements.table.c.id
        ranges = []
        for number in sorted(stale):
            first = number * self._bucket_size
            ranges.append(id.between(first, first + self._bucket_size - 1))

        same: dict[int, dict[int, _Entry[Value]]] = {}
        changed = []
        select = statements.row_digests.where(sa.or_(*ranges))
        for row in connection.execute(select, parameters):
            number = row.id // self._bucket_size
            bucket = self._buckets.get(number)
            entry = bucket.entries.get(row.id) if bucket else None
            if entry is not None and entry.digest == row.digest:
                same.setdefault(number, {})[row.id] = entry
            else:
                changed.append(row.id)
        return same, changed

    def _build_whole_table(
        self, rows: sa.CursorResult[Any]
    ) -> Mapping[int, _Bucket[Value]]:
        """Without digests, the whole table is bucket 0, and hash values of rows stand
        for digests."""
        entries = {row.id: self._entry(0, row, hash(tuple(row))) for row in rows}
        if not entries:
            return {}
        return _buckets({0: entries})

    def _entry(self, number: int, row: Row, digest: int) -> _Entry[Value]:
        """The entry of a row; the entry in memory if the row has not changed."""
        bucket = self._buckets.get(number)
        if bucket is not None:
            before = bucket.entries.get(row.id)
            if before is not None and before.digest == digest:
                return before
        return _Entry(digest, self._build(row))

    def _replace(
        self, stale: Collection[int], buckets: Mapping[int, _Bucket[Value]]
    ) -> set[int]:
        """Replace the stale buckets by the buckets just read; the ids of new, changed
        and deleted rows."""
        changed: set[int] = set()
        for number in stale:
            before: Mapping[int, _Entry[Value]] = {}
            after: Mapping[int, _Entry[Value]] = {}
            if number in self._buckets:
                before = self._buckets.pop(number).entries
            if number in buckets:
                self._buckets[number] = buckets[number]
                after = buckets[number].entries

            for id in before.keys() - after.keys():
                del self.values[id]
                changed.add(id)
            for id, entry in after.items():
                if id not in before or before[id].digest != entry.digest:
                    self.values[id] = entry.value
                    changed.add(id)
        return changed


def _buckets(
    entries: Mapping[int, Mapping[int, _Entry[Value]]],
) -> Mapping[int, _Bucket[Value]]:
    """The buckets of some entries, by number.

    :param entries: by number of the bucket and id.
    """
    buckets = {}
    for number, of_bucket in entries.items():
        digest = sum(entry.digest for entry in of_bucket.values())
        buckets[number] = _Bucket(of_bucket, digest)
    return buckets


class DigestFunctions(NamedTuple):
    """SQL for digests.

    :ivar of_row: makes the digest of a row from all columns of the row, the id first.
    :ivar division: the operator for the division of whole numbers.
    """

    of_row: Callable[[Columns], sa.ColumnElement[int]]
    division: str


def digest_functions(dialect: sa.Dialect) -> DigestFunctions | None:
    """The functions of a database; None if the database computes no digests."""
    version = getattr(dialect, 'server_version_info', None) or ()
    if dialect.name == 'mysql':
        return DigestFunctions(_mysql_digest, 'DIV')
    if dialect.name == 'postgresql' and version >= POSTGRESQL_WITH_HASHES:
        return DigestFunctions(_postgresql_digest, '/')
    return None


def _mysql_digest(columns: Columns) -> sa.ColumnElement[int]:
    """The CRC-32 of a row, times an odd number made from the id.

    CRC-32 is linear. Without the factor, equal changes of the rows of a bucket, as when
    all hosts get an instance of the same flavor, could leave the sum of the digests
    unchanged.
    """
    texts = [sa.func.coalesce(column, '~') for column in columns]
    crc = sa.func.crc32(sa.func.concat_ws('|', *texts), type_=sa.BigInteger)
    return crc * sa.func.crc32(columns[0], type_=sa.BigInteger).op('|')(1)


def _postgresql_digest(columns: Columns) -> sa.ColumnElement[int]:
    """PostgreSQL's 64-bit hash for hash indexes. MD5 takes half as long again, and is
    not available where OpenSSL is restricted to FIPS."""
    texts = [sa.func.coalesce(sa.cast(column, sa.Text), '~') for column in columns]
    return sa.func.hashtextextended(
        sa.func.concat_ws('|', *texts), 0, type_=sa.BigInteger
    )
