# SPDX-License-Identifier: Apache-2.0
"""What a scheduler takes of the machine: its memory, and its queries to the databases."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil
import sqlalchemy as sa

SHOWN = 100  # characters of a statement
_NOT_ASKED = ('Connect', 'Quit')


def resident(leader: int) -> int:
    """The resident memory in bytes of a process and its descendants; what they share with each
    other counts once (Linux)."""
    found = 0
    main = psutil.Process(leader)
    for process in (main, *main.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # it has ended meanwhile
            found += process.memory_full_info().pss
    return found


class QueryLog:
    """The statements that the database server gets, but for those of Placement.

    :param placement: the URL of Placement's database.
    """

    def __init__(self, placement: str) -> None:
        url = sa.make_url(placement)
        self._engine = sa.create_engine(url.set(database=''), isolation_level='AUTOCOMMIT')
        self._placement = url.database

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
