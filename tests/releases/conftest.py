# SPDX-License-Identifier: Apache-2.0
"""Fixtures for one release of nova after the other: the schemas, objects and client of
the release, and the daemon."""

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
"""Computes before Train report CPUs for pinning to Placement as plain VCPUs."""


def pytest_generate_tests(metafunc):
    """Run the tests with every release whose virtualenv the environment names."""
    if 'installed' not in metafunc.fixturenames:
        return

    paths = os.environ.get(VARIABLE, '').split(os.pathsep)
    releases = [Path(path).absolute() for path in paths if path]
    if not releases:
        pytest.exit(f'name virtualenvs with releases of nova in {VARIABLE}', 3)
    metafunc.parametrize(
        'installed',
        releases,
        ids=[release.name for release in releases],
        indirect=True,
        scope='session',
    )


@pytest.fixture(scope='session')
def installed(request, nova):
    """A release of nova. The fixture ``nova`` is the newest release, which serves the
    fixtures that all releases share."""
    return NovaRelease.of(request.param / 'bin' / 'python')


@pytest.fixture(scope='session')
def cloud(installed, mariadb, rabbitmq, placement, directory):
    """The databases of the release, created by its nova-manage, with one cell."""
    urls = {
        'amqp_url': rabbitmq.url,
        'database_url': mariadb.url,
        'placement_url': placement.url,
    }
    with closing(NovaCloud(installed, directory, **urls, cells=[CELL])) as databases:
        databases.placement.clear()
        yield databases


@pytest.fixture(scope='session')
def conductor(installed, cloud):
    """The computes, API and conductor of the release.

    'north-1' and 'north-2' have NUMA cells, and 'north-2' has PCI devices. 'south-1'
    and 'south-2' are in the availability zone 'south'.
    """
    major = int(installed.version.split('.')[0])
    pcpus = 16 if major >= PINNABLE_SINCE else 0
    cells = ((8, 16384), (8, 16384))
    with closing(Nova(installed, cloud)) as running:
        running.add_host(Compute('north-1', CELL, pcpus=pcpus), cells)
        running.add_host(Compute('north-2', CELL, pcpus=pcpus), cells, devices=2)
        running.add_host(Compute('south-1', CELL))
        running.add_host(Compute('south-2', CELL))
        running.zone = running.add_zone('south', ['south-1', 'south-2'])
        yield running


@pytest.fixture(scope='session')
def scheduler(cloud, conductor):
    """The daemon, in a cloud of the release."""
    options = {
        # The computes report only once, when they start.
        'DEFAULT': {'service_down_time': 3600},
        'filter_scheduler': {'enabled_filters': ','.join(FILTERS)},
    }
    with Daemon(cloud, options) as running:
        yield running
