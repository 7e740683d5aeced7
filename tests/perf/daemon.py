# SPDX-License-Identifier: Apache-2.0
"""novasched and the real nova-scheduler side by side: ``python -m tests.perf.daemon``.

Both serve the same cloud: its databases, its message queue, its Placement. nova runs from
the virtualenv of ``NOVASCHED_NOVA_PYTHON``. Exits with 1 where a bound is missed.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence

import pytest

from tests.lab.large_cloud import cloud
from tests.lab.large_cloud_hosts import LIBVIRT_TRAITS, large_cloud
from tests.lab.processes import Failed
from tests.lab.results import Row, missed, sheet
from tests.lab.steady import Caller
from tests.lab.tables import add_outputs, among, numbers, publish, teller
from tests.perf.bench import AT_ONCE, PARTS, SINGLE, SIZES, Bench


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = _arguments(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    tell = teller()
    rows: list[Row] = []
    try:
        tell('servers start')
        with cloud() as made, Caller(made.config('conductor')) as caller:
            bench = Bench(made, caller, tell)
            for hosts in chosen.hosts:
                computes = large_cloud(hosts, LIBVIRT_TRAITS if chosen.traits else ())
                for row in bench.measure(computes, chosen):
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
    parser.add_argument('--at-once', type=numbers, default=AT_ONCE, help='requests of a burst')
    parser.add_argument('--instances', type=int, default=20, help='on each host')
    parser.add_argument('--group-requests', type=int, default=200, help='that must not cost memory')
    parser.add_argument('--traits', action='store_true', help="hosts have all of libvirt's traits")
    parser.add_argument('--fallback', action='store_true', help='pinned CPUs may be VCPU, too')
    parser.add_argument('--statements', action='store_true', help='show the database queries')
    add_outputs(parser)
    return parser.parse_args(arguments)


if __name__ == '__main__':
    sys.exit(main())
