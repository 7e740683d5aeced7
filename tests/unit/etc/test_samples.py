# SPDX-License-Identifier: Apache-2.0
import configparser
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from oslo_config import generator

ETC = Path(__file__).parents[3] / 'etc'
LIBRARIES = ('api_database', 'database', 'neutron', 'placement')
"""The groups of libraries, whose texts differ between their releases."""


def blocks(text):
    """A sample configuration by group and by who declares the options."""
    found = {}
    for group, body in re.findall(r'^\[(\w+)\]$(.*?)(?=^\[\w+\]$|\Z)', text, re.M | re.S):
        for owner, options in re.findall(r'^# From (\S+)$(.*?)(?=^# From |\Z)', body, re.M | re.S):
            found[group, owner] = options.strip('#\n')
    return found


@pytest.fixture(scope='module')
def generated(tmp_path_factory):
    """What oslo-config-generator gives now."""
    file = tmp_path_factory.mktemp('etc') / 'sample'
    generator.main(
        ['--config-file', str(ETC / 'config-generator.conf'), '--output-file', str(file)]
    )
    return blocks(file.read_text())


def test_the_sample_configuration_is_what_the_generator_gives(generated):
    """Our options stand there as they are declared, and the libraries' stand beside them;
    ``tox -e genconfig`` writes it anew."""
    sample = blocks((ETC / 'novasched.conf.sample').read_text())

    def ours(text):
        return {
            key: each
            for key, each in text.items()
            if key[1] == 'novasched' and key[0] not in LIBRARIES
        }

    assert ours(sample) == ours(generated)
    assert len(ours(sample)) > 5
    assert {group for group, _ in sample} >= {*LIBRARIES, 'oslo_messaging_rabbit'}


def test_the_sample_configuration_tells_nothing_of_a_machine():
    """Whoever makes it gets the same: no host name, address or path of theirs."""
    text = (ETC / 'novasched.conf.sample').read_text()
    assert '#host = <current hostname>' in text
    assert re.findall(r'^#\w+ = .*(?:/home|/root|/tmp|\d+\.\d+\.\d+\.\d+).*', text, re.M) == []


@pytest.fixture
def unit():
    """The systemd unit's sections."""
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str
    parser.read(ETC / 'systemd' / 'novasched.service')
    return parser


def test_the_unit_stops_later_than_the_daemon_gives_up(unit, generated):
    """systemd's patience outlasts the graceful end, so that no request is cut off."""
    options = generated['DEFAULT', 'oslo.service.service']
    [seconds] = re.findall(r'^#graceful_shutdown_timeout = (\d+)$', options, re.M)
    assert int(unit['Service']['TimeoutStopSec']) > int(seconds)


def test_the_unit_says(unit):
    """What operators rely on."""
    service = {
        'User': 'nova', 'Type': 'notify', 'KillMode': 'mixed', 'Restart': 'on-failure',
        'ExecReload': '/bin/kill -HUP $MAINPID', 'NoNewPrivileges': 'yes',
    }  # fmt: skip
    assert {key: unit['Service'][key] for key in service} == service


def test_systemd_accepts_the_unit(tmp_path):
    """systemd-analyze has nothing to say, but for what is not installed here."""
    analyze = shutil.which('systemd-analyze')
    if analyze is None:
        pytest.skip('systemd-analyze is not installed')
    text = (ETC / 'systemd' / 'novasched.service').read_text()
    file = tmp_path / 'novasched.service'
    file.write_text(
        re.sub('/opt/novasched/bin/novasched|/bin/kill', '/bin/sh', text).replace(
            '=nova\n', '=root\n', 2
        )
    )
    run = subprocess.run([analyze, 'verify', file], capture_output=True, text=True, check=False)
    assert 'novasched.service' not in run.stdout + run.stderr


def test_logrotate_accepts_its_entry(tmp_path):
    """logrotate reads the entry and would rotate one file."""
    logrotate = shutil.which('logrotate') or shutil.which('logrotate', path='/usr/sbin:/sbin')
    if logrotate is None:
        pytest.skip('logrotate is not installed')
    file = tmp_path / 'novasched'
    file.write_text(
        (ETC / 'logrotate.d' / 'novasched').read_text().replace('nova nova', 'root root')
    )
    state = tmp_path / 'state'
    run = subprocess.run(
        [logrotate, '-d', '-s', state, file], capture_output=True, text=True, check=False
    )
    assert 'Handling 1 logs' in run.stderr
    assert 'error' not in run.stderr
