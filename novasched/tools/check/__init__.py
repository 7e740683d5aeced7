# SPDX-License-Identifier: Apache-2.0
"""Check what must be mended before novasched takes nova-scheduler's place.

The check reads options, loads filters, weighers and the driver, connects to the
databases, Placement and RabbitMQ, and compares nova's aggregates with Placement's. It
changes nothing and prints no password. The exit status is 0 if nothing must be mended,
1 if something must, and 2 if the check cannot begin: a wrong argument, or a missing
file.
"""

import argparse
import math
from importlib import import_module

# Sets the number of threads of numeric libraries, so it is imported before them.
import novasched.concurrency  # noqa: F401


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    files = (
        ('--config-file', 'FILE', 'nova.conf; repeat it for several, read in order'),
        ('--config-dir', 'DIR', 'a folder whose *.conf are read after the files'),
        ('--placement-config', 'FILE', 'placement.conf of Placement, or a copy'),
    )
    for name, metavar, text in files:
        text += ' (default: as the service finds it)'
        add(name, metavar=metavar, action='append', default=[], help=text)
    add('--format', choices=('table', 'json'), default='table', help='(%(default)s)')
    add(
        '--timeout',
        type=_seconds,
        default=10.0,
        metavar='SECONDS',
        help='how long each server may take to answer (%(default)g)',
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the check. Return 0 if nothing must be mended, 1 if something must, and 2 if
    there is no nova.conf."""
    # Imported late, since the modules of the daemon take a second.
    return int(import_module('novasched.tools.check.inspection').run(arguments))


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(
            f'it must be more than 0 seconds, not {text!r}'
        )
    return value
