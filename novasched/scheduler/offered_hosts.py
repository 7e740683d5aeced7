# SPDX-License-Identifier: Apache-2.0
"""The hosts that Placement offers for a request."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from novasched.scheduler.errors import StaleData
from novasched.scheduler.model.candidate import Candidates
from novasched.scheduler.model.host import Host, HostSnapshot
from novasched.scheduler.model.request import Request
from novasched.scheduler.ports import Peers

SIZES: Mapping[str, Callable[[Any], int]] = {
    'VCPU': attrgetter('vcpus_total'),
    'MEMORY_MB': attrgetter('total_usable_ram_mb'),
    'DISK_GB': attrgetter('total_usable_disk_gb'),
}
"""The capacity of a host before overcommit, by resource class."""


@dataclass(frozen=True, slots=True)
class _HostRows:
    """The hosts of remembered candidates, in the order of the candidates.

    :ivar uuids: UUIDs of the compute nodes.
    :ivar row_of: the row of each UUID.
    :ivar version: the version of the snapshot that the hosts are from.
    :ivar hosts: None for a compute node that the snapshot does not have.
    :ivar sizes: a row for each of :data:`SIZES`, a column for each host; -1 for a
        compute node without a host.
    """

    uuids: Sequence[str]
    row_of: Mapping[str, int]
    version: int
    hosts: Sequence[Host | None]
    sizes: NDArray[np.float64]

    def updated(self, uuids: Sequence[str], snapshot: HostSnapshot) -> '_HostRows':
        """The rows for a snapshot. Hosts that have not changed keep their sizes."""
        row_of = self.row_of
        if uuids != self.uuids:
            row_of = {uuid: row for row, uuid in enumerate(uuids)}
            changed = None
        else:
            changed = snapshot.view.changes.since(self.version)
        if changed is not None and not changed:
            return self

        hosts: list[Host | None]
        if changed is None:
            hosts = [*map(snapshot.hosts.get, uuids)]
            sizes = np.empty((len(SIZES), len(uuids)))
            rows = [*range(len(uuids))]
        else:
            hosts = [*self.hosts]
            sizes = self.sizes.copy()
            rows = [row_of[uuid] for uuid in changed if uuid in row_of]
            for row in rows:
                hosts[row] = snapshot.hosts.get(uuids[row])

        for sizes_of_class, size in zip(sizes, SIZES.values(), strict=True):
            sizes_of_class[rows] = [_size(hosts[row], size) for row in rows]
        return _HostRows(uuids, row_of, snapshot.view.version, hosts, sizes)


def _size(host: Host | None, size: Callable[[Any], int]) -> int:
    if host is None:
        return -1
    return size(host)


class OfferedHosts:
    """The hosts that are candidates of requests.

    The hosts of remembered candidates are nearly the same from one request to the next,
    so that the last rows are kept.
    """

    def __init__(self) -> None:
        self._last = _HostRows((), {}, 0, (), np.empty((len(SIZES), 0)))

    def of(
        self,
        candidates: Candidates | None,
        snapshot: HostSnapshot,
        peers: Peers | None,
    ) -> list[Host]:
        """The hosts of candidates in the order of Placement; all hosts if Placement was
        not asked.

        Hosts of equal weight are tried in this order. Each of several schedulers begins
        with a different host.
        """
        if candidates is None:
            hosts = [*snapshot.hosts.values()]
        elif candidates.asked_at is not None:
            hosts = self._large_enough(candidates, snapshot)
        else:
            by_uuid = snapshot.hosts
            hosts = [by_uuid[uuid] for uuid in candidates if uuid in by_uuid]

        if peers is None:
            return hosts
        position, number = peers.position
        first = len(hosts) * position // number
        return hosts[first:] + hosts[:first]

    def _large_enough(
        self, candidates: Candidates, snapshot: HostSnapshot
    ) -> list[Host]:
        """The hosts of candidates from an answer about all hosts that are as large as
        the requested amounts.

        Placement has not compared these amounts. nova gives an instance no more than a
        host has before overcommit (``max_unit`` of its inventories).
        """
        uuids, is_offered = candidates.rows()
        rows = self._last.updated(uuids, snapshot)
        if snapshot.view.is_shared:
            self._last = rows
        amounts = candidates.unchecked_amounts
        for size, name in zip(rows.sizes, SIZES, strict=True):
            is_offered = is_offered & (size >= amounts.get(name, 0))
        return [*compress(rows.hosts, is_offered.tolist())]  # type: ignore[list-item]


def check_up_to_date(
    candidates: Candidates,
    snapshot: HostSnapshot,
    request: Request,
    is_only_request: bool,
) -> None:
    """Check that Placement would still offer remembered candidates.

    :param is_only_request: no other request is being decided, so that the request may
        wait for Placement.
    :raises StaleData: since the query, aggregates have changed, for a request that
        needs or avoids aggregates; or, for the only request, a host without a candidate
        has become freer.
    """
    asked_at = candidates.asked_at
    if asked_at is None:
        return

    destination = request.requested_destination
    depends_on_aggregates = destination is not None and destination.names_aggregates
    if depends_on_aggregates and asked_at < snapshot.aggregates_settled:
        raise StaleData('aggregates have changed')
    if is_only_request:
        for uuid, moment in snapshot.freed.items():
            if moment > asked_at and uuid not in candidates:
                raise StaleData(f'{uuid} may have become free')
