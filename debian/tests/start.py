#!/usr/lib/novasched/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The unit's command, as the unit's user, ends with one clear line without a database.
It says that it is ready where there are databases and Placement; ``novaschedctl
health`` then gets an answer from the default ``state_path``."""

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
PATIENCE = 100
"""Seconds for a start; the unit's own TimeoutStartSec is longer."""


def unit():
    """The [Service] section of the installed unit."""
    files = subprocess.check_output(['dpkg', '-L', 'novasched'], text=True).split()
    [path] = [file for file in files if file.endswith('/novasched.service')]
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str
    parser.read(path)
    return parser['Service']


def started(service, **how):
    return subprocess.Popen(
        shlex.split(service['ExecStart']),
        user=service['User'],
        group=service['Group'],
        extra_groups=[],
        cwd='/',
        stderr=subprocess.PIPE,
        text=True,
        **how,
    )


def refused(service, name, value):
    """Start it and see it end with 1 and one line that names what is wrong."""
    process = started(service)
    said = process.communicate(timeout=PATIENCE)[1].strip()
    print(f'refused: {said}')
    assert process.returncode == 1, process.returncode
    assert said.startswith('novasched: '), said
    assert name in said, said
    assert value in said, said
    assert '\n' not in said, said


def without_state_path(text):
    """The text of a nova.conf, with the default of ``state_path``."""
    lines = text.splitlines(keepends=True)
    return ''.join(line for line in lines if not line.startswith('state_path'))


def ready(service, folder):
    """Start it, hear that it is ready, ask for its health, stop it and see it end with
    0."""
    address = folder / 'notify'
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.bind(str(address))
        address.chmod(0o666)
        notify.settimeout(PATIENCE)
        process = started(service, env={**os.environ, 'NOTIFY_SOCKET': str(address)})
        try:
            assert b'READY=1' in notify.recv(4096)
            subprocess.run(['novaschedctl', 'health'], check=True)
            process.terminate()
            said = process.communicate(timeout=PATIENCE)[1]
        finally:
            process.kill()
    assert process.returncode == 0, (process.returncode, said)
    print('ready, and stopped with 0')


def main():
    if NOVA_CONF.exists():
        sys.exit(f'{NOVA_CONF} is there: not on a machine that is in use')
    service = unit()
    assert service['Type'] == 'notify'
    NOVA_CONF.parent.mkdir(exist_ok=True)
    try:
        refused(service, '--config-file', str(NOVA_CONF))
        NOVA_CONF.write_text('[DEFAULT]\ntransport_url = fake://\n')
        refused(service, '[database] connection', 'not set')
        with Sandbox([SandboxHost('one')]) as cloud:
            nova_conf = Path(cloud.configuration[1])
            for path in (nova_conf.parent, *nova_conf.parent.iterdir()):
                shutil.chown(path, service['User'])
            NOVA_CONF.write_text(without_state_path(nova_conf.read_text()))
            with tempfile.TemporaryDirectory() as folder:
                Path(folder).chmod(0o755)
                ready(service, Path(folder))
    finally:
        NOVA_CONF.unlink(missing_ok=True)


if __name__ == '__main__':
    main()
