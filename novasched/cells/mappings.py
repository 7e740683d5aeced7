# SPDX-License-Identifier: Apache-2.0
"""Which cells there are: the API database's cell and host mappings."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from oslo_config import cfg

from novasched.cells.engines import connect, dispose, filled
from novasched.cells.schema import Database
from novasched.errors import ConfigError

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


@dataclass(frozen=True, slots=True)
class Mapped:
    """The cells by UUID, as the mappings had them; databases by cell and URL."""

    cells: Mapping[str, Cell] = field(default_factory=dict)
    databases: Mapping[tuple[str, str], Database] = field(default_factory=dict)

    def enabled(self) -> Sequence[Cell]:
        """The cells that servers may go to."""
        return tuple(cell for cell in self.cells.values() if not cell.disabled)


class Cells:
    """The cells; known until :meth:`refresh`, as an operator expects of SIGHUP."""

    def __init__(
        self,
        api: Database,
        options: cfg.ConfigOpts.GroupAttr,
        patience: float | None = None,
        others: Cells | None = None,
    ) -> None:
        """The options are those of ``[database]``; a cell's server may be silent for
        ``patience`` seconds while it is asked. Databases that ``others`` know are shared."""
        self.api = api
        self._options = options
        self._patience = patience
        self._others = others
        self._mapped = Mapped()

    def refresh(self) -> None:
        """Read the mappings anew, and use them.

        A cell whose URL cannot be used is logged and left out.

        :raises DatabaseUnavailable: the API database does not answer.
        """
        self.use(self.read())

    def read(self) -> Mapped:
        """The mappings as they are now; databases whose URL stays keep their connections.

        :raises DatabaseUnavailable: the API database does not answer.
        """
        wanted = ('id', 'uuid', 'name', 'disabled', 'database_connection')
        known = {**self._mapped.databases, **self._shared}
        databases: dict[tuple[str, str], Database] = {}
        cells = {}
        by_id = self.api.table('cell_mappings').c.id
        for row in self.api.rows(self.api.select('cell_mappings', wanted).order_by(by_id)):
            if row.uuid == CELL0:
                continue
            name = f'cell {row.name or row.uuid}'
            url = filled(row.database_connection, self._options.connection, name)
            key = (row.uuid, url)
            try:
                databases[key] = known.get(key) or connect(
                    self._options, url, name, patience=self._patience
                )
            except ConfigError as error:
                LOG.error('A cell is left out: %s', error)
                continue
            cells[row.uuid] = Cell(row.id, row.uuid, row.name, bool(row.disabled), databases[key])
        return Mapped(cells, databases)

    def use(self, mapped: Mapped) -> None:
        """Let these be the cells. Whoever still uses a database that is gone may go on."""
        before, self._mapped = self._mapped, mapped
        used = {*mapped.databases.values(), *self._shared.values()}
        dispose(*(base for base in before.databases.values() if base not in used))
        cells = mapped.cells
        LOG.debug('Found %d cells: %s', len(cells), ', '.join(cells))
        disabled = [cell.identity for cell in cells.values() if cell.disabled]
        LOG.debug('Found %d disabled cells: %s', len(disabled), ', '.join(disabled))

    def all(self) -> Sequence[Cell]:
        """Every cell but cell0, which never runs servers."""
        return tuple(self._mapped.cells.values())

    def enabled(self) -> Sequence[Cell]:
        """The cells that servers may go to."""
        return self._mapped.enabled()

    def separate(self) -> Cells:
        """The same mappings, yet to be read. Databases that are known here are shared, and
        with them what is known of those that do not answer."""
        return Cells(self.api, self._options, self._patience, self)

    @property
    def _shared(self) -> Mapping[tuple[str, str], Database]:
        return self._others._mapped.databases if self._others else {}

    def close(self) -> None:
        """Close every connection to the cells."""
        dispose(*self._mapped.databases.values())

    def get(self, uuid: str) -> Cell | None:
        """The cell of that UUID, disabled or not."""
        return self._mapped.cells.get(uuid)

    def of_host(self, host: str) -> Cell | None:
        """The cell that a host is mapped to.

        :raises DatabaseUnavailable: the API database does not answer.
        """
        table = self.api.table('host_mappings')
        statement = self.api.select('host_mappings', ('cell_id',)).where(table.c.host == host)
        ids = {row.cell_id for row in self.api.rows(statement)}
        found = next((cell for cell in self.all() if cell.id in ids), None)
        if found is None:
            LOG.warning('No host-to-cell mapping found for selected host %s.', host)
        return found
