# SPDX-License-Identifier: Apache-2.0
"""What ``novaschedctl check`` says of the servers that a nova.conf names."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

AREAS = ('databases', 'Placement', 'RabbitMQ')


def checked(config: Path) -> dict[str, tuple[str, str]]:
    """The findings about servers: {subject: (level, text)}."""
    command = [sys.executable, '-m', 'novasched.cmd.novaschedctl', 'check']
    done = subprocess.run(
        [*command, '--config-file', str(config), '--format', 'json', '--timeout', '60'],
        capture_output=True,
        text=True,
    )
    return {
        each['subject']: (each['level'], each['text'])
        for each in json.loads(done.stdout)['findings']
        if each['area'] in AREAS
    }
