# SPDX-License-Identifier: Apache-2.0
"""Common fixtures of suites with real servers: the servers, a cloud, and nova's
client."""

import os
import signal
from contextlib import closing
from types import SimpleNamespace

import pytest

from tests.lab import known_secrets, placement_api, servers
from tests.lab.daemon import NovaClient
from tests.lab.nova_cloud import NovaCloud
from tests.lab.nova_release import NovaRelease

MYSQL_URL = os.environ.get('NOVASCHED_TEST_MYSQL')
"""The URL of a MySQL server that runs already. None or empty: the tests start a
MariaDB."""


@pytest.fixture(scope='session', autouse=True)
def nothing_is_told(tmp_path_factory):
    """No log of this run shows a password or a token of the run."""
    yield
    assert list(known_secrets.leaks(tmp_path_factory.getbasetemp())) == []


@pytest.fixture(scope='session')
def directory(tmp_path_factory):
    """The directory of the run for configuration files and logs."""
    return tmp_path_factory.mktemp('cloud')


@pytest.fixture(scope='session')
def nova():
    """The release of nova. The other fixtures depend on nova, so that a run without nova
    ends before a server starts."""
    # SIGTERM shall end the run in an orderly way, and stop the servers.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    return NovaRelease.find()


@pytest.fixture(scope='session')
def mariadb(nova):
    """A private MariaDB, or the MySQL server at :data:`MYSQL_URL`."""
    if MYSQL_URL:
        yield SimpleNamespace(url=MYSQL_URL)
        return
    with servers.MariaDB() as server:
        yield server


@pytest.fixture(scope='session')
def rabbitmq(nova):
    with servers.RabbitMQ() as server:
        yield server


@pytest.fixture(scope='session')
def placement(mariadb, directory):
    """Placement as a process, on the database server."""
    with placement_api.placement(mariadb.url, directory) as process:
        yield process


@pytest.fixture(scope='session')
def cloud(nova, mariadb, rabbitmq, placement, directory):
    """A cloud of two cells. Tests of the cloud begin with ``cloud.reset()``."""
    nova_cloud = NovaCloud(
        nova,
        directory,
        amqp_url=rabbitmq.url,
        database_url=mariadb.url,
        placement_url=placement.url,
    )
    with closing(nova_cloud):
        yield nova_cloud


@pytest.fixture(scope='session')
def client(nova, cloud):
    with closing(NovaClient(nova, cloud.config('client'))) as nova_client:
        yield nova_client
