# SPDX-License-Identifier: Apache-2.0
"""Which cells there are: the API database's cell and host mappings."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from oslo_config import cfg

from novasched.cells.engines import connect, dispose, filled
from novasched.cells.schema import Database

LOG = logging.getLogger('nova.scheduler.host_manager')
CELL0 = '00000000-0000-0000-0000-000000000000'


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell that hosts servers, with its database."""

    id: int
    uuid: str
    name: str | None
    disabled: bool
    database: Database

    @property
    def identity(self) -> str:
        """The cell as nova's logs name it."""
        return f'{self.uuid}({self.name})' if self.name else self.uuid


class Cells:
    """The cells; known until :meth:`refresh`, as an operator expects of SIGHUP."""

    def __init__(self, api: Database, options: cfg.ConfigOpts.GroupAttr) -> None:
        self.api = api
        self._options = options
        self._cells: dict[str, Cell] = {}
        self._databases: dict[tuple[str, str], Database] = {}

    def refresh(self) -> None:
        """Read the mappings anew; databases whose URL stays keep their connections.

        :raises DatabaseUnavailable: the API database does not answer.
        """
        wanted = ('id', 'uuid', 'name', 'disabled', 'database_connection')
        databases: dict[tuple[str, str], Database] = {}
        cells = {}
        for row in self.api.rows(self.api.select('cell_mappings', wanted)):
            if row.uuid == CELL0:
                continue
            url = filled(row.database_connection, self._options.connection)
            key = (row.uuid, url)
            known = self._databases.get(key)
            databases[key] = known or connect(self._options, url, f'cell {row.name or row.uuid}')
            cells[row.uuid] = Cell(row.id, row.uuid, row.name, bool(row.disabled), databases[key])
        gone = [base for key, base in self._databases.items() if key not in databases]
        self._cells, self._databases = cells, databases
        dispose(*gone)
        LOG.debug('Found %d cells: %s', len(cells), ', '.join(cells))
        disabled = [cell.identity for cell in cells.values() if cell.disabled]
        LOG.debug('Found %d disabled cells: %s', len(disabled), ', '.join(disabled))

    def all(self) -> Sequence[Cell]:
        """Every cell but cell0, which never runs servers."""
        return tuple(self._cells.values())

    def enabled(self) -> Sequence[Cell]:
        """The cells that servers may go to."""
        return tuple(cell for cell in self._cells.values() if not cell.disabled)

    def get(self, uuid: str) -> Cell | None:
        """The cell of that UUID, disabled or not."""
        return self._cells.get(uuid)

    def of_host(self, host: str) -> Cell | None:
        """The cell that a host is mapped to.

        :raises DatabaseUnavailable: the API database does not answer.
        """
        table = self.api.table('host_mappings')
        statement = self.api.select('host_mappings', ('cell_id',)).where(table.c.host == host)
        ids = {row.cell_id for row in self.api.rows(statement)}
        found = next((cell for cell in self._cells.values() if cell.id in ids), None)
        if found is None:
            LOG.warning('No host-to-cell mapping found for selected host %s.', host)
        return found
