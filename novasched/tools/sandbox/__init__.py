# SPDX-License-Identifier: Apache-2.0
"""Boot servers in a small cloud that lives in this process and leaves nothing behind.

The scheduler and Placement are the real ones; databases are SQLite files in a temporary
folder, and messages stay in memory. Every placement is then looked up in Placement: the
exit status is 0 if its books agree, whether servers were refused or not. Times include
the up to 50 ms after which the in-memory transport looks for a message.
"""

import argparse

# It chooses the threads with which the libraries of others are imported.
import novasched.concurrency  # noqa: F401
from novasched.scheduler.model.flavor import Flavor
from novasched.tools import imported, whole_number

ZONES = ('az01', 'az02')
FLAVOR = '4,8192,40'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        '--hosts',
        type=whole_number,
        default=12,
        metavar='N',
        help='how many (%(default)s)',
    )
    add(
        '--servers',
        type=whole_number,
        default=40,
        metavar='N',
        help='how many (%(default)s)',
    )
    add(
        '--flavor',
        dest='flavors',
        type=_flavor,
        action='append',
        metavar='VCPUS,RAM_MB,DISK_GB',
        help=(
            f'size of the servers ({FLAVOR}); when given several times, each request'
            ' draws one'
        ),
    )
    add(
        '--az',
        choices=ZONES,
        nargs='?',
        const=ZONES[-1],
        help='ask for this availability zone (%(const)s)',
    )
    policy = parser.add_mutually_exclusive_group()
    for name, text in (
        ('anti-affinity', 'each on a host of its own'),
        ('affinity', 'all on one host'),
    ):
        policy.add_argument(
            f'--{name}',
            dest='policy',
            action='store_const',
            const=name,
            help=f'all servers in one group: {text}',
        )
    text = 'servers per request (%(default)s)'
    add('--multi', type=whole_number, default=1, metavar='N', help=text)
    add(
        '--seed',
        type=int,
        default=0,
        metavar='N',
        help='for sizes and order (%(default)s)',
    )
    add('--format', choices=('table', 'json'), default='table', help='(%(default)s)')
    add(
        '--verbose',
        action='store_true',
        help="show the services' logs on standard error",
    )


def run(arguments: argparse.Namespace) -> int:
    """Do it; 0 if Placement confirms all of it, else 1."""
    arguments.flavors = arguments.flavors or [_flavor(FLAVOR)]
    return int(imported('novasched.tools.sandbox.tour', 'sandbox').run(arguments))


def _flavor(text: str) -> Flavor:
    parts = text.split(',')
    if len(parts) != 3:
        raise argparse.ArgumentTypeError(f'{text!r} is not VCPUS,RAM_MB,DISK_GB')
    vcpus, memory_mb, root_gb = (
        whole_number(part, name, least)
        for part, name, least in zip(
            parts, ('VCPUS', 'RAM_MB', 'DISK_GB'), (1, 1, 0), strict=True
        )
    )
    return Flavor(
        name=text,
        flavorid=text,
        id=1,
        vcpus=vcpus,
        memory_mb=memory_mb,
        root_gb=root_gb,
    )
