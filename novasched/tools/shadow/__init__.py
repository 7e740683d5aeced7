# SPDX-License-Identifier: Apache-2.0
"""Decide requests beside another scheduler without claims, and compare the answers.

Each line of FILE is a recorded request: {"request": BODY, "reply": BODY}, with message
bodies of oslo.messaging. Without a reply, the decision is printed alone. Databases and
Placement are read as they are now, so a recording should be fresh. --listen takes the
requests from notifications of a running nova-scheduler. nova-scheduler then needs
[oslo_messaging_notifications] driver = messagingv2, and preferably [notifications]
notification_format = versioned or both. The exit status is 0 if no decision differs, 1
if a decision differs or failed, 2 for a wrong argument.
"""

import argparse
import sys
from importlib import import_module

# Sets the number of threads of numeric libraries, so it is imported before them.
import novasched.concurrency  # noqa: F401
from novasched.tools import USAGE_ERROR, add_config_files, whole_number


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add_config_files(parser)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument('--requests', metavar='FILE', help='the recorded requests')
    text = 'requests of a running nova-scheduler'
    source.add_argument('--listen', action='store_true', help=text)
    text = 'with --listen: end after N seconds (default: until interrupted)'
    add('--seconds', type=whole_number, metavar='N', help=text)
    text = 'with --listen: end after N requests'
    add('--requests-seen', type=whole_number, metavar='N', help=text)
    text = 'seconds after which a request without a result counts as refused'
    text += ' (%(default)s)'
    add('--patience', type=whole_number, default=60, metavar='N', help=text)
    text = 'the seed of draws among hosts (%(default)s)'
    add('--seed', type=int, default=0, metavar='N', help=text)
    add('--format', choices=('table', 'json'), default='table', help='(%(default)s)')


def run(arguments: argparse.Namespace) -> int:
    """Compare the requests, print the report, and return the exit status: 0 if no
    decision differs, otherwise 1, or 2 if the file cannot be read."""
    # Imported late, since the modules of the daemon take a second.
    comparison = import_module('novasched.tools.shadow.comparison')
    if arguments.listen:
        rows = import_module('novasched.tools.shadow.listen').run(arguments)
    else:
        try:
            with open(arguments.requests, encoding='utf-8') as lines:
                rows = comparison.run(arguments, lines)
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, 'strerror', None) or 'no text'
            print(f'novaschedctl shadow: {arguments.requests}: {why}', file=sys.stderr)
            return USAGE_ERROR

    if arguments.format == 'json':
        print(comparison.as_json(rows))
    else:
        print(comparison.as_table(rows))
    return 0 if comparison.is_same(rows) else 1
