# SPDX-License-Identifier: Apache-2.0
"""The databases of a simulation: SQLite files, whose queries take time, hang and fail."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from oslo_db import exception as db_exc

from tests.simulation.loop import WORLD, Loop

QUERY_S = 0.002
"""The mean seconds of a query."""
READ_TIMEOUT_S = 60.0
"""Seconds after which the driver gives up a query."""
LOOK_S = 0.5
"""Seconds between looks whether a database answers again."""


@dataclass
class DatabaseHealth:
    """The state of the databases, which are named as their files.

    :ivar down: databases that refuse queries.
    :ivar hung: databases that answer no query.
    """

    loop: Loop
    down: set[str] = field(default_factory=set)
    hung: set[str] = field(default_factory=set)

    def watch(self) -> None:
        """Let all queries of processes wait, and fail, from now on. The world itself
        reaches the databases at once."""
        sa.event.listen(sa.Engine, 'before_cursor_execute', self._before)

    def _before(self, connection: sa.Connection, *_: Any) -> None:
        """:raises DBConnectionError: the database does not answer."""
        loop = self.loop
        loop.check_alive()
        if loop.owner == WORLD:
            return

        name = Path(str(connection.engine.url.database)).stem
        loop.sleep(loop.random.expovariate(1 / QUERY_S))
        gives_up = loop.now + READ_TIMEOUT_S
        while name in self.hung and loop.now < gives_up:
            loop.sleep(LOOK_S)
        if name in self.down or name in self.hung:
            raise db_exc.DBConnectionError()
