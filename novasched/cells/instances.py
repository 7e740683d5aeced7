# SPDX-License-Identifier: Apache-2.0
"""Instances in the cells, and flavors in the API database, for the few requests that
need them.

A request mostly needs a few instances that it names: those are read by their UUIDs.
Where all instances on a host count, simultaneous requests share a reading, and the
hosts that are made of the reading. Where only the flavors of instances count, the
database sends one instance of each flavor.
"""

import threading
import weakref
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from concurrent import futures
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import islice
from typing import Any, TypeVar

import sqlalchemy as sa

from novasched.cells import rows
from novasched.cells.database import Database
from novasched.cells.mappings import CELL0, Cell, Cells, no_answer, scatter_gather
from novasched.concurrency.single_flight import SingleFlight
from novasched.scheduler.errors import DatabaseUnavailable
from novasched.scheduler.model.flavor import Flavor
from novasched.scheduler.model.host import Host, Instance
from novasched.scheduler.model.image_properties import from_system_metadata
from novasched.scheduler.ports import InstanceState

READING_THREADS = 64

NAMES_PER_QUERY = 1000
"""Names in one statement. For more hosts than that, reading all instances is
cheaper."""
ROWS_PER_FETCH = 1000
"""Rows in memory while a table is read."""
FINISHED_MIGRATIONS = (
    'done',
    'completed',
    'confirmed',
    'reverted',
    'failed',
    'error',
    'cancelled',
)
"""Statuses of migrations that are over. An evacuation resets the instance's task before
it sets its host, and ends its migration only after that."""
SIZES = ('vcpus', 'memory_mb', 'root_gb', 'ephemeral_gb', 'swap')
"""Columns of flavors in which null stands for 0."""
InstancesByHost = Mapping[str, Mapping[str, Instance]]
"""Instances by host name, and by UUID."""
Item = TypeVar('Item')
Answer = TypeVar('Answer')


class InstanceDetail(Enum):
    """The instances that are read for each host."""

    ONE_OF_EACH_FLAVOR = 'one of each flavor'
    """The UUID and the flavor alone."""
    ALL = 'all'
    ALL_WITH_IMAGES = 'all with images'
    """The instances with the properties of their images."""


@dataclass(frozen=True, eq=False)
class InstanceReading:
    """Instances of a cell as they were at one moment.

    :ivar names: the hosts whose instances were read; None for all hosts of the cell.
    :ivar version: an object that no other reading has.
    """

    names: Set[str] | None
    instances: InstancesByHost
    version: object = field(default_factory=object)

    def covers(self, host: str) -> bool:
        """True if the host's instances were read."""
        return self.names is None or host in self.names


class HostsWithInstances(dict[str, Host]):
    """Hosts by compute node UUID, with their instances.

    :ivar bare: the same hosts without instances.
    :ivar versions: the versions of the readings, by UUID of the cell.
    """

    __slots__ = ('__weakref__', 'bare', 'versions')

    def __init__(
        self,
        bare: Mapping[str, Host],
        versions: Mapping[str, object],
    ) -> None:
        super().__init__()
        self.bare = bare
        self.versions = versions


