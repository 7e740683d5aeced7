# SPDX-License-Identifier: Apache-2.0
"""The file of decision records, a SQLite database. Every worker writes the file;
``novaschedctl`` and the page read the file."""

import contextlib
import errno
import fcntl
import logging
import os
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec

from novasched.conf.errors import NovaschedError
from novasched.observe.records.record import (
    MAX_REJECTIONS_KEPT,
    Record,
    Rejections,
    from_json,
    packed,
    packed_rejections,
    rejections_from_json,
    unpacked,
)

LOG = logging.getLogger(__name__)

VERSION = 2
"""Version of the schema and of the JSON in the file (``pragma user_version``)."""

FILE_LOCK_TIMEOUT_S = 5.0
"""Seconds that a writer waits for another writer."""

CLEANUP_INTERVAL = 100
"""Number of records between two removals of old records."""

MIB = 2**20

REMOVED_PART = 10
"""A file of the maximum size loses a tenth of the records, the oldest."""

MAX_REJECTIONS_SIZE = MIB
"""Bytes, compressed, of the reasons against single hosts that are kept for a decision.
The reasons for 5,000 hosts take 20 KiB."""

SHRINK_FROM = 1.1
"""A file that is larger than ``decisions_size`` by this factor is shrunk when a worker
opens the file. A full file is slightly larger than the option says."""

FOLDER_MODE = 0o750
JOURNALS = '-wal', '-shm'
"""Suffixes of the files that SQLite keeps beside a database."""

OWNER = stat.S_IRUSR | stat.S_IWUSR
LINK = 'this is a symbolic link, which is not followed'
DAMAGE = ValueError, RecursionError
"""Errors of a record that cannot be decoded. A release before this one may have written
such a record."""

SCHEMA = f"""
begin immediate;
create table if not exists decisions (
    number integer primary key, id text unique not null, request_id text,
    global_request_id text, record blob not null, rejections blob);
create table if not exists instances (uuid text not null, number integer not null);
create index if not exists instances_uuid on instances (uuid);
create index if not exists instances_number on instances (number);
create index if not exists decisions_request_id on decisions (request_id);
create index if not exists decisions_global_request_id on decisions (global_request_id);
pragma user_version = {VERSION};
commit;
"""


class UnreadableRecords(NovaschedError):
    """For the operator: the file of decision records is missing or damaged."""


