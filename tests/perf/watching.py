# SPDX-License-Identifier: Apache-2.0
"""What a scheduler takes of the machine: its memory, and its queries to the databases."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa

_PSS = re.compile(r'^Pss:\s+(\d+) kB', re.MULTILINE)
SHOWN = 100  # characters of a statement
_NOT_ASKED = ('Connect', 'Quit')


def resident(leader: int) -> int:
    """The resident memory in bytes of a process and all others of its session; what
    they share with each other counts once (Linux)."""
    return sum(map(_pss, _session(leader)))


def _session(leader: int) -> Iterator[Path]:
    for directory in Path('/proc').glob('[0-9]*'):
        try:
            # After the command's name, in brackets: state, parent, group, session.
            fields = (directory / 'stat').read_text().rpartition(')')[2].split()
        except OSError:
            continue  # it has ended meanwhile
        if int(fields[3]) == leader:
            yield directory


def _pss(process: Path) -> int:
    try:
        found = _PSS.search((process / 'smaps_rollup').read_text())
    except OSError:
        return 0
    return int(found[1]) * 1024 if found else 0


class QueryLog:
    """The statements that the database server gets, but for those of Placement."""

    def __init__(self, engine: sa.Engine, placement: str) -> None:
        self._engine = engine
        self._placement = placement

    @contextmanager
    def watch(self) -> Iterator[list[str]]:
        """Fill the list, at the end of the block, with what was asked in it."""
        asked: list[str] = []
        with self._engine.connect() as connection:
            own = connection.exec_driver_sql('SELECT CONNECTION_ID()').scalar_one()
            connection.exec_driver_sql("SET GLOBAL log_output = 'TABLE'")
            connection.exec_driver_sql('TRUNCATE mysql.general_log')
            connection.exec_driver_sql('SET GLOBAL general_log = ON')
            try:
                yield asked
            finally:
                connection.exec_driver_sql('SET GLOBAL general_log = OFF')
            others = {own, *self._threads(connection)}
            rows = connection.exec_driver_sql(
                'SELECT thread_id, command_type, argument FROM mysql.general_log'
            )
            asked.extend(
                ' '.join(argument.split())[:SHOWN] or command
                for thread, command, argument in rows
                if thread not in others and command not in _NOT_ASKED
            )

    def _threads(self, connection: sa.Connection) -> list[int]:
        rows = connection.exec_driver_sql(
            'SELECT id FROM information_schema.processlist WHERE db = %s', (self._placement,)
        )
        return list(rows.scalars())