class HostInstances:
    """Adds instances to hosts. Hosts of cells that fail are left out."""

    def __init__(self, cells: Cells, timeout: float, pool: futures.Executor) -> None:
        self._cells = cells
        self._timeout = timeout
        self._pool = pool
        self._reading_pool = futures.ThreadPoolExecutor(READING_THREADS, 'instances')
        self._readers: dict[tuple[Cell, InstanceDetail], InstanceReader] = {}
        self._merging = threading.Lock()
        # The last hosts of add_all(), as long as a request or a snapshot uses them.
        self._merged: Callable[[], HostsWithInstances | None] = lambda: None

    def close(self) -> None:
        """Start no more readings."""
        self._reading_pool.shutdown(wait=False, cancel_futures=True)

    def forget(self) -> None:
        """Forget cells that are gone."""
        self._readers = {}

    def add_named(
        self, hosts: Mapping[str, Host], uuids: Collection[str]
    ) -> Mapping[str, Host]:
        """The hosts, with the named instances that are on them. Instances that a host
        has already stay there.

        :raises DatabaseUnavailable: no cell answers.
        """
        cells = {host.cell_uuid for host in hosts.values()}

        def read(cell: Cell) -> InstancesByHost:
            return named_instances(cell.database, uuids)

        by_cell = self._ask(cells, read, self._pool)
        if by_cell.keys() != cells:
            hosts = {x: host for x, host in hosts.items() if host.cell_uuid in by_cell}
        if not any(by_cell.values()):
            return hosts

        added = dict(hosts)  # most are as they were
        for uuid, host in hosts.items():
            if instances := by_cell[host.cell_uuid].get(host.host):
                added[uuid] = replace(host, instances={**host.instances, **instances})
        return added

    def add_all(
        self,
        hosts: Mapping[str, Host],
        uuids: Collection[str] | None,
        detail: InstanceDetail,
        moment: float,
    ) -> Mapping[str, Host]:
        """The hosts with these UUIDs, and perhaps other hosts, with the instances that
        are on them at that moment or later. A host is the same object as before if
        neither the host nor any of its instances has changed.

        :param uuids: UUIDs of compute nodes; None for all hosts.
        :param moment: monotonic seconds.

        :raises DatabaseUnavailable: no cell answers.
        """
        chosen: Iterable[Host] = hosts.values()
        if uuids is not None:
            chosen = [hosts[uuid] for uuid in uuids if uuid in hosts]
        names: dict[str, set[str]] = defaultdict(set)
        for host in chosen:
            names[host.cell_uuid].add(host.host)

        def read(cell: Cell) -> InstanceReading:
            reader = InstanceReader(cell.database, detail)
            reader = self._readers.setdefault((cell, detail), reader)
            return reader.on(names[cell.uuid], moment)

        readings = self._ask(names.keys(), read, self._reading_pool)
        # Requests that waited for the same readings share the hosts.
        with self._merging:
            merged = _merged(hosts, readings, self._merged())
            self._merged = weakref.ref(merged)
        return merged

    def hosts_of(
        self, uuids: Collection[str], cells: Mapping[str, Mapping[str, Host]]
    ) -> dict[str, Host]:
        """The host that each of the instances with these UUIDs is on, of the hosts of
        cells.

        :raises DatabaseUnavailable: no cell answers.
        """
        known = [cell for cell in self._cells.all() if cell.uuid in cells]
        read = lambda cell: named_instances(cell.database, uuids)  # noqa: E731
        answers = scatter_gather(self._pool, known, read, self._timeout)
        if known and not answers:
            raise no_answer(known)
        return {
            uuid: host
            for cell, by_host in answers
            for host in (cells[cell.uuid].values() if by_host else ())
            for uuid in by_host.get(host.host, ())
        }

    def _ask(
        self,
        uuids: Collection[str],
        read: Callable[[Cell], Answer],
        pool: futures.Executor,
    ) -> Mapping[str, Answer]:
        """The answers of the cells with these UUIDs, by UUID."""
        cells = [cell for cell in self._cells.all() if cell.uuid in uuids]
        answers = scatter_gather(pool, cells, read, self._timeout)
        if cells and not answers:
            raise no_answer(cells)
        return {cell.uuid: answer for cell, answer in answers}


def _merged(
    hosts: Mapping[str, Host],
    readings: Mapping[str, InstanceReading],
    last: HostsWithInstances | None,
) -> HostsWithInstances:
    """The hosts whose instances were read, with the instances.

    A host that has not changed stays the same object as in ``last``: filters and
    weighers are asked again about new objects only.
    """
    versions = {uuid: reading.version for uuid, reading in readings.items()}
    if last is None:
        last = HostsWithInstances({}, {})
    if last.bare is hosts and last.versions == versions:
        return last

    merged = HostsWithInstances(hosts, versions)
    for uuid, host in hosts.items():
        reading = readings.get(host.cell_uuid)
        if reading is None or not reading.covers(host.host):
            continue
        instances = reading.instances.get(host.host)
        before = last.get(uuid)
        if not instances:
            merged[uuid] = host
        elif before and last.bare[uuid] is host and before.instances == instances:
            merged[uuid] = before
        else:
            merged[uuid] = replace(host, instances=instances)
    return merged


