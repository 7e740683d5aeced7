# SPDX-License-Identifier: Apache-2.0
"""novasched and the real nova-scheduler side by side: ``python -m tests.perf.daemon``.

Both serve the same cloud: its databases, its message queue, its Placement. nova runs from
the virtualenv of ``NOVASCHED_NOVA_PYTHON``. Exits with 1 where a bound is missed.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from oslo_config import cfg

from novasched.rpc.server import make_transport
from tests.functional.processes import Failed
from tests.perf.bench import AT_ONCE, PARTS, SINGLE, SIZES, Bench, Plan, Tell
from tests.perf.callers import Caller, PlacementLog
from tests.perf.cloud import cloud, config
from tests.perf.hosts import LIBVIRT_TRAITS, large_cloud
from tests.perf.results import Row, missed, sheet
from tests.perf.tables import machine, rst, show
from tests.perf.watching import QueryLog


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and say whether the bounds are met."""
    chosen = _arguments(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    begun = time.monotonic()
    plan = Plan(
        config(chosen.fallback), chosen.kinds, chosen.only, chosen.at_once, chosen.statements
    )

    def tell(what: str) -> None:
        passed = time.monotonic() - begun
        print(f'{passed:6.1f} s  {what}', file=sys.stderr, flush=True)

    rows: list[Row] = []
    try:
        with _bench(tell) as bench:
            for hosts in chosen.hosts:
                computes = large_cloud(hosts, LIBVIRT_TRAITS if chosen.traits else ())
                for row in bench.measure(computes, plan):
                    rows.append(row)
                    tell('  '.join(filter(None, row.texts())))
    except (pytest.exit.Exception, Failed) as error:
        print(error, file=sys.stderr)
        return 2
    tell('done')
    show([sheet(rows)])
    if chosen.rst:
        chosen.rst.write_text(rst([sheet(rows)]))
    if chosen.json:
        report = {'machine': machine(), 'rows': [row.report() for row in rows]}
        chosen.json.write_text(json.dumps(report, indent=2) + '\n')
    return int(missed(rows) > 0)


@contextmanager
def _bench(tell: Tell) -> Iterator[Bench]:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(TemporaryDirectory(prefix='novasched-perf-')))
        tell('servers start')
        made, placement, engine, name = stack.enter_context(cloud(directory))
        conf = cfg.ConfigOpts()
        conf(['--config-file', str(made.config('conductor'))], project='nova')
        transport = make_transport(conf)
        stack.callback(transport.cleanup)
        log, queries = PlacementLog(placement.log), QueryLog(engine, name)
        yield Bench(made, Caller(transport), log, queries, tell)


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser('python -m tests.perf.daemon', description=__doc__)
    parser.add_argument('--hosts', type=_sizes, default=SIZES, help='sizes, with commas')
    parser.add_argument('--only', type=_among(PARTS), default=PARTS, help=', '.join(PARTS))
    parser.add_argument('--kinds', type=_among(SINGLE), default=SINGLE, help=', '.join(SINGLE))
    parser.add_argument(
        '--at-once', type=_sizes, default=AT_ONCE, help='requests of a burst, with commas'
    )
    parser.add_argument('--traits', action='store_true', help="hosts have all of libvirt's traits")
    parser.add_argument('--fallback', action='store_true', help='pinned CPUs may be VCPU, too')
    parser.add_argument('--statements', action='store_true', help='show the database queries')
    parser.add_argument('--rst', type=Path, help='where to write the table')
    parser.add_argument('--json', type=Path, help='where to write the figures')
    return parser.parse_args(arguments)


def _sizes(text: str) -> list[int]:
    return sorted(map(int, text.split(',')))


def _among(known: Sequence[str]) -> Callable[[str], list[str]]:
    """What reads some of these words, with commas."""

    def read(text: str) -> list[str]:
        words = text.split(',')
        if unknown := set(words) - set(known):
            raise argparse.ArgumentTypeError(f'{", ".join(unknown)}: not in {", ".join(known)}')
        return words

    return read


if __name__ == '__main__':
    sys.exit(main())