class RecordWriter:
    """Writes records. One thread of a process uses a writer.

    :param stored: largest number of records (``[novasched] decisions_stored``).
    :param size: largest size of the file in MiB (``[novasched] decisions_size``). The
        journal takes a few MiB more.
    """

    def __init__(self, path: str, stored: int, size: int) -> None:
        self.path = path
        self.stored = stored
        self.size = size
        self._connection: sqlite3.Connection | None = None
        self._opened: os.stat_result | None = None

    def write(
        self,
        record: Record,
        rejections: Rejections | None = None,
        text: bytes | None = None,
    ) -> None:
        """Write a record, in place of an earlier version of the record.

        :param text: the packed record, if the caller has packed the record before.
        :raises sqlite3.Error: the record cannot be written.
        :raises OSError: the file cannot be created.
        :raises UnreadableRecords: the file does not hold decision records.
        """
        connection = self.open()
        try:
            with connection:
                self._write(connection, record, rejections, text or packed(record))
        except sqlite3.Error:
            self.close()
            raise

    def close(self) -> None:
        """Close the file. The next write opens the file again."""
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

    def _write(
        self,
        connection: sqlite3.Connection,
        record: Record,
        rejections: Rejections | None,
        text: bytes,
    ) -> None:
        reasons: bytes | None = None
        if rejections is not None:
            reasons = packed_rejections(rejections)
            if len(reasons) > MAX_REJECTIONS_SIZE:
                reasons = None

        # A record is written a second time when its diagnosis is there.
        updated = connection.execute(
            'update decisions set record = ?, rejections = coalesce(?, rejections)'
            ' where id = ?',
            (text, reasons, record.id),
        )
        if updated.rowcount:
            return

        inserted = connection.execute(
            'insert into decisions'
            ' (id, request_id, global_request_id, record, rejections)'
            ' values (?, ?, ?, ?, ?)',
            (record.id, record.request_id, record.global_request_id, text, reasons),
        )
        number = inserted.lastrowid or 0
        connection.executemany(
            'insert into instances values (?, ?)',
            [(uuid, number) for uuid in record.request.instance_uuids or ()],
        )

        connection.execute(
            'update decisions set rejections = null where number = ?',
            (number - MAX_REJECTIONS_KEPT,),
        )
        if number % CLEANUP_INTERVAL == 0:
            _delete_up_to(connection, number - self.stored)
        self._make_room(connection, number)

    def _make_room(self, connection: sqlite3.Connection, newest: int) -> None:
        """Remove the oldest records until the file is small enough, and keep at least
        the newest record. SQLite uses the pages again, so the file does not grow."""
        while _used(connection) > self.size * MIB:
            (oldest,) = connection.execute(
                'select min(number) from decisions'
            ).fetchone()
            if oldest == newest:
                return
            last = oldest + (newest - oldest) // REMOVED_PART
            _delete_up_to(connection, min(last, newest - 1))

    def open(self) -> sqlite3.Connection:
        """Open the file. A missing file is created, and its folder.

        :raises sqlite3.Error: the file cannot be written.
        :raises OSError: the file cannot be created.
        :raises UnreadableRecords: the file does not hold decision records.
        """
        if self._connection is not None:
            if self._is_in_place():
                return self._connection
            LOG.info(
                '%s was deleted or moved; decision records go to a new file',
                self.path,
            )
            # The moved file gets the records that are in the journal alone.
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute('pragma wal_checkpoint')
            self.close()

        with contextlib.suppress(FileExistsError):
            Path(self.path).parent.mkdir(FOLDER_MODE)
        with _locked_folder(self.path):
            created = _create(self.path)
        connection = sqlite3.connect(
            self.path, timeout=FILE_LOCK_TIMEOUT_S, check_same_thread=False
        )
        try:
            if not os.path.samestat(created, os.lstat(self.path)):
                raise UnreadableRecords(
                    f'{self.path}: somebody has put another file in its place'
                )
            connection.execute('pragma journal_mode = wal')
            connection.execute('pragma synchronous = normal')
            _check_version(connection, self.path, may_be_empty=True)
            connection.executescript(SCHEMA)
            self._shrink(connection)
        except (sqlite3.Error, OSError, UnreadableRecords):
            connection.close()
            raise
        self._connection = connection
        self._opened = created
        return connection

    def _is_in_place(self) -> bool:
        """True if the path leads to the open file. SQLite would go on writing to a
        deleted file."""
        try:
            current = os.lstat(self.path)
        except OSError:
            return False
        return self._opened is not None and os.path.samestat(self._opened, current)

    def _shrink(self, connection: sqlite3.Connection) -> None:
        """Return space to the file system after ``decisions_size`` was lowered. If
        another process writes at the same time, a later start shrinks the file."""
        if _size(connection) <= SHRINK_FROM * self.size * MIB:
            return

        try:
            with connection:
                select = 'select max(number) from decisions'
                (newest,) = connection.execute(select).fetchone()
                if newest is not None:
                    self._make_room(connection, newest)
            connection.execute('vacuum')
            connection.execute('pragma wal_checkpoint(truncate)')
        except sqlite3.OperationalError as error:
            LOG.info('%s stays larger than decisions_size: %s', self.path, error)


class RecordReader:
    """Reads the records in a file. A damaged record is skipped and counted.

    :ivar skipped: the number of damaged records until now.
    :raises UnreadableRecords: the file is missing, or cannot be read.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.skipped = 0
        _check_file(path)
        with self._errors():
            self._connection = sqlite3.connect(
                f'{Path(path).absolute().as_uri()}?mode=ro',
                uri=True,
                timeout=FILE_LOCK_TIMEOUT_S,
            )
            _check_version(self._connection, path)

    def close(self) -> None:
        self._connection.close()

    def of(self, name: str, limit: int = -1, offset: int = 0) -> list[Record]:
        """The decisions with a name, newest first.

        :param name: UUID of an instance, id of a request, or id of a decision.
        :param limit: -1 for SQLite's "no limit".
        """
        select = (
            'select record from decisions'
            ' where request_id = :name or global_request_id = :name or id = :name'
            ' or number in (select number from instances where uuid = :name)'
            ' order by number desc limit :limit offset :offset'
        )
        return list(self._records(select, name=name, limit=limit, offset=offset))

    def newest(self, limit: int = -1, offset: int = 0) -> list[Record]:
        """The newest decisions, by default all decisions, newest first."""
        select = (
            'select record from decisions'
            ' order by number desc limit :limit offset :offset'
        )
        return list(self._records(select, limit=limit, offset=offset))

    def by_id(self, id: str) -> Record | None:
        select = 'select record from decisions where id = :id'
        return next(self._records(select, id=id), None)

    def count(self) -> int:
        """The number of decisions. The numbers in the file have no gaps."""
        with self._errors():
            select = 'select coalesce(max(number) - min(number) + 1, 0) from decisions'
            return int(self._connection.execute(select).fetchone()[0])

    def choosing(self, host: str, limit: int, among: int) -> list[Record]:
        """The newest decisions that chose a host.

        :param limit: largest number of decisions returned.
        :param among: number of newest decisions that are searched.
        """
        select = 'select record from decisions order by number desc limit :among'
        # Most records do not name the host, and are not decoded.
        quoted = msgspec.json.encode(host)
        records: list[Record] = []
        for record in self._records(select, quoted, among=among):
            if host in record.result.hosts:
                records.append(record)
            if len(records) == limit:
                break
        return records

    def rejections(self, record: Record) -> Rejections | None:
        """The reasons against single hosts; None if they were deleted, not written or
        damaged."""
        with self._errors():
            row = self._connection.execute(
                'select rejections from decisions where id = ?', (record.id,)
            ).fetchone()
        if not row or not row[0]:
            return None
        try:
            return rejections_from_json(unpacked(row[0]))
        except DAMAGE:
            self.skipped += 1
            return None

    @property
    def damage(self) -> str:
        """The number of skipped records in words; empty if none was skipped."""
        if not self.skipped:
            return ''
        if self.skipped == 1:
            return 'a damaged decision record was skipped'
        return f'{self.skipped:,} damaged decision records were skipped'

    def _records(
        self, select: str, part: bytes = b'', **values: str | int
    ) -> Iterator[Record]:
        """The records of a query.

        :param part: records without these bytes in their JSON are left out.
        """
        with self._errors():
            for (packed_text,) in self._connection.execute(select, values):
                try:
                    text = unpacked(packed_text)
                    if part not in text:
                        continue
                    record = from_json(text)
                except DAMAGE:
                    self.skipped += 1
                    continue
                yield record

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn errors of SQLite into :exc:`UnreadableRecords`."""
        try:
            yield
        except sqlite3.OperationalError as error:
            raise UnreadableRecords(f'{self.path}: cannot be read: {error}') from None
        except sqlite3.DatabaseError as error:
            why = f'damaged, or no file of decision records: {error}'
            raise UnreadableRecords(f'{self.path}: {why}') from None


