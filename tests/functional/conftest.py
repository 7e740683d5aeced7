# SPDX-License-Identifier: Apache-2.0
"""The servers, the cloud and the client that all functional tests share."""

from __future__ import annotations

import secrets
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from . import hidden, servers
from .client import NovaClient
from .nova_cloud import NovaCloud
from .nova_release import NovaRelease, Schemas
from .placement_api import PlacementProcess


@pytest.fixture(scope='session', autouse=True)
def nothing_is_told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No log of this run shows a password or a token of it."""
    yield
    assert list(hidden.leaks(tmp_path_factory.getbasetemp())) == []


@pytest.fixture(scope='session')
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where this run keeps its configuration files and logs."""
    return tmp_path_factory.mktemp('cloud')


@pytest.fixture(scope='session')
def nova() -> NovaRelease:
    """nova's release. Everything else depends on it, so that a run which lacks it ends
    before it starts a server."""
    # The end that a killed run would not have: the servers are stopped.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    return NovaRelease.find()


@pytest.fixture(scope='session')
def mariadb(nova: NovaRelease) -> Iterator[servers.Server]:
    """The database server."""
    with closing(servers.mariadb()) as server:
        yield server


@pytest.fixture(scope='session')
def rabbitmq(nova: NovaRelease) -> Iterator[servers.Server]:
    """The message broker."""
    with closing(servers.rabbitmq()) as server:
        yield server


@pytest.fixture(scope='session')
def placement(mariadb: servers.Server, directory: Path) -> Iterator[PlacementProcess]:
    """Placement, a process of its own on the database server."""
    name = f'novasched_{secrets.token_hex(4)}_placement'
    try:
        connection = servers.create_database(mariadb.url, name)
        with closing(PlacementProcess(connection, directory)) as server:
            server.start()
            yield server
    finally:
        servers.drop_database(mariadb.url, name)


@pytest.fixture(scope='session')
def cloud(
    nova: NovaRelease,
    mariadb: servers.Server,
    rabbitmq: servers.Server,
    placement: PlacementProcess,
    directory: Path,
) -> Iterator[NovaCloud]:
    """A cloud of two cells without a host; who uses it starts with cloud.reset()."""
    made = NovaCloud(
        nova,
        Schemas(nova, directory),
        directory,
        amqp_url=rabbitmq.url,
        database_url=mariadb.url,
        placement_url=placement.url,
    )
    with closing(made):
        yield made


@pytest.fixture(scope='session')
def client(nova: NovaRelease, cloud: NovaCloud) -> Iterator[NovaClient]:
    """nova's own client."""
    with closing(NovaClient(nova, cloud.config('client'))) as made:
        yield made
