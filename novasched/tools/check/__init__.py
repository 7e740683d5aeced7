# SPDX-License-Identifier: Apache-2.0
"""Say what must be mended before novasched takes nova-scheduler's place.

Options, filters, weighers and the driver are looked at, the databases, Placement and
RabbitMQ are asked for their versions, and nova's aggregates are compared with
Placement's. Nothing is changed, and no password is shown. The exit status is 0 if
nothing must be mended, 1 if something must, and 2 if the check cannot begin: a wrong
argument, or a file that is not there.
"""

import argparse
import math
from importlib import import_module

# It chooses the threads with which the libraries of others are imported.
import novasched.concurrency  # noqa: F401


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    for name, metavar, text in (
        (
            '--config-file',
            'FILE',
            'a nova.conf; several are read in order (as nova finds it)',
        ),
        ('--config-dir', 'DIR', 'a folder whose *.conf are read after the files'),
        (
            '--placement-config',
            'FILE',
            "Placement's own placement.conf, or a copy (as it finds it)",
        ),
    ):
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
    """Do it; 0 if nothing must be mended, else 1, or 2 if there is nothing to read."""
    # Only here: the daemon's parts take a second to import.
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
