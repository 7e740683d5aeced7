# SPDX-License-Identifier: Apache-2.0
"""Say where servers would go, how many more fit, which find no other place if a host is
lost, and what other options would make of it.

The databases and Placement are asked as they are now; nothing is claimed or written.
What is asked for is a flavor, a size, one recorded request ({"request": BODY} in a
line, as shadow reads them), or a decision of [novasched] decisions_file. --replay
decides all requests of a file of either kind, one after the other, under nova.conf and,
with --set or --compare, under other options beside it. --lose and --lose-any evacuate
the servers of hosts that are lost, and say which of them find no place. The exit status
is 0; 1 if it cannot be done, or a line of FILE cannot be read; 2 for a wrong argument.
"""

import argparse
import functools
import sys
from importlib import import_module

# It chooses the threads with which the libraries of others are imported.
import novasched.concurrency  # noqa: F401
from novasched.tools import USAGE_ERROR, add_config_files, whole_number

MAX_INSTANCES = 10_000
GROUP_POLICIES = ('anti-affinity', 'affinity', 'soft-anti-affinity', 'soft-affinity')
OF_FLAVORS = (
    'project',
    'zone',
    'group_policy',
    'hint',
    'extra_spec',
    'image_property',
    'count',
)
"""What recorded requests say themselves."""

RECORDED: dict[str, tuple[str, ...]] = {
    'replay': (*OF_FLAVORS, 'until_full', 'host'),
    'request': OF_FLAVORS,
    'decision': OF_FLAVORS,
    'lose': (*OF_FLAVORS, 'until_full', 'host'),
    'lose_any': (*OF_FLAVORS, 'until_full', 'host'),
    'headroom': ('until_full', 'host', 'zone', 'count', 'group_policy'),
}
KINDS = ('host', 'aggregate', 'zone')
"""What can be lost."""
_amount = functools.partial(whole_number, least=0)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add_config_files(parser)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument('--flavor', metavar='FLAVOR', help='a flavor, by id or name')
    source.add_argument(
        '--vcpus', type=_amount, metavar='N', help='a size, with --ram and --disk'
    )
    source.add_argument(
        '--request', metavar='FILE[:N]', help='the request in a line of FILE'
    )
    source.add_argument(
        '--decision', metavar='ID', help='a server, a request, or a decision'
    )
    source.add_argument('--replay', metavar='FILE', help='all requests of FILE')
    text = (
        'evacuate all servers of host=NAME, aggregate=NAME or zone=NAME; several times'
        ' for several'
    )
    source.add_argument(
        '--lose', type=_lost, action='append', metavar='KIND=NAME', help=text
    )
    text = 'the same for each host, aggregate or zone, as if it alone were lost'
    source.add_argument('--lose-any', choices=KINDS, help=text)
    text = (
        'what fits in each aggregate or zone, once its fullest host is lost; with'
        ' --probe'
    )
    source.add_argument('--headroom', choices=KINDS[1:], help=text)
    add('--ram', type=_amount, metavar='MB', help='memory, with --vcpus')
    add(
        '--disk',
        type=_amount,
        default=0,
        metavar='GB',
        help='disk, with --vcpus (%(default)s)',
    )
    for name, help in (
        ('--extra-spec', 'of the flavor, instead of or beside those that it has'),
        ('--image-property', 'of the image'),
        ('--hint', 'a scheduler hint'),
    ):
        add(
            name,
            type=_pair,
            action='append',
            default=[],
            metavar='KEY=VALUE',
            help=help,
        )
    add('--zone', metavar='ZONE', help='the availability zone')
    add('--project', metavar='ID', help='whose servers these are')
    add(
        '--group-policy',
        choices=GROUP_POLICIES,
        help='all servers are in one new group',
    )
    text = 'servers at once (%(default)s)'
    add('--count', type=whole_number, default=1, metavar='N', help=text)
    add('--until-full', action='store_true', help='repeat it until it is refused')
    text = 'so many (%(default)s)'
    add('--at-most', type=whole_number, default=MAX_INSTANCES, metavar='N', help=text)
    add('--host', metavar='HOST', help='why not this host')
    add(
        '--set',
        action='append',
        default=[],
        metavar='GROUP.NAME=VALUE',
        help='an option that is other than nova.conf has it; several times for several',
    )
    add('--compare', metavar='FILE', help='replay under this nova.conf, too')
    add('--probe', metavar='FLAVOR', help='how many of these fit after that')
    add('--plot', metavar='FILE', help='draw how full hosts are, as .png, .svg or .pdf')
    add(
        '--file',
        metavar='FILE',
        help='the decisions, in place of those that nova.conf names',
    )
    add(
        '--seed',
        type=int,
        default=0,
        metavar='N',
        help='for draws among hosts (%(default)s)',
    )
    add(
        '--format',
        choices=('table', 'json', 'prometheus'),
        default='table',
        help='(%(default)s)',
    )


def run(arguments: argparse.Namespace) -> int:
    """Do it; 0 if it can be done, 1 if something could not be read, 2 for arguments
    that do not go together."""
    if wrong := _wrong(arguments):
        print(f'novaschedctl simulate: {wrong}', file=sys.stderr)
        return USAGE_ERROR
    # Only here: the daemon's parts take a second to import.
    running = import_module('novasched.tools.simulate.running')
    return int(running.run(arguments))


def _wrong(arguments: argparse.Namespace) -> str | None:
    given = {name for name, value in vars(arguments).items() if value}
    if arguments.count == 1:
        given.discard('count')
    if arguments.compare and not arguments.replay:
        return '--compare needs --replay'
    if arguments.probe and not (arguments.replay or arguments.headroom):
        return '--probe needs --replay or --headroom'
    if arguments.headroom and not arguments.probe:
        return '--headroom needs --probe'
    if arguments.format == 'prometheus' and not arguments.headroom:
        return '--format prometheus needs --headroom'
    for source, others in RECORDED.items():
        if source in given and (lost := given.intersection(others)):
            other, this = (name.replace('_', '-') for name in (min(lost), source))
            return f'--{other} does not go with --{this}'
    if (arguments.vcpus is None) != (arguments.ram is None):
        if arguments.ram is None:
            return '--vcpus needs --ram'
        return '--ram needs --vcpus'
    if arguments.plot and not (arguments.until_full or arguments.replay):
        return '--plot needs --until-full or --replay'
    return None


def _lost(text: str) -> str:
    kind, name = _pair(text)
    if kind not in KINDS:
        raise argparse.ArgumentTypeError(
            f'{text!r} does not begin with {", ".join(KINDS)}'
        )
    return f'{kind}={name}'


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition('=')
    if not equals or not name:
        raise argparse.ArgumentTypeError(f'{text!r} is not KEY=VALUE')
    return name, value
