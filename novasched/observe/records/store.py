# SPDX-License-Identifier: Apache-2.0
"""The file of decision records: SQLite, written by every worker and read by the
command."""

import contextlib
import errno
import fcntl
import logging
import os
import sqlite3
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import msgspec

from novasched.conf.errors import NovaschedError
from novasched.observe.records.record import (
    MAX_REJECTIONS_KEPT,
    Record,
    Rejections,
    from_json,
    packed,
    rejections_from_json,
    unpacked,
)

LOG = logging.getLogger(__name__)

VERSION = 1
FILE_LOCK_TIMEOUT_S = 5.0
"""Seconds for which one writer waits for another."""

CLEANUP_INTERVAL = 100
"""Records from one removal of old ones to the next."""

MIB = 2**20
REMOVED_PART = 10
"""Of the records a tenth, the oldest, goes when the file is as large as it may be."""
MAX_REJECTIONS_SIZE = MIB
"""Bytes, compressed, of the reasons against each host that are kept of one decision.
Among 5,000 hosts they take 20 KiB."""
SHRINK_FROM = 1.1
"""A file is made smaller when it is opened, if its size exceeds ``decisions_size`` by
this factor. A full file is a little larger than the option says."""
FOLDER_MODE = 0o750
JOURNALS = '-wal', '-shm'
"""Suffixes of the files that SQLite keeps beside a database."""

OWNER = stat.S_IRUSR | stat.S_IWUSR
LINK = 'this is a symbolic link, which is not followed'

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


class UnreadableRecords(NovaschedError):
    """For the operator: there is no file of decision records, or it is damaged."""


