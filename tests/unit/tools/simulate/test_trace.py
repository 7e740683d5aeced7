# SPDX-License-Identifier: Apache-2.0
"""Traces on clouds that a file describes."""

import json

import pytest

from novasched.cmd import novaschedctl
from novasched.tools.simulate.described_cloud import read_cloud
from novasched.tools.simulate.sources import Unusable
from novasched.tools.simulate.trace import read_trace

CELL = {'cpus': 2, 'dedicated_cpus': 4, 'memory_mb': 8192, 'pages': {'2048': 1024}}
CLOUD = {
    'hosts': [
        {
            'name': 'numa',
            'number': 2,
            'disk_gb': 100,
            'cells': [CELL, CELL],
            'devices': [{'resource_class': 'CUSTOM_GPU', 'number': 2}],
            'zone': 'az1',
            'reserved_memory_mb': 0,
        },
        {
            'name': 'plain',
            'number': 2,
            'vcpus': 4,
            'memory_mb': 8192,
            'disk_gb': 100,
            'reserved_memory_mb': 0,
        },
    ],
    'flavors': {
        'half': {'vcpus': 1, 'memory_mb': 4096},
        'pinned': {
            'vcpus': 3,
            'memory_mb': 512,
            'extra_specs': {'hw:cpu_policy': 'dedicated'},
        },
        'paged': {
            'vcpus': 1,
            'memory_mb': 1024,
            'extra_specs': {'hw:mem_page_size': '2048'},
        },
        'gpu': {
            'vcpus': 1,
            'memory_mb': 512,
            'extra_specs': {'resources1:CUSTOM_GPU': '1'},
        },
    },
}
CONF = """[filter_scheduler]
enabled_filters = ComputeFilter,NUMATopologyFilter,ServerGroupAntiAffinityFilter
[workarounds]
disable_fallback_pcpu_query = True
"""


@pytest.fixture
def play(tmp_path, capsys):
    """Plays entries; returns the results as JSON."""
    (tmp_path / 'nova.conf').write_text(CONF)
    (tmp_path / 'cloud.json').write_text(json.dumps(CLOUD))

    def run(*entries, status=0, arguments=()):
        lines = [
            entry if isinstance(entry, str) else json.dumps(entry) for entry in entries
        ]
        (tmp_path / 'trace').write_text('\n'.join(lines))
        command = ['simulate', 'trace', str(tmp_path / 'trace')]
        command += ['--cloud', str(tmp_path / 'cloud.json')]
        command += ['--config-file', str(tmp_path / 'nova.conf'), *arguments]
        assert novaschedctl.main(command) == status
        return capsys.readouterr()

    return run


def boots(number, **fields):
    """As many boots at the same time."""
    return [{'at': 0, **fields}] * number


@pytest.mark.parametrize(
    ('entry', 'fit'),
    [
        # Eight in the memory of the four hosts together.
        ({'flavor': 'half'}, 4 + 4 + 2 + 2),
        ({'flavor': 'half', 'zone': 'az1'}, 4 + 4),
        # A cell with four CPUs takes one guest of three.
        ({'flavor': 'pinned'}, 4),
        # 2 GiB of huge pages in each cell.
        ({'flavor': 'paged'}, 8),
        ({'flavor': 'gpu'}, 4),
        ({'vcpus': 1, 'memory_mb': 64, 'group': 'one on each host'}, 4),
        ({'vcpus': 1, 'memory_mb': 8192}, 2 * 2 + 2),
        ({'flavor': 'gpu', 'count': 3}, 3),
    ],
)
def test_a_trace_places_as_many_instances_as_the_hosts_hold(play, entry, fit):
    """As many servers fit as the described hosts have room for."""
    said = json.loads(play(*boots(20, **entry), arguments=['--format', 'json']).out)
    [setting] = said['settings']
    last = setting['moments'][-1]
    assert last['servers'] == fit
    assert setting['refused'] == 20 * entry.get('count', 1) - fit
    numbers = [refusal['number'] for refusal in setting['refusals']]
    assert sum(numbers) == setting['refused']


@pytest.mark.parametrize(
    'entry',
    [
        *({'flavor': name} for name in CLOUD['flavors']),
        {'vcpus': 1, 'memory_mb': 64, 'group': 'one on each host'},
    ],
)
def test_deleted_instances_make_room_for_as_many_instances(play, entry):
    """After the end of all servers, as many fit as before."""
    entries = [
        *boots(20, **entry, lifetime=10),
        *[{'at': 10, **entry}] * 20,
    ]
    arguments = ['--format', 'json', '--moments', '2']
    [setting] = json.loads(play(*entries, arguments=arguments).out)['settings']
    first, last = setting['moments']
    assert first['servers'] == last['servers'] > 0
    assert first['in_use'] == last['in_use']
    assert first['stranded'] == last['stranded']


def test_vcpus_that_no_usual_guest_can_use_are_stranded(play):
    """Two guests of half the memory fill a plain host, whose vCPUs no usual guest can
    use then."""
    entries = boots(12, flavor='half')
    [setting] = json.loads(play(*entries, arguments=['--format', 'json']).out)[
        'settings'
    ]
    last = setting['moments'][-1]
    assert last['fitting'] == {'half': 0}
    assert last['in_use']['MEMORY_MB'] == 1.0
    stranded = last['stranded']['VCPU']
    assert stranded['amount'] == stranded['free'] > 0
    assert stranded['by'] == {'MEMORY_MB': stranded['amount']}


