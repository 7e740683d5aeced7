# SPDX-License-Identifier: Apache-2.0
"""``novaschedctl plan``: arguments, formats, and the exit status."""

import json
from pathlib import Path

import pytest

from novasched.cmd import novaschedctl
from novasched.tools.plan.plan_file import read_plan
from novasched.tools.simulate.sources import Unusable
from tests.lab.described_plan import a_cloud

DOCUMENTATION = Path(__file__).parents[4] / 'doc' / 'source'
SERVERS = (
    {'name': 'web', 'flavor': 'small', 'host': 'a-00000', 'project': 'p1'},
    {
        'name': 'db; rm -rf /',
        'flavor': 'small',
        'host': 'a-00000',
        'metadata': {'stay': ''},
        'state': 'stopped',
    },
)


@pytest.fixture
def plan(tmp_path, capsys):
    """Runs the command on a small cloud; the exit status, and both outputs."""
    description = a_cloud(2, (4, 4096), {'small': (1, 1024), 'big': (4, 4096)}, SERVERS)
    cloud = tmp_path / 'cloud.json'
    cloud.write_text(json.dumps(description))
    conf = tmp_path / 'nova.conf'
    conf.write_text('[DEFAULT]\n')

    def run(command):
        given = f'plan {command} --cloud {cloud} --config-file {conf}'
        try:
            status = novaschedctl.main(given.split())
        except SystemExit as ended:
            status = ended.code
        said = capsys.readouterr()
        return status, said.out, said.err

    return run


@pytest.mark.parametrize(
    ('command', 'why'),
    [
        ('', 'invalid choice'),
        ('shuffle', "invalid choice: 'shuffle'"),
        ('make-room', 'one of the arguments --flavor --decision is required'),
        ('make-room --flavor small --decision d', 'not allowed with argument'),
        ('make-room --flavor small --count 0', 'a number must be from 1 to'),
        ('empty', 'the following arguments are required: KIND=NAME'),
        ('empty rack=1', "'rack=1' does not begin with host=, aggregate=, zone="),
        ('spread --threshold 80', "'80' is no share from 0 to 1"),
        ('spread --margin nan', "'nan' is no share from 0 to 1"),
        ('pack --except host=a', 'does not begin with project=, flavor=, aggregate='),
        ('pack --at-most 0', 'a number must be from 1 to'),
        ('pack --format xml', 'invalid choice'),
    ],
)
def test_wrong_arguments_give_a_line_and_status_2(plan, command, why):
    status, _, said = plan(command)
    assert status == 2
    assert why in said
    assert said.count('\n') == 1


@pytest.mark.parametrize(
    ('command', 'why'),
    [
        ('make-room --flavor none', 'there is no flavor of the id or name none'),
        ('empty host=b', 'host=b: no host of that name has hosts'),
        ('pack --set a.b=c', 'no decision depends on an option of that name'),
    ],
)
def test_unknown_names_give_a_line_and_status_1(plan, command, why):
    status, _, said = plan(command)
    assert status == 1
    assert why in said


def test_a_plan_is_a_table_with_a_row_for_each_move(plan):
    status, said, _ = plan('empty host=a-00000')
    assert status == 0
    lines = said.splitlines()
    assert lines[0] == 'Plan: empty host=a-00000'
    assert lines[1] == (
        '2 of 2 servers leave 1 host: 2 moves in 1 step, at most 1.0 GiB to copy.'
    )
    [row] = [line for line in lines if '| web ' in line]
    assert [cell.strip() for cell in row.strip('|').split('|')] == [
        'web', '1', 'small', 'a-00000', 'a-00001', 'live', '1.0', 'a-00000 is emptied',
    ]  # fmt: skip


def test_a_plan_for_a_shell_names_servers_by_uuid_alone(plan):
    """The name of a server is the text of a user."""
    status, said, _ = plan('empty host=a-00000 --format shell')
    assert status == 0
    comment, step, *commands = said.splitlines()
    assert comment == '# empty host=a-00000: 2 of 2 servers leave 1 host'
    assert step == '# Step 1'
    assert 'rm -rf' not in said
    assert sorted(' '.join(command.split()[:-1]) for command in commands) == [
        'openstack --os-compute-api-version=2.30 server migrate --live-migration --wait'
        ' --host a-00001',
        'openstack --os-compute-api-version=2.56 server migrate --wait --host a-00001',
        'openstack server migration confirm',
    ]


