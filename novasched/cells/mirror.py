# SPDX-License-Identifier: Apache-2.0
"""A table kept in memory, of which only the rows that changed are read.

The time of a row's last change is no help: it counts whole seconds, comes from the clock of
whoever wrote, and goes back with a backup. So MySQL and MariaDB make a digest of what the
rows say, for each bucket of neighbouring ids, and the buckets are read whose digest is not
that of the rows at hand. Elsewhere the table is read, and rows that are as before stay.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from novasched.cells.schema import Database

BUCKET = 32
"""So many ids share a digest, and are read together."""

MANY = 100
"""From so many buckets on the whole table is read."""

Row = sa.Row[Any]
Changes = Mapping[int, Row | None]
"""Rows by id that are new or differ; None for those that are gone."""


class Mirror:
    """Rows of a table that nova has not deleted. Used by one thread at a time."""

    def __init__(self, base: Database, name: str, columns: Sequence[str], **equal: object) -> None:
        """Those of the rows whose columns have the values in ``equal``."""
        self.base = base
        self.name = name
        self.columns = ('id', *(each for each in columns if each != 'id'))
        self.equal = equal
        self.rows: dict[int, Row] = {}
        self._buckets: dict[int, dict[int, Row]] = {}
        self._digest_of: dict[int, int] = {}

    def refresh(self, connection: sa.Connection) -> Changes:
        """Bring :attr:`rows` up to date with a transaction; what was different.

        :raises DBError: the database does not answer; the rows are as before.
        """
        if connection.dialect.name != 'mysql':
            return self._replace({0: self._read(connection, self._select)}, {0})
        digests = {row.bucket: row.digest for row in connection.execute(self._digests)}
        stale = {at for at, digest in digests.items() if self._digest_of.get(at) != digest}
        gone = self._buckets.keys() - digests.keys()
        read = self._read_buckets(connection, stale) if stale else {}
        changes = self._replace(read, stale | gone)
        for number in gone:
            del self._digest_of[number]
        for number in stale:
            self._digest_of[number] = _digest(self._buckets.get(number, {}))
        return changes

    def _read_buckets(
        self, connection: sa.Connection, numbers: Collection[int]
    ) -> dict[int, dict[int, Row]]:
        select = self._select
        if len(numbers) < MANY:
            first = [number * BUCKET for number in sorted(numbers)]
            ids = self.base.table(self.name).c.id
            select = select.where(sa.or_(*(ids.between(at, at + BUCKET - 1) for at in first)))
        buckets: dict[int, dict[int, Row]] = {}
        for key, row in self._read(connection, select).items():
            if key // BUCKET in numbers:
                buckets.setdefault(key // BUCKET, {})[key] = row
        return buckets

    @staticmethod
    def _read(connection: sa.Connection, select: sa.Select[Any]) -> dict[int, Row]:
        return {row.id: row for row in connection.execute(select)}

    def _replace(self, read: Mapping[int, dict[int, Row]], stale: Collection[int]) -> Changes:
        """Put what was read in the place of the buckets that are stale."""
        changes: dict[int, Row | None] = {}
        for number in stale:
            before, after = self._buckets.pop(number, {}), read.get(number, {})
            changes.update(dict.fromkeys(before.keys() - after.keys()))
            for key, row in after.items():
                if before.get(key) == row:
                    after[key] = before[key]
                else:
                    changes[key] = row
            if after:
                self._buckets[number] = after
        for key, new in changes.items():
            if new is None:
                del self.rows[key]
            else:
                self.rows[key] = new
        return changes

    @functools.cached_property
    def _select(self) -> sa.Select[Any]:
        """All rows; where there are digests, each with its own in the last column, so that
        what is kept of a bucket is the digest of the very rows that were read."""
        statement = self.base.select(self.name, self.columns, **self.equal)
        if self.base.engine.dialect.name == 'mysql':
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


def _digest(rows: Mapping[int, Row]) -> int:
    return functools.reduce(operator.xor, (row.digest for row in rows.values()), 0)
