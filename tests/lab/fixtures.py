# SPDX-License-Identifier: Apache-2.0
"""Fixtures that suites with real servers share: the servers, a cloud, and nova's
client."""

import signal
from contextlib import closing

import pytest

from tests.lab import known_secrets, placement_api, servers
from tests.lab.daemon import NovaClient
from tests.lab.nova_cloud import NovaCloud
from tests.lab.nova_release import NovaRelease


@pytest.fixture(scope='session', autouse=True)
def nothing_is_told(tmp_path_factory):
    """No log of this run shows a password or a token of it."""
    yield
    assert list(known_secrets.leaks(tmp_path_factory.getbasetemp())) == []


@pytest.fixture(scope='session')
def directory(tmp_path_factory):
    """Where this run keeps its configuration files and logs."""
    return tmp_path_factory.mktemp('cloud')


@pytest.fixture(scope='session')
def nova():
    """nova's release. Everything else depends on it, so that a run which lacks it ends
    before it starts a server."""
    # The end that a killed run would not have: the servers are stopped.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    return NovaRelease.find()


@pytest.fixture(scope='session')
def mariadb(nova):
    with servers.MariaDB() as server:
        yield server


@pytest.fixture(scope='session')
def rabbitmq(nova):
    with servers.RabbitMQ() as server:
        yield server


@pytest.fixture(scope='session')
def placement(mariadb, directory):
    """Placement, a process of its own on the database server."""
    with placement_api.placement(mariadb.url, directory) as process:
        yield process


@pytest.fixture(scope='session')
def cloud(nova, mariadb, rabbitmq, placement, directory):
    """A cloud of two cells without a host; who uses it starts with cloud.reset()."""
    made = NovaCloud(
        nova,
        directory,
        amqp_url=rabbitmq.url,
        database_url=mariadb.url,
        placement_url=placement.url,
    )
    with closing(made):
        yield made


@pytest.fixture(scope='session')
def client(nova, cloud):
    with closing(NovaClient(nova, cloud.config('client'))) as made:
        yield made
