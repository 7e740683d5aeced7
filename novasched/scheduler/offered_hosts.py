# SPDX-License-Identifier: Apache-2.0
"""The hosts that Placement offers for a request."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from novasched.scheduler.errors import StaleData
from novasched.scheduler.model.candidate import Candidates
from novasched.scheduler.model.host import Host, HostSnapshot
from novasched.scheduler.model.host_list import NO_HOST_LIST, HostList, HostRows
from novasched.scheduler.model.request import Request
from novasched.scheduler.ports import Peers

SIZES: Mapping[str, Callable[[Any], int]] = {
    'VCPU': attrgetter('vcpus_total'),
    'MEMORY_MB': attrgetter('total_usable_ram_mb'),
    'DISK_GB': attrgetter('total_usable_disk_gb'),
}
"""The capacity of a host before overcommit, by resource class."""


@dataclass(frozen=True, slots=True)
class _Remembered:
    """The hosts of remembered candidates, in the order of the candidates.

    :ivar uuids: UUIDs of the compute nodes.
    :ivar version: the version of the snapshot that the hosts are from.
    :ivar sizes: a row for each of :data:`SIZES`, a column for each host; -1 for a
        compute node without a host.
    """

    uuids: Sequence[str] = ()
    hosts: HostRows = NO_HOST_LIST.base
    version: int = 0
    sizes: NDArray[np.float64] = field(
        default_factory=lambda: np.empty((len(SIZES), 0))
    )

    def updated(self, uuids: Sequence[str], snapshot: HostSnapshot) -> '_Remembered':
        """The hosts of a snapshot. Hosts that have not changed keep their sizes."""
        row_of = self.hosts.row_of
        changed = None
        if uuids == self.uuids:
            changed = snapshot.view.changes.since(self.version)
        else:
            row_of = dict(zip(uuids, range(len(uuids)), strict=True))

        if changed is None:
            hosts = HostRows.of(row_of, snapshot.hosts)
            sizes = np.empty((len(SIZES), len(uuids)))
            rows = [*range(len(uuids))]
        elif changed:
            others = {uuid: snapshot.hosts.get(uuid) for uuid in changed}
            hosts = self.hosts.with_hosts(others)
            sizes = self.sizes.copy()
            rows = [row_of[uuid] for uuid in changed if uuid in row_of]
        else:
            return self

        of_rows = hosts.hosts[rows].tolist()
        for sizes_of_class, size in zip(sizes, SIZES.values(), strict=True):
            sizes_of_class[rows] = [_size(host, size) for host in of_rows]
        return _Remembered(uuids, hosts, snapshot.view.version, sizes)


def _size(host: Host | None, size: Callable[[Any], int]) -> int:
    if host is None:
        return -1
    return size(host)


class OfferedHosts:
    """The hosts that are candidates of requests.

    The candidates are mostly on the same compute nodes as those of the request before,
    so that the last rows are kept.
    """

    def __init__(self) -> None:
        self._last = _Remembered()
        # The rows of candidates from an answer to a single request.
        self._row_of: Mapping[str, int] = {}

    def of(
        self,
        candidates: Candidates | None,
        snapshot: HostSnapshot,
        peers: Peers | None,
    ) -> HostList:
        """The hosts of candidates in the order of Placement; all hosts if Placement was
        not asked.

        Hosts of equal weight are tried in this order. Each of several schedulers begins
        with a different host.
        """
        if candidates is not None and candidates.asked_at is not None:
            hosts = self._large_enough(candidates, snapshot)
        else:
            hosts = self._all(candidates, snapshot)

        if peers is None:
            return hosts
        position, number = peers.position
        first = len(hosts) * position // number
        return HostList(hosts.base, np.roll(hosts.order, -first))

    def _large_enough(self, candidates: Candidates, snapshot: HostSnapshot) -> HostList:
        """The hosts of candidates from an answer about all hosts that are as large as
        the requested amounts.

        Placement has not compared these amounts. nova gives an instance no more than a
        host has before overcommit (``max_unit`` of its inventories).
        """
        uuids, is_offered = candidates.rows()
        remembered = self._last.updated(uuids, snapshot)
        if snapshot.view.is_shared:
            self._last = remembered
        amounts = candidates.unchecked_amounts
        for size, name in zip(remembered.sizes, SIZES, strict=True):
            is_offered = is_offered & (size >= amounts.get(name, 0))
        return HostList(remembered.hosts, np.flatnonzero(is_offered))

    def _all(self, candidates: Candidates | None, snapshot: HostSnapshot) -> HostList:
        """The hosts of candidates; all hosts without candidates."""
        by_uuid = snapshot.hosts
        uuids = [*by_uuid]
        if candidates is not None:
            uuids = [uuid for uuid in candidates if uuid in by_uuid]
        row_of = self._row_of
        if uuids != [*row_of]:
            row_of = dict(zip(uuids, range(len(uuids)), strict=True))
            self._row_of = row_of
        return HostList(HostRows.of(row_of, by_uuid), np.arange(len(uuids)))


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
