# SPDX-License-Identifier: Apache-2.0
"""novasched and the real nova-scheduler side by side: ``python -m tests.perf.daemon``.

Both serve the same cloud: its databases, its message queue, its Placement. nova runs from
the virtualenv of ``NOVASCHED_NOVA_PYTHON``. Exits with 1 where a bound is missed.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Sequence

import pytest

from tests.lab.large_cloud import cloud, config
from tests.lab.large_cloud_hosts import LIBVIRT_TRAITS, large_cloud
from tests.lab.processes import Failed
from tests.lab.results import Row, missed, sheet
from tests.lab.steady import Caller
from tests.lab.tables import add_outputs, among, numbers, publish
from tests.perf.bench import (
    AT_ONCE,
    GROUP_REQUESTS,
    INSTANCES,
    PARTS,
    SINGLE,
    SIZES,
    Bench,
    Plan,
)


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = _arguments(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    begun = time.monotonic()
    plan = Plan(
        config(chosen.fallback),
        chosen.kinds,
        chosen.only,
        chosen.at_once,
        chosen.statements,
        chosen.instances,
        chosen.group_requests,
    )

    def tell(what: str) -> None:
        passed = time.monotonic() - begun
        print(f'{passed:6.1f} s  {what}', file=sys.stderr, flush=True)

    rows: list[Row] = []
    try:
        tell('servers start')
        with cloud() as made, Caller(made.config('conductor')) as caller:
            bench = Bench(made, caller, tell)
            for hosts in chosen.hosts:
                computes = large_cloud(hosts, LIBVIRT_TRAITS if chosen.traits else ())
                for row in bench.measure(computes, plan):
                    rows.append(row)
                    tell('  '.join(filter(None, row.texts())))
    except (pytest.exit.Exception, Failed) as error:
        print(error, file=sys.stderr)
        return 2
    tell('done')
    publish(chosen, [sheet(rows)], {'rows': [row.report() for row in rows]})
    return int(missed(rows) > 0)


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser('python -m tests.perf.daemon', description=__doc__)
    parser.add_argument('--hosts', type=numbers, default=SIZES, help='sizes, with commas')
    parser.add_argument('--only', type=among(PARTS), default=PARTS, help=', '.join(PARTS))
    parser.add_argument('--kinds', type=among(SINGLE), default=SINGLE, help=', '.join(SINGLE))
    parser.add_argument(
        '--at-once', type=numbers, default=AT_ONCE, help='requests of a burst, with commas'
    )
    parser.add_argument('--instances', type=int, default=INSTANCES, help='on each host')
    parser.add_argument(
        '--group-requests', type=int, default=GROUP_REQUESTS, help='that must not cost memory'
    )
    parser.add_argument('--traits', action='store_true', help="hosts have all of libvirt's traits")
    parser.add_argument('--fallback', action='store_true', help='pinned CPUs may be VCPU, too')
    parser.add_argument('--statements', action='store_true', help='show the database queries')
    add_outputs(parser)
    return parser.parse_args(arguments)


if __name__ == '__main__':
    sys.exit(main())
