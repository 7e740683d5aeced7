# SPDX-License-Identifier: Apache-2.0
"""What decision records cost: ``python -m tests.perf.records``.

The decisions of decision.py, without records, with records in memory, and in a file as well:
in turn, so that a slow moment of the machine strikes all. Prints milliseconds of processor time a
request, what the thread that keeps the records takes included. Exits with 1 where records in
memory take more than the bound.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from novasched.observe.records.recorder import DecisionRecorder
from novasched.observe.records.store import RecordWriter
from novasched.scheduler.errors import NoValidHost
from novasched.scheduler.model.request import Request
from novasched.service.runtime import tune_gc
from tests.lab.large_cloud_requests import KINDS, REFUSALS
from tests.lab.tables import Sheet, show, verdict
from tests.perf.decision import SETTINGS, large_driver, large_request

BOUND = 0.05
ROUNDS, BATCH = 15, 3
NONE, MEMORY, FILE = 'none', 'memory', 'file'
REFUSED = 'refused'
"""A plain request that a filter refuses on every host."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser('python -m tests.perf.records', description=__doc__)
    parser.add_argument('--hosts', type=int, nargs='+', default=[5_000, 20_000])
    parser.add_argument('--only', nargs='+', default=['plain', 'filters', 'ten', REFUSED])
    chosen = parser.parse_args(arguments)
    logging.basicConfig(level=logging.ERROR)
    tune_gc()
    rows, missed = [], False
    for hosts in chosen.hosts:
        for kind in chosen.only:
            costs = measure(kind, hosts)
            more = {how: costs[how] / costs[NONE] - 1 for how in (MEMORY, FILE)}
            missed |= more[MEMORY] > BOUND
            rows.append(
                [
                    kind,
                    f'{hosts:,}',
                    f'{costs[NONE] * 1e3:.2f}',
                    *(f'{costs[how] * 1e3:.2f} ({more[how]:+.1%})' for how in more),
                    f'≤ {BOUND:.0%}: {verdict(more[MEMORY] <= BOUND)}',
                ]
            )
    columns = ('request', 'hosts', 'without, ms', 'in memory, ms', 'and file, ms', 'bound')
    show([Sheet('Cost of decision records', columns, rows)])
    return int(missed)


def measure(kind: str, hosts: int) -> dict[str, float]:
    """Seconds a request without records and with: the least of some batches, since whatever
    else the machine does only adds to them."""
    what = REFUSALS['capability'] if kind == REFUSED else KINDS[kind]
    request = large_request(what)
    taken: dict[str, list[float]] = {NONE: [], MEMORY: [], FILE: []}
    driver: Any = large_driver(hosts, what)
    with tempfile.TemporaryDirectory() as folder:
        for each in [*taken, *(list(taken) * ROUNDS)]:
            store = RecordWriter(str(Path(folder) / 'decisions'), 1_000) if each == FILE else None
            driver.recorder = None if each == NONE else DecisionRecorder(SETTINGS, store)
            taken[each].append(_batch(driver, request))
    return {each: min(seconds[1:]) for each, seconds in taken.items()}


def _batch(driver: Any, request: Request) -> float:
    """Seconds a request, until all records are kept."""
    start = time.process_time()
    for _ in range(BATCH):
        with contextlib.suppress(NoValidHost):
            driver.select_destinations(request)
    if driver.recorder is not None:
        driver.recorder.close()
    return (time.process_time() - start) / BATCH


if __name__ == '__main__':
    sys.exit(main())
