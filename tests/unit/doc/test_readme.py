# SPDX-License-Identifier: Apache-2.0
"""The README, compared with the files behind its commands and versions."""

import configparser
import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[3]
README = (ROOT / 'README.rst').read_text()


def command(chapter):
    """The command line in a chapter."""
    text = README.split(f'{chapter}\n===', 1)[1].split('\n===', 1)[0]
    [line] = re.findall(r'::\n\n    (.+)\n\n', text)
    return str(line)


def test_the_readme_has_the_test_command_of_ci():
    """The last line of CI is the test command of the README."""
    assert (ROOT / '.ci' / 'run').read_text().splitlines()[-1] == command('Test it')


def test_readme_commands_install_tox_in_the_same_way():
    """The sandbox command needs no further installation after the test command."""
    assert (
        command('See it work') == f'{command("Test it").removesuffix(" -p")} -e sandbox'
    )


def test_git_ignores_the_virtualenv_of_the_test_command():
    """Git ignores the virtualenv, so that no package contains the virtualenv."""
    [directory] = re.findall(r'-m venv (\S+)', command('Test it'))
    assert f'{directory}/' in (ROOT / '.gitignore').read_text().splitlines()


def test_package_tools_and_documentation_name_the_same_pythons():
    """The package, the tools and the documentation name the same versions of Python."""
    package = (ROOT / 'setup.cfg').read_text()
    tools = (ROOT / 'pyproject.toml').read_text()
    first, *_, last = re.findall(r'Python :: (3\.\d+)$', package, re.M)
    assert f'python_requires = >={first}\n' in package
    assert f'python_version = "{first}"\n' in tools
    assert f'target-version = "py{first.replace(".", "")}"\n' in tools
    install = (ROOT / 'doc' / 'source' / 'install.rst').read_text()
    for text in (README, install):
        assert set(re.findall(r'Python (3\S*(?: to 3\S+)?\w)', text)) == {
            f'{first} to {last}'
        }


def requirements():
    """The requirements of novasched, the extras and the tests."""
    tomllib = pytest.importorskip('tomllib', reason='part of Python since 3.11')
    tools = tomllib.loads((ROOT / 'pyproject.toml').read_text())
    package = configparser.ConfigParser()
    package.read(ROOT / 'setup.cfg')

    lines = (ROOT / 'requirements.txt').read_text().splitlines()
    lines += tools['build-system']['requires']
    for extra in package['extras'].values():
        lines += extra.split()
    for group in tools['dependency-groups'].values():
        lines += [line for line in group if isinstance(line, str)]
    return sorted({Requirement(line) for line in lines}, key=str)


def pins():
    """The requirements of constraints.txt."""
    lines = (ROOT / 'constraints.txt').read_text().splitlines()
    return [Requirement(line) for line in lines if not line.startswith('#')]


def holds(requirement, python):
    """True if a requirement applies to Linux with a version of Python."""
    environment = {'python_version': python, 'python_full_version': f'{python}.9'}
    return requirement.marker is None or requirement.marker.evaluate(environment)


@pytest.mark.parametrize('python', ['3.11', '3.12', '3.13', '3.14'])
def test_constraints_pin_a_release_of_every_requirement(python):
    """constraints.txt pins a release of every requirement; "tox -e constraints" repairs
    the file."""
    pinned = {}
    for pin in pins():
        if holds(pin, python):
            [release] = pin.specifier
            assert release.operator == '=='
            pinned[canonicalize_name(pin.name)] = release.version

    for requirement in requirements():
        if holds(requirement, python):
            release = pinned.get(canonicalize_name(requirement.name))
            assert release is not None, requirement
            assert release in requirement.specifier, (requirement, release)
