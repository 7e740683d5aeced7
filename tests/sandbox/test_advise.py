# SPDX-License-Identifier: Apache-2.0
"""``novaschedctl simulate advise`` on the history of a sandbox."""

import json
from datetime import timedelta

import pytest
import sqlalchemy as sa
from oslo_utils import timeutils

from novasched.cmd import novaschedctl
from novasched.scheduler.model.flavor import Flavor
from novasched.tools.sandbox import databases as tables
from novasched.tools.sandbox.cloud import Sandbox
from novasched.tools.sandbox.computes import SandboxHost
from tests.lab.sandboxed import disable, offer

SMALL = Flavor('small', 's', 1, 1, 1024, 1)
LARGE = Flavor('large', 'l', 2, 3, 7168, 1)
SPECIAL = Flavor(
    'special', 'x', 3, 1, 64, 1, extra_specs={'trait:HW_CPU_X86_AVX': 'forbidden'}
)
HOSTS = 4
MACHINES = [
    SandboxHost(f'h{number}', memory_mb=8704, vcpus=4, cpu_allocation_ratio=1.0)
    for number in range(HOSTS)
]
"""Hosts with 8 GiB for servers: beside two small servers, a large one does not fit."""


@pytest.fixture
def cloud():
    """A cloud with a small server on each host. The database has rows of as many large
    servers less one, which came later."""
    with Sandbox([*MACHINES, SandboxHost('off')]) as sandbox:
        for flavor in (SMALL, LARGE):
            offer(sandbox, flavor)
        disable(sandbox, 'off')
        for _ in range(HOSTS):
            assert sandbox.boot(SMALL).servers
        age(sandbox, 2)
        yield sandbox


def age(cloud, days):
    """Let all servers be older."""
    moment = timeutils.utcnow() - timedelta(days=days)
    for engine in cloud.databases.cells.values():
        with engine.begin() as connection:
            values = {'created_at': moment, 'launched_at': moment}
            connection.execute(sa.update(tables.instances).values(values))


def add_later(cloud, flavor, number):
    """Add the rows of servers that came a day ago."""
    moment = timeutils.utcnow() - timedelta(days=1)
    rows = []
    for index in range(number):
        row = {
            'uuid': f'later-{index}',
            'host': f'h{index}',
            'node': f'h{index}',
            'vcpus': flavor.vcpus,
            'memory_mb': flavor.memory_mb,
            'root_gb': flavor.root_gb,
            'ephemeral_gb': 0,
            'instance_type_id': flavor.id,
            'project_id': 'later',
            'deleted': 0,
            'created_at': moment,
            'launched_at': moment,
        }
        rows.append(row)
    with cloud.databases.cells['cell1'].begin() as connection:
        connection.execute(sa.insert(tables.instances), rows)


def advised(cloud, capsys):
    """The advice as JSON and as text."""
    said = []
    for arguments in (['--format', 'json'], []):
        command = ['simulate', 'advise', *arguments, *cloud.configuration]
        assert novaschedctl.main(command) == 0
        said.append(capsys.readouterr().out)
    return json.loads(said[0]), said[1]


def test_the_present_setting_stays_if_no_setting_fills_better(cloud, capsys):
    """Every setting places small servers. A server whose flavor names a trait is left
    out."""
    offer(cloud, SPECIAL)
    assert cloud.boot(SPECIAL).servers
    said, text = advised(cloud, capsys)
    assert [each['refused'] for each in said['settings']] == [0] * 4
    assert said['left_out'] == 1
    assert said['best'] == 'as it is'
    assert 'No other setting fills the cloud better.' in text
    # Spreading leaves a small server on each of four hosts.
    assert 0 < said['settings'][0]['in_use'] <= 1


def test_a_setting_that_refuses_fewer_instances_is_proposed(cloud, capsys):
    """After two small servers on each host by spreading, no large server fits. Stacking
    leaves whole hosts."""
    for _ in range(HOSTS):
        assert cloud.boot(SMALL).servers
    age(cloud, 2)
    add_later(cloud, LARGE, 2)
    said, text = advised(cloud, capsys)
    refused = {each['setting']: each['refused'] for each in said['settings']}
    assert refused['as it is'] == refused['spreading'] == 2
    assert refused['stacking'] == refused['usable capacity'] == 0
    assert f'Proposed: {said["best"]}.' in text
    for name in said['options']:
        assert name.partition('.')[2] in text


def test_advice_without_recent_instances_is_an_error(cloud, capsys):
    """Servers that were deleted long ago tell nothing."""
    for engine in cloud.databases.cells.values():
        with engine.begin() as connection:
            gone = timeutils.utcnow() - timedelta(days=50)
            values = {'deleted': 1, 'deleted_at': gone}
            connection.execute(sa.update(tables.instances).values(values))
    command = ['simulate', 'advise', *cloud.configuration]
    assert novaschedctl.main(command) == 1
    assert 'no instance to learn from' in capsys.readouterr().err
