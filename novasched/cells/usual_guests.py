# SPDX-License-Identifier: Apache-2.0
"""The usual guests of the cloud, learned from the instances in the cells.

Each database of a cell counts its instances by flavor, and sends the most frequent
flavors only. The readings are seldom, and only the first request waits for a reading.
The capacity of a cell that does not answer counts as in the last reading.
"""

import logging
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from concurrent import futures
from dataclasses import dataclass, replace

import sqlalchemy as sa

from novasched.cells.flavors import find_flavor, flavors_of
from novasched.cells.mappings import Cell, Cells, scatter_gather
from novasched.scheduler.errors import DatabaseUnavailable
from novasched.scheduler.model.flavor import Flavor
from novasched.scheduler.model.host import HostView, capacity_of
from novasched.scheduler.model.usual_guests import (
    NO_USUAL_GUESTS,
    UsualGuest,
    UsualGuests,
)

LOG = logging.getLogger('nova.scheduler.host_manager')

MAX_USUAL_GUESTS = 64
"""The number of flavors that count as usual, the most frequent flavors first."""
MAX_AGE_S = 600.0
"""Seconds after which the usual guests are read again."""
KIND_COLUMNS = (
    'instance_type_id',
    'vcpus',
    'memory_mb',
    'root_gb',
    'ephemeral_gb',
)
"""The columns of instances that tell a flavor."""

Kind = tuple[int | None, ...]
"""The values of :data:`KIND_COLUMNS`."""


@dataclass(frozen=True, slots=True)
class UsualGuestsSource:
    """Reads the usual guests.

    :ivar flavors: names or ids of flavors (``[novasched] usual_flavors``), which count
        equally. Empty to learn the flavors from the instances.
    :ivar timeout: seconds to wait for the cells.
    :ivar pool: the threads for the reading and for the queries to the cells.
    :ivar cell_views: returns the hosts of each cell that answers by the UUID of the
        cell, for the capacity of the cloud.
    """

    cells: Cells
    flavors: Collection[str]
    timeout: float
    pool: futures.Executor
    cell_views: Callable[[], Mapping[str, HostView]]

    def guests(self) -> tuple[UsualGuest, ...]:
        """The guests that the option lists, or else that the instances show.

        :raises DatabaseUnavailable: the API database does not answer.
        """
        if self.flavors:
            return self._listed()
        return self._learned()

    def _listed(self) -> tuple[UsualGuest, ...]:
        """The flavors of the option."""
        guests = []
        for name in self.flavors:
            flavor = find_flavor(self.cells.api, name)
            if flavor is None:
                LOG.warning('[novasched] usual_flavors: there is no flavor %s', name)
            else:
                guests.append(UsualGuest(flavor, 1))
        return tuple(guests)

    def _learned(self) -> tuple[UsualGuest, ...]:
        """The most frequent flavors of the instances in all enabled cells that
        answer."""
        numbers = Counter[Kind]()
        answers = scatter_gather(
            self.pool, self.cells.enabled(), _count_kinds, self.timeout
        )
        for _, of_cell in answers:
            numbers.update(of_cell)

        usual = numbers.most_common(MAX_USUAL_GUESTS)
        ids = {kind[0] for kind, _ in usual if kind[0] is not None}
        known = flavors_of(self.cells.api, ids)
        guests = []
        for (flavor_id, vcpus, memory_mb, root_gb, ephemeral_gb), number in usual:
            if not vcpus:
                # nova-api accepts no such flavor, and a guest without sizes fits
                # everywhere.
                continue
            flavor = replace(
                known.get(flavor_id or 0, Flavor(id=flavor_id)),
                vcpus=vcpus,
                memory_mb=memory_mb or 0,
                root_gb=root_gb or 0,
                ephemeral_gb=ephemeral_gb or 0,
            )
            guests.append(UsualGuest(flavor, number))
        return tuple(guests)


class UsualGuestsReader:
    """Keeps the usual guests, and reads them again in a thread of the pool."""

    def __init__(
        self, source: UsualGuestsSource, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._source = source
        self._clock = clock
        # Guards the reading, and when the reading began.
        self._lock = threading.Lock()
        self._reading: futures.Future[None] | None = None
        self._began = 0.0
        self._last: UsualGuests | None = None
        # The last capacity of each cell, by UUID of the cell.
        self._capacities: Mapping[str, Mapping[Hashable, float]] = {}

    def latest(self) -> UsualGuests:
        """The usual guests of the last reading.

        The first call waits for a reading. A later call begins a reading in the
        background if the last reading is outdated, or lacks a cell that answers.
        """
        with self._lock:
            now = self._clock()
            reading = self._reading
            is_outdated = now - self._began > MAX_AGE_S
            new_cells = self._source.cell_views().keys() - self._capacities.keys()
            is_due = is_outdated or bool(new_cells)
            if reading is None or (reading.done() and is_due):
                self._began = now
                reading = self._source.pool.submit(self._refresh)
                self._reading = reading
        if self._last is None:
            reading.result()
        return self._last or NO_USUAL_GUESTS

    def end_reading(self) -> UsualGuests:
        """The usual guests after the end of the reading in the background."""
        if self._reading is not None:
            self._reading.result()
        return self._last or NO_USUAL_GUESTS

    def _refresh(self) -> None:
        """Read the usual guests. The last guests stay while a database fails."""
        self._capacities = self._latest_capacities()
        try:
            guests = self._source.guests()
        except DatabaseUnavailable as error:
            LOG.warning('Usual guests cannot be read, and stay as they were: %s', error)
            return
        capacity = _sum(self._capacities.values())
        # Equal guests stay the same object, so that weights stay valid.
        last = self._last
        if last is None or (guests, capacity) != (last.guests, last.capacity):
            self._last = UsualGuests(guests, capacity)

    def _latest_capacities(self) -> Mapping[str, Mapping[Hashable, float]]:
        """The capacity of each enabled cell; of a cell that does not answer, the last
        capacity."""
        capacities = {}
        enabled = {cell.uuid for cell in self._source.cells.enabled()}
        for uuid in self._capacities.keys() & enabled:
            capacities[uuid] = self._capacities[uuid]
        for uuid, view in self._source.cell_views().items():
            capacities[uuid] = capacity_of(view.hosts.values())
        return capacities


def _sum(capacities: Iterable[Mapping[Hashable, float]]) -> Mapping[Hashable, float]:
    """The sum of capacities by the name of the resource."""
    total: defaultdict[Hashable, float] = defaultdict(float)
    for capacity in capacities:
        for name, amount in capacity.items():
            total[name] += amount
    return dict(total)


def _count_kinds(cell: Cell) -> Mapping[Kind, int]:
    """The numbers of instances on the hosts of a cell by kind, the most frequent kinds
    only.

    :raises DatabaseUnavailable: the cell does not answer.
    """
    database = cell.database

    def work(connection: sa.Connection) -> Mapping[Kind, int]:
        select = database.select('instances', KIND_COLUMNS).where(
            database.table('instances').c.host.is_not(None)
        )
        columns = [*select.selected_columns]
        number = sa.func.count().label('number')
        select = (
            select.with_only_columns(*columns, number)
            .group_by(*columns)
            .order_by(number.desc())
            .limit(MAX_USUAL_GUESTS)
        )
        numbers: dict[Kind, int] = {}
        for row in connection.execute(select):
            numbers[tuple(row[:-1])] = row.number
        return numbers

    return database.read(work)
