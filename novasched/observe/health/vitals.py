# SPDX-License-Identifier: Apache-2.0
"""The reports of a process for health, once a second, from its main loop."""

from __future__ import annotations

import logging
import math
import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from novasched.concurrency.circuit_breaker import Trouble
from novasched.observe.health.state import (
    CellReport,
    ProcessReport,
    WorkReport,
    to_json,
)
from novasched.observe.worker_view import CellState, WorkerView
from novasched.scheduler.model.host import Host, state

LOG = logging.getLogger(__name__)

HOSTS_COUNTED_S = 10.0
"""Seconds between two counts of the hosts by state, if the hosts have changed."""

MAX_WHY_CHARACTERS = 200
"""Length of an error text in a report. A report is one datagram."""

MAX_CELLS = 500
"""Cells in a report."""


@dataclass
class Vitals:
    """The reports of one process.

    :param channel: receives the reports. Without a reader, reports are lost.
    :param name: name of the process.
    """

    channel: socket.socket
    name: str
    work: Callable[[], WorkReport] | None = None
    started: float = field(default_factory=time.time)
    _is_failing: bool = False

    def __call__(self) -> None:
        """Report."""
        report = ProcessReport(self.name, os.getpid(), self.started, time.monotonic())
        try:
            work = None
            if self.work is not None:
                work = self.work()
            text = to_json(replace(report, work=work))
        except Exception:
            # A bug. The report without work still says that the process is alive.
            if not self._is_failing:
                LOG.exception('The work of this process cannot be described for probes')
            self._is_failing = True
            text = to_json(report)
        else:
            self._is_failing = False
        with suppress(OSError):
            self.channel.send(text)


@dataclass
class Work:
    """Describes the work of a worker.

    :param view: reads the state of the worker.
    :param shares: pending claims should be shared with other schedulers.
    :param max_request_s: see :class:`~novasched.observe.health.state.WorkReport`.
    """

    view: Callable[[], WorkerView]
    shares: bool
    max_request_s: float | None
    _counted_at: float = -math.inf
    _states: Mapping[str, int] = field(default_factory=dict)

    def __call__(self) -> WorkReport:
        """The report of the present state."""
        view = self.view()

        troubles = {}
        breakers = []
        for name, target in view.targets.items():
            if target.trouble is not None:
                troubles[name] = _short(target.trouble)
            if target.is_open:
                breakers.append(name)
        for cell_state in view.cells:
            if cell_state.target.is_open:
                breakers.append(f'cell {cell_state.cell.identity}')

        states: Mapping[str, int] | None = None
        if view.read_at is not None:
            states = self._host_states(view.hosts)
        peers: int | None = None
        shares = not self.shares
        if view.peers is not None:
            peers = view.peers.count
            shares = shares or view.peers.is_sharing

        return WorkReport(
            connected_at=view.connected_at,
            moved=view.moved,
            max_request_s=self.max_request_s,
            done=view.done,
            in_progress=view.in_progress,
            threads=view.threads,
            waiting=view.waiting,
            troubles=troubles,
            breakers=breakers,
            cells=list(map(_cell_report, view.cells[:MAX_CELLS])),
            hosts=states,
            read_at=view.read_at,
            pending_claims=view.pending_claims,
            peers=peers,
            shares=shares,
            remembered_s=view.remembered_age,
        )

    def _host_states(self, hosts: Mapping[str, Host]) -> Mapping[str, int]:
        """The number of hosts by state. To count thousands of hosts each second would
        take time from requests."""
        now = time.monotonic()
        if now - self._counted_at >= HOSTS_COUNTED_S:
            self._counted_at = now
            self._states = Counter(map(state, hosts.values()))
        return self._states


def _cell_report(view: CellState) -> CellReport:
    trouble = None
    if view.target.trouble is not None:
        trouble = _short(view.target.trouble)
    cell = view.cell
    return CellReport(
        cell.uuid, cell.name or cell.uuid, view.hosts, cell.disabled, trouble
    )


def _short(trouble: Trouble) -> Trouble:
    return replace(trouble, why=trouble.why[:MAX_WHY_CHARACTERS])
