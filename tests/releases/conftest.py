# SPDX-License-Identifier: Apache-2.0
"""One release of nova after the other: its schemas, its objects, its client, our
daemon."""

import os
from contextlib import closing
from pathlib import Path

import pytest

from novasched.conf.settings import DEFAULT_FILTERS
from tests.lab.compute_rows import Compute
from tests.lab.daemon import Daemon
from tests.lab.fixtures import directory, mariadb, nova, placement, rabbitmq
from tests.lab.nova_cloud import NovaCloud
from tests.lab.nova_release import NovaRelease

from .cloud import CELL, Nova

__all__ = ['directory', 'mariadb', 'nova', 'placement', 'rabbitmq']

VARIABLE = 'NOVASCHED_NOVA_RELEASES'
FILTERS = (*DEFAULT_FILTERS, 'NUMATopologyFilter', 'PciPassthroughFilter')
PINNABLE_SINCE = 20
"""Computes before Train tell Placement of CPUs that can be pinned as of any others."""


def pytest_generate_tests(metafunc):
    """Each test with each release that the environment names a virtualenv of."""
    if 'installed' in metafunc.fixturenames:
        named = os.environ.get(VARIABLE, '').split(os.pathsep)
        found = [Path(each).absolute() for each in named if each]
        if not found:
            pytest.exit(f'name virtualenvs with releases of nova in {VARIABLE}', 3)
        ids = [each.name for each in found]
        metafunc.parametrize(
            'installed', found, ids=ids, indirect=True, scope='session'
        )


@pytest.fixture(scope='session')
def installed(request, nova):
    """A release of nova; the newest one is there for what all of them share."""
    return NovaRelease.of(request.param / 'bin' / 'python')


@pytest.fixture(scope='session')
def cloud(installed, mariadb, rabbitmq, placement, directory):
    """The databases of that release, as its own nova-manage makes them, with one
    cell."""
    urls = {
        'amqp_url': rabbitmq.url,
        'database_url': mariadb.url,
        'placement_url': placement.url,
    }
    with closing(NovaCloud(installed, directory, **urls, cells=[CELL])) as made:
        made.placement.clear()
        yield made


@pytest.fixture(scope='session')
def conductor(installed, cloud):
    """That release at work: 'north-1' and 'north-2' have NUMA cells, the second one has
    PCI devices too; 'south-1' and 'south-2' are in the zone 'south'."""
    pcpus = 16 if int(installed.version.split('.')[0]) >= PINNABLE_SINCE else 0
    north = {'cells': ((8, 16384), (8, 16384))}
    with closing(Nova(installed, cloud)) as made:
        made.add_host(Compute('north-1', CELL, pcpus=pcpus), **north)
        made.add_host(Compute('north-2', CELL, pcpus=pcpus), **north, devices=2)
        made.add_host(Compute('south-1', CELL))
        made.add_host(Compute('south-2', CELL))
        made.zone = made.add_zone('south', ['south-1', 'south-2'])
        yield made


@pytest.fixture(scope='session')
def scheduler(cloud, conductor):
    """The daemon, in a cloud of that release."""
    options = {
        # The computes are seen once, when they start.
        'DEFAULT': {'service_down_time': 3600},
        'filter_scheduler': {'enabled_filters': ','.join(FILTERS)},
    }
    with Daemon(cloud, options) as running:
        yield running
