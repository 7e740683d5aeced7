# SPDX-License-Identifier: Apache-2.0
"""The file of decision records: SQLite, written by every worker and read by the command."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import msgspec

from novasched.errors import NovaschedError
from novasched.records.causes import DETAILED, Causes
from novasched.records.causes import from_json as causes_from_json
from novasched.records.record import Record, from_json, to_json

VERSION = 1
PATIENCE = 5.0
"""Seconds for which one writer waits for another."""

ALL = -1
"""However many there are, to SQLite."""

SLACK = 100
"""Old records are removed when there are so many too many."""

SCHEMA = f"""
begin immediate;
create table if not exists decisions (
    number integer primary key, id text unique not null, request_id text,
    global_request_id text, record text not null, causes text);
create table if not exists servers (uuid text not null, number integer not null);
create index if not exists servers_uuid on servers (uuid);
create index if not exists servers_number on servers (number);
create index if not exists decisions_request_id on decisions (request_id);
create index if not exists decisions_global_request_id on decisions (global_request_id);
pragma user_version = {VERSION};
commit;
"""


class Unreadable(NovaschedError):
    """For the operator: there is no file of decision records, or it is damaged."""


class Store:
    """Writes records; one thread of a process does."""

    def __init__(self, path: str, stored: int) -> None:
        self.path, self.stored = path, stored
        self._connection: sqlite3.Connection | None = None

    def write(self, record: Record, causes: Causes | None = None) -> None:
        """Keep a record, in place of an earlier form of it.

        :raises sqlite3.Error: it cannot be kept.
        :raises OSError: nor can the file be made.
        """
        connection = self._connection or self._open()
        try:
            with connection:
                self._write(connection, record, causes)
        except sqlite3.Error:
            self.close()
            raise

    def close(self) -> None:
        """Close the file; the next write opens it again."""
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

    def _write(self, connection: sqlite3.Connection, record: Record, causes: Causes | None) -> None:
        text = to_json(record).decode()
        done = connection.execute('update decisions set record = ? where id = ?', (text, record.id))
        if done.rowcount:
            return
        number = (
            connection.execute(
                'insert into decisions (id, request_id, global_request_id, record, causes) '
                'values (?, ?, ?, ?, ?)',
                (
                    record.id,
                    record.request_id,
                    record.global_request_id,
                    text,
                    None if causes is None else msgspec.json.encode(causes).decode(),
                ),
            ).lastrowid
            or 0
        )
        connection.executemany(
            'insert into servers values (?, ?)', [(uuid, number) for uuid in record.asked.servers]
        )
        connection.execute(
            'update decisions set causes = null where number = ?', (number - DETAILED,)
        )
        if number % SLACK == 0:
            for table in ('decisions', 'servers'):
                connection.execute(
                    f'delete from {table} where number <= ?', (number - self.stored,)
                )

    def _open(self) -> sqlite3.Connection:
        # Its journals get the same permissions.
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        connection = sqlite3.connect(self.path, timeout=PATIENCE, check_same_thread=False)
        try:
            connection.execute('pragma journal_mode = wal')
            connection.execute('pragma synchronous = normal')
            _check(connection, self.path, empty=True)
            connection.executescript(SCHEMA)
        except (sqlite3.Error, Unreadable):
            connection.close()
            raise
        self._connection = connection
        return connection


class Archive:
    """Reads the records in a file.

    :raises Unreadable: there is no such file, or it cannot be read.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        _look_at(path)
        with self._reading():
            self._connection = sqlite3.connect(
                f'{Path(path).absolute().as_uri()}?mode=ro', uri=True, timeout=PATIENCE
            )
            _check(self._connection, path)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def of(self, name: str, most: int = ALL, skipped: int = 0) -> list[Record]:
        """The decisions on a server or of a request, by UUID or request id, or that of its
        own id, newest first."""
        return self._records(
            'select record from decisions where request_id = :name or global_request_id = :name '
            'or id = :name or number in (select number from servers where uuid = :name) '
            'order by number desc limit :most offset :skipped',
            {'name': name, 'most': most, 'skipped': skipped},
        )

    def last(self) -> list[Record]:
        """The newest decision, if there is any."""
        return self.newest(1)

    def newest(self, most: int, skipped: int = 0) -> list[Record]:
        """So many of the newest decisions, without those that are newer still."""
        return self._records(
            'select record from decisions order by number desc limit :most offset :skipped',
            {'most': most, 'skipped': skipped},
        )

    def count(self) -> int:
        """How many decisions there are; their numbers have no gaps."""
        with self._reading():
            select = 'select coalesce(max(number) - min(number) + 1, 0) from decisions'
            return int(self._connection.execute(select).fetchone()[0])

    def by_id(self, id: str) -> Record | None:
        """One decision."""
        found = self._records('select record from decisions where id = :id', {'id': id})
        return found[0] if found else None

    def choosing(self, host: str, most: int, among: int) -> list[Record]:
        """So many of the newest decisions that chose a host, out of so many decisions."""
        select = (
            'select record from decisions where instr(record, :host) and number > '
            '(select max(number) from decisions) - :among order by number desc'
        )
        named = msgspec.json.encode(host).decode()
        with self._reading():
            rows = self._connection.execute(select, {'host': named, 'among': among})
            found = (record for (text,) in rows if host in (record := from_json(text)).result.hosts)
            return [*islice(found, most)]

    def all(self) -> list[Record]:
        """Every decision, the oldest first."""
        return self._records('select record from decisions order by number', {})

    def causes(self, record: Record) -> Causes | None:
        """Why not, host by host; None if that is not kept any more."""
        with self._reading():
            found = self._connection.execute(
                'select causes from decisions where id = ?', (record.id,)
            ).fetchone()
            return causes_from_json(found[0]) if found and found[0] else None

    def _records(self, select: str, values: dict[str, str | int]) -> list[Record]:
        with self._reading():
            return [from_json(text) for (text,) in self._connection.execute(select, values)]

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise Unreadable(f'{self.path}: cannot be read: {error}') from None
        except (sqlite3.DatabaseError, ValueError) as error:
            why = f'damaged, or no file of decision records: {error}'
            raise Unreadable(f'{self.path}: {why}') from None


def _look_at(path: str) -> None:
    """See that there is a file with something in it.

    :raises Unreadable: there is none.
    """
    nothing = 'no decision has been recorded there'
    try:
        found = os.stat(path)
    except FileNotFoundError:
        raise Unreadable(f'{path}: there is no such file; {nothing}') from None
    except OSError as error:
        raise Unreadable(f'{path}: cannot be read: {error.strerror}') from None
    if not stat.S_ISREG(found.st_mode):
        raise Unreadable(f'{path}: this is no file')
    if not found.st_size:
        raise Unreadable(f'{path}: the file is empty; {nothing}')


def _check(connection: sqlite3.Connection, path: str, empty: bool = False) -> None:
    """See that the file is of this release's form.

    :raises Unreadable: it is of another one.
    """
    (version,) = connection.execute('pragma user_version').fetchone()
    if version != VERSION and not (empty and version == 0):
        which = f'of form {version}, and this release reads form {VERSION}'
        raise Unreadable(f'{path}: no file of decision records, or of another release: {which}')
