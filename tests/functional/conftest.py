# SPDX-License-Identifier: Apache-2.0
"""The servers, the cloud and the client that all functional tests share; and the
tool."""

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
"""The modules that are run where nova's own scheduler is under test, to prove them."""


def pytest_collection_modifyitems(items):
    """Leave out, where that is so, those for which it is no nova-scheduler's matter."""
    if is_reference():
        for item in items:
            if item.path.parent == HERE and item.path.stem not in HOLD_FOR_NOVA:
                item.add_marker(pytest.mark.skip(reason="it is ours, and not nova's"))


@pytest.fixture(scope='module')
def caller(cloud):
    """Asks in several threads, and one of several daemons."""
    with Caller(cloud.config('caller')) as made:
        yield made


@pytest.fixture(scope='module')
def small_cloud(cloud):
    """One host."""
    cloud.reset()
    cloud.add_host('host-1')
    return cloud


@pytest.fixture
def tool(capsys):
    """Runs a command of novaschedctl with a configuration file and further arguments:
    the exit status, and the JSON."""

    def run(command, config, *arguments):
        capsys.readouterr()
        options = ['--config-file', str(config), '--format', 'json']
        status = novaschedctl.main([command, *arguments, *options])
        return status, json.loads(capsys.readouterr().out)

    return run
