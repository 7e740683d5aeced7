# SPDX-License-Identifier: Apache-2.0
"""The command line, before anything is asked."""

import sys

import pytest

from novasched.cmd import novaschedctl


def status_of(arguments):
    try:
        return novaschedctl.main(['simulate', *arguments.split()])
    except SystemExit as ended:
        return ended.code


@pytest.mark.parametrize(
    ('arguments', 'why'),
    [
        ('', 'one of the arguments --flavor --vcpus --request --decision --replay is required'),
        ('--flavor f --vcpus 1', 'not allowed with argument'),
        ('--vcpus 1', '--vcpus needs --ram'),
        ('--flavor f --ram 1', '--ram needs --vcpus'),
        ('--vcpus -1 --ram 1', 'a number must be from 0 to'),
        ('--flavor f --count 0', 'a number must be from 1 to'),
        ('--flavor f --hint x', "'x' is not KEY=VALUE"),
        ('--flavor f --group-policy none', 'invalid choice'),
        ('--flavor f --probe p', '--probe needs --replay'),
        ('--flavor f --compare c', '--compare needs --replay'),
        ('--replay r --until-full', '--until-full does not go with --replay'),
        ('--replay r --zone z', '--zone does not go with --replay'),
        ('--request r --count 2', '--count does not go with --request'),
        ('--decision d --extra-spec a=b', '--extra-spec does not go with --decision'),
        ('--flavor f --plot p.png', '--plot needs --until-full or --replay'),
    ],
)
def test_arguments_that_do_not_go(capsys, arguments, why):
    """One line says what is wrong; the status is 2."""
    assert status_of(arguments) == 2
    said = capsys.readouterr().err
    assert why in said
    assert said.count('\n') == 1


@pytest.mark.parametrize(
    ('arguments', 'why'),
    [
        ('--flavor f --config-file nowhere.conf', 'nowhere.conf: not found'),
        ('--flavor f --set a.b=1', '--set a.b = 1: no decision depends on'),
        ('--flavor f --until-full --plot a.gif', '--plot a.gif: the name must end in .png'),
        ('--replay f --compare nowhere.conf', 'nowhere.conf: not found'),
    ],
)
def test_what_cannot_be_done(capsys, tmp_path, arguments, why):
    """One line says why; the status is 1."""
    folder = ['--config-dir', str(tmp_path)]
    assert status_of(' '.join([arguments, *folder])) == 1
    said = capsys.readouterr().err
    assert why in said
    assert said.count('\n') == 1


def test_without_matplotlib(capsys, monkeypatch):
    """Only pictures need it, and they say how to get it."""
    monkeypatch.delitem(sys.modules, 'novasched.tools.simulate.plot', raising=False)
    monkeypatch.setitem(sys.modules, 'matplotlib', None)
    assert status_of('--flavor f --until-full --plot a.png') == 1
    assert 'matplotlib is not installed: pip install novasched[simulate]' in capsys.readouterr().err
