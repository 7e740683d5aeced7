# SPDX-License-Identifier: Apache-2.0
"""Instances in the cells, for the few requests that need them.

Most requests need a few named instances, read by UUID. Where all instances on a host
count, simultaneous requests share a reading and the hosts made from the reading. Where
only the flavors of instances count, the database sends one instance a flavor.
"""

import threading
import weakref
from collections import defaultdict
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    Set,
)
from concurrent import futures
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import islice
from typing import Any, TypeVar

import sqlalchemy as sa

from novasched.cells import rows
from novasched.cells.database import Database
from novasched.cells.mappings import Cell, Cells, no_answer, scatter_gather
from novasched.concurrency.single_flight import SingleFlight
from novasched.scheduler.model.host import NO_HOSTS, Host, HostView, Instance
from novasched.scheduler.model.image_properties import from_system_metadata

READING_THREADS = 64

NAMES_PER_QUERY = 1000
"""Names in one statement. For more hosts, reading all instances is cheaper."""
ROWS_PER_FETCH = 1000
"""Rows in memory while a table is read."""
InstancesByHost = Mapping[str, Mapping[str, Instance]]
"""Host name to instance UUID to instance."""
Item = TypeVar('Item')
Answer = TypeVar('Answer')


class InstanceDetail(Enum):
    """The detail of a reading of instances."""

    ONE_OF_EACH_FLAVOR = 'one of each flavor'
    """UUID and flavor of one instance of each flavor."""
    ALL = 'all'
    ALL_WITH_IMAGES = 'all with images'
    """All instances, with the properties of their images."""


@dataclass(frozen=True, eq=False)
class InstanceReading:
    """Instances of a cell at a moment.

    :ivar names: the hosts covered by the reading; None for all hosts of the cell.
    :ivar version: an object identifying the reading.
    """

    names: Set[str] | None
    instances: InstancesByHost
    version: object = field(default_factory=object)

    def covers(self, host: str) -> bool:
        """True if the host's instances were read."""
        return self.names is None or host in self.names


@dataclass(frozen=True, slots=True)
class HostsWithInstances(HostView):
    """Hosts with their instances.

    :ivar bare: the same hosts without instances.
    :ivar versions: the versions of the readings, by UUID of the cell.
    """

    bare: HostView = NO_HOSTS
    versions: Mapping[str, object] = field(default_factory=dict)


