# SPDX-License-Identifier: Apache-2.0
"""One data centre for all faults, and the table of what became of requests."""

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
    """``--quick`` leaves out what is marked as long."""
    if config.getoption('--quick'):
        long = [each for each in items if each.get_closest_marker('long')]
        config.hook.pytest_deselected(items=long)
        items[:] = [each for each in items if each not in long]
    if is_reference():
        for each in items:
            if Path(__file__).parent in each.path.parents:
                each.add_marker(pytest.mark.skip(reason='nova-scheduler promises less'))


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
    """Servers, a cloud with hosts, and no scheduler."""
    with Site(nova, directory) as made:
        yield made
