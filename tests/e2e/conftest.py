# SPDX-License-Identifier: Apache-2.0
"""One cloud for all scenarios. Each scenario runs with nova-scheduler first, then with
novasched."""

from contextlib import ExitStack, closing

import pytest

from tests.lab import fixtures, placement_api
from tests.lab.daemon import Daemon
from tests.lab.nova_cloud import NovaCloud

from .services import ImageService, NetworkService
from .small_cloud import SmallCloud

directory = fixtures.directory
nova = fixtures.nova
mariadb = fixtures.mariadb
rabbitmq = fixtures.rabbitmq

RESHAPE = '"placement:reshaper:reshape": "role:admin"\n'
"""A rule of Placement's policy. When a server moves, nova-compute may claim other
devices than Placement has allocated, and corrects the allocations with POST
/reshaper. By default, the role ``service`` may do that; without Keystone, nova-compute
is admin."""

REFERENCE = 'nova-scheduler'
OURS = 'novasched'


@pytest.fixture(scope='session')
def placement(mariadb, directory):
    policy = directory / 'placement-policy.yaml'
    policy.write_text(RESHAPE)
    environment = {'OS_OSLO_POLICY__POLICY_FILE': str(policy)}
    with placement_api.placement(
        mariadb.url, directory, environment=environment
    ) as process:
        yield process


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
    """The scheduler that the cloud does not use by default, started beside the other
    scheduler."""
    current = request.node.callspec.params['scheduler']
    name = OURS if current == REFERENCE else REFERENCE
    with _daemon(name, cloud, nova) as daemon:
        yield daemon


def _daemon(name, cloud, nova):
    command = []
    if name == REFERENCE:
        command.append(nova.script(REFERENCE))
    return Daemon(cloud.databases, cloud.config, command)


@pytest.fixture
def cloud(whole_cloud, scheduler):
    """The cloud, without servers. After the scenario, Placement's allocations equal the
    resources of the servers; after their deletion, Placement has no allocations."""
    yield whole_cloud
    try:
        whole_cloud.check_allocations()
    finally:
        whole_cloud.delete_servers()
        whole_cloud.check_allocations()
