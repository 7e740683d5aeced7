# SPDX-License-Identifier: Apache-2.0
"""The page for people, where nova.conf wants it: what the process that serves HTTP has for it."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from oslo_config import cfg
from oslo_utils import timeutils

from novasched import conf as configuration
from novasched.cells.aggregates import AggregateReader
from novasched.cells.engines import connect
from novasched.cells.mappings import Cells
from novasched.cells.servicegroup import group_of
from novasched.cells.snapshot import HostReader
from novasched.errors import ConfigError
from novasched.inflight import InFlight
from novasched.model.host import Host
from novasched.model.settings import Settings
from novasched.monitoring import Monitoring
from novasched.web.server import Web

if TYPE_CHECKING:
    from novasched.page.app import Page

OPTION = '[novasched] page'
NEEDED = ('jinja2',)
"""What the extra ``page`` brings, beside what ``metrics`` does."""


class Databases:
    """Reads the hosts from nova's databases. Implements :class:`novasched.page.watch.Reader`."""

    def __init__(self, hosts: HostReader) -> None:
        self._hosts = hosts

    def names(self) -> Mapping[str, str]:
        """See :class:`novasched.page.watch.Reader`."""
        return {cell.uuid: cell.name or cell.uuid for cell in self._hosts.cells.enabled()}

    def hosts(self) -> Mapping[str, Collection[Host]]:
        """See :class:`novasched.page.watch.Reader`."""
        cells = self._hosts.snapshot().cells
        return {uuid: tuple(hosts.values()) for uuid, hosts in cells.items()}

    def stale(self) -> bool:
        """See :class:`novasched.page.watch.Reader`."""
        return self._hosts.aggregates.failing

    def renew(self) -> None:
        """See :class:`novasched.page.watch.Reader`."""
        self._hosts.renew()


def page_of(conf: cfg.ConfigOpts) -> Callable[[], Page] | None:
    """What makes the page, in the process that serves it; None if nova.conf wants none.

    :raises ConfigError: it cannot be had.
    """
    if not configuration.page(conf):
        return None
    if configuration.metrics_bind(conf) is None:
        raise ConfigError(OPTION, True, 'it is served where [novasched] metrics_bind says')
    for name in NEEDED:
        if importlib.util.find_spec(name) is None:
            why = f'{name} is not installed: pip install novasched[page]'
            raise ConfigError(OPTION, True, why)
    return functools.partial(_page, conf)


def web(watch: Monitoring, make: Callable[[], Page] | None) -> Web:
    """What the process does that serves HTTP, with the page or without."""
    if make is None:
        return watch.web()
    from novasched.web.surface import surface

    page = make()
    return Web(watch.socket, surface(watch.directory, page), page.renew)


def _page(conf: cfg.ConfigOpts) -> Page:
    from novasched.page.app import Page
    from novasched.page.watch import Watch

    settings = configuration.settings(conf)
    return Page(
        Watch(functools.partial(_databases, conf, settings)),
        configuration.decisions_file(conf),
        settings.default_availability_zone,
        configuration.page_remote(conf),
    )


def _databases(conf: cfg.ConfigOpts, settings: Settings) -> Databases:
    """The hosts as a scheduler reads them, with connections of their own.

    :raises DatabaseUnavailable: the API database cannot be reached.
    """
    group, patience = conf.api_database, settings.cell_timeout
    api = connect(group, group.connection, '[api_database] connection', patience=patience)
    cells = Cells(api, conf.database, patience)
    cells.refresh()
    services = group_of(conf, settings, configuration.host(conf), timeutils.utcnow)
    nobody = InFlight(settings)
    return Databases(
        HostReader(settings, cells, AggregateReader(api), nobody, services, timeutils.utcnow)
    )