def _delete_up_to(connection: sqlite3.Connection, number: int) -> None:
    """Delete the decisions up to a number."""
    for table in ('decisions', 'instances'):
        connection.execute(f'delete from {table} where number <= ?', (number,))


def _size(connection: sqlite3.Connection) -> int:
    """Size of the file in bytes."""
    return _pragma(connection, 'page_count') * _pragma(connection, 'page_size')


def _used(connection: sqlite3.Connection) -> int:
    """Size of the pages in use, in bytes."""
    free = _pragma(connection, 'freelist_count') * _pragma(connection, 'page_size')
    return _size(connection) - free


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f'pragma {name}').fetchone()[0])


@contextlib.contextmanager
def _locked_folder(path: str) -> Iterator[None]:
    """Lock the folder while the file is created.

    The creator removes the journals of a deleted file, and must not remove the journals
    of a file that another worker has just created. In a file system without locks,
    workers do not wait for each other.
    """
    folder = os.open(Path(path).parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _create(path: str) -> os.stat_result:
    """Create a missing file, and restrict the permissions of the file: only the owner
    writes, and only the owner and, where the operator lets it, the group read. SQLite
    gives the same permissions to the journals.

    :raises UnreadableRecords: the path leads to a symbolic link, or to no file.
    :raises OSError: the file cannot be created, or belongs to another user.
    """
    try:
        if not os.path.lexists(path):
            # SQLite would apply the journals of a deleted file to the new file.
            for suffix in JOURNALS:
                Path(path + suffix).unlink(missing_ok=True)
        file = os.open(
            path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, OWNER
        )
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UnreadableRecords(f'{path}: {LINK}') from None
        raise

    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise UnreadableRecords(f'{path}: this is no file')
        mode = stat.S_IMODE(status.st_mode)
        restricted = mode & (OWNER | stat.S_IRGRP) | OWNER
        if mode != restricted:
            os.fchmod(file, restricted)
    finally:
        os.close(file)
    return status


def _check_file(path: str) -> None:
    """Check that the path leads to a file that is not empty.

    :raises UnreadableRecords: the path does not.
    """
    nothing = 'no decision has been recorded there'
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        raise UnreadableRecords(f'{path}: there is no such file; {nothing}') from None
    except OSError as error:
        raise UnreadableRecords(f'{path}: cannot be read: {error.strerror}') from None

    if stat.S_ISLNK(status.st_mode):
        raise UnreadableRecords(f'{path}: {LINK}')
    if not stat.S_ISREG(status.st_mode):
        raise UnreadableRecords(f'{path}: this is no file')
    if not status.st_size:
        raise UnreadableRecords(f'{path}: the file is empty; {nothing}')


def _check_version(
    connection: sqlite3.Connection, path: str, may_be_empty: bool = False
) -> None:
    """Check that the file has the schema of this release.

    :param may_be_empty: a file without a schema passes.
    :raises UnreadableRecords: the file has another schema.
    """
    (version,) = connection.execute('pragma user_version').fetchone()
    if version == VERSION or (may_be_empty and version == 0):
        return
    which = f'of form {version}, and this release reads form {VERSION}'
    raise UnreadableRecords(
        f'{path}: no file of decision records, or of another release: {which}'
    )
