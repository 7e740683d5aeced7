# SPDX-License-Identifier: Apache-2.0
"""nova's NUMA fitter and ours, side by side: ``python -m tests.perf.numa``.

Each host cell has 8 cores of 2 threads, each guest cell 4 dedicated vCPUs and 1 GiB.
Times are medians of one call. nova runs in the virtualenv of ``NOVASCHED_NOVA_PYTHON``, with
its log silenced, and is stopped after 10 seconds. Exits with 1 where a bound is missed.
"""

from __future__ import annotations

import sys
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from novasched.scheduler.model.numa import Fit
from novasched.scheduler.numa.fit import fit
from tests.lab.descriptions import Case
from tests.lab.nova_answers import Nova
from tests.lab.nova_release import NovaRelease
from tests.lab.numa_checker import numa_arguments
from tests.lab.processes import Failed
from tests.lab.reports import a_numa_cell, a_numa_topology

SCRIPT = Path(__file__).parents[1] / 'parity' / 'nova_hardware.py'
LONGEST = 10.0  # seconds for nova
MEASURED = 0.5  # seconds for us
CORES, THREADS, VCPUS = 8, 2, 4


@dataclass(frozen=True)
class Row:
    """A line of the table. ``full`` host cells have all CPUs pinned; ``times`` is how much
    faster we must be, ``within`` how many milliseconds a call may take."""

    host: int
    guest: int
    full: int
    times: float | None = None
    within: float | None = None
    unequal: bool = False

    @property
    def title(self) -> str:
        free = self.host - self.full
        kind = 'feasible' if free >= self.guest else f'infeasible, {free} cells free'
        unequal = ', guest cells unequal' if self.unequal else ''
        return f'{self.host}/{self.guest} {kind}{unequal}'

    def case(self) -> Case:
        guest = [
            {
                'id': i, 'cpuset': [], 'pcpuset': list(range(VCPUS * i, VCPUS * (i + 1))),
                'memory': 1024 + 4 * i * self.unequal, 'pagesize': None,
                'cpu_policy': 'dedicated', 'cpu_thread_policy': 'prefer',
            }
            for i in range(self.guest)
        ]  # fmt: skip
        return {
            'host': a_numa_topology(*map(self._cell, range(self.host))),
            'guest': {'cells': guest, 'emulator_threads_policy': None},
            'limits': {'cpu': 4.0, 'ram': 1.0},
            'packing': False,
        }

    def _cell(self, number: int) -> Case:
        cpus = range(number * CORES * THREADS, (number + 1) * CORES * THREADS)
        full = number >= self.host - self.full
        return a_numa_cell(number, CORES, THREADS, pinned=cpus if full else ())


ROWS = (
    Row(2, 2, 0, times=5),
    Row(2, 2, 1),
    Row(2, 2, 2),
    Row(4, 4, 0),
    Row(4, 4, 1),
    Row(4, 4, 4),
    Row(8, 8, 0),
    Row(8, 8, 1, times=1000),
    Row(8, 8, 8, times=1000),
    Row(16, 8, 0, within=1.0),
    Row(16, 8, 9, within=1.0),
    Row(16, 8, 16, within=1.0),
    Row(16, 8, 0, within=1.0, unequal=True),
    Row(16, 8, 9, within=1.0, unequal=True),
)


def main() -> int:
    release = NovaRelease.find()
    print(f'{"host/guest cells":48} {"nova":>14} {"ours":>12} {"faster":>11}')
    missed = 0
    for row in ROWS:
        theirs, stopped = _nova(release, row.case())
        ours, fits = _ours(row.case())
        assert fits == (row.host - row.full >= row.guest)
        ratio = theirs / ours
        late = (row.times and ratio < row.times) or (row.within and ours * 1e3 > row.within)
        missed += bool(late)
        bound, sign = ('> ', '> ') if stopped else ('', '')
        print(
            f'{row.title:48} {bound + format(theirs * 1e3, ",.3f"):>11} ms '
            f'{ours * 1e3:9.3f} ms {sign + format(ratio, ",.0f"):>10}x'
            + (' BOUND MISSED' if late else ''),
            flush=True,
        )
    return 1 if missed else 0


def _nova(release: NovaRelease, case: Case) -> tuple[float, bool]:
    """Seconds for one call, and whether that is where it was stopped."""
    with (
        TemporaryDirectory() as folder,
        closing(Nova(release, Path(folder), SCRIPT)) as child,
    ):
        child.ask('fit', [Row(1, 1, 0).case()])
        try:
            [(seconds, _)] = child.ask('time', [case], LONGEST)
        except Failed:
            return LONGEST, True
        return seconds, False


def _ours(case: Case) -> tuple[float, bool]:
    """Seconds for one call, on values made anew for each, as nova's are, and whether the
    guest fits."""
    taken: list[float] = []
    while sum(taken) < MEASURED and len(taken) < 1000:
        host, guest, limits = numa_arguments(case)
        start = time.perf_counter()
        found = fit(host, guest, limits)
        taken.append(time.perf_counter() - start)
    return sorted(taken)[len(taken) // 2], isinstance(found, Fit)


if __name__ == '__main__':
    sys.exit(main())
