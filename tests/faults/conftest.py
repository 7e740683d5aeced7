# SPDX-License-Identifier: Apache-2.0
"""The data centre of all faults, and the table of outcomes."""

from pathlib import Path

import pytest

from tests.lab import fixtures
from tests.lab.daemon import is_reference
from tests.lab.tables import rst, show

from .fault import Result, sheet
from .site import Site

directory = fixtures.directory
nova = fixtures.nova

RESULTS = pytest.StashKey[list[Result]]()


def pytest_addoption(parser):
    group = parser.getgroup('faults')
    group.addoption(
        '--quick', action='store_true', help='only the faults that run often'
    )
    group.addoption('--table', type=Path, help='where to write the table of the faults')
    group.addoption(
        '--at-once', type=int, default=5000, help='requests that come at once'
    )


def pytest_configure(config):
    config.stash[RESULTS] = []


def pytest_collection_modifyitems(config, items):
    """Leave out long tests with ``--quick``, and all tests with nova-scheduler."""
    if config.getoption('--quick'):
        long = [item for item in items if item.get_closest_marker('long')]
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]

    if is_reference():
        for item in items:
            if Path(__file__).parent in item.path.parents:
                item.add_marker(pytest.mark.skip(reason='nova-scheduler promises less'))


def pytest_terminal_summary(config):
    results = config.stash[RESULTS]
    if results:
        print()
        show([sheet(results)])
    if results and (path := config.getoption('--table')):
        path.write_text(rst([sheet(results)]))


@pytest.fixture(scope='session')
def results(pytestconfig):
    return pytestconfig.stash[RESULTS]


@pytest.fixture(scope='session')
def site(nova, directory):
    """Servers and a cloud with hosts, without a scheduler."""
    with Site(nova, directory) as running:
        yield running
