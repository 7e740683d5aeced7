# SPDX-License-Identifier: Apache-2.0
"""Requests while the scheduler is sent SIGHUP every second: ``python -m tests.perf.reload``.

The same requests are made before, without SIGHUP, to tell what of the longest one is the
machine's. Exits with 1 where a request fails, or lasts more than twice the median.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from statistics import median

from tests.lab.daemon import Daemon
from tests.lab.large_cloud import cloud, config
from tests.lab.large_cloud_hosts import large_cloud
from tests.lab.results import Bound
from tests.lab.steady import Caller, Load, load
from tests.lab.tables import Sheet, show

MOST = 2  # medians
RELOADED = 'SIGHUP: reloaded'


@dataclass(frozen=True)
class Phase:
    """What came of the requests of a while, and how often there was a reload."""

    name: str
    load: Load
    reloads: int

    @property
    def bound(self) -> Bound:
        taken = [each.taken for each in self.load.answers]
        return Bound(max(taken) / median(taken), '≤', MOST, 'of the median')

    def texts(self) -> list[str]:
        taken = [each.taken * 1000 for each in self.load.answers]
        figures = [f'{median(taken):.0f}', f'{max(taken):.0f}', f'{self.bound.figure:.2f}']
        failed = len(self.load.failures())
        return [self.name, str(len(taken)), *figures, str(failed), str(self.reloads)]


def measure(name: str, daemon: Daemon, caller: Caller, hangups: int, pause: float) -> Phase:
    """Requests in turn, with so many SIGHUP, and a pause after each of them."""
    before = daemon.text().count(RELOADED)
    with load(caller, 1, server=daemon.host) as found:
        for _ in range(hangups):
            os.kill(daemon.pid, signal.SIGHUP)
            time.sleep(pause)
        if not hangups:
            time.sleep(pause)
    return Phase(name, found, daemon.text().count(RELOADED) - before)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser('python -m tests.perf.reload', description=__doc__)
    parser.add_argument('--hosts', type=int, default=1000)
    parser.add_argument('--seconds', type=int, default=60, help='for how long, with SIGHUP')
    parser.add_argument('--every', type=float, default=1.0, help='seconds between two SIGHUP')
    chosen = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with redirect_stdout(sys.stderr), cloud() as made:
        made.grow(large_cloud(chosen.hosts))
        with (
            Caller(made.config('conductor')) as caller,
            Daemon(made, config(fallback=False)) as daemon,
        ):
            measure('', daemon, caller, 0, 3)
            hangups = round(chosen.seconds / chosen.every)
            phases = [
                measure('without', daemon, caller, 0, chosen.seconds / 2),
                measure('with SIGHUP', daemon, caller, hangups, chosen.every),
            ]
    columns = ('', 'requests', 'median, ms', 'longest, ms', 'ratio', 'failed', 'reloads')
    rows = [phase.texts() for phase in phases]
    show([Sheet(f'Reloads, {chosen.hosts:,} hosts', columns, rows, words=1)])
    bound = phases[-1].bound
    print(bound)
    return int(not bound.met or any(phase.load.failures() for phase in phases))


if __name__ == '__main__':
    sys.exit(main())
