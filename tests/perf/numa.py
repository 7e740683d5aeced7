# SPDX-License-Identifier: Apache-2.0
"""nova's NUMA fitter and novasched's, side by side: ``python -m tests.perf.numa``.

Each host cell has 8 cores of 2 threads, each guest cell 4 dedicated vCPUs and 1 GiB.
Times are medians of one call. nova runs in the virtualenv of ``NOVASCHED_NOVA_PYTHON``,
with its log silenced, and is stopped after 10 seconds. Exits with 1 where a bound is
missed.
"""

import sys
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from novasched.scheduler.model.numa import Fit
from novasched.scheduler.numa.fit import FitProblem
from tests.lab.daemon import Nova
from tests.lab.nova_release import NovaRelease
from tests.lab.numa_checker import numa_arguments
from tests.lab.processes import Failed
from tests.lab.reports import a_numa_cell, a_numa_topology
from tests.lab.results import Bound, Row, missed, sheet
from tests.lab.tables import show

SCRIPT = Path(__file__).parents[1] / 'parity' / 'nova_hardware.py'
LONGEST = 10.0  # seconds for nova
MEASURED = 0.5  # seconds for us
CORES = 8
THREADS = 2
VCPUS = 4


@dataclass(frozen=True)
class Guest:
    """Guest cells on host cells.

    :ivar full: number of full host cells: all CPUs of a full cell are pinned.
    """

    host: int
    cells: int
    full: int
    unequal: bool = False

    @property
    def fits(self):
        return self.host - self.full >= self.cells

    def __str__(self):
        if self.fits:
            kind = 'feasible'
        else:
            kind = f'infeasible, {self.host - self.full} cells free'
        return f'{self.cells} cells {kind}{", unequal ones" if self.unequal else ""}'

    def case(self):
        guest = [
            {
                'id': i,
                'cpuset': [],
                'pcpuset': list(range(VCPUS * i, VCPUS * (i + 1))),
                'memory': 1024 + 4 * i * self.unequal,
                'pagesize': None,
                'cpu_policy': 'dedicated',
                'cpu_thread_policy': 'prefer',
            }
            for i in range(self.cells)
        ]
        return {
            'host': a_numa_topology(*map(self._cell, range(self.host))),
            'guest': {'cells': guest, 'emulator_threads_policy': None},
            'limits': {'cpu': 4.0, 'ram': 1.0},
            'packing': False,
        }

    def _cell(self, number):
        cpus = range(number * CORES * THREADS, (number + 1) * CORES * THREADS)
        full = number >= self.host - self.full
        return a_numa_cell(number, CORES, THREADS, pinned=cpus if full else ())


FASTER: dict[Guest, int | None] = {
    Guest(2, 2, 0): 5,
    Guest(2, 2, 1): None,
    Guest(2, 2, 2): None,
    Guest(4, 4, 0): None,
    Guest(4, 4, 1): None,
    Guest(4, 4, 4): None,
    Guest(8, 8, 0): None,
    Guest(8, 8, 1): 1000,
    Guest(8, 8, 8): 1000,
}
"""Least speed of novasched's fitter, relative to nova's."""
QUICK = (
    *(Guest(16, 8, full) for full in (0, 9, 16)),
    *(Guest(16, 8, full, unequal=True) for full in (0, 9)),
)
"""Cases with the bound of a millisecond."""


def main():
    release = NovaRelease.find()
    rows = []
    for guest in (*FASTER, *QUICK):
        theirs = _nova(release, guest.case())
        ours, fits = _ours(guest.case())
        assert fits == guest.fits
        row = Row(guest.host, str(guest), 'ms', ours * 1e3, theirs * 1e3)
        if guest in QUICK:
            row = row.bounded(Bound(ours * 1e3, '≤', 1, 'ms'))
        elif faster := FASTER[guest]:
            row = row.bounded(Bound(theirs / ours, '≥', faster, 'x faster'))
        rows.append(row)
        print('  '.join(filter(None, row.texts())), file=sys.stderr, flush=True)
    show([sheet(rows, 'host cells')])
    return int(missed(rows) > 0)


def _nova(release, case):
    """Seconds for a call, or the seconds of the limit."""
    with (
        TemporaryDirectory() as folder,
        closing(Nova(release, Path(folder), SCRIPT)) as child,
    ):
        child.ask('fit', [Guest(1, 1, 0).case()])
        try:
            [(seconds, _)] = child.ask('time', [case], LONGEST)
        except Failed:
            return LONGEST
        return float(seconds)


def _ours(case):
    """Seconds for one call, on values made anew for each, as nova's are, and whether
    the guest fits."""
    taken: list[float] = []
    while sum(taken) < MEASURED and len(taken) < 1000:
        host, guest, limits = numa_arguments(case)
        start = time.perf_counter()
        found = FitProblem(host, guest, limits).fit()
        taken.append(time.perf_counter() - start)
    return sorted(taken)[len(taken) // 2], isinstance(found, Fit)


if __name__ == '__main__':
    sys.exit(main())
