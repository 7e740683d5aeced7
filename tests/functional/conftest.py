# SPDX-License-Identifier: Apache-2.0
"""Fixtures of all functional tests: servers, cloud, client, and novaschedctl."""

import json
from pathlib import Path

import pytest

from novasched.cmd import novaschedctl
from tests.lab import fixtures
from tests.lab.daemon import Daemon, is_reference
from tests.lab.rpc_load import Caller

directory = fixtures.directory
nova = fixtures.nova
mariadb = fixtures.mariadb
rabbitmq = fixtures.rabbitmq
placement = fixtures.placement
cloud = fixtures.cloud
client = fixtures.client
nothing_is_told = fixtures.nothing_is_told

Daemon.forked = True

HERE = Path(__file__).parent
HOLD_FOR_NOVA = ('test_main_job', 'test_numa', 'test_bad_input')
"""Modules whose tests nova-scheduler passes too, as a proof of the tests."""


LONGEST = (
    'test_check',
    'test_databases',
    'test_faults',
    'test_notifications',
    'test_peers',
    'test_host_reader',
    'test_start',
    'test_tls',
    'test_traces',
)
"""Modules whose tests take longest together."""


def pytest_collection_modifyitems(items):
    """Begin with the longest modules, so that none of them is left when all others have
    ended. Skip the tests of novasched's own behaviour if nova-scheduler is under
    test."""
    items.sort(key=lambda item: item.path.stem not in LONGEST)
    if not is_reference():
        return
    for item in items:
        if item.path.parent == HERE and item.path.stem not in HOLD_FOR_NOVA:
            item.add_marker(pytest.mark.skip(reason="it is ours, and not nova's"))


@pytest.fixture(scope='module')
def caller(cloud):
    """A client for several threads, which can address one of several daemons."""
    with Caller(cloud.config('caller')) as caller:
        yield caller


@pytest.fixture(scope='module')
def small_cloud(cloud):
    """The cloud with a single host."""
    cloud.reset()
    cloud.add_host('host-1')
    return cloud


@pytest.fixture
def tool(capsys):
    """A function that runs a command of novaschedctl with a configuration file and
    further arguments; it returns the exit status and the JSON output."""

    def run(command, config, *arguments):
        capsys.readouterr()
        options = ['--config-file', str(config), '--format', 'json']
        status = novaschedctl.main([command, *arguments, *options])
        return status, json.loads(capsys.readouterr().out)

    return run
