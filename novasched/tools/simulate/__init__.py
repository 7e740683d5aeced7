# SPDX-License-Identifier: Apache-2.0
"""Simulate requests on the live cloud: placement, capacity, lost hosts, other options.

The databases and Placement are read; nothing is claimed or written. "boot" shows where
a server goes, or how many servers fit. "replay" decides all requests of a file, under
nova.conf and under changed options. "lose" evacuates the servers of lost hosts.
"headroom" counts the servers that fit once the fullest host of a zone is lost. "trace"
plays boots and deletions of a file, and shows how full the cloud gets. "advise" plays
the history of the cloud by several settings, and proposes the best. The exit status is
0; 1 after an error, or if a line of FILE cannot be read; 2 for a wrong argument.
"""

import argparse
import functools
import sys
from importlib import import_module

# Sets the number of threads of numeric libraries, so it is imported before them.
import novasched.concurrency  # noqa: F401
from novasched.tools import USAGE_ERROR, add_config_files, whole_number

MAX_INSTANCES = 10_000
GROUP_POLICIES = ('anti-affinity', 'affinity', 'soft-anti-affinity', 'soft-affinity')
REQUEST_OPTIONS = (
    'project',
    'zone',
    'group_policy',
    'hint',
    'extra_spec',
    'image_property',
    'count',
)
"""Options that a recorded request answers itself."""

KINDS_OF_HOSTS = ('host', 'aggregate', 'zone')
_amount = functools.partial(whole_number, least=0)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(dest='command', metavar='COMMAND', required=True)

    text = 'decide one request: where the server goes, or how many such servers fit'
    boot = commands.add_parser('boot', help=text, description=text)
    _add_boot(boot)
    add_common(boot, 'table', 'json')

    text = 'decide all requests of a file, and compare nova.conf with other options'
    replay = commands.add_parser('replay', help=text, description=text)
    _add_replay(replay)
    add_common(replay, 'table', 'json')

    text = 'evacuate the servers of lost hosts, and show the servers without a place'
    lose = commands.add_parser('lose', help=text, description=text)
    _add_lose(lose)
    add_common(lose, 'table', 'json')

    text = 'count the servers that fit once the fullest host of a zone is lost'
    headroom = commands.add_parser('headroom', help=text, description=text)
    _add_headroom(headroom)
    add_common(headroom, 'table', 'json', 'prometheus')

    text = 'play the history of the cloud by several settings, and propose the best'
    advise = commands.add_parser('advise', help=text, description=text)
    advise.add_argument(
        '--days',
        type=whole_number,
        default=30,
        metavar='N',
        help='the length of the history (%(default)s)',
    )
    add_common(advise, 'table', 'json')

    text = 'play boots and deletions of a file, and show how full the cloud gets'
    trace = commands.add_parser('trace', help=text, description=text)
    _add_trace(trace)


