# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PLUGIN = HERE.parents[1] / 'devstack'
SAMPLE = PLUGIN / 'local.conf.sample'
ALL_IN_ONE = 'n-api,n-cond,n-sch,n-cpu,placement-api,placement-client'
CONTROLLER = 'n-api,n-cond,n-sch,placement-api'
PHASES = ['pre-install', 'install', 'post-config', 'extra', 'test-config']

pytestmark = pytest.mark.skipif(shutil.which('bash') is None, reason='there is no bash')


def sourced(
    *arguments: str, services: str = ALL_IN_ONE, then: str = '', **variables: str
) -> str:
    """The output of the plugin when DevStack sources the plugin. The stubs print a line
    for each call of a function of DevStack.

    :param then: a command after the plugin.
    """
    script = f"""
        source {HERE}/stubs.bash
        source {PLUGIN}/settings
        source {PLUGIN}/plugin.sh {' '.join(arguments)}
        {then}
    """
    run = subprocess.run(
        ['bash', '--noprofile', '--norc', '-c', script],
        env={'PATH': '/usr/bin:/bin', 'ENABLED_SERVICES': services, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.returncode, run.stderr) == (0, '')
    return run.stdout


def calls(*arguments: str, **world: str) -> list[str]:
    """The calls of functions of DevStack, without texts for the user."""
    lines = sourced(*arguments, **world).splitlines()
    return [line for line in lines if not line.startswith('echo_summary')]


NOVA_CONF = '/etc/nova/nova.conf'
RETRIES = (
    'iniset /etc/placement/placement.conf placement allocation_conflict_retry_count'
)
CONFIGURED = [
    'async_wait configure_neutron_nova',
    f'iniset {NOVA_CONF} scheduler workers 1',
]
RUN = f'novasched --config-file {NOVA_CONF}'


@pytest.mark.parametrize(
    ('arguments', 'world', 'expected'),
    [
        ('stack pre-install', {}, []),
        ('stack install', {}, ['setup_develop /dest/novasched']),
        ('stack post-config', {}, [*CONFIGURED, f'{RETRIES} 1']),
        ('stack extra', {}, [f'run_process novasched /data/venv/bin/{RUN}']),
        ('stack test-config', {}, []),
        ('stack another-phase', {}, []),
        ('unstack', {}, ['stop_process novasched']),
        ('clean', {}, []),
        ('another-mode', {}, []),
        ('override_defaults', {}, []),
        # stack.sh configures Placement for n-cpu or n-sch, and neither is enabled.
        (
            'stack post-config',
            {'services': CONTROLLER},
            [
                CONFIGURED[0],
                'configure_placement_nova_compute',
                CONFIGURED[1],
                f'{RETRIES} 1',
            ],
        ),
        ('stack install', {'NOVASCHED_DIR': '/src'}, ['setup_develop /src']),
        (
            'stack post-config',
            {'NOVASCHED_WORKERS': '2', 'NOVASCHED_PLACEMENT_RETRIES': ''},
            [CONFIGURED[0], f'iniset {NOVA_CONF} scheduler workers 2'],
        ),
        (
            'stack post-config',
            {'NOVASCHED_IN_FLIGHT_TIMEOUT': '0', 'NOVASCHED_PLACEMENT_RETRIES': ''},
            [*CONFIGURED, f'iniset {NOVA_CONF} novasched in_flight_timeout 0'],
        ),
        (
            'stack extra',
            {'NOVASCHED_VENV': '/v'},
            [f'run_process novasched /v/bin/{RUN}'],
        ),
        ('clean', {'NOVASCHED_VENV': '/v'}, ['rm -rf /v']),
    ],
)
def test_each_phase_calls_the_expected_devstack_functions(arguments, world, expected):
    """A phase calls exactly the expected functions of DevStack in order. Values of
    local.conf replace the defaults."""
    assert calls(*arguments.split(), **world) == expected


@pytest.mark.parametrize(
    'world',
    [{'services': 'n-cpu,placement-client'}, {'DISABLED_SERVICES': 'novasched'}],
    ids=['no n-sch', 'disabled'],
)
@pytest.mark.parametrize(
    'arguments', [*[f'stack {phase}' for phase in PHASES], 'unstack', 'clean']
)
def test_the_plugin_is_silent_where_novasched_is_not_enabled(arguments, world):
    """The plugin changes neither compute nodes nor nodes that disable novasched."""
    assert sourced(*arguments.split(), **world) == ''


@pytest.mark.parametrize(
    ('world', 'left'),
    [
        ({'services': 'n-api,n-sch,n-cpu'}, 'n-api,n-cpu,novasched'),
        ({'services': 'n-sch'}, 'novasched,nova'),
        ({'services': 'n-api,novasched'}, 'n-api,novasched'),
        ({'services': 'mysql,n-sch,rabbit'}, 'mysql,rabbit,novasched,nova'),
        ({'services': 'n-cpu'}, 'n-cpu'),
        ({'services': 'n-api,n-sch', 'DISABLED_SERVICES': 'novasched'}, 'n-api,n-sch'),
    ],
)
def test_novasched_replaces_n_sch_unless_novasched_is_disabled(world, left):
    """novasched takes the place of n-sch, unless novasched is disabled, even if DevStack
    loads the settings twice."""
    for again in ('', f'source {PLUGIN}/settings;'):
        then = f'{again} echo $ENABLED_SERVICES'
        assert sourced('unstack', then=then, **world).splitlines()[-1] == left


def test_a_separate_virtualenv_is_made_and_gets_novasched(tmp_path):
    """With NOVASCHED_VENV nothing is installed beside nova."""
    pip = tmp_path / 'bin' / 'pip'
    pip.parent.mkdir()
    pip.write_text('#!/bin/sh\necho pip "$@"\n')
    pip.chmod(0o755)
    assert calls('stack', 'install', NOVASCHED_VENV=str(tmp_path)) == [
        f'python3 -m venv {tmp_path}',
        'pip install --editable /dest/novasched',
    ]


def test_a_devstack_without_async_wait_is_configured():
    """A DevStack without async_wait works, too."""
    script = f'unset -f async_wait; source {PLUGIN}/plugin.sh stack post-config'
    lines = sourced('stack', 'pre-install', then=script).splitlines()
    assert lines[0].startswith('echo_summary')
    assert lines[1] == CONFIGURED[1]


@pytest.mark.parametrize('tracing', ['set -o xtrace', 'set +o xtrace'])
def test_shell_tracing_is_unchanged_after_the_plugin(tracing):
    """The plugin is not traced. Commands after the plugin are traced as before."""
    script = f'exec 2>/dev/null; {tracing}; source {PLUGIN}/plugin.sh unstack; echo $-'
    assert ('x' in calls('unstack', then=script)[-1]) == (tracing == 'set -o xtrace')


def test_the_sample_overrides_settings_that_exist():
    """The settings have every variable of local.conf.sample."""
    settings = (PLUGIN / 'settings').read_text()
    lines = SAMPLE.read_text().splitlines()
    named = [line.lstrip('#').split('=')[0] for line in lines if 'NOVASCHED_' in line]
    assert named
    assert [name for name in named if f'\n{name}=' not in settings] == []
