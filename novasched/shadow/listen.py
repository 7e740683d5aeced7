# SPDX-License-Identifier: Apache-2.0
"""Decide the requests that a running scheduler tells of, and report."""

from __future__ import annotations

import argparse
import contextlib
import queue
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from novasched.cells.schema import Database
from novasched.errors import DatabaseUnavailable
from novasched.objects import BadObject, RequestSpec, loads
from novasched.shadow.bus import Event, listening
from novasched.shadow.replay import shadowing
from novasched.shadow.report import Report
from novasched.shadow.watch import Watch

THREADS = 8
TICK = 0.2
"""Seconds between looks at what is known by now."""


def run(arguments: argparse.Namespace) -> Report:
    """Listen until enough is heard or it is interrupted, then until all of it is settled or
    it is interrupted again.

    :raises NovaschedError: nova.conf, the databases or the bus cannot be used.
    """
    heard: queue.SimpleQueue[Event] = queue.SimpleQueue()
    with (
        shadowing(arguments) as (conf, application, shadow),
        ThreadPoolExecutor(THREADS, thread_name_prefix='shadow') as pool,
    ):
        allocations, saved = application.placement.allocations, _Saved(application.cells.api)
        watch = Watch(shadow, allocations, saved, arguments.patience, pool)
        with listening(conf, heard.put) as name:
            print(f'listening in the queue {name}; interrupt to report', file=sys.stderr)
            try:
                _until_enough(watch, heard, arguments.seconds, arguments.requests_seen)
            except KeyboardInterrupt:
                print('interrupted; waiting for what has begun', file=sys.stderr)
            try:
                while not watch.is_idle:
                    _take(watch, heard, starts=False)
            except KeyboardInterrupt:
                print('interrupted', file=sys.stderr)
    return Report(sorted(watch.rows, key=lambda row: row.line))


def _until_enough(
    watch: Watch, heard: queue.SimpleQueue[Event], seconds: float | None, most: int | None
) -> None:
    end = None if seconds is None else time.monotonic() + seconds
    while (end is None or time.monotonic() < end) and (most is None or watch.started < most):
        _take(watch, heard, starts=True)


def _take(watch: Watch, heard: queue.SimpleQueue[Event], starts: bool) -> None:
    """One event if there is one soon, and what it settles."""
    with contextlib.suppress(queue.Empty):
        watch.hear(heard.get(timeout=TICK), starts)
    watch.settle()


class _Saved:
    """Reads ``request_specs``, which releases since Newton have."""

    def __init__(self, api: Database) -> None:
        self._api = api

    def __call__(self, server: str) -> RequestSpec | None:
        """The RequestSpec of a server, without what nova does not save; None if there is none
        that can be read."""
        try:
            select = self._api.select('request_specs', ('spec',), instance_uuid=server)
            rows = self._api.rows(select)
            found = loads(str(rows[0].spec)) if rows else None
        except (DatabaseUnavailable, BadObject):
            return None
        return found if isinstance(found, RequestSpec) else None
