# SPDX-License-Identifier: Apache-2.0
"""Liveness of services, by the option ``[DEFAULT] servicegroup_driver``.

With ``db``, a service counts up in a row of the services table. With ``mc``, a service
keeps a key in memcached; nova's services and novasched use oslo.cache.
"""

import contextlib
import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeVar

import sqlalchemy as sa
from oslo_config import cfg
from oslo_db import exception as db_exc

from novasched.cells.database import Database
from novasched.cells.mappings import Cell
from novasched.cells.memcached import cache_region
from novasched.conf.redaction import hide
from novasched.conf.settings import Settings
from novasched.scheduler.errors import DatabaseUnavailable

DB_LOG = logging.getLogger('nova.servicegroup.drivers.db')
MEMCACHED_LOG = logging.getLogger('nova.servicegroup.drivers.mc')

Answer = TypeVar('Answer')

COMPUTE = 'nova-compute'
SCHEDULER = 'nova-scheduler'


class DatabaseServiceGroup:
    """Driver ``db``: a service is up while the service writes to its row.

    :param service_down_time: seconds from the last report until a service counts as
        down.
    :cvar is_in_rows: the rows, with :meth:`late`, tell which services are down.
    """

    is_in_rows = True

    def __init__(self, service_down_time: int) -> None:
        self._down_time = timedelta(seconds=service_down_time)

    def late(self, services: sa.Table) -> sa.ColumnElement[bool]:
        """A column that is true if the service has not reported in time. The statement
        needs the parameters of :meth:`moment`.

        For a service without a report, the creation of its row counts. The clocks of
        hosts differ, so a report from the near future counts as in time.
        """
        reported_at = sa.func.coalesce(services.c.last_seen_up, services.c.created_at)
        first = sa.bindparam('first', type_=sa.DateTime)
        last = sa.bindparam('last', type_=sa.DateTime)
        is_late = sa.or_(reported_at.is_(None), reported_at < first, reported_at > last)
        return is_late.label('late')

    def moment(self, now: datetime) -> Mapping[str, datetime]:
        """The parameters of a statement with :meth:`late`."""
        return {'first': now - self._down_time, 'last': now + self._down_time}

    def down(self, binary: str, services: Mapping[int, Any]) -> frozenset[int]:
        """The ids of services without a report in time.

        :param services: rows of this binary by id, with ``host`` and ``late``.
        """
        return frozenset(id for id, row in services.items() if row.late)


