# SPDX-License-Identifier: Apache-2.0
"""A data centre: each server of its own, so that each can fail alone."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.lab import placement_api, servers
from tests.lab.compute_rows import Compute
from tests.lab.daemon import Daemon
from tests.lab.keystone import Keystone
from tests.lab.nova_cloud import NovaCloud
from tests.lab.nova_release import Config, NovaRelease
from tests.lab.placement_api import PlacementProcess
from tests.lab.proxy import Proxy
from tests.lab.steady import Caller

from .clock import Clock

HOSTS = 20
CELL_TIMEOUT = 3
LOGGER = 'oslo_messaging._drivers.amqpdriver'
REPLY = 'received reply msg_id: %s'


class Replies(logging.Filter):
    """How many replies came for each call, those included for which nobody waits any more:
    oslo.messaging's client tells of each. What it tells goes no further, since it would drown
    what a failed test shows."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.msg == REPLY:
            self.counts[record.getMessage()] += 1
        return record.levelno > logging.DEBUG

    def several(self) -> list[str]:
        return [call for call, count in self.counts.items() if count > 1]


@contextmanager
def counted_replies() -> Iterator[Replies]:
    """What the clients of this process get from now on."""
    replies, logger = Replies(), logging.getLogger(LOGGER)
    before = logger.level
    logger.setLevel(logging.DEBUG)
    logger.addFilter(replies)
    try:
        yield replies
    finally:
        logger.removeFilter(replies)
        logger.setLevel(before)


@dataclass
class Site:
    """What faults happen to. The second cell has a database server of its own; all else is on
    the first. Schedulers reach Placement through the proxy."""

    cloud: NovaCloud
    rabbitmq: servers.RabbitMQ
    mariadb: servers.MariaDB
    second: servers.MariaDB
    placement: PlacementProcess
    proxy: Proxy
    keystone: Keystone
    clock: Clock
    caller: Caller
    replies: Replies
    daemons: Sequence[Daemon] = ()

    def config(self, overrides: Config | None = None) -> Config:
        """What schedulers have in nova.conf here; overrides win."""
        base: dict[str, dict[str, object]] = {
            # Nobody reports for the computes, which shall be up all the time.
            'DEFAULT': {'service_down_time': 1_000_000},
            'placement': {'endpoint': self.proxy.url},
            'novasched': {'cell_timeout': CELL_TIMEOUT},
        }
        for section, options in (overrides or {}).items():
            base[section] = {**base.get(section, {}), **options}
        return base

    @contextmanager
    def running(
        self,
        daemons: int = 1,
        overrides: Config | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Iterator[Site]:
        """So many schedulers share the queue, until the end of the block."""
        config = self.config(overrides)
        with ExitStack() as stack:
            self.daemons = [
                stack.enter_context(Daemon(self.cloud, config, environment=environment))
                for _ in range(daemons)
            ]
            try:
                yield self
            finally:
                self.daemons = ()

    def workers(self) -> list[psutil.Process]:
        return [
            worker for daemon in self.daemons for worker in psutil.Process(daemon.pid).children()
        ]

    @contextmanager
    def frozen_workers(self) -> Iterator[None]:
        frozen = self.workers()
        for each in frozen:
            each.suspend()
        try:
            yield
        finally:
            for each in frozen:
                each.resume()


class Crew:
    """Schedulers that stay from one fault to the next, as they do in data centres: while the
    same ones are wanted, and no test fails."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._stack = ExitStack()
        self._wanted: object = None

    @contextmanager
    def of(self, *wanted: Any) -> Iterator[None]:
        """Those that :meth:`Site.running` starts; they stay after the block."""
        if wanted != self._wanted:
            self.dismiss()
            self._stack.enter_context(self._site.running(*wanted))
            self._wanted = wanted
        try:
            yield
        except BaseException:
            self.dismiss()
            raise

    def dismiss(self) -> None:
        self._wanted = None
        self._stack.close()


def hosts() -> list[Compute]:
    """Hosts without end in both cells."""
    return [
        Compute(
            f'host-{number}', ('cell1', 'cell2')[number % 2],
            vcpus=1_000_000, ram_mb=500_000_000, disk_gb=10_000_000,
        )
        for number in range(HOSTS)
    ]  # fmt: skip


@contextmanager
def site(nova: NovaRelease, directory: Path) -> Iterator[Site]:
    with ExitStack() as stack:
        rabbitmq, mariadb, second = (
            stack.enter_context(each())
            for each in (servers.RabbitMQ, servers.MariaDB, servers.MariaDB)
        )
        placement = stack.enter_context(placement_api.placement(mariadb.url, directory))
        proxy = stack.enter_context(Proxy(placement.url))
        cloud = NovaCloud(
            nova,
            directory,
            amqp_url=rabbitmq.url,
            database_url=mariadb.url,
            placement_url=placement.url,
            elsewhere={'cell2': second.url},
        )
        stack.callback(cloud.disconnect)
        cloud.add_hosts(hosts())
        yield Site(
            cloud=cloud,
            rabbitmq=rabbitmq,
            mariadb=mariadb,
            second=second,
            placement=placement,
            proxy=proxy,
            keystone=stack.enter_context(Keystone()),
            clock=Clock(directory / 'clock'),
            caller=stack.enter_context(Caller(cloud.config('caller'))),
            replies=stack.enter_context(counted_replies()),
        )