def _add_boot(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument('--flavor', metavar='FLAVOR', help='a flavor, by id or name')
    source.add_argument(
        '--vcpus', type=_amount, metavar='N', help='a size, with --ram and --disk'
    )
    source.add_argument(
        '--request', metavar='FILE[:N]', help='the recorded request in line N of FILE'
    )
    source.add_argument(
        '--decision',
        metavar='ID',
        help='the request of a recorded decision, by server, request or decision',
    )
    add('--ram', type=_amount, metavar='MB', help='memory in MiB, with --vcpus')
    add(
        '--disk',
        type=_amount,
        default=0,
        metavar='GB',
        help='disk in GiB, with --vcpus (%(default)s)',
    )
    _add_flavor_details(parser)
    add('--zone', metavar='ZONE', help='the availability zone')
    add(
        '--group-policy',
        choices=GROUP_POLICIES,
        help='put all servers in a new server group of this policy',
    )
    add('--count', type=whole_number, metavar='N', help='servers in one request (1)')
    add('--host', metavar='HOST', help='explain why the server does not go to HOST')
    add('--until-full', action='store_true', help='repeat until a request is refused')
    _add_limit(parser)
    add_plot(parser)
    add_decisions_file(parser)


def _add_replay(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add('file', metavar='FILE', help='recorded requests, or a file of decisions')
    add('--compare', metavar='FILE', help='replay a second time under this nova.conf')
    add(
        '--probe',
        metavar='FLAVOR',
        help='count the servers of this flavor that fit afterwards',
    )
    _add_limit(parser)
    add_plot(parser)


def _add_lose(parser: argparse.ArgumentParser) -> None:
    lost = parser.add_mutually_exclusive_group(required=True)
    lost.add_argument(
        'lost',
        nargs='*',
        type=_loss,
        # argparse takes an empty list for an argument unless it is the default.
        default=[],
        metavar='KIND=NAME',
        help='host=NAME, aggregate=NAME or zone=NAME; several are lost together',
    )
    lost.add_argument(
        '--any',
        choices=KINDS_OF_HOSTS,
        help='lose each host, aggregate or zone in turn, as if it alone were lost',
    )


def _add_headroom(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add('kind', choices=KINDS_OF_HOSTS[1:], help='the sets of hosts to look at')
    add(
        '--flavor',
        required=True,
        metavar='FLAVOR',
        help='the flavor of the servers to count, by id or name',
    )
    _add_flavor_details(parser)
    _add_limit(parser)


def _add_trace(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add('file', metavar='FILE', help='the requests, a JSON object in each line')
    add(
        '--cloud',
        metavar='FILE',
        help='play on the hosts that this JSON file describes, not on the live cloud',
    )
    add(
        '--moments',
        type=whole_number,
        default=20,
        metavar='N',
        help='report the cloud at N moments (%(default)s)',
    )
    add(
        '--make-room',
        type=whole_number,
        metavar='N',
        help='move at most N servers for each server that would be refused',
    )
    text = 'draw the capacity in use by the offered load, as .png, .svg or .pdf'
    add('--plot', metavar='FILE', help=text)
    add_common(parser, 'table', 'json')
    text = (
        'play a further time with changed options, separated by semicolons; repeat it '
        'to compare several settings'
    )
    add(
        '--beside',
        action='append',
        default=[],
        metavar='GROUP.NAME=VALUE[;...]',
        help=text,
    )


def _add_flavor_details(parser: argparse.ArgumentParser) -> None:
    for name, text in (
        ('--extra-spec', 'an extra spec, added to the flavor or replacing its own'),
        ('--image-property', 'a property of the image'),
        ('--hint', 'a scheduler hint'),
    ):
        parser.add_argument(
            name,
            type=_pair,
            action='append',
            default=[],
            metavar='KEY=VALUE',
            help=f'{text}; repeat it for several',
        )
    parser.add_argument('--project', metavar='ID', help='the project of the servers')


def _add_limit(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        '--at-most',
        type=whole_number,
        default=MAX_INSTANCES,
        metavar='N',
        help='stop counting at N servers (%(default)s)',
    )


def add_decisions_file(parser: argparse.ArgumentParser) -> None:
    """Declare the option that names the file of recorded decisions."""
    text = 'the decisions for --decision (default: [novasched] decisions_file)'
    parser.add_argument('--file', metavar='FILE', help=text)


def add_plot(parser: argparse.ArgumentParser) -> None:
    """Declare the option that draws hosts."""
    text = 'draw the use of all hosts, as .png, .svg or .pdf'
    parser.add_argument('--plot', metavar='FILE', help=text)


def add_common(parser: argparse.ArgumentParser, *formats: str) -> None:
    """Declare the options of every command on a cloud in memory."""
    add = parser.add_argument
    add_config_files(parser)
    add(
        '--set',
        action='append',
        default=[],
        metavar='GROUP.NAME=VALUE',
        help='change an option of nova.conf; repeat it for several',
    )
    add(
        '--seed',
        type=int,
        default=0,
        metavar='N',
        help='the seed of draws among hosts (%(default)s)',
    )
    if formats:
        add('--format', choices=formats, default='table', help='(%(default)s)')


def run(arguments: argparse.Namespace) -> int:
    """Run the subcommand and return the exit status."""
    conflict = _conflict(arguments) if arguments.command == 'boot' else None
    if conflict:
        print(f'novaschedctl simulate boot: {conflict}', file=sys.stderr)
        return USAGE_ERROR

    # Imported late, since the modules of the daemon take a second.
    running = import_module('novasched.tools.simulate.running')
    return int(running.run(arguments))


def _conflict(arguments: argparse.Namespace) -> str | None:
    """The reason why the arguments of ``boot`` do not go together; None if they do."""
    if arguments.vcpus is not None and arguments.ram is None:
        return '--vcpus needs --ram'
    if arguments.ram is not None and arguments.vcpus is None:
        return '--ram needs --vcpus'
    if arguments.plot and not arguments.until_full:
        return '--plot needs --until-full'

    if arguments.request or arguments.decision:
        source = '--request' if arguments.request else '--decision'
        for name in REQUEST_OPTIONS:
            if getattr(arguments, name):
                option = name.replace('_', '-')
                return f'--{option} does not go with {source}'
    return None


def _loss(text: str) -> str:
    kind, name = _pair(text)
    if kind not in KINDS_OF_HOSTS:
        kinds = ', '.join(KINDS_OF_HOSTS)
        raise argparse.ArgumentTypeError(f'{text!r} does not begin with {kinds}')
    return f'{kind}={name}'


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition('=')
    if not equals or not name:
        raise argparse.ArgumentTypeError(f'{text!r} is not KEY=VALUE')
    return name, value
