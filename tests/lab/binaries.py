# SPDX-License-Identifier: Apache-2.0
"""Where the system's server programs are, and Debian's packages when they are not."""

import fcntl
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from .processes import Failed

# Debian keeps servers out of an ordinary user's PATH.
SEARCH = os.pathsep.join(
    [os.environ.get('PATH', ''), '/usr/lib/rabbitmq/bin', '/usr/sbin', '/usr/local/sbin', '/sbin']
)

# With this answer the packages' own services stay off: the tests start private ones.
POLICY = '#!/bin/sh\nexit 101\n'
POLICY_FILE = Path('/usr/sbin/policy-rc.d')
LOCK = Path(tempfile.gettempdir(), 'novasched-tests-apt.lock')


def program(package: str, *names: str) -> str:
    """The path of the first of these programs; the package is installed if none is there
    and the user may, otherwise the run ends with one line that names it."""
    found = find(*names)
    if found is None:
        install(package)
        found = find(*names)
    if found is None:
        pytest.exit(f'functional tests need {" or ".join(names)}: install {package}', 3)
    return found


def run(command: list[str], **how: Any) -> str:
    """What a program prints.

    :param how: what subprocess.run() takes beside.
    :raises Failed: it does not end well; the text has all that it printed.
    """
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, **how
    )
    if done.returncode:
        raise Failed(f'{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}')
    return done.stdout


def find(*names: str) -> str | None:
    """The first program of these names, an ordinary user's PATH or not."""
    # Debian's /usr/sbin/rabbitmq-server insists on the packages' user; the one of
    # RabbitMQ itself runs as anybody, so it is looked for first.
    preferred = Path('/usr/lib/rabbitmq/bin')
    for name in names:
        if (preferred / name).exists():
            return str(preferred / name)
        path = shutil.which(name, path=SEARCH)
        if path is not None:
            return path
    return None


@functools.cache
def install(package: str) -> None:
    """Install a Debian package without questions and without starting its service."""
    if os.geteuid() != 0 or shutil.which('apt-get') is None:
        pytest.exit(
            f'functional tests need the Debian package {package}:'
            ' apt-get install mariadb-server memcached postgresql prometheus rabbitmq-server',
            3,
        )
    with LOCK.open('w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until it is closed: apt-get waits for nobody
        ours = not POLICY_FILE.exists()
        if ours:
            POLICY_FILE.write_text(POLICY)
            POLICY_FILE.chmod(0o755)
        try:
            _apt_get('update')
            _apt_get('install', '-y', '--no-install-recommends', package)
        finally:
            if ours:
                POLICY_FILE.unlink()


def _apt_get(*arguments: str) -> None:
    try:
        run(['apt-get', '-q', *arguments], env={**os.environ, 'DEBIAN_FRONTEND': 'noninteractive'})
    except Failed as error:
        pytest.exit(str(error), 3)