def named_instances(base: Database, uuids: Collection[str]) -> InstancesByHost:
    """The instances with these UUIDs that are on a host.

    :raises DatabaseUnavailable: the cell does not answer.
    """
    valid = sorted(filter(_may_be_uuid, uuids))
    if not valid:
        return {}

    def work(connection: sa.Connection) -> InstancesByHost:
        select = _select_on_hosts(base)
        uuid = base.table('instances').c.uuid
        chunks = _chunks(valid, NAMES_PER_QUERY)
        return _instances(
            connection, (select.where(uuid.in_(chunk)) for chunk in chunks)
        )

    return base.read(work)


class InstanceReader:
    """Reads instances on hosts of a cell.

    There is one reading at a time, of all hosts for which a request waits when the
    reading begins. The reading is dropped when no request waits any more: an instance
    takes about 180 bytes, and more with an image that no other instance has.
    """

    def __init__(self, base: Database, detail: InstanceDetail) -> None:
        self._base = base
        self._detail = detail
        self._lock = threading.Lock()
        self._waiting: dict[object, Set[str]] = {}
        self._flights = SingleFlight(self._read)

    def on(self, hosts: Set[str], moment: float) -> InstanceReading:
        """The instances on these hosts, and perhaps on others, as they were at that
        moment (monotonic seconds) or later.

        :raises DatabaseUnavailable: the cell does not answer.
        """
        request = object()
        with self._lock:
            self._waiting[request] = hosts
            flights = self._flights
        try:
            reading = flights.at_least(moment)
            if not all(map(reading.covers, hosts)):
                reading = flights.at_least()
            return reading
        finally:
            with self._lock:
                del self._waiting[request]
                if not self._waiting:
                    self._flights = SingleFlight(self._read)

    def _read(self) -> InstanceReading:
        with self._lock:
            names = frozenset[str]().union(*self._waiting.values())
        hosts = names if len(names) <= NAMES_PER_QUERY else None

        def work(connection: sa.Connection) -> InstancesByHost:
            select = _select_on_hosts(self._base)
            if self._detail is InstanceDetail.ONE_OF_EACH_FLAVOR:
                select = _one_of_each_flavor(select)
            if hosts is not None:
                select = select.where(self._base.table('instances').c.host.in_(hosts))
            by_host = _instances(connection, [select])
            if self._detail is InstanceDetail.ALL_WITH_IMAGES:
                _add_images(connection, self._base, by_host)
            return by_host

        return InstanceReading(hosts, self._base.read(work))


def _may_be_uuid(text: str) -> bool:
    """False for texts that no row can hold: hints are free text, of which databases
    refuse some."""
    return 0 < len(text) <= 36 and text.isascii() and text.isprintable()


def _select_on_hosts(base: Database) -> sa.Select[Any]:
    return base.select('instances', rows.INSTANCE_COLUMNS).where(
        base.table('instances').c.host.is_not(None)
    )


def _one_of_each_flavor(select: sa.Select[Any]) -> sa.Select[Any]:
    """Select one row for all instances of a flavor on a host, without the project."""
    of = select.selected_columns
    select = select.with_only_columns(
        sa.func.min(of.uuid),
        of.host,
        sa.null(),
        of.instance_type_id,
    )
    return select.group_by(of.host, of.instance_type_id)


def _instances(
    connection: sa.Connection, selects: Iterable[sa.Select[Any]]
) -> dict[str, dict[str, Instance]]:
    """Read instances row after row, so that few rows are in memory at the same time.
    Equal names and numbers are the same object."""
    by_host: dict[str, dict[str, Instance]] = {}
    interned: dict[Any, Any] = {}
    for select in selects:
        found = connection.execute(
            select, execution_options={'yield_per': ROWS_PER_FETCH}
        )
        for uuid, host, project, flavor in found:
            by_host.setdefault(host, {})[uuid] = Instance(
                uuid,
                interned.setdefault(project, project),
                interned.setdefault(flavor, flavor),
            )
    return by_host