class MemcachedServiceGroup:
    """Driver ``mc``: a service is up while the key ``topic:host`` is younger than
    ``service_down_time``.

    A single thread does all queries. oslo.cache gives every thread a separate client,
    and a client remembers dead servers for minutes: after an outage, the clients of
    several threads would disagree.

    :param region: a dogpile cache region. The region mangles keys and hides old values.
    :cvar is_in_rows: see :class:`DatabaseServiceGroup`.
    """

    is_in_rows = False

    def __init__(self, region: Any, host: str, utcnow: Callable[[], datetime]) -> None:
        self._region = region
        self._own_key = service_key(SCHEDULER, host)
        self._utcnow = utcnow
        self._thread = futures.ThreadPoolExecutor(1, thread_name_prefix='memcached')
        # Read and written by that thread only.
        self._has_reported = False
        self._is_failing = False

    def report_state(self) -> None:
        """Renew the scheduler's key and read the key back: clients of memcached hide
        failed writes."""

        def write() -> None:
            self._region.set(self._own_key, self._utcnow())
            [is_kept] = self._exist([self._own_key])
            if is_kept:
                self._has_reported = True
                self._set_failing(None)
            else:
                self._set_failing('it does not keep our own key')

        self._ask(write, None)

    def late(self, services: sa.Table) -> sa.ColumnElement[bool]:
        """False for every row: the driver does not look at rows."""
        return sa.false().label('late')

    def moment(self, now: datetime) -> Mapping[str, datetime]:
        """See :meth:`DatabaseServiceGroup.moment`."""
        return {}

    def down(self, binary: str, services: Mapping[int, Any]) -> frozenset[int]:
        """The ids of the services without a key. While memcached does not answer, all
        services are down."""
        if not services:
            return frozenset()

        keys = [service_key(binary, row.host) for row in services.values()]

        def look_up() -> list[bool]:
            own_exists, *exist = self._exist([self._own_key, *keys])
            # If the scheduler's own key vanishes together with all other keys,
            # memcached has lost its content.
            if self._has_reported and not own_exists and not any(exist):
                self._set_failing('it has no key of any service')
            return exist

        exist = self._ask(look_up, [False] * len(keys))
        down = set()
        for id, key, exists in zip(services, keys, exist, strict=True):
            if not exists:
                MEMCACHED_LOG.debug('Seems service %s is down', key)
                down.add(id)
        return frozenset(down)

    def _exist(self, keys: Sequence[str]) -> list[bool]:
        from oslo_cache import core

        return [value is not core.NO_VALUE for value in self._region.get_multi(keys)]

    def _ask(self, ask: Callable[[], Answer], default: Answer) -> Answer:
        """Run a function in the thread of memcached; the default after an error."""

        def run() -> Answer:
            try:
                return ask()
            except Exception as error:
                # Every client of oslo.cache has its own exceptions.
                self._set_failing(f'{type(error).__name__}: {hide(error)}')
                return default

        return self._thread.submit(run).result()

    def _set_failing(self, why: str | None) -> None:
        """Log the first failure, and the first success after a failure."""
        before = self._is_failing
        self._is_failing = why is not None
        if why is not None and not before:
            MEMCACHED_LOG.warning(
                'Lost connection to memcache server for reporting service status: %s. '
                'All services count as down.',
                why,
            )
        elif why is None and before:
            MEMCACHED_LOG.info(
                'Recovered connection to memcache server for reporting service status.'
            )


