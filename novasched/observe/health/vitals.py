# SPDX-License-Identifier: Apache-2.0
"""Reports of a process on itself, once a second, from its main loop.

What the parts of a worker have met is read from them, where metrics read it, too;
nobody is asked.
"""

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

from novasched.cells.database import Database
from novasched.cells.host_cache import HostView
from novasched.cells.mappings import Cell
from novasched.cells.snapshot import HostReader
from novasched.concurrency.circuit_breaker import Trouble
from novasched.observe.health.state import (
    CellReport,
    ProcessReport,
    WorkReport,
    to_json,
)
from novasched.placement.client import PlacementClient
from novasched.rpc.oslo_messaging_internals import RpcServer
from novasched.scheduler.model.host import Host, state

LOG = logging.getLogger(__name__)
HOSTS_COUNTED_S = 10.0
"""Seconds between two counts of the hosts, if they have changed."""
MAX_WHY_CHARACTERS = 200
MAX_CELLS = 500
"""Bounds of a report, which is one datagram."""


@dataclass
class Vitals:
    """Reports of one process.

    :param channel: where they go; one that is full, since nobody reads, loses them.
    :param name: of the process.
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
            text = to_json(replace(report, work=self.work() if self.work else None))
        except (
            Exception
        ):  # a bug: the process is alive, and nothing is known of its work
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

    :param shares: whether pending claims are to be shared.
    :param max_request_s: see :class:`~novasched.observe.health.state.WorkReport`.
    """

    hosts: HostReader
    placement: PlacementClient
    own: Database
    server: RpcServer
    shares: bool
    max_request_s: float | None
    _counted_at: float = -math.inf
    _counted: Mapping[str, Host] = field(default_factory=dict)
    _states: Mapping[str, int] = field(default_factory=dict)

    def __call__(self) -> WorkReport:
        """Read how things stand."""
        hosts = self.hosts
        server = self.server
        placement = self.placement
        cells = hosts.cells
        peers = hosts.pending_claims.peers
        snapshot = hosts.cells_snapshot
        is_read = snapshot.host_snapshot.read_at > -math.inf
        asked = {'placement': placement.trouble}
        asked |= {
            'database': self.own.breaker.trouble,
            'api_database': cells.api.breaker.trouble,
        }
        found = {name: _short(trouble) for name, trouble in asked.items()}
        bases: dict[str, PlacementClient | Database]
        bases = {
            'placement': placement,
            'database': self.own,
            'api_database': cells.api,
        }
        open_ones = [name for name, base in bases.items() if base.circuit_open]
        open_ones += [
            f'cell {x.identity}' for x in cells.all() if x.database.circuit_open
        ]
        return WorkReport(
            connected_at=server.connected_at,
            moved=server.moved,
            max_request_s=self.max_request_s,
            done=server.done,
            in_progress=server.in_progress,
            threads=server.threads,
            waiting=server.waiting,
            troubles={name: trouble for name, trouble in found.items() if trouble},
            breakers=open_ones,
            cells=[_cell(cell, snapshot.cells) for cell in cells.all()[:MAX_CELLS]],
            hosts=self._host_states(snapshot.host_snapshot.hosts) if is_read else None,
            read_at=snapshot.host_snapshot.read_at if is_read else None,
            pending_claims=hosts.pending_claims.count(),
            peers=peers.part[1] - 1 if peers else None,
            shares=not self.shares or bool(peers and peers.is_sharing),
            remembered_s=placement.remembered_age,
        )

    def _host_states(self, hosts: Mapping[str, Host]) -> Mapping[str, int]:
        now = time.monotonic()
        if hosts is not self._counted and now - self._counted_at >= HOSTS_COUNTED_S:
            self._counted = hosts
            self._counted_at = now
            self._states = Counter(map(state, hosts.values()))
        return self._states


def _cell(cell: Cell, answered: Mapping[str, HostView]) -> CellReport:
    hosts = len(answered[cell.uuid].hosts) if cell.uuid in answered else None
    trouble = _short(cell.database.breaker.trouble)
    return CellReport(cell.uuid, cell.name or cell.uuid, hosts, cell.disabled, trouble)


def _short(trouble: Trouble | None) -> Trouble | None:
    return trouble and replace(trouble, why=trouble.why[:MAX_WHY_CHARACTERS])