class RecordWriter:
    """Writes records; one thread of a process does.

    :param stored: records at the most.
    :param size: MiB of the file at the most; the journal beside it takes a few more.
    """

    def __init__(self, path: str, stored: int, size: int) -> None:
        self.path = path
        self.stored = stored
        self.size = size
        self._connection: sqlite3.Connection | None = None
        self._file: os.stat_result | None = None

    def write(
        self,
        record: Record,
        rejections: Rejections | None = None,
        text: bytes | None = None,
    ) -> None:
        """Keep a record, in place of an earlier form of it.

        :param text: the packed record, if the caller has it.
        :raises sqlite3.Error: it cannot be kept.
        :raises OSError: nor can the file be made.
        """
        connection = self.open()
        try:
            with connection:
                self._write(connection, record, rejections, text or packed(record))
        except sqlite3.Error:
            self.close()
            raise

    def close(self) -> None:
        """Close the file; the next write opens it again."""
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
        why = packed(rejections) if rejections else None
        if why is not None and len(why) > MAX_REJECTIONS_SIZE:
            why = None
        done = connection.execute(
            'update decisions set record = ?, causes = coalesce(?, causes) where'
            ' id = ?',
            (text, why, record.id),
        )
        if done.rowcount:
            return
        inserted = connection.execute(
            'insert into decisions (id, request_id, global_request_id, record, causes) '
            'values (?, ?, ?, ?, ?)',
            (record.id, record.request_id, record.global_request_id, text, why),
        )
        number = inserted.lastrowid or 0
        connection.executemany(
            'insert into servers values (?, ?)',
            [(uuid, number) for uuid in record.asked.servers],
        )
        connection.execute(
            'update decisions set causes = null where number = ?',
            (number - MAX_REJECTIONS_KEPT,),
        )
        if number % CLEANUP_INTERVAL == 0:
            for table in ('decisions', 'servers'):
                connection.execute(
                    f'delete from {table} where number <= ?', (number - self.stored,)
                )
        self._make_room(connection, number)

    def _make_room(self, connection: sqlite3.Connection, newest: int) -> None:
        """Remove the oldest records while the file is too large, but for the newest
        one. What they leave is used again, so that the file does not grow."""
        while _used(connection) > self.size * MIB:
            (oldest,) = connection.execute(
                'select min(number) from decisions'
            ).fetchone()
            if oldest == newest:
                return
            last = min(oldest + (newest - oldest) // REMOVED_PART, newest - 1)
            for table in ('decisions', 'servers'):
                connection.execute(f'delete from {table} where number <= ?', (last,))

    def open(self) -> sqlite3.Connection:
        """The file, made if there is none, with the folder that it is in.

        :raises sqlite3.Error: it cannot be written.
        :raises OSError: nor made.
        :raises UnreadableRecords: it is not one of ours.
        """
        if self._connection is not None:
            if self._is_in_place():
                return self._connection
            LOG.info(
                '%s was deleted or moved; decision records go to a new file',
                self.path,
            )
            # Records that only the journal has are written to the file that was moved.
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
            _check_version(connection, self.path, empty=True)
            connection.executescript(SCHEMA)
            self._shrink(connection)
        except (sqlite3.Error, OSError, UnreadableRecords):
            connection.close()
            raise
        self._connection = connection
        self._file = created
        return connection

    def _is_in_place(self) -> bool:
        """True if the path leads to the open file. SQLite keeps writing to a file that
        was deleted."""
        try:
            found = os.lstat(self.path)
        except OSError:
            return False
        return self._file is not None and os.path.samestat(self._file, found)

    def _shrink(self, connection: sqlite3.Connection) -> None:
        """Give room back to the file system after ``decisions_size`` was lowered. If
        another process writes meanwhile, the file stays as it is until a later
        start."""
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
    """Reads the records in a file.

    :raises UnreadableRecords: there is no such file, or it cannot be read.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        _check_file(path)
        with self._errors():
            self._connection = sqlite3.connect(
                f'{Path(path).absolute().as_uri()}?mode=ro',
                uri=True,
                timeout=FILE_LOCK_TIMEOUT_S,
            )
            _check_version(self._connection, path)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def of(self, name: str, limit: int = -1, offset: int = 0) -> list[Record]:
        """The decisions on an instance or of a request, by UUID or request id, or that
        of its own id, newest first. For SQLite, -1 is no limit."""
        select = (
            'select record from decisions where request_id = :name or global_request_id'
            ' = :name or id = :name or number in (select number from servers where uuid'
            ' = :name) order by number desc limit :limit offset :offset'
        )
        return self._records(select, name=name, limit=limit, offset=offset)

    def newest(self, limit: int = -1, offset: int = 0) -> list[Record]:
        """The newest decisions, by default all, the newest first."""
        select = (
            'select record from decisions order by number desc limit :limit offset'
            ' :offset'
        )
        return self._records(select, limit=limit, offset=offset)

    def by_id(self, id: str) -> Record | None:
        found = self._records('select record from decisions where id = :id', id=id)
        if found:
            return found[0]
        return None

    def count(self) -> int:
        """The number of decisions; their numbers have no gaps."""
        with self._errors():
            select = 'select coalesce(max(number) - min(number) + 1, 0) from decisions'
            return int(self._connection.execute(select).fetchone()[0])

    def choosing(self, host: str, limit: int, among: int) -> list[Record]:
        """The newest decisions that chose a host, with limits for those returned and
        those read."""
        select = 'select record from decisions order by number desc limit :among'
        named = msgspec.json.encode(host)
        with self._errors():
            rows = self._connection.execute(select, {'among': among})
            texts = (unpacked(text) for (text,) in rows)
            records = (from_json(text) for text in texts if named in text)
            return [
                *islice((each for each in records if host in each.result.hosts), limit)
            ]

    def rejections(self, record: Record) -> Rejections | None:
        """The reasons against each host; None if they are not kept any more."""
        with self._errors():
            found = self._connection.execute(
                'select causes from decisions where id = ?', (record.id,)
            ).fetchone()
            if found and found[0]:
                return rejections_from_json(unpacked(found[0]))
            return None

    def _records(self, select: str, **values: str | int) -> list[Record]:
        with self._errors():
            rows = self._connection.execute(select, values)
            return [from_json(unpacked(text)) for (text,) in rows]

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise UnreadableRecords(f'{self.path}: cannot be read: {error}') from None
        except (sqlite3.DatabaseError, ValueError) as error:
            why = f'damaged, or no file of decision records: {error}'
            raise UnreadableRecords(f'{self.path}: {why}') from None


def _size(connection: sqlite3.Connection) -> int:
    """Bytes of the file."""
    return _pragma(connection, 'page_count') * _pragma(connection, 'page_size')


def _used(connection: sqlite3.Connection) -> int:
    """Bytes of the file that are in use."""
    free = _pragma(connection, 'freelist_count') * _pragma(connection, 'page_size')
    return _size(connection) - free


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f'pragma {name}').fetchone()[0])


@contextlib.contextmanager
def _locked_folder(path: str) -> Iterator[None]:
    """Let one process at a time make the file, since the process that makes the file
    removes the journals of an earlier file. Without locks in the file system, processes
    do not wait for each other."""
    folder = os.open(Path(path).parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _create(path: str) -> os.stat_result:
    """Make the file if there is none, and see that nobody but its owner can write it,
    and nobody but the owner and a group that the operator lets can read it. Its
    journals get the same permissions.

    :raises UnreadableRecords: it is a symbolic link, or no file.
    :raises OSError: it cannot be made, or belongs to somebody else.
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
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            raise UnreadableRecords(f'{path}: this is no file')
        mode = stat.S_IMODE(found.st_mode)
        wanted = mode & (OWNER | stat.S_IRGRP) | OWNER
        if mode != wanted:
            os.fchmod(file, wanted)
    finally:
        os.close(file)
    return found


def _check_file(path: str) -> None:
    """See that there is a file with something in it.

    :raises UnreadableRecords: there is none.
    """
    nothing = 'no decision has been recorded there'
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        raise UnreadableRecords(f'{path}: there is no such file; {nothing}') from None
    except OSError as error:
        raise UnreadableRecords(f'{path}: cannot be read: {error.strerror}') from None
    if stat.S_ISLNK(found.st_mode):
        raise UnreadableRecords(f'{path}: {LINK}')
    if not stat.S_ISREG(found.st_mode):
        raise UnreadableRecords(f'{path}: this is no file')
    if not found.st_size:
        raise UnreadableRecords(f'{path}: the file is empty; {nothing}')


def _check_version(
    connection: sqlite3.Connection, path: str, empty: bool = False
) -> None:
    """See that the file is of this release's form.

    :raises UnreadableRecords: it is of another one.
    """
    (version,) = connection.execute('pragma user_version').fetchone()
    if version != VERSION and not (empty and version == 0):
        which = f'of form {version}, and this release reads form {VERSION}'
        raise UnreadableRecords(
            f'{path}: no file of decision records, or of another release: {which}'
        )