def test_each_setting_plays_on_separate_hosts(play, tmp_path):
    """Each setting plays on hosts of its own, and the picture has a line for each."""
    stacking = 'filter_scheduler.ram_weight_multiplier=-1'
    picture = tmp_path / 'loads.svg'
    arguments = ['--beside', stacking, '--plot', str(picture), '--moments', '3']
    said = play(*boots(6, flavor='half'), arguments=arguments).out
    for name in ('as it is', stacking):
        assert f'{name}:\n' in said
        assert f'<!-- {name} -->' in picture.read_text()
    [refused] = [line for line in said.splitlines() if 'servers refused' in line]
    assert refused.count('0 of 6') == 2


@pytest.mark.parametrize(
    ('line', 'why'),
    [
        ('{"at": 0, "flavour": "half"}', 'line 1: Object contains unknown field'),
        ('{"at": -1}', 'line 1: Expected `float` >= 0.0'),
        ('nonsense', 'line 1: JSON is malformed'),
        ('', 'there is no request in the file'),
        ('{"at": 0, "flavor": "none"}', 'there is no flavor of the id or name none'),
    ],
)
def test_an_invalid_trace_gives_an_error_line_and_status_1(play, line, why):
    """An error is one line, and the status is 1."""
    said = play(line, status=1).err
    assert why in said
    assert said.count('\n') == 1


@pytest.mark.parametrize(
    ('field', 'value'),
    [
        ('number', '1000000000'),
        ('number', '-1'),
        ('vcpus', '1e400'),
        ('memory_mb', 'NaN'),
        ('disk_gb', '1000000000000000000000000000000'),
        ('cpu_allocation_ratio', '1e308'),
        ('cpu_allocation_ratio', '0.0'),
        ('zone', r'"\ud800"'),
        ('cells', '[{"memory_mb": 1, "cpus": 10000000000}]'),
        ('cells', '[{"memory_mb": 1, "pages": {"-4": 1}}]'),
        ('devices', '[{"resource_class": "CUSTOM_A", "number": 1000000000}]'),
    ],
)
def test_a_cloud_of_meaningless_numbers_is_refused(tmp_path, field, value):
    """The error names the file, and the numbers do not fill the memory."""
    path = tmp_path / 'cloud'
    path.write_text(f'{{"hosts": [{{"name": "a", "{field}": {value}}}]}}')
    with pytest.raises(Unusable, match=str(path)):
        read_cloud(str(path))


@pytest.mark.parametrize(
    ('field', 'value'),
    [
        ('count', '1000000000'),
        ('vcpus', '1000000000000000000000000000000'),
        ('memory_mb', '-1'),
        ('lifetime', 'Infinity'),
        ('lifetime', '1e400'),
        ('group', r'"\ud800"'),
    ],
)
def test_a_trace_of_meaningless_numbers_is_refused(tmp_path, field, value):
    """The error names the file and the line."""
    path = tmp_path / 'trace'
    path.write_text(f'{{"at": 0}}\n{{"at": 1, "{field}": {value}}}\n')
    with pytest.raises(Unusable, match=f'{path}: line 2'):
        read_trace(str(path))


def filled(lifetime):
    """Entries that leave half of two small hosts free, and ask for a whole host."""
    # The hosts with cells are full of guests, for ever.
    entries = boots(8, flavor='half', zone='az1')
    for at in (1, 2):
        entries.append({'at': at, 'flavor': 'half', 'lifetime': lifetime})
    entries.append({'at': 3, 'vcpus': 4, 'memory_mb': 8192, 'lifetime': lifetime})
    return entries


@pytest.mark.parametrize(
    ('arguments', 'refused', 'rescued', 'moves'),
    [([], 1, 0, 0), (['--make-room', '1'], 0, 1, 1)],
)
def test_a_refused_server_gets_room_by_moves_of_others(
    play, arguments, refused, rescued, moves
):
    """A server that moved away is deleted at its end like any other: afterwards there
    is room without a move."""
    later = [{**entry, 'at': entry['at'] + 100} for entry in filled(10)[8:]]
    for entries, times in ((filled(10), 1), ([*filled(10), *later], 2)):
        given = [*arguments, '--format', 'json']
        [played] = json.loads(play(*entries, arguments=given).out)['settings']
        assert played['refused'] == times * refused
        assert (played['rescued'], played['moves']) == (times * rescued, times * moves)
        assert played['moments'][-1]['servers'] == 8 + 2 + rescued


def test_members_of_a_group_stay_apart_while_they_make_room(play):
    """The members of a group that joined after a server count as well when it moves."""
    entries = [
        *boots(8, flavor='half', zone='az1'),
        {'at': 1, 'vcpus': 1, 'memory_mb': 2048, 'group': 'apart'},
        {'at': 2, 'vcpus': 1, 'memory_mb': 2048, 'group': 'apart'},
        {'at': 3, 'vcpus': 4, 'memory_mb': 8192},
    ]
    given = ['--make-room', '3', '--format', 'json']
    [played] = json.loads(play(*entries, arguments=given).out)['settings']
    assert (played['refused'], played['moves']) == (1, 0)