class HostInstances:
    """Adds instances to hosts. Hosts of failed cells are left out."""

    def __init__(self, cells: Cells, timeout: float, pool: futures.Executor) -> None:
        self._cells = cells
        self._timeout = timeout
        self._pool = pool
        # Not the pool of the cells: its threads must not wait for long readings.
        self._reading_pool = futures.ThreadPoolExecutor(READING_THREADS, 'instances')
        self._readers: dict[tuple[Cell, InstanceDetail], InstanceReader] = {}
        self._merge_lock = threading.Lock()
        # The last hosts of add_all(), as long as a request or a snapshot uses them.
        self._merged: Callable[[], HostsWithInstances | None] = lambda: None

    def close(self) -> None:
        """Start no more readings."""
        self._reading_pool.shutdown(wait=False, cancel_futures=True)

    def forget(self) -> None:
        """Drop the readers, so unused cells can be freed."""
        self._readers = {}

    def add_named(self, view: HostView, uuids: Collection[str]) -> HostView:
        """Add the named instances to the hosts of the instances. A host keeps the
        instances that it already has.

        :raises DatabaseUnavailable: no cell answers.
        """
        cells = {host.cell_uuid for host in view.hosts.values()}

        def read(cell: Cell) -> InstancesByHost:
            return named_instances(cell.database, uuids)

        by_cell = self._ask(cells, read, self._pool)
        if by_cell.keys() == cells and not any(by_cell.values()):
            return view

        hosts = dict(view.hosts)
        changed = set()
        for uuid, host in view.hosts.items():
            by_host = by_cell.get(host.cell_uuid)
            if by_host is None:
                # The cell does not answer.
                del hosts[uuid]
                changed.add(uuid)
            elif instances := by_host.get(host.host):
                hosts[uuid] = replace(host, instances={**host.instances, **instances})
                changed.add(uuid)
        return HostView(hosts, view.changes.branch(changed))

    def add_all(
        self,
        view: HostView,
        uuids: Collection[str] | None,
        detail: InstanceDetail,
        moment: float,
    ) -> HostView:
        """The wanted hosts, and perhaps more hosts, with all instances as of a moment
        or later. A host is the same object as before if neither the host nor the
        instances have changed.

        :param uuids: UUIDs of compute nodes; None for all hosts.
        :param moment: monotonic seconds.
        :raises DatabaseUnavailable: no cell answers.
        """
        chosen: Iterable[Host] = view.hosts.values()
        if uuids is not None:
            chosen = [view.hosts[uuid] for uuid in uuids if uuid in view.hosts]
        names: dict[str, set[str]] = defaultdict(set)
        for host in chosen:
            names[host.cell_uuid].add(host.host)

        def read(cell: Cell) -> InstanceReading:
            reader = InstanceReader(cell.database, detail)
            reader = self._readers.setdefault((cell, detail), reader)
            return reader.on(names[cell.uuid], moment)

        readings = self._ask(names.keys(), read, self._reading_pool)
        # Requests that waited for the same readings share the hosts, so only the first
        # request merges.
        with self._merge_lock:
            merged = _merged(view, readings, self._merged())
            self._merged = weakref.ref(merged)
        return merged

    def hosts_of(
        self, uuids: Collection[str], cells: Mapping[str, HostView]
    ) -> dict[str, Host]:
        """The hosts of the instances, by the UUID of the instance.

        :param cells: the hosts to look through, by the UUID of the cell.
        :raises DatabaseUnavailable: no cell answers.
        """

        def read(cell: Cell) -> InstancesByHost:
            return named_instances(cell.database, uuids)

        hosts = {}
        for cell_uuid, by_host in self._ask(cells, read, self._pool).items():
            if not by_host:
                continue
            for host in cells[cell_uuid].hosts.values():
                hosts.update(dict.fromkeys(by_host.get(host.host, ()), host))
        return hosts

    def _ask(
        self,
        uuids: Collection[str],
        read: Callable[[Cell], Answer],
        pool: futures.Executor,
    ) -> Mapping[str, Answer]:
        """The answers of the wanted cells, by UUID."""
        cells = [cell for cell in self._cells.all() if cell.uuid in uuids]
        answers = scatter_gather(pool, cells, read, self._timeout)
        if cells and not answers:
            raise no_answer(cells)
        return {cell.uuid: answer for cell, answer in answers}


def _merged(
    bare: HostView,
    readings: Mapping[str, InstanceReading],
    last: HostsWithInstances | None,
) -> HostsWithInstances:
    """The hosts covered by the readings, with the instances.

    An unchanged host stays the same object as in ``last``: filters and weighers judge
    only new objects again.
    """
    versions = {uuid: reading.version for uuid, reading in readings.items()}
    if last is None:
        last = HostsWithInstances()
    version = bare.version
    if version and last.bare.version == version and last.versions == versions:
        return last

    merged: dict[str, Host] = {}
    changed = set()
    for uuid, host in bare.hosts.items():
        reading = readings.get(host.cell_uuid)
        if reading is None or not reading.covers(host.host):
            continue
        instances = reading.instances.get(host.host, {})
        before = last.hosts.get(uuid)
        # The only comparison of objects: the log cannot tell, since each of the two
        # views may have been made for one request, as for a host that was left out.
        if (
            before is not None
            and last.bare.hosts[uuid] is host
            and before.instances == instances
        ):
            merged[uuid] = before
            continue
        changed.add(uuid)
        merged[uuid] = host
        if instances:
            merged[uuid] = replace(host, instances=instances)

    changed |= last.hosts.keys() - merged.keys()
    changes = last.changes
    if changed or not last.version:
        changes = last.changes.with_step(changed)
    return HostsWithInstances(merged, changes, bare, versions)


