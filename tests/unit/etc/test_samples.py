# SPDX-License-Identifier: Apache-2.0
import configparser
import grp
import os
import pwd
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
    """The text of a sample configuration, by group and by library."""
    found = {}
    for group, body in re.findall(
        r'^\[(\w+)\]$(.*?)(?=^\[\w+\]$|\Z)', text, re.M | re.S
    ):
        for owner, options in re.findall(
            r'^# From (\S+)$(.*?)(?=^# From |\Z)', body, re.M | re.S
        ):
            found[group, owner] = options.strip('#\n')
    return found


@pytest.fixture(scope='module')
def generated(tmp_path_factory):
    """The current output of oslo-config-generator."""
    file = tmp_path_factory.mktemp('etc') / 'sample'
    generator.main(
        [
            '--config-file',
            str(ETC / 'config-generator.conf'),
            '--output-file',
            str(file),
        ]
    )
    return blocks(file.read_text())


def test_the_sample_configuration_matches_the_generator(generated):
    """The sample has the options of novasched as declared, and the options of the
    libraries. ``tox -e genconfig`` writes the sample anew."""
    sample = blocks((ETC / 'novasched.conf.sample').read_text())

    def ours(text):
        blocks_of_novasched = {}
        for key, block in text.items():
            if key[1] == 'novasched' and key[0] not in LIBRARIES:
                blocks_of_novasched[key] = block
        return blocks_of_novasched

    assert ours(sample) == ours(generated)
    assert len(ours(sample)) > 5
    assert {group for group, _ in sample} >= {*LIBRARIES, 'oslo_messaging_rabbit'}


def test_the_sample_configuration_has_no_data_of_a_machine():
    """The sample has no host name, address or path of the machine of its author."""
    text = (ETC / 'novasched.conf.sample').read_text()
    assert '#host = <current hostname>' in text
    assert (
        re.findall(r'^#\w+ = .*(?:/home|/root|/tmp|\d+\.\d+\.\d+\.\d+).*', text, re.M)
        == []
    )


@pytest.fixture
def unit():
    """The systemd unit's sections."""
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str
    parser.read(ETC / 'systemd' / 'novasched.service')
    return parser


def test_systemd_waits_longer_than_the_graceful_shutdown(unit, generated):
    """The timeout of systemd is longer than the graceful shutdown, so that no request
    is cut off."""
    options = generated['DEFAULT', 'oslo.service.service']
    [seconds] = re.findall(r'^#graceful_shutdown_timeout = (\d+)$', options, re.M)
    assert int(unit['Service']['TimeoutStopSec']) > int(seconds)


def test_the_systemd_unit_has_the_settings_for_operators(unit):
    """The unit has the settings for operators."""
    service = {
        'User': 'nova', 'Type': 'notify', 'KillMode': 'mixed', 'Restart': 'on-failure',
        'ExecReload': '/bin/kill -HUP $MAINPID', 'NoNewPrivileges': 'yes',
        # Health tells the watchdog from a process of its own.
        'WatchdogSec': '60', 'NotifyAccess': 'all',
    }  # fmt: skip
    assert {key: unit['Service'][key] for key in service} == service


def said_by(tool, folder, name, changes, *arguments):
    """The output of a tool about a file of ``etc``. Names that the machine lacks are
    replaced."""
    program = shutil.which(tool) or shutil.which(tool, path='/usr/sbin:/sbin')
    if program is None:
        pytest.skip(f'{tool} is not installed')
    text = (ETC / name).read_text()
    for old, new in changes.items():
        text = text.replace(old, new)
    file = folder / Path(name).name
    file.write_text(text)
    run = subprocess.run(
        [program, *arguments, file], capture_output=True, text=True, check=False
    )
    return run.stdout + run.stderr


def test_systemd_accepts_the_unit(tmp_path):
    """systemd-analyze accepts the unit without a warning."""
    changes = {'/opt/novasched/bin/novasched': '/bin/sh', '/bin/kill': '/bin/sh'}
    changes |= {'User=nova\n': 'User=root\n', 'Group=nova\n': 'Group=root\n'}
    unit = 'systemd/novasched.service'
    said = said_by('systemd-analyze', tmp_path, unit, changes, 'verify')
    assert 'novasched.service' not in said


def test_logrotate_accepts_the_entry_of_novasched(tmp_path):
    """logrotate accepts the entry, and would rotate the log."""
    user = pwd.getpwuid(os.geteuid()).pw_name
    group = grp.getgrgid(os.getegid()).gr_name
    changes = {'nova nova': f'{user} {group}'}
    arguments = ('-d', '-s', tmp_path / 'state')
    said = said_by(
        'logrotate', tmp_path, 'logrotate.d/00-novasched', changes, *arguments
    )
    assert 'Handling 1 logs' in said
    assert 'error' not in said
