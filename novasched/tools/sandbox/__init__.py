# SPDX-License-Identifier: Apache-2.0
"""Boot servers in a small cloud within this process.

The scheduler and Placement are the real services. Databases are SQLite files in a
temporary folder, and messages stay in memory. At the end all allocations are compared
with the results: the exit status is 0 if both agree, also if servers were refused.
Times include up to 50 ms in which the in-memory transport waits for a message.
"""

import argparse

# Sets the number of threads of numeric libraries, so it is imported before them.
import novasched.concurrency  # noqa: F401
from novasched.scheduler.model.flavor import Flavor
from novasched.tools import imported, whole_number

ZONES = ('az01', 'az02')
FLAVOR = '4,8192,40'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    text = 'number of hosts (%(default)s)'
    add('--hosts', type=whole_number, default=12, metavar='N', help=text)
    text = 'number of servers (%(default)s)'
    add('--servers', type=whole_number, default=40, metavar='N', help=text)
    add(
        '--flavor',
        dest='flavors',
        type=_flavor,
        action='append',
        metavar='VCPUS,RAM_MB,DISK_GB',
        help=f'size of the servers ({FLAVOR}); repeat it to draw a size per request',
    )
    add(
        '--az',
        choices=ZONES,
        nargs='?',
        const=ZONES[-1],
        help='request this availability zone (%(const)s)',
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
    text = 'seed of sizes and order (%(default)s)'
    add('--seed', type=int, default=0, metavar='N', help=text)
    add('--format', choices=('table', 'json'), default='table', help='(%(default)s)')
    add(
        '--verbose',
        action='store_true',
        help="show the services' logs on standard error",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the sandbox. Return 0 if Placement confirms all results, otherwise 1."""
    arguments.flavors = arguments.flavors or [_flavor(FLAVOR)]
    # Imported late, since rich and Placement are optional.
    return int(imported('novasched.tools.sandbox.tour', 'sandbox').run(arguments))


def _flavor(text: str) -> Flavor:
    parts = text.split(',')
    if len(parts) != 3:
        raise argparse.ArgumentTypeError(f'{text!r} is not VCPUS,RAM_MB,DISK_GB')
    return Flavor(
        name=text,
        flavorid=text,
        id=1,
        vcpus=whole_number(parts[0], 'VCPUS'),
        memory_mb=whole_number(parts[1], 'RAM_MB'),
        root_gb=whole_number(parts[2], 'DISK_GB', least=0),
    )
