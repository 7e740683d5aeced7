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
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from tests.lab.daemon import Daemon
from tests.lab.large_cloud import cloud, config
from tests.lab.large_cloud_hosts import large_cloud
from tests.lab.large_cloud_requests import KINDS
from tests.lab.results import Bound
from tests.lab.steady import Caller
from tests.lab.tables import Sheet, show
from tests.perf.callers import Bare, NoAnswer, place

MOST = 2  # medians
RELOADED = 'SIGHUP: reloaded'


@dataclass(frozen=True)
class Phase:
    """Seconds of each request of a while, how many failed, and how often there was a reload."""

    name: str
    taken: Sequence[float]
    failed: int
    reloads: int

    def texts(self) -> list[str]:
        middle, longest = median(self.taken) * 1000, max(self.taken) * 1000
        figures = [f'{middle:.0f}', f'{longest:.0f}', f'{longest / middle:.2f}']
        return [self.name, str(len(self.taken)), *figures, str(self.failed), str(self.reloads)]

    def bound(self) -> Bound:
        return Bound(max(self.taken) / median(self.taken), '≤', MOST, 'of the median')


@dataclass(frozen=True)
class Bench:
    daemon: Daemon
    caller: Caller
    bare: Bare

    def measure(self, name: str, seconds: float, every: float | None) -> Phase:
        """Requests in turn for so long, with a SIGHUP every so many seconds."""
        over = threading.Event()
        hangup = threading.Thread(target=self._hang_up, args=(over, every))
        before = self.daemon.text().count(RELOADED)
        taken, failed = [], 0
        end = time.monotonic() + seconds
        hangup.start()
        try:
            while time.monotonic() < end:
                start = time.perf_counter()
                try:
                    placed = place(self.caller, self.daemon.host, KINDS['plain'])
                except NoAnswer as error:
                    print(f'failed: {error}', file=sys.stderr)
                    failed += 1
                    continue
                finally:
                    taken.append(time.perf_counter() - start)
                self.bare.give_back(list(placed))
        finally:
            over.set()
            hangup.join()
        return Phase(name, taken, failed, self.daemon.text().count(RELOADED) - before)

    def _hang_up(self, over: threading.Event, every: float | None) -> None:
        while not over.wait(every):
            os.kill(self.daemon.pid, signal.SIGHUP)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser('python -m tests.perf.reload', description=__doc__)
    parser.add_argument('--hosts', type=int, default=1000)
    parser.add_argument('--seconds', type=int, default=60, help='for how long, with SIGHUP')
    parser.add_argument('--every', type=float, default=1.0, help='seconds between two SIGHUP')
    chosen = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with redirect_stdout(sys.stderr), _bench(chosen.hosts) as bench:
        bench.measure('', 3, None)
        phases = [
            bench.measure('without', chosen.seconds / 2, None),
            bench.measure('with SIGHUP', chosen.seconds, chosen.every),
        ]
    columns = ('', 'requests', 'median, ms', 'longest, ms', 'ratio', 'failed', 'reloads')
    rows = [phase.texts() for phase in phases]
    show([Sheet(f'Reloads, {chosen.hosts:,} hosts', columns, rows, words=1)])
    bound = phases[-1].bound()
    print(bound)
    return int(not bound.met or any(phase.failed for phase in phases))


@contextmanager
def _bench(hosts: int) -> Iterator[Bench]:
    with (
        TemporaryDirectory(prefix='novasched-perf-') as directory,
        cloud(Path(directory)) as made,
        Caller(made.config('conductor')) as caller,
    ):
        made.grow(large_cloud(hosts))
        with Daemon(made, config(fallback=False)) as daemon:
            yield Bench(daemon, caller, Bare(made.placement_url))


if __name__ == '__main__':
    sys.exit(main())
