# SPDX-License-Identifier: Apache-2.0
"""Plan moves of servers: room for large servers, empty hosts, even use, right places.

Each move is decided as nova-scheduler would decide it, by the filters of nova.conf, and
in the state that the moves before it leave. "make-room" makes room for further servers
of a flavor. "empty" moves the servers away from hosts. "pack" empties as many hosts as
possible. "spread" moves servers from full hosts to hosts far below. "mend" moves
servers that stand where the rules of today forbid it. "check" compares a plan with the
present cloud. Only "run" moves servers, by nova's API; "--format shell" prints the
commands. The exit status is 0; 1 after an error; 2 for a wrong argument; 3 if a plan
does not reach its goal, if a move of a checked plan is void, or if a run leaves moves
open.
"""

import argparse
import functools
from importlib import import_module

# Sets the number of threads of numeric libraries, so it is imported before them.
import novasched.concurrency  # noqa: F401
from novasched.tools import whole_number
from novasched.tools.simulate import (
    KINDS_OF_HOSTS,
    add_common,
    add_decisions_file,
    add_plot,
)

KINDS_OF_EXCEPTIONS = ('project', 'flavor', 'aggregate', 'metadata')


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest='command', metavar='GOAL', required=True)

    text = 'make room for further servers of a flavor'
    make_room = commands.add_parser('make-room', help=text, description=text)
    _add_servers(make_room)

    text = 'move all servers away from hosts, as for maintenance'
    empty = commands.add_parser('empty', help=text, description=text)
    empty.add_argument(
        'hosts',
        nargs='+',
        type=functools.partial(_pair, KINDS_OF_HOSTS),
        metavar='KIND=NAME',
        help='host=NAME, aggregate=NAME or zone=NAME; several are emptied together',
    )

    text = 'empty as many hosts as possible'
    pack = commands.add_parser('pack', help=text, description=text)

    text = 'move servers from full hosts to hosts far below'
    spread = commands.add_parser('spread', help=text, description=text)
    for name, default, text in (
        ('--threshold', 0.8, 'the share of memory or vCPUs that no host should exceed'),
        ('--margin', 0.1, 'how far below the old host the new host of a server stays'),
    ):
        spread.add_argument(
            name,
            type=_share,
            default=default,
            metavar='SHARE',
            help=f'{text}, such as 0.8 (%(default)s)',
        )

    text = 'move servers that stand where the rules of today forbid it'
    mend = commands.add_parser('mend', help=text, description=text)

    for goal in (make_room, empty, pack, spread, mend):
        _add_limits(goal)
        add_common(goal, 'table', 'json', 'shell')

    text = 'compare a plan with the present cloud: which moves hold, are done, or void'
    check = commands.add_parser('check', help=text, description=text)
    check.add_argument('file', metavar='FILE', help='the plan, in JSON')
    _add_cloud(check)
    add_common(check, 'table', 'json')

    text = 'carry out a plan by the API of nova, step by step'
    carry_out = commands.add_parser('run', help=text, description=text)
    _add_run(carry_out)


def _add_servers(parser: argparse.ArgumentParser) -> None:
    """Declare the options that describe the servers to make room for."""
    add = parser.add_argument
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument('--flavor', metavar='FLAVOR', help='a flavor, by id or name')
    source.add_argument(
        '--decision',
        metavar='ID',
        help='the servers of a recorded decision, by server, request or decision',
    )
    add('--count', type=whole_number, metavar='N', help='the number of servers (1)')
    add('--zone', metavar='ZONE', help='the availability zone, with --flavor')
    add('--project', metavar='ID', help='the project, with --flavor')
    add_decisions_file(parser)


def _add_run(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add('file', metavar='FILE', help='the plan, in JSON')
    add(
        '--at-once',
        type=whole_number,
        default=4,
        metavar='N',
        help='the maximum number of moves under way (%(default)s)',
    )
    add('--yes', action='store_true', help='do not ask for a confirmation')
    add('--os-cloud', metavar='NAME', help='the cloud in clouds.yaml (OS_CLOUD)')
    add_common(parser)
    # Only the live cloud can change.
    parser.set_defaults(cloud=None)


def _add_limits(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add('--at-most', type=whole_number, metavar='N', help='plan at most N moves')
    add(
        '--except',
        dest='exempt',
        action='append',
        default=[],
        type=functools.partial(_pair, KINDS_OF_EXCEPTIONS),
        metavar='KIND=NAME',
        help='do not move the servers of a project, flavor or aggregate, or with a'
        ' metadata key: project=ID, flavor=NAME, aggregate=NAME, metadata=KEY',
    )
    add(
        '--rest',
        type=functools.partial(whole_number, least=0),
        default=0,
        metavar='SECONDS',
        help='do not move servers that moved in the last seconds (%(default)s)',
    )
    add_plot(parser)
    _add_cloud(parser)


def _add_cloud(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        '--cloud',
        metavar='FILE',
        help='the cloud that this JSON file describes, in place of the live one',
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the subcommand and return the exit status."""
    # Imported late, since the modules of the daemon take a second.
    running = import_module('novasched.tools.plan.running')
    return int(running.run(arguments))


def _pair(kinds: tuple[str, ...], text: str) -> tuple[str, str]:
    """The kind and the name of ``KIND=NAME``."""
    kind, _, name = text.partition('=')
    if kind not in kinds or not name:
        which = ', '.join(f'{each}=' for each in kinds)
        raise argparse.ArgumentTypeError(f'{text!r} does not begin with {which}')
    return kind, name


def _share(text: str) -> float:
    """A share from 0 to 1."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f'{text!r} is no share from 0 to 1')
    return value
