#!/usr/lib/novasched/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Test of the command of the installed unit, run as the user of the unit.

Without a configured database, the daemon exits with one line that names the option.
With databases and Placement, the daemon notifies systemd that it is ready, and
``novaschedctl health`` finds the socket below the default ``state_path``.
"""

import configparser
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from novasched.tools.sandbox.cloud import Sandbox
from novasched.tools.sandbox.computes import SandboxHost

NOVA_CONF = Path('/etc/nova/nova.conf')
START_TIMEOUT_S = 100
"""Maximum time for a start or a stop, shorter than the TimeoutStartSec of the unit."""


def service_section():
    """The [Service] section of the installed unit."""
    files = subprocess.check_output(['dpkg', '-L', 'novasched'], text=True).split()
    [path] = [file for file in files if file.endswith('/novasched.service')]
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str
    parser.read(path)
    return parser['Service']


def start(service, **options):
    """Start the command of the unit.

    :param service: the [Service] section.
    :param options: of :class:`subprocess.Popen`.
    """
    return subprocess.Popen(
        shlex.split(service['ExecStart']),
        user=service['User'],
        group=service['Group'],
        extra_groups=[],
        cwd='/',
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def check_refusal(service, name, value):
    """Check that the daemon exits with status 1 and one line with the name and the
    value of an option."""
    process = start(service)
    errors = process.communicate(timeout=START_TIMEOUT_S)[1].strip()
    print(f'refused: {errors}')

    assert process.returncode == 1, process.returncode
    assert errors.startswith('novasched: '), errors
    assert name in errors, errors
    assert value in errors, errors
    assert '\n' not in errors, errors


def without_state_path(text):
    """The text of a nova.conf without ``state_path``, so that the default applies."""
    lines = text.splitlines(keepends=True)
    return ''.join(line for line in lines if not line.startswith('state_path'))


def check_start_and_stop(service, folder):
    """Check that the daemon becomes ready, answers the health probe, and exits with
    status 0 after SIGTERM.

    :param folder: a folder for the notification socket.
    """
    address = folder / 'notify'
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.bind(str(address))
        address.chmod(0o666)
        notify.settimeout(START_TIMEOUT_S)
        process = start(service, env={**os.environ, 'NOTIFY_SOCKET': str(address)})
        try:
            assert b'READY=1' in notify.recv(4096)
            subprocess.run(['novaschedctl', 'health'], check=True)
            process.terminate()
            errors = process.communicate(timeout=START_TIMEOUT_S)[1]
        finally:
            process.kill()

    assert process.returncode == 0, (process.returncode, errors)
    print('ready, and stopped with status 0')


def main():
    if NOVA_CONF.exists():
        sys.exit(f'{NOVA_CONF} exists: the test would overwrite the file')

    service = service_section()
    assert service['Type'] == 'notify'
    NOVA_CONF.parent.mkdir(exist_ok=True)
    try:
        check_refusal(service, '--config-file', str(NOVA_CONF))
        NOVA_CONF.write_text('[DEFAULT]\ntransport_url = fake://\n')
        check_refusal(service, '[database] connection', 'not set')

        with Sandbox([SandboxHost('one')]) as cloud:
            nova_conf = Path(cloud.configuration[1])
            for path in (nova_conf.parent, *nova_conf.parent.iterdir()):
                shutil.chown(path, service['User'])
            NOVA_CONF.write_text(without_state_path(nova_conf.read_text()))
            with tempfile.TemporaryDirectory() as folder:
                Path(folder).chmod(0o755)
                check_start_and_stop(service, Path(folder))
    finally:
        NOVA_CONF.unlink(missing_ok=True)


if __name__ == '__main__':
    main()
