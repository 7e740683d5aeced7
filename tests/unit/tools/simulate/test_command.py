# SPDX-License-Identifier: Apache-2.0
"""Command lines, changed options, and plots of simulate."""

import sys

import pytest

from novasched.cmd import novaschedctl
from novasched.conf import loading
from novasched.conf.errors import ConfigError
from novasched.tools.simulate import plot, simulation
from novasched.tools.simulate.sources import Unusable
from tests.lab.builders import a_host


def status_of(command):
    try:
        return novaschedctl.main(command.split())
    except SystemExit as ended:
        return ended.code


@pytest.mark.parametrize(
    ('command', 'why'),
    [
        ('simulate', 'the following arguments are required: COMMAND'),
        ('simulate --flavor f', "invalid choice: 'f'"),
        ('simulate evict', "invalid choice: 'evict'"),
        (
            'simulate boot',
            'one of the arguments --flavor --vcpus --request --decision is required',
        ),
        ('simulate boot --flavor f --vcpus 1', 'not allowed with argument'),
        ('simulate boot --vcpus 1', '--vcpus needs --ram'),
        ('simulate boot --flavor f --ram 1', '--ram needs --vcpus'),
        ('simulate boot --vcpus -1 --ram 1', 'a number must be from 0 to'),
        ('simulate boot --flavor f --count 0', 'a number must be from 1 to'),
        ('simulate boot --flavor f --hint x', "'x' is not KEY=VALUE"),
        ('simulate boot --flavor f --group-policy none', 'invalid choice'),
        ('simulate boot --flavor f --probe p', 'unrecognized arguments: --probe p'),
        ('simulate boot --flavor f --format prometheus', 'invalid choice'),
        ('simulate boot --flavor f --plot p.png', '--plot needs --until-full'),
        (
            'simulate boot --request r --count 2',
            '--count does not go with --request',
        ),
        (
            'simulate boot --decision d --extra-spec a=b',
            '--extra-spec does not go with --decision',
        ),
        ('simulate replay', 'the following arguments are required: FILE'),
        ('simulate replay r --until-full', 'unrecognized arguments: --until-full'),
        ('simulate replay r --zone z', 'unrecognized arguments: --zone z'),
        (
            'simulate lose',
            'one of the arguments KIND=NAME --any is required',
        ),
        (
            'simulate lose rack=1',
            "'rack=1' does not begin with host, aggregate, zone",
        ),
        ('simulate lose host', "'host' is not KEY=VALUE"),
        ('simulate lose --any rack', 'invalid choice'),
        ('simulate lose host=a --any zone', 'not allowed with argument'),
        ('simulate lose host=a --zone z', 'unrecognized arguments: --zone z'),
        ('simulate headroom', 'the following arguments are required: kind, --flavor'),
        (
            'simulate headroom zone',
            'the following arguments are required: --flavor',
        ),
        ('simulate headroom host --flavor f', 'invalid choice'),
        (
            'simulate headroom zone --flavor f --count 2',
            'unrecognized arguments: --count 2',
        ),
        ('explain --file x', 'one of the arguments WHAT --last is required'),
        ('explain --file x a --last', 'not allowed with argument'),
        ('sandbox --hosts 0', 'argument --hosts: a number must be from 1 to'),
        (
            'sandbox --hosts many',
            "argument --hosts: a number must be whole, not 'many'",
        ),
        ('sandbox --servers -3', 'argument --servers: a number must be from 1 to'),
        (
            'sandbox --flavor 1,2',
            "argument --flavor: '1,2' is not VCPUS,RAM_MB,DISK_GB",
        ),
        ('sandbox --flavor=-1,2,3', 'argument --flavor: VCPUS must be from 1 to'),
        ('sandbox --flavor 1,2,x', "argument --flavor: DISK_GB must be whole, not 'x'"),
        (
            f'sandbox --flavor 1,{2**31},3',
            'argument --flavor: RAM_MB must be from 1 to',
        ),
        ('sandbox --az az99', "argument --az: invalid choice: 'az99'"),
        ('sandbox --affinity --anti-affinity', 'not allowed with argument'),
        ('sandbox --format xml', 'argument --format: invalid choice'),
        ('sandbox --nonsense', 'unrecognized arguments: --nonsense'),
    ],
)
def test_invalid_arguments_give_an_error_line_and_status_2(capsys, command, why):
    """An error is one line, and the status is 2."""
    assert status_of(command) == 2
    output, error = capsys.readouterr()
    assert output == ''
    assert why in error
    assert error.count('\n') == 1


