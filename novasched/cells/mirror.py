# SPDX-License-Identifier: Apache-2.0
"""A table kept in memory, of which only the rows that changed are read.

The time of a row's last change is no help: it counts whole seconds, comes from the clock of
whoever wrote, and goes back with a backup. So MySQL and MariaDB make a digest of what the
rows say, for each bucket of neighbouring ids, and the buckets are read whose digest is not
that of the rows at hand. Elsewhere the table is read, and what was made of rows that are
as before stays. The rows themselves are not kept: their texts are most of what a large cloud
would take in memory.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from novasched.cells.schema import Database

BUCKET = 32
"""So many ids share a digest, and are read together."""

MANY = 100
"""From so many buckets on the whole table is read."""

AT_ONCE = 200
"""So many rows are in memory while a table is read."""

Row = sa.Row[Any]
Made = TypeVar('Made')


class _Kept(NamedTuple, Generic[Made]):
    digest: int
    value: Made


Bucket = Mapping[int, _Kept[Made]]


class Mirror(Generic[Made]):
    """What is made of the rows of a table that nova has not deleted, by id. Used by one
    thread at a time."""

    def __init__(
        self,
        base: Database,
        name: str,
        columns: Sequence[str],
        make: Callable[[Row], Made],
        **equal: object,
    ) -> None:
        """Those of the rows whose columns have the values in ``equal``."""
        self.base = base
        self.name = name
        self.columns = ('id', *(each for each in columns if each != 'id'))
        self.equal = equal
        self.made: dict[int, Made] = {}
        self._make = make
        self._has_digests = base.engine.dialect.name == 'mysql'
        self._buckets: dict[int, Bucket[Made]] = {}
        self._digest_of: dict[int, int] = {}

    def refresh(self, connection: sa.Connection) -> set[int]:
        """Bring :attr:`made` up to date with a transaction; the ids of rows that are new,
        differ or are gone.

        :raises DBError: the database does not answer; all is as before.
        """
        if not self._has_digests:
            return self._replace(self._read(connection, {0}), {0})
        digests = {row.bucket: row.digest for row in connection.execute(self._digests)}
        stale = {at for at, digest in digests.items() if self._digest_of.get(at) != digest}
        gone = self._buckets.keys() - digests.keys()
        read = self._read(connection, stale) if stale else {}
        changes = self._replace(read, stale | gone)
        for number in gone:
            del self._digest_of[number]
        for number in stale:
            self._digest_of[number] = _digest(self._buckets.get(number, {}))
        return changes

    def _read(
        self, connection: sa.Connection, numbers: Collection[int]
    ) -> Mapping[int, Bucket[Made]]:
        """Buckets as they are now, read row after row: not all of them are ever there."""
        select = self._select
        if self._has_digests and len(numbers) < MANY:
            first = [number * BUCKET for number in sorted(numbers)]
            ids = self.base.table(self.name).c.id
            select = select.where(sa.or_(*(ids.between(at, at + BUCKET - 1) for at in first)))
        found: dict[int, dict[int, _Kept[Made]]] = {}
        for row in connection.execute(select, execution_options={'yield_per': AT_ONCE}):
            number = row.id // BUCKET if self._has_digests else 0
            if number in numbers:
                before = self._buckets.get(number, {}).get(row.id)
                found.setdefault(number, {})[row.id] = self._kept(row, before)
        return found

    def _replace(self, read: Mapping[int, Bucket[Made]], stale: Collection[int]) -> set[int]:
        """Put what was read in the place of the buckets that are stale."""
        changed: set[int] = set()
        for number in stale:
            before, after = self._buckets.pop(number, {}), read.get(number, {})
            gone = before.keys() - after.keys()
            new = {key for key, kept in after.items() if kept is not before.get(key)}
            for key in gone:
                del self.made[key]
            self.made.update((key, after[key].value) for key in new)
            if after:
                self._buckets[number] = after
            changed |= gone | new
        return changed

    def _kept(self, row: Row, before: _Kept[Made] | None) -> _Kept[Made]:
        digest = row.digest if self._has_digests else hash(tuple(row))
        return before if before and before.digest == digest else _Kept(digest, self._make(row))

    @functools.cached_property
    def _select(self) -> sa.Select[Any]:
        """All rows; where there are digests, each with its own in the last column, so that
        what is kept of a bucket is the digest of the very rows that were read."""
        statement = self.base.select(self.name, self.columns, **self.equal)
        if self._has_digests:
            return statement.add_columns(self._row_digest.label('digest'))
        return statement

    @functools.cached_property
    def _digests(self) -> sa.Select[Any]:
        bucket = self.base.table(self.name).c.id.op('DIV')(BUCKET)
        digest = sa.func.bit_xor(self._row_digest).label('digest')
        statement = self.base.select(self.name, (), **self.equal)
        return statement.add_columns(bucket.label('bucket'), digest).group_by(bucket)

    @property
    def _row_digest(self) -> sa.ColumnElement[int]:
        """60 bits of the MD5 of a row, long texts in it as their CRC-32.

        CRC-32 alone would not do: it is linear, so that two rows of a bucket that change
        in the same way would leave the exclusive or of their sums as it was.
        """
        table = self.base.table(self.name)
        parts = [_part(table.c[name]) for name in self.columns if name in table.c]
        md5 = sa.func.md5(sa.func.concat_ws('|', *parts))
        return sa.cast(sa.func.conv(sa.func.left(md5, 15), 16, 10), mysql.BIGINT(unsigned=True))


def _part(column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    long = isinstance(column.type, sa.Text)
    return sa.func.coalesce(sa.func.crc32(column) if long else column, '~')


def _digest(bucket: Mapping[int, _Kept[Any]]) -> int:
    return functools.reduce(operator.xor, (kept.digest for kept in bucket.values()), 0)
