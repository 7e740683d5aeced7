# SPDX-License-Identifier: Apache-2.0
"""``novaschedctl explain --make-room``: whether moves would help a request that the real
scheduler has refused."""

import json
from contextlib import closing

import pytest

from novasched.cmd import novaschedctl
from novasched.observe.records.store import RecordReader
from novasched.scheduler.model.flavor import Flavor
from novasched.tools.sandbox.cloud import Sandbox
from novasched.tools.sandbox.computes import SandboxHost
from tests.lab.processes import wait_until
from tests.lab.sandboxed import offer

from .test_simulate import stock

MEMORY_MB = 16_000
MIDDLE = Flavor('middle', 'm', 1, 1, 6_000, 1)
LARGE = Flavor('large', 'l', 2, 1, 12_000, 1)
HUGE = Flavor('huge', 'h', 3, 1, 2 * MEMORY_MB, 1)
HOSTS = ('a', 'b', 'c')
PATIENCE_S = 30


@pytest.fixture(scope='module')
def path(tmp_path_factory):
    """The file for the decisions of the scheduler."""
    return str(tmp_path_factory.mktemp('decisions') / 'decisions.sqlite')


@pytest.fixture(scope='module')
def cloud(path):
    """Three hosts, each with a server whose move to another host would empty the
    host."""
    machines = []
    for name in HOSTS:
        machines.append(
            SandboxHost(
                name, memory_mb=MEMORY_MB, reserved_memory_mb=0, ram_allocation_ratio=1
            )
        )
    options = {'novasched': {'decisions_file': path}}
    with Sandbox(machines, options) as made:
        for flavor in (MIDDLE, LARGE, HUGE):
            offer(made, flavor)
        for name in HOSTS:
            made.boot(MIDDLE, force_hosts=[name])
        yield made


def decision_on(cloud, path, flavor, count=1, **fields):
    """The id of the decision on new servers. Records are written in the background."""
    boot = cloud.boot(flavor, count=count, **fields)
    found = []

    def is_recorded():
        with closing(RecordReader(path)) as reader:
            found[:] = reader.of(boot.uuids[0])
        return bool(found)

    wait_until(is_recorded, PATIENCE_S, 'the record of the decision')
    return found[0].id


@pytest.fixture
def ctl(cloud, capsys):
    """Runs a command; the output, then the error."""

    def run(*arguments, status=0):
        assert novaschedctl.main([*arguments, *cloud.configuration]) == status
        said = capsys.readouterr()
        return said.out + said.err

    return run


def test_the_number_of_moves_is_told_with_the_command_that_lists_them(cloud, path, ctl):
    decision = decision_on(cloud, path, LARGE)
    said = ctl('explain', decision)
    assert said.endswith(
        'Add --make-room to see whether moves of other servers would make room.\n'
    )

    command = f'novaschedctl plan make-room --decision {decision}'
    said = ctl('explain', decision, '--make-room')
    assert said.endswith(f'1 move of other servers makes room: {command}\n')
    plan = json.loads(ctl(*command.split()[1:], '--format', 'json'))
    [[move]] = plan['steps']
    assert {move['source'], move['host']} < {*HOSTS}
    assert plan['goal'] == 'make room for 1 large'


@pytest.mark.parametrize(
    ('flavor', 'count', 'answer'),
    [
        (
            LARGE,
            2,
            'Moves of other servers do not make room: no way was found with up to 3 more'
            ' moves.',
        ),
        (
            HUGE,
            1,
            'Moves of other servers do not make room: no host takes huge, not even'
            ' without the servers that may move.',
        ),
    ],
)
def test_the_answer_says_what_moves_would_bring(
    cloud, path, ctl, flavor, count, answer
):
    decision = decision_on(cloud, path, flavor, count)
    said = ctl('explain', decision, '--make-room')
    assert said.splitlines()[-1] == answer


def test_room_that_has_come_meanwhile_needs_no_moves(cloud, path, ctl):
    decision = decision_on(cloud, path, LARGE)
    more = {'total': 2 * MEMORY_MB, 'allocation_ratio': 1.0}
    stock(cloud, 'a', MEMORY_MB=more)
    said = ctl('explain', decision, '--make-room')
    stock(cloud, 'a', MEMORY_MB={**more, 'total': MEMORY_MB})
    assert said.splitlines()[-1] == 'There is room by now.'


def test_an_answer_in_a_sentence_is_no_json(ctl):
    said = ctl('explain', '--last', '--make-room', '--format', 'json', status=2)
    assert said.count('\n') == 1
    assert '--make-room answers in a sentence' in said


def test_room_is_made_for_one_server_of_a_group_at_a_time(cloud, path, ctl):
    group = cloud.group('anti-affinity')
    decision = decision_on(cloud, path, LARGE, 2, group=group)
    said = ctl('explain', decision, '--make-room', status=1)
    assert 'for one server of a server group at a time' in said