def named_instances(base: Database, uuids: Collection[str]) -> InstancesByHost:
    """The instances with these UUIDs that are on a host.

    :raises DatabaseUnavailable: the cell does not answer.
    """
    valid = sorted(filter(rows.may_be_uuid, uuids))
    if not valid:
        return {}

    def work(connection: sa.Connection) -> InstancesByHost:
        select = _select_on_hosts(base)
        uuid = base.table('instances').c.uuid
        chunks = _chunks(valid, NAMES_PER_QUERY)
        return _instances(
            connection, [select.where(uuid.in_(chunk)) for chunk in chunks]
        )

    return base.read(work)


def location_of_instance(base: Database, uuid: str) -> Sequence[sa.Row[Any]]:
    """The row with ``host`` and ``node`` of an instance that is on a host.

    :raises DatabaseUnavailable: the cell does not answer.
    """
    if not rows.may_be_uuid(uuid):
        return []
    return base.rows(
        'instances', ('host', 'node'), lambda c: c.host.is_not(None), uuid=uuid
    )


class InstanceReader:
    """Reads instances on hosts of a cell.

    A single reading runs at a time, and covers the hosts of all requests waiting at the
    beginning of the reading. The reading is dropped once no request waits: an instance
    takes about 180 bytes, and more with a rare image.
    """

    def __init__(self, base: Database, detail: InstanceDetail) -> None:
        self._base = base
        self._detail = detail
        # Guards the waiting requests, and the flights that they share.
        self._lock = threading.Lock()
        self._waiting: dict[object, Set[str]] = {}
        self._flights = SingleFlight(self._read)

    def on(self, hosts: Set[str], moment: float) -> InstanceReading:
        """The instances on these hosts, and perhaps on more hosts, as of a moment or
        later.

        :param moment: monotonic seconds.
        :raises DatabaseUnavailable: the cell does not answer.
        """
        request = object()
        with self._lock:
            self._waiting[request] = hosts
            flights = self._flights

        try:
            reading = flights.at_least(moment)
            if not all(map(reading.covers, hosts)):
                # The reading began before this request: the next one covers the hosts.
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
        hosts: Set[str] | None = names
        if len(names) > NAMES_PER_QUERY:
            hosts = None

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


def _select_on_hosts(base: Database) -> sa.Select[Any]:
    return base.select('instances', rows.INSTANCE_COLUMNS).where(
        base.table('instances').c.host.is_not(None)
    )


def _one_of_each_flavor(select: sa.Select[Any]) -> sa.Select[Any]:
    """Select a single row for all instances of a flavor on a host, without the
    project."""
    columns = select.selected_columns
    select = select.with_only_columns(
        sa.func.min(columns.uuid),
        columns.host,
        sa.null(),
        columns.instance_type_id,
    )
    return select.group_by(columns.host, columns.instance_type_id)


def _instances(
    connection: sa.Connection, selects: Iterable[sa.Select[Any]]
) -> dict[str, dict[str, Instance]]:
    """Read instances row after row, so few rows are in memory at a time. To save
    memory, equal project ids are a single object, and so are equal flavor ids."""
    by_host: dict[str, dict[str, Instance]] = {}
    interned: dict[Any, Any] = {}
    for select in selects:
        instance_rows = connection.execute(
            select, execution_options={'yield_per': ROWS_PER_FETCH}
        )
        for uuid, host, project, flavor in instance_rows:
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
    """Give the instances the properties of the images. Equal properties are a single
    object."""
    table = base.table('instance_system_metadata')
    select = base.select(
        'instance_system_metadata', rows.SYSTEM_METADATA_COLUMNS
    ).where(table.c.key.startswith('image_', autoescape=True))
    interned: dict[Any, Mapping[str, Any]] = {}

    pairs = ((instances, uuid) for instances in by_host.values() for uuid in instances)
    for chunk in _chunks(pairs, NAMES_PER_QUERY):
        metadata: dict[str, dict[str, str]] = {uuid: {} for _, uuid in chunk}
        in_chunk = table.c.instance_uuid.in_(metadata)
        for row in connection.execute(select.where(in_chunk)):
            # MySQL ignores case: a row may spell the UUID in another way.
            if row.instance_uuid in metadata:
                metadata[row.instance_uuid][row.key] = row.value

        for instances, uuid in chunk:
            texts = metadata[uuid]
            if not texts:
                continue
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
