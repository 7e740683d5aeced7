# SPDX-License-Identifier: Apache-2.0
"""Decide requests beside another scheduler, claim nothing, and compare the answers.

FILE has one recorded request in a line: {"request": BODY, "reply": BODY}, each body as
oslo.messaging sent it; without a reply the decision is shown alone. The databases and
Placement are asked as they are now, so that a recording should be fresh. With --listen
the requests are those that a running nova-scheduler tells of on the notification bus,
which needs [oslo_messaging_notifications] driver = messagingv2 there, and better
[notifications] notification_format = versioned or both. The exit status is 0 if no
decision differs, 1 if one does or could not be made, 2 for a wrong argument.
"""

import argparse
import sys
from importlib import import_module

# It chooses the threads with which the libraries of others are imported.
import novasched.concurrency  # noqa: F401
from novasched.tools import USAGE_ERROR, add_config_files, whole_number


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add_config_files(parser)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument('--requests', metavar='FILE', help='the recorded requests')
    source.add_argument(
        '--listen', action='store_true', help='requests as they are made'
    )
    add(
        '--seconds',
        type=whole_number,
        metavar='N',
        help='listen so long (until interrupted)',
    )
    add(
        '--requests-seen',
        type=whole_number,
        metavar='N',
        help='listen to so many requests',
    )
    add(
        '--patience',
        type=whole_number,
        default=60,
        metavar='N',
        help=(
            'seconds after which a request that has not come to an end was refused'
            ' (%(default)s)'
        ),
    )
    add(
        '--seed',
        type=int,
        default=0,
        metavar='N',
        help='for draws among hosts (%(default)s)',
    )
    add('--format', choices=('table', 'json'), default='table', help='(%(default)s)')


def run(arguments: argparse.Namespace) -> int:
    """Do it; 0 if no decision differs, else 1, or 2 if there is nothing to read."""
    # Only here: the daemon's parts take a second to import.
    report = import_module('novasched.tools.shadow.comparison')
    if arguments.listen:
        found = import_module('novasched.tools.shadow.listen').run(arguments)
    else:
        try:
            with open(arguments.requests, encoding='utf-8') as lines:
                found = report.run(arguments, lines)
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, 'strerror', None) or 'no text'
            print(f'novaschedctl shadow: {arguments.requests}: {why}', file=sys.stderr)
            return USAGE_ERROR
    print(
        report.as_json(found) if arguments.format == 'json' else report.as_table(found)
    )
    return int(not report.is_same(found))
