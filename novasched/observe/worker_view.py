# SPDX-License-Identifier: Apache-2.0
"""The state of a worker at one moment, read once for health and once for metrics.

Nothing is queried: the parts of the worker keep these values for themselves.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from novasched.cells.database import Database
from novasched.cells.host_reader import HostReader
from novasched.cells.mappings import Cell
from novasched.concurrency.circuit_breaker import Trouble
from novasched.observe.records.recorder import DecisionRecorder
from novasched.placement.client import PlacementClient
from novasched.rpc.notifications.sender import QueuedNotifier
from novasched.rpc.oslo_messaging_internals import RpcServer
from novasched.scheduler.model.host import Host

PLACEMENT = 'placement'
DATABASE = 'database'
API_DATABASE = 'api_database'


@dataclass(frozen=True, slots=True)
class TargetView:
    """A service that the worker queries.

    :ivar is_open: the circuit is open, so the worker sends no queries.
    :ivar trouble: calls without an answer since the last answered call.
    """

    is_open: bool
    trouble: Trouble | None


@dataclass(frozen=True, slots=True)
class CellState:
    """A cell. ``hosts`` is None if the cell did not answer the last query."""

    cell: Cell
    target: TargetView
    hosts: int | None


@dataclass(frozen=True, slots=True)
class PeersView:
    """The exchange of pending claims with other schedulers.

    :ivar count: number of the other schedulers.
    :ivar is_sharing: the exchange works.
    :ivar missed: gaps in the announcements of other schedulers.
    :ivar late: claims confirmed before all earlier announcements had arrived.
    """

    count: int
    is_sharing: bool
    missed: int
    late: int


@dataclass(frozen=True, slots=True)
class WorkerView:
    """The state of a worker. Moments are monotonic seconds.

    :ivar connected_at: when the worker last saw its queue connected to RabbitMQ; None
        if the driver of oslo.messaging does not tell.
    :ivar moved: when a request was last begun or finished.
    :ivar targets: Placement and the two databases of nova-scheduler, by name.
    :ivar hosts: the known hosts of all cells.
    :ivar read_at: when the hosts were read; None before the first reading.
    :ivar rows_refreshed: rows of hosts that were found new, changed or deleted.
    :ivar peers: None if pending claims are not exchanged.
    :ivar remembered_age: age of the answer of Placement that serves later requests, in
        seconds; None without such an answer.
    :ivar pending_deletions: allocations that are still to be deleted.
    """

    connected_at: float | None
    moved: float
    done: int
    in_progress: int
    threads: int
    waiting: int
    targets: Mapping[str, TargetView]
    cells: Sequence[CellState]
    hosts: Mapping[str, Host]
    read_at: float | None
    rows_refreshed: int
    pending_claims: int
    claims_given_back: int
    peers: PeersView | None
    remembered_age: float | None
    pending_deletions: int
    records_dropped: int
    notifications_dropped: int


@dataclass(frozen=True, slots=True)
class WorkerParts:
    """The parts of a worker that a view is read from."""

    hosts: HostReader
    placement: PlacementClient
    main_database: Database
    notifier: QueuedNotifier | None
    records: DecisionRecorder
    server: RpcServer

    def view(self) -> WorkerView:
        """Read the present state."""
        mappings = self.hosts.cells
        snapshot = self.hosts.cells_snapshot
        host_snapshot = snapshot.host_snapshot
        claims = self.hosts.pending_claims
        server = self.server

        cells = []
        for cell in mappings.all():
            hosts = None
            if cell.uuid in snapshot.cells:
                hosts = len(snapshot.cells[cell.uuid].hosts)
            cells.append(CellState(cell, _database_view(cell.database), hosts))

        peers: PeersView | None = None
        if claims.peers is not None:
            peers = PeersView(
                count=claims.peers.position[1] - 1,
                is_sharing=claims.peers.is_sharing,
                missed=claims.peers.missed,
                late=claims.peers.late,
            )

        read_at: float | None = None
        if host_snapshot.read_at > -math.inf:
            read_at = host_snapshot.read_at

        notifications_dropped = 0
        if self.notifier is not None:
            notifications_dropped = self.notifier.dropped

        return WorkerView(
            connected_at=server.connected_at,
            moved=server.moved,
            done=server.done,
            in_progress=server.in_progress,
            threads=server.threads,
            waiting=server.waiting,
            targets={
                PLACEMENT: TargetView(
                    self.placement.circuit_open, self.placement.trouble
                ),
                DATABASE: _database_view(self.main_database),
                API_DATABASE: _database_view(mappings.api),
            },
            cells=cells,
            hosts=host_snapshot.hosts,
            read_at=read_at,
            rows_refreshed=self.hosts.refreshed,
            pending_claims=claims.count(),
            claims_given_back=claims.given_back,
            peers=peers,
            remembered_age=self.placement.remembered_age,
            pending_deletions=self.placement.pending_deletions,
            records_dropped=self.records.dropped,
            notifications_dropped=notifications_dropped,
        )


def _database_view(database: Database) -> TargetView:
    return TargetView(database.circuit_open, database.breaker.trouble)
