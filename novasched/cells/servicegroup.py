# SPDX-License-Identifier: Apache-2.0
"""Which services are heard of: what ``[DEFAULT] servicegroup_driver`` chooses.

``db`` asks the services table. With ``mc`` each service keeps a key in memcached, which
nova's services and ours read and write through oslo.cache, so that they understand each other.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar

import sqlalchemy as sa
from oslo_config import cfg

from novasched.cells.heartbeat import BINARY, TOPIC, Heartbeat
from novasched.cells.mappings import Cell
from novasched.cells.pickles import guard
from novasched.cells.schema import Database
from novasched.errors import ConfigError
from novasched.model.settings import Settings
from novasched.secrets import hide

LOG = logging.getLogger('nova.servicegroup.drivers.mc')
MEMCACHED = 'mc'
MODULES = {
    'bmemcached': 'python-binary-memcached',
    'memcache': 'python-memcached',
    'pylibmc': 'pylibmc',
    'pymemcache': 'pymemcache',
    'redis': 'redis',
}
"""What the backends of oslo.cache import, and the packages that have it."""

Answer = TypeVar('Answer')


@dataclass(frozen=True, slots=True)
class Kind:
    """What the services of one program are called in the services table."""

    binary: str
    topic: str


COMPUTE = Kind('nova-compute', 'compute')
SCHEDULER = Kind(BINARY, TOPIC)


class Group(Protocol):
    """Tells of the services of a database which are not heard of."""

    def silent(
        self,
        base: Database,
        connection: sa.Connection,
        kind: Kind,
        services: Mapping[int, Any],
        now: datetime,
    ) -> frozenset[int]:
        """The ids of those that are silent, of services of one kind by id (rows that have
        ``host``). The database is asked through the connection.

        :raises DBError: the database does not answer.
        """


class DatabaseGroup:
    """Services write to their rows when they are up."""

    def __init__(self, service_down_time: int) -> None:
        """After so many seconds of silence a service is down."""
        self.while_up = timedelta(seconds=service_down_time)

    def silent(
        self,
        base: Database,
        connection: sa.Connection,
        kind: Kind,
        services: Mapping[int, Any],
        now: datetime,
    ) -> frozenset[int]:
        """See :class:`Group`; one query, which finds the few exceptions.

        One that was never heard of is as old as its row. The clocks of hosts differ, so that
        a heartbeat from the near future counts too.
        """
        table = base.table('services')
        heard = sa.func.coalesce(table.c.last_seen_up, table.c.created_at)
        first, last = now - self.while_up, now + self.while_up
        late = sa.or_(heard.is_(None), heard < first, heard > last)
        select = base.select('services', ('id',), binary=kind.binary).where(late)
        return frozenset(connection.execute(select).scalars())


class MemcachedGroup:
    """Services keep a key ``topic:host`` that is younger than ``service_down_time``.

    ``region`` is a dogpile cache region: it makes the keys' names in memcached, and hides
    values that are too old. Memcached is asked by one thread alone: a client remembers for
    minutes which servers are dead, and each thread has a client of its own, so that several
    would tell different stories after an outage.
    """

    def __init__(self, region: Any, host: str, utcnow: Callable[[], datetime]) -> None:
        self._region = region
        self._own = key(SCHEDULER, host)
        self._utcnow = utcnow
        self._thread = futures.ThreadPoolExecutor(1, thread_name_prefix='memcached')
        self._lock = threading.Lock()
        self._reported = False
        self._failing = False

    def beat(self) -> None:
        """Renew our own key, and see that it is there: a client of memcached does not tell
        that it could not write."""

        def write() -> bool:
            self._region.set(self._own, self._utcnow())
            return self._there([self._own])[0]

        if self._asked(write, False):
            self._reported = True
            self._recovered()
        else:
            self._lost('it does not keep our own key')

    def silent(
        self,
        base: Database,
        connection: sa.Connection,
        kind: Kind,
        services: Mapping[int, Any],
        now: datetime,
    ) -> frozenset[int]:
        """See :class:`Group`. All keys are read at once; while memcached does not answer,
        all services are silent."""
        if not services:
            return frozenset()
        names = [key(kind, row.host) for row in services.values()]
        nothing = [False] * (len(names) + 1)
        own, *there = self._asked(lambda: self._there([self._own, *names]), nothing)
        if self._reported and not own and not any(there):
            self._lost('it has no key of any service')
        for name, found in zip(names, there, strict=True):
            if not found:
                LOG.debug('Seems service %s is down', name)
        return frozenset(number for number, found in zip(services, there, strict=True) if not found)

    def _there(self, names: Sequence[str]) -> list[bool]:
        from oslo_cache import core

        return [value is not core.NO_VALUE for value in self._region.get_multi(names)]

    def _asked(self, ask: Callable[[], Answer], otherwise: Answer) -> Answer:
        try:
            return self._thread.submit(ask).result()
        except Exception as error:  # every client of oslo.cache has exceptions of its own
            self._lost(f'{type(error).__name__}: {hide(error)}')
            return otherwise

    def _lost(self, why: str) -> None:
        """Warn, once until it is over."""
        with self._lock:
            first, self._failing = not self._failing, True
        if first:
            LOG.warning(
                'Lost connection to memcache server for reporting service status: %s. All '
                'services count as down.',
                why,
            )

    def _recovered(self) -> None:
        with self._lock:
            was, self._failing = self._failing, False
        if was:
            LOG.info('Recovered connection to memcache server for reporting service status.')


class MemcachedHeartbeat(Heartbeat):
    """The row shows that there is a scheduler; the key in memcached, that it is alive."""

    def __init__(self, group: MemcachedGroup, *row: Any) -> None:
        super().__init__(*row)
        self._group = group

    def join(self) -> None:
        """See :class:`Heartbeat`; the key is there at once."""
        super().join()
        self._group.beat()

    def beat(self) -> None:
        """Renew the key."""
        self._group.beat()


def key(kind: Kind, host: str) -> str:
    """The key of a service, before the region mangles it."""
    return f'{kind.topic}:{host}'


def region(conf: cfg.ConfigOpts, service_down_time: int) -> Any:
    """The cache that ``[cache]`` describes, as nova's services use it.

    :raises ConfigError: there is none, or its client is not installed.
    """
    why = 'servicegroup_driver = mc keeps what services report there'
    try:
        from oslo_cache import core
        from oslo_cache import exception as cache_exc
    except ImportError:
        install = 'install the package oslo.cache (pip install novasched[memcached])'
        raise ConfigError('[DEFAULT] servicegroup_driver', MEMCACHED, install) from None
    core.configure(conf)
    try:
        options = {name: conf.cache[name] for name in ('enabled', 'backend', 'memcache_servers')}
    except cfg.ConfigSourceValueError as error:
        raise ConfigError('[cache]', 'unusable', hide(error)) from None
    unset = {'enabled': False, 'backend': 'dogpile.cache.null', 'memcache_servers': []}
    for name, value in options.items():
        if value == unset[name]:
            raise ConfigError(f'[cache] {name}', value, why)
    conf.set_override('expiration_time', service_down_time, group='cache')
    made = core.create_region()
    try:
        core.configure_cache_region(conf, made)
    except ImportError as error:
        package = MODULES.get(error.name or '', error.name)
        raise ConfigError(
            '[cache] backend', options['backend'], f'install the package {package}'
        ) from None
    except (cache_exc.ConfigurationError, ValueError, OSError) as error:
        raise ConfigError('[cache]', 'unusable', hide(error)) from None
    guard(made)
    return made


def service_group(
    conf: cfg.ConfigOpts,
    settings: Settings,
    own: Database,
    cells: Callable[[], Sequence[Cell]],
    host: str,
    utcnow: Callable[[], datetime],
) -> tuple[Group, Heartbeat]:
    """What tells who is up, and what tells others that we are.

    :raises ConfigError: the memcached that is to be used cannot be.
    """
    group = group_of(conf, settings, host, utcnow)
    if isinstance(group, MemcachedGroup):
        return group, MemcachedHeartbeat(group, own, cells, host, utcnow)
    return group, Heartbeat(own, cells, host, utcnow)


def group_of(
    conf: cfg.ConfigOpts, settings: Settings, host: str, utcnow: Callable[[], datetime]
) -> Group:
    """What tells who is up.

    :raises ConfigError: the memcached that is to be used cannot be.
    """
    if settings.servicegroup_driver != MEMCACHED:
        return DatabaseGroup(settings.service_down_time)
    return MemcachedGroup(region(conf, settings.service_down_time), host, utcnow)
