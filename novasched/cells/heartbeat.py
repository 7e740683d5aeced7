# SPDX-License-Identifier: Apache-2.0
"""The scheduler's own row in the services table, which shows that it is alive.

The row is in the database of ``[database] connection``; every worker of a host beats
for the same one.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Callable, Sequence
from concurrent import futures
from datetime import datetime

import sqlalchemy as sa
from oslo_db import exception as db_exc

from novasched.cells.mappings import Cell
from novasched.cells.schema import Database
from novasched.errors import DatabaseUnavailable

LOG = logging.getLogger('nova.servicegroup.drivers.db')
BINARY, TOPIC = 'nova-scheduler', 'scheduler'


class Heartbeat:
    """Writes the row; the composition root decides how often."""

    def __init__(
        self,
        own: Database,
        cells: Callable[[], Sequence[Cell]],
        host: str,
        utcnow: Callable[[], datetime],
    ) -> None:
        self.own = own
        self.cells = cells
        self.host = host
        self.utcnow = utcnow
        self._failing = False

    def join(self) -> None:
        """Make the row, or bring the version of an existing one up to date.

        :raises DatabaseUnavailable: the database does not answer.
        """
        version = self._deployment_version()

        def write(connection: sa.Connection) -> None:
            if not self._update(connection, {'version': version} if version else {}):
                connection.execute(sa.insert(self._table).values(self._row(version)))

        with contextlib.suppress(db_exc.DBDuplicateEntry):  # another worker has just made it
            self.own.write(write)

    def beat(self) -> None:
        """Count one up and note the time; a failure is logged once until it is over."""
        try:
            count: dict[str, object] = {'report_count': self._table.c.report_count + 1}
            if not self.own.write(lambda connection: self._update(connection, count)):
                self.join()
        except DatabaseUnavailable as error:
            if not self._failing:
                LOG.error('Unable to update the service record: %s', error)
            self._failing = True
        else:
            if self._failing:
                LOG.info('Recovered from being unable to report status.')
            self._failing = False

    @property
    def _table(self) -> sa.Table:
        return self.own.table('services')

    def _update(self, connection: sa.Connection, values: dict[str, object]) -> bool:
        """Write to the row, if there is one."""
        now = self.utcnow()
        table = self._table
        statement = (
            sa.update(table)
            .where(table.c.host == self.host, table.c.binary == BINARY, table.c.deleted == 0)
            .values(self._known({**values, 'last_seen_up': now, 'updated_at': now}))
        )
        return connection.execute(statement).rowcount > 0

    def _row(self, version: int) -> dict[str, object]:
        now = self.utcnow()
        return self._known(
            {
                'uuid': str(uuid.uuid4()),
                'host': self.host,
                'binary': BINARY,
                'topic': TOPIC,
                'report_count': 0,
                'disabled': False,
                'forced_down': False,
                'version': version,
                'created_at': now,
                'last_seen_up': now,
                'deleted': 0,
            }
        )

    def _known(self, values: dict[str, object]) -> dict[str, object]:
        """Those of the values for which this release's table has a column."""
        return {name: value for name, value in values.items() if name in self._table.c}

    def _deployment_version(self) -> int:
        """The newest version that another service reports, 0 if none does.

        nova takes the lowest version of all services as what the deployment can do,
        so that one of our own would hold it back, or push it too far. A cell that does not
        answer says nothing, and does not keep us from starting.
        """
        cells = self.cells()
        # At once, so that several which do not answer are waited for together.
        with futures.ThreadPoolExecutor(max(1, len(cells)), 'version') as pool:
            return max([self._newest_version(self.own), *pool.map(self._newest_in, cells)])

    def _newest_in(self, cell: Cell) -> int:
        try:
            return self._newest_version(cell.database)
        except DatabaseUnavailable as error:
            LOG.warning('Failed to get service versions for cell %s: %s', cell.uuid, error)
            return 0

    @staticmethod
    def _newest_version(database: Database) -> int:
        table = database.table('services')
        if 'version' not in table.c:
            return 0
        select = database.select('services', ('version',)).where(table.c.binary != BINARY)
        return max((row.version or 0 for row in database.rows(select)), default=0)
