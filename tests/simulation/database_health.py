# SPDX-License-Identifier: Apache-2.0
"""The databases of a simulation: SQLite files, whose queries take time, hang and fail."""

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from oslo_db import exception as db_exc
from oslo_db.sqlalchemy import engines

from tests.simulation.loop import WORLD, Loop
from tests.simulation.replicas import Replicas

QUERY_S = 0.002
"""The mean seconds of a query."""
READ_TIMEOUT_S = 60.0
"""Seconds after which the driver gives up a query."""
LOOK_S = 0.5
"""Seconds between looks whether a database answers again."""


class KeptConnections(sa.QueuePool):
    """A pool without a limit."""

    def __init__(self, creator: Any, pool_size: int = 0, **options: Any) -> None:
        super().__init__(creator, pool_size, **options)


@dataclass
class DatabaseHealth:
    """The state of the databases, which are named as their files.

    :ivar down: databases that refuse queries.
    :ivar hung: databases that answer no query.
    :ivar replicas: the databases from which the processes read.
    """

    loop: Loop
    down: set[str] = field(default_factory=set)
    hung: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.replicas = Replicas(self.loop)

    def watch(self) -> None:
        """Let all queries of processes wait, and fail, from now on. The world itself
        reaches the databases at once."""
        sa.event.listen(sa.Engine, 'before_cursor_execute', self._before)
        sa.event.listen(sa.Engine, 'do_connect', self.replicas.connect)
        # oslo.db opens a SQLite file anew for each transaction, and with that takes a
        # third of the time of a day.
        engines.pool.NullPool = KeptConnections

    def _before(self, connection: sa.Connection, *_: Any) -> None:
        """:raises DBConnectionError: the database does not answer."""
        loop = self.loop
        loop.check_alive()
        if loop.owner == WORLD:
            return

        name = _name_of(str(connection.engine.url.database))
        loop.sleep(loop.random.expovariate(1 / QUERY_S))
        gives_up = loop.now + READ_TIMEOUT_S
        while name in self.hung and loop.now < gives_up:
            loop.sleep(LOOK_S)
        if name in self.down or name in self.hung:
            raise db_exc.DBConnectionError()
        self.replicas.catch_up(name)


@cache
def _name_of(path: str) -> str:
    """The name of the database in a file."""
    return Path(path).stem