def _add_images(
    connection: sa.Connection,
    base: Database,
    by_host: Mapping[str, dict[str, Instance]],
) -> None:
    """Give the instances the properties of their images; equal ones are the same
    object."""
    table = base.table('instance_system_metadata')
    select = base.select(
        'instance_system_metadata', rows.SYSTEM_METADATA_COLUMNS
    ).where(table.c.key.startswith('image_', autoescape=True))
    interned: dict[Any, Mapping[str, Any]] = {}
    pairs = ((instances, uuid) for instances in by_host.values() for uuid in instances)
    for chunk in _chunks(pairs, NAMES_PER_QUERY):
        metadata: dict[str, dict[str, str]] = {uuid: {} for _, uuid in chunk}
        for row in connection.execute(
            select.where(table.c.instance_uuid.in_(metadata))
        ):
            if row.instance_uuid in metadata:
                metadata[row.instance_uuid][row.key] = row.value
        for instances, uuid in chunk:
            if texts := metadata[uuid]:
                content = frozenset(texts.items())
                if content not in interned:
                    interned[content] = from_system_metadata(texts)
                instances[uuid] = replace(
                    instances[uuid], image_properties=interned[content]
                )


def _chunks(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk


@dataclass(frozen=True, slots=True)
class InstanceStates:
    """Reads one instance as it is at one moment, before its allocations are deleted in
    Placement. Implements :class:`novasched.scheduler.ports.Instances`; an instance that
    is mapped to a cell which lacks its row cannot be told, either."""

    cells: Cells

    def find(self, uuid: str, providers: Collection[str]) -> InstanceState | None:
        api = self.cells.api
        mappings = api.rows('instance_mappings', ('cell_id',), instance_uuid=uuid)
        if not mappings:
            return None
        if mappings[0].cell_id is None:
            return InstanceState(building=True)
        cells = api.rows('cell_mappings', ('uuid',), id=mappings[0].cell_id)
        if cells and cells[0].uuid == CELL0:
            return InstanceState(gone=True)
        cell = self.cells.get(cells[0].uuid) if cells else None
        if cell is None:
            raise DatabaseUnavailable(f'the cell of instance {uuid} is not known')
        base = cell.database

        def read(connection: sa.Connection) -> tuple[Any, list[Any], list[Any]]:
            table = base.table('instances')
            nodes = base.table('compute_nodes')
            names = ('host', 'task_state', 'vm_state', 'deleted', 'hidden')
            columns = [
                table.c[x] if x in table.c else sa.null().label(x) for x in names
            ]
            row = connection.execute(
                sa.select(*columns).where(table.c.uuid == uuid)
            ).first()
            migrations = base.select('migrations', ('status',), instance_uuid=uuid)
            hosts = base.select('compute_nodes', ('host',)).where(
                nodes.c.uuid.in_(providers)
            )
            return row, [*connection.execute(migrations)], [*connection.execute(hosts)]

        row, migrations, hosts = base.read(read)
        if row is None:
            raise DatabaseUnavailable(f'{base.name} has no instance {uuid}')
        unfinished = [
            x.status for x in migrations if x.status not in FINISHED_MIGRATIONS
        ]
        migration = next(iter(unfinished), None)
        if row.hidden:
            migration = 'cross-cell migration'
        return InstanceState(
            building=row.vm_state == 'building',
            gone=bool(row.deleted),
            host=row.host,
            task=row.task_state or migration,
            hosts=frozenset(node.host for node in hosts),
        )


def find_flavor(api: Database, name: str) -> Flavor | None:
    """The flavor of that id, or else of that name; None if there is none.

    :raises DatabaseUnavailable: the API database does not answer.
    """
    for column in ('flavorid', 'name'):
        columns = ('id', 'name', 'flavorid', *SIZES)
        for row in api.rows('flavors', columns, **{column: name}):
            extra_specs = api.rows(
                'flavor_extra_specs', ('key', 'value'), flavor_id=row.id
            )
            return Flavor(
                id=row.id,
                name=row.name,
                flavorid=row.flavorid,
                extra_specs={
                    x.key: x.value for x in extra_specs if x.value is not None
                },
                **{size: getattr(row, size) or 0 for size in SIZES},
            )
    return None