def test_a_plan_in_json_is_read_back(plan, tmp_path):
    status, said, _ = plan('empty host=a-00000 --at-most 1 --format json')
    assert status == 3
    path = tmp_path / 'plan.json'
    path.write_text(said)
    found = read_plan(str(path))
    assert len(found.moves) == 1
    [staying] = found.staying
    assert staying.why == 'no more moves are allowed'


@pytest.mark.parametrize(
    ('exempt', 'staying'),
    [
        ('project=p1', ['web: is excepted (project=p1)']),
        ('metadata=stay', ['db; rm -rf /: is excepted (metadata=stay)']),
        ('flavor=small', ['web', 'db']),
        ('aggregate=none', []),
    ],
)
def test_excepted_servers_stay(plan, exempt, staying):
    status, said, _ = plan(f'empty host=a-00000 --except {exempt}')
    assert status == (3 if staying else 0)
    found = [line.strip() for line in said.splitlines() if 'is excepted' in line]
    assert len(found) == len(staying)
    for line, begin in zip(found, staying, strict=True):
        assert line.startswith(begin)


@pytest.mark.parametrize(
    ('change', 'first', 'why'),
    [
        pytest.param({}, '1 holds, 0 done, 0 void', '', id='as before'),
        pytest.param(
            {'host': 'a-00001'}, '0 holds, 1 done, 0 void', '', id='on its new host'
        ),
        pytest.param(
            {'host': 'b-00000'},
            '0 holds, 0 done, 1 void',
            'the server is on b-00000',
            id='elsewhere',
        ),
        pytest.param(
            {'locked': True},
            '0 holds, 0 done, 1 void',
            'the server is locked',
            id='locked',
        ),
        pytest.param(
            {'name': 'other'},
            '0 holds, 0 done, 1 void',
            'the server is gone',
            id='gone',
        ),
        pytest.param(
            {'flavor': 'big'},
            '0 holds, 0 done, 1 void',
            'a-00001 lacks',
            id='no room any more',
        ),
    ],
)
def test_a_check_tells_the_moves_that_hold_are_done_or_void(
    tmp_path, capsys, change, first, why
):
    """The cloud has changed since the plan was made."""
    kinds = [{'name': 'b', 'vcpus': 4, 'memory_mb': 4096, 'reserved_memory_mb': 0}]
    sizes = {'small': (1, 1024), 'big': (4, 4096)}
    server = {'name': 'web', 'flavor': 'small', 'host': 'a-00000'}
    near = {'name': 'near', 'flavor': 'small', 'host': 'a-00001', 'locked': True}
    description = a_cloud(2, (4, 4096), sizes, [server, near])
    cloud = tmp_path / 'cloud.json'
    plan = tmp_path / 'plan.json'
    conf = tmp_path / 'nova.conf'
    conf.write_text('[DEFAULT]\n')
    given = ['--cloud', str(cloud), '--config-file', str(conf)]

    cloud.write_text(json.dumps(description))
    novaschedctl.main(['plan', 'empty', 'host=a-00000', '--format', 'json', *given])
    plan.write_text(capsys.readouterr().out)
    description['hosts'] += kinds
    description['servers'][0] = {**server, **change}
    cloud.write_text(json.dumps(description))
    status = novaschedctl.main(['plan', 'check', str(plan), *given])

    said = capsys.readouterr().out
    assert said.startswith(f'Of 1 move: {first}.')
    assert why in said
    assert status == (3 if why else 0)


@pytest.mark.parametrize(
    ('text', 'why'),
    [
        ('{', 'truncated'),
        ('{"goal": 1}', 'Expected `str`'),
        # The text of the library depends on the version of Python.
        ('{"unknown": ' + '[' * 100_000, 'plan.json: '),
        (
            '{"goal": "", "reached": "", "further": "", "steps": [], "staying": [],'
            ' "version": 2}',
            'a plan of version 2, and this release reads 1',
        ),
    ],
)
def test_a_damaged_plan_is_refused_with_the_name_of_its_file(tmp_path, text, why):
    path = tmp_path / 'plan.json'
    path.write_text(text)
    with pytest.raises(Unusable, match=why) as refused:
        read_plan(str(path))
    assert str(path) in str(refused.value)


def test_the_example_of_the_documentation_is_what_the_command_prints(capsys, tmp_path):
    picture = tmp_path / 'plan.png'
    cloud = DOCUMENTATION / 'examples' / 'cloud.json'
    given = f'plan pack --cloud {cloud} --config-file /dev/null --plot {picture}'
    assert novaschedctl.main(given.split()) == 0
    _, expected = (DOCUMENTATION / 'plan-pack.txt').read_text().split('\n', 1)
    assert capsys.readouterr().out == expected
    assert picture.read_bytes().startswith(b'\x89PNG')
