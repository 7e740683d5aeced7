# SPDX-License-Identifier: Apache-2.0
"""One cloud for all scenarios; each runs with nova-scheduler, then with novasched in
its place."""

from contextlib import ExitStack, closing

import pytest

from tests.lab import fixtures
from tests.lab.daemon import Daemon
from tests.lab.nova_cloud import NovaCloud

from .services import ImageService, NetworkService
from .small_cloud import SmallCloud

directory = fixtures.directory
nova = fixtures.nova
mariadb = fixtures.mariadb
rabbitmq = fixtures.rabbitmq
placement = fixtures.placement

REFERENCE = 'nova-scheduler'
OURS = 'novasched'


@pytest.fixture(scope='session')
def whole_cloud(nova, mariadb, rabbitmq, placement, directory):
    urls = {
        'amqp_url': rabbitmq.url,
        'database_url': mariadb.url,
        'placement_url': placement.url,
    }
    with (
        closing(NovaCloud(nova, directory, **urls, cells=['cell1'])) as databases,
        closing(ImageService(directory)) as images,
        NetworkService() as network,
        ExitStack() as stack,
    ):
        images.start()
        cloud = SmallCloud(databases, images, network)
        cloud.start(stack)
        yield cloud


@pytest.fixture(scope='session', params=[REFERENCE, OURS])
def scheduler(request, whole_cloud, nova):
    with _daemon(request.param, whole_cloud, nova) as daemon:
        yield daemon


@pytest.fixture
def other_scheduler(request, cloud, scheduler, nova):
    """The one of the two that is not the cloud's, beside it."""
    current = request.node.callspec.params['scheduler']
    with _daemon(OURS if current == REFERENCE else REFERENCE, cloud, nova) as daemon:
        yield daemon


def _daemon(name, cloud, nova):
    command = [nova.script(REFERENCE)] if name == REFERENCE else []
    return Daemon(cloud.databases, cloud.config, command)


@pytest.fixture
def cloud(whole_cloud, scheduler):
    """The cloud, without servers. After the scenario Placement holds exactly what its
    servers take; deleted, they hold nothing."""
    yield whole_cloud
    try:
        whole_cloud.check_allocations()
    finally:
        whole_cloud.api.delete(*(server.uuid for server in whole_cloud.api.servers()))
        whole_cloud.check_allocations()