@dataclass
class Heartbeat:
    """The scheduler's row in the services table of ``[database] connection``. All
    workers of a host write to the same row.

    :ivar own: the database of ``[database] connection``.
    :ivar memcached: with ``[DEFAULT] servicegroup_driver = mc``, the service group for
        the scheduler's reports; None with ``db``.
    """

    own: Database
    cells: Callable[[], Sequence[Cell]]
    host: str
    utcnow: Callable[[], datetime]
    memcached: MemcachedServiceGroup | None = None
    _is_failing: bool = field(default=False, init=False)
    _silent_cells: set[str] = field(default_factory=set, init=False)

    def register(self) -> None:
        """Insert the row, or update the version.

        :raises DatabaseUnavailable: the database does not answer.
        """
        version = self._deployment_version()
        now = self.utcnow()
        row = {
            'uuid': str(uuid.uuid4()),
            'host': self.host,
            'binary': SCHEDULER,
            'topic': _topic(SCHEDULER),
            'report_count': 0,
            'disabled': False,
            'forced_down': False,
            'version': version,
            'created_at': now,
            'last_seen_up': now,
            'deleted': 0,
        }

        def write(connection: sa.Connection) -> None:
            if not self._update(connection, {'version': version} if version else {}):
                connection.execute(sa.insert(self._table).values(self._existing(row)))

        # Another worker of the host may insert the row at the same time.
        with contextlib.suppress(db_exc.DBDuplicateEntry):
            self.own.write(write)
        if self.memcached:
            self.memcached.report_state()

    def report_state(self) -> None:
        """Count up and write the time. The first failure is logged, and the first
        success after a failure."""
        if self.memcached:
            self.memcached.report_state()
            return

        def count(connection: sa.Connection) -> bool:
            return self._update(
                connection, {'report_count': self._table.c.report_count + 1}
            )

        try:
            if not self.own.write(count):
                # An operator has deleted the row.
                self.register()
        except DatabaseUnavailable as error:
            if not self._is_failing:
                DB_LOG.error('Unable to update the service record: %s', error)
            self._is_failing = True
        else:
            if self._is_failing:
                DB_LOG.info('Recovered from being unable to report status.')
            self._is_failing = False

    def update_version(self) -> None:
        """Write the version of the deployment into the row, since an upgrade of nova
        changes it.

        :meth:`report_state` does not write the version: a slow cell would delay the
        next report. A lower version is written only if all cells have answered.
        """
        try:
            version = self._deployment_version()
            if not version:
                return
            table = self._table
            if 'version' not in table.c:
                return
            is_outdated = table.c.version != version
            # A silent cell may have the newest services.
            if self._silent_cells:
                is_outdated = table.c.version < version
            values: dict[str, object] = {'version': version}
            self.own.write(lambda base: self._update(base, values, is_outdated))
        except DatabaseUnavailable as error:
            DB_LOG.debug('The version in the service record stays as it is: %s', error)

    @property
    def _table(self) -> sa.Table:
        return self.own.table('services')

    def _update(
        self,
        connection: sa.Connection,
        values: dict[str, object],
        *where: sa.ColumnElement[bool],
    ) -> bool:
        """Update the row.

        :param where: conditions on the row.
        :return: False if no row exists, or the row does not meet the conditions.
        """
        now = self.utcnow()
        table = self._table
        own = (
            table.c.host == self.host,
            table.c.binary == SCHEDULER,
            table.c.deleted == 0,
        )
        values = self._existing({**values, 'last_seen_up': now, 'updated_at': now})
        statement = sa.update(table).where(*own, *where).values(values)
        return connection.execute(statement).rowcount > 0

    def _existing(self, values: dict[str, object]) -> dict[str, object]:
        """The values with a column in this release of nova."""
        return {name: value for name, value in values.items() if name in self._table.c}

    def _deployment_version(self) -> int:
        """The newest version of all services except schedulers; 0 without such
        services.

        nova takes the lowest version of all services as the capability of the
        deployment, so a version of novasched's own could hold the deployment back, or
        raise the capability too far. Silent cells are left out, and do not prevent the
        start.
        """
        cells = self.cells()
        self._silent_cells &= {cell.uuid for cell in cells}
        # In parallel, so that several silent cells cost one timeout.
        with futures.ThreadPoolExecutor(max(1, len(cells)), 'version') as pool:
            own_version = self._newest_version(self.own)
            return max([own_version, *pool.map(self._newest_of_cell, cells)])

    def _newest_of_cell(self, cell: Cell) -> int:
        try:
            version = self._newest_version(cell.database)
        except DatabaseUnavailable as error:
            level = logging.WARNING
            if cell.uuid in self._silent_cells:
                level = logging.DEBUG
            self._silent_cells.add(cell.uuid)
            DB_LOG.log(
                level,
                'Failed to get service versions for cell %s: %s',
                cell.uuid,
                error,
            )
            return 0
        self._silent_cells.discard(cell.uuid)
        return version

    @staticmethod
    def _newest_version(database: Database) -> int:
        def newest(connection: sa.Connection) -> int:
            services = database.select('services', ('version', 'binary')).subquery()
            is_no_scheduler = services.c.binary != SCHEDULER
            newest_version = sa.func.max(services.c.version)
            statement = sa.select(newest_version).where(is_no_scheduler)
            return connection.execute(statement).scalar() or 0

        return database.read(newest)


ServiceGroup = DatabaseServiceGroup | MemcachedServiceGroup


def service_key(binary: str, host: str) -> str:
    """The key of a service in memcached, before the region mangles the key."""
    return f'{_topic(binary)}:{host}'


def _topic(binary: str) -> str:
    return binary.removeprefix('nova-')


def service_group(
    conf: cfg.ConfigOpts, settings: Settings, host: str, utcnow: Callable[[], datetime]
) -> ServiceGroup:
    """The service group of ``[DEFAULT] servicegroup_driver``.

    :raises ConfigError: the memcached of ``[cache]`` cannot be used.
    """
    if settings.servicegroup_driver != 'mc':
        return DatabaseServiceGroup(settings.service_down_time)
    return MemcachedServiceGroup(
        cache_region(conf, settings.service_down_time), host, utcnow
    )