@pytest.mark.parametrize(
    ('arguments', 'why'),
    [
        ('boot --flavor f --config-file nowhere.conf', 'nowhere.conf: not found'),
        ('boot --flavor f --set a.b=1', '--set a.b = 1: no decision depends on'),
        (
            'boot --flavor f --until-full --plot a.gif',
            '--plot a.gif: the name must end in .png',
        ),
        (
            'boot --flavor f --until-full --plot nowhere/a.png',
            '--plot nowhere/a.png: the folder does not exist',
        ),
        ('replay f --compare nowhere.conf', 'nowhere.conf: not found'),
    ],
)
def test_an_impossible_simulation_gives_an_error_and_status_1(
    capsys, tmp_path, arguments, why
):
    """An error is one line, and the status is 1."""
    assert status_of(f'simulate {arguments} --config-dir {tmp_path}') == 1
    said = capsys.readouterr().err
    assert why in said
    assert said.count('\n') == 1


def test_a_plot_without_matplotlib_names_the_install_command(capsys, monkeypatch):
    """Only plots need matplotlib, and the error has the command to install it."""
    monkeypatch.delitem(sys.modules, 'novasched.tools.simulate.plot', raising=False)
    monkeypatch.setitem(sys.modules, 'matplotlib', None)
    assert status_of('simulate boot --flavor f --until-full --plot a.png') == 1
    assert (
        'matplotlib is not installed: pip install novasched[simulate]'
        in capsys.readouterr().err
    )


@pytest.fixture
def conf(tmp_path):
    (tmp_path / 'nova.conf').write_text(
        '[pci]\nalias = {"name": "a"}\nalias = {"name": "b"}\n'
    )
    return loading.load(['--config-file', str(tmp_path / 'nova.conf')], 'novasched')


@pytest.mark.parametrize(
    ('text', 'field', 'value'),
    [
        ('filter_scheduler.ram_weight_multiplier=-1', 'ram_weight_multiplier', -1.0),
        ('filter_scheduler.enabled_filters=A,B', 'enabled_filters', ('A', 'B')),
        ('filter_scheduler.available_filters=a,b', 'available_filters', ('a', 'b')),
        ('metrics.required = false', 'metrics_required', False),
        ('scheduler.max_placement_results=7', 'max_placement_results', 7),
        ('DEFAULT.default_availability_zone=z', 'default_availability_zone', 'z'),
    ],
)
def test_a_changed_option_gets_a_value_of_the_right_type(conf, text, field, value):
    """An option gets the value in its own type. nova-api's option for PCI aliases keeps
    all values."""
    simulation.change_options(conf, [text])
    assert getattr(loading.settings(conf), field) == value
    assert simulation.pci_aliases(conf) == ['{"name": "a"}', '{"name": "b"}']


@pytest.mark.parametrize(
    ('text', 'why'),
    [
        (
            'ram_weight_multiplier',
            '--set = ram_weight_multiplier: GROUP.NAME=VALUE is needed',
        ),
        ('scheduler.nothing=1', '--set scheduler.nothing = 1: no decision depends on'),
        (
            'database.connection=x',
            '--set database.connection = x: no decision depends on',
        ),
        ('scheduler.workers=2', '--set scheduler.workers = 2: no decision depends on'),
        (
            'filter_scheduler.host_subset_size=0',
            '--set filter_scheduler.host_subset_size = 0: ',
        ),
        (
            'filter_scheduler.ram_weight_multiplier=x',
            '--set filter_scheduler.ram_weight_',
        ),
    ],
)
def test_an_invalid_change_of_an_option_is_named_in_the_error(conf, text, why):
    """The error names the option in one line."""
    with pytest.raises(ConfigError) as found:
        simulation.change_options(conf, [text])
    assert str(found.value).startswith(why)
    assert '\n' not in str(found.value)


def hosts(servers, ram_mb):
    """Forty hosts with more servers and more memory in use."""
    found = []
    for i in range(40):
        host = a_host(
            f'h{i}',
            ram=500 - i * 10 - ram_mb,
            total_usable_ram_mb=500,
            num_instances=i % 7 + servers,
        )
        found.append(host)
    return found


BEFORE = hosts(0, 0)
AFTER = hosts(1, 50)
MAGIC = {'png': b'\x89PNG', 'svg': b'<?xml', 'pdf': b'%PDF'}


@pytest.mark.parametrize('kind', MAGIC)
def test_a_plot_has_the_format_of_the_suffix_and_is_repeatable(tmp_path, kind):
    """A plot has the format of its suffix, and is the same each time. A folder of that
    name is an error."""
    pictures = []
    for name in ('one', 'two'):
        path = tmp_path / f'{name}.{kind}'
        plot.draw(
            str(path), '5 more', {'before': BEFORE, 'after': AFTER, 'changed': BEFORE}
        )
        pictures.append(path.read_bytes())

    assert pictures[0].startswith(MAGIC[kind])
    assert pictures[0] == pictures[1]

    (tmp_path / f'folder.{kind}').mkdir()
    with pytest.raises(Unusable, match='directory'):
        plot.draw(str(tmp_path / f'folder.{kind}'), '', {'before': BEFORE})
