# SPDX-License-Identifier: Apache-2.0
"""Decide requests beside another scheduler, claim nothing, and compare the answers.

FILE has one recorded request in a line: {"request": BODY, "reply": BODY}, each body as
oslo.messaging sent it; without a reply the decision is shown alone. The databases and
Placement are asked as they are now, so that a recording should be fresh. With --listen the
requests are those that a running nova-scheduler tells of on the notification bus, which needs
[oslo_messaging_notifications] driver = messagingv2 there, and better [notifications]
notification_format = versioned or both. The exit status is 0 if no decision differs, 1 if one
does or could not be made, 2 for a wrong argument.
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module

from novasched.tools import USAGE_ERROR


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add = parser.add_argument
    for name, metavar in (('--config-file', 'FILE'), ('--config-dir', 'DIR')):
        add(name, metavar=metavar, action='append', default=[], help='nova.conf, as the daemon')
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument('--requests', metavar='FILE', help='the recorded requests')
    source.add_argument('--listen', action='store_true', help='requests as they are made')
    add('--seconds', type=_positive, metavar='N', help='listen so long (until interrupted)')
    add('--requests-seen', type=_positive, metavar='N', help='listen to so many requests')
    add(
        '--patience',
        type=_positive,
        default=60,
        metavar='N',
        help='seconds after which a request that has not come to an end was refused (%(default)s)',
    )
    add('--seed', type=int, default=0, metavar='N', help='for draws among hosts (%(default)s)')
    add('--format', choices=('table', 'json'), default='table', help='(%(default)s)')


def _positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise ValueError(text)
    return number


def run(arguments: argparse.Namespace) -> int:
    """Do it; 0 if no decision differs, else 1, or 2 if there is nothing to read.

    :raises NovaschedError: the databases, Placement or the bus cannot be used at all
    """
    # Only here: the daemon's parts take a second to import.
    if arguments.listen:
        found = import_module('novasched.tools.shadow.listen').run(arguments)
    else:
        replay = import_module('novasched.tools.shadow.replay')
        try:
            with open(arguments.requests, encoding='utf-8') as lines:
                found = replay.run(arguments, lines)
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, 'strerror', None) or 'no text'
            print(f'novaschedctl shadow: {arguments.requests}: {why}', file=sys.stderr)
            return USAGE_ERROR
    report = import_module('novasched.tools.shadow.comparison')
    print(report.as_json(found) if arguments.format == 'json' else report.as_table(found))
    return int(not report.is_same(found))
