# SPDX-License-Identifier: Apache-2.0
"""The hosts of all cells with their aggregates, from reading to reading.

Hosts are never compared to find changes. The digests of rows give the changed hosts of
a cell, the log of the aggregates gives the regrouped hosts, and the logs of the views
keep both.
"""

import math
import time
from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace

from novasched.cells.aggregates import AggregateState
from novasched.cells.cell_host_cache import CellRefresh
from novasched.scheduler.model.host import NO_HOSTS, Host, HostSnapshot, HostView


@dataclass(frozen=True, slots=True)
class CellsSnapshot:
    """All answering cells, at a moment.

    :ivar cells: the hosts by the UUID of the cell.
    :ivar host_snapshot: the hosts of all cells.
    :ivar complete: when the reading was complete, in monotonic seconds. Instances on
        hosts are read afterwards: an instance shown by a host is no longer a pending
        claim.
    """

    cells: Mapping[str, HostView] = field(default_factory=dict)
    host_snapshot: HostSnapshot = field(default_factory=HostSnapshot)
    complete: float = math.inf


@dataclass(frozen=True, slots=True)
class _CellView(HostView):
    """The hosts of a cell with their aggregates.

    :ivar cell_version: version of the cell's hosts without aggregates.
    :ivar aggregates_version: version of the aggregates.
    """

    cell_version: int = 0
    aggregates_version: int = 0

    def updated(self, refresh: CellRefresh, aggregates: AggregateState) -> '_CellView':
        """The view after a further reading. A host is the same object as before if
        neither the host nor its aggregates have changed."""
        read = refresh.view
        changed = read.changes.since(self.cell_version)
        if changed is None:
            changed = frozenset(self.hosts.keys() | read.hosts.keys())
        changed |= self._regrouped(aggregates)

        versions = (read.version, aggregates.changes.version)
        if not changed and self.version:
            return _CellView(self.hosts, self.changes, *versions)
        hosts = {}
        for uuid, host in read.hosts.items():
            if uuid in changed:
                hosts[uuid] = with_aggregates(host, aggregates)
            else:
                hosts[uuid] = self.hosts[uuid]
        return _CellView(hosts, self.changes.with_step(changed), *versions)

    def _regrouped(self, aggregates: AggregateState) -> frozenset[str]:
        """UUIDs of hosts with different aggregates than in the view."""
        names = aggregates.changes.since(self.aggregates_version)
        if names is not None and not names:
            return frozenset()

        regrouped = set()
        for uuid, host in self.hosts.items():
            if names is not None and host.host not in names:
                continue
            if host.aggregates != aggregates.by_host.get(host.host, ()):
                regrouped.add(uuid)
        return frozenset(regrouped)


def with_aggregates(host: Host, aggregates: AggregateState) -> Host:
    """A host with its aggregates; the same object if the host is in no aggregate."""
    if groups := aggregates.by_host.get(host.host):
        return replace(host, aggregates=groups)
    return host


class ViewBuilder:
    """Makes one snapshot after the other. For one thread at a time.

    :ivar last: the last snapshot.
    """

    def __init__(self) -> None:
        self.last = CellsSnapshot()
        # The last view of each cell, also of cells that did not answer the last time.
        self._cells: dict[str, _CellView] = {}

    def known_version(self, cell_uuid: str) -> int:
        """The version of the cell's last refresh; 0 before the first."""
        if cell_uuid in self._cells:
            return self._cells[cell_uuid].cell_version
        return 0

    def build(
        self,
        refreshes: Mapping[str, CellRefresh],
        aggregates: AggregateState,
        began: float,
        aggregates_settled: float,
        minimum_version: int,
    ) -> CellsSnapshot:
        """The snapshot after a further reading, which becomes :attr:`last`.

        :param refreshes: by the UUID of the cell.
        :param began: when the reading began, in monotonic seconds.
        """
        cells: dict[str, _CellView] = {}
        for uuid, refresh in refreshes.items():
            cells[uuid] = self._cells.get(uuid, _CellView()).updated(
                refresh, aggregates
            )
        self._cells |= cells

        view = self._all_hosts(cells)
        ended = time.monotonic()
        snapshot = HostSnapshot(
            view,
            began,
            # The hosts may have become freer just before the end of the reading.
            freed=self._freed(refreshes, view.hosts, ended),
            aggregates_settled=aggregates_settled,
            minimum_version=minimum_version,
        )
        self.last = CellsSnapshot(cells, snapshot, ended)
        return self.last

    def forget_other_cells(self, uuids: Set[str]) -> None:
        """Forget the views of all cells except these."""
        for uuid in self._cells.keys() - uuids:
            del self._cells[uuid]

    def _all_hosts(self, cells: Mapping[str, HostView]) -> HostView:
        """The hosts of all cells; the same mapping as before if no host has changed."""
        changed: set[str] = set()
        before = self.last.cells
        for uuid in before.keys() | cells.keys():
            last = before.get(uuid, NO_HOSTS)
            view = cells.get(uuid, NO_HOSTS)
            ids = view.changes.since(last.version)
            if ids is None:
                # The cell is new, did not answer the last time, or does not answer now.
                ids = frozenset(last.hosts.keys() | view.hosts.keys())
            changed |= ids

        last_view = self.last.host_snapshot.view
        if not changed and last_view.version:
            return last_view
        hosts: dict[str, Host] = {}
        for view in cells.values():
            hosts.update(view.hosts)
        return HostView(hosts, last_view.changes.with_step(changed))

    def _freed(
        self,
        refreshes: Mapping[str, CellRefresh],
        hosts: Mapping[str, Host],
        moment: float,
    ) -> Mapping[str, float]:
        """When hosts were last seen to have become freer, in monotonic seconds."""
        moments = self.last.host_snapshot.freed
        for refresh in refreshes.values():
            if refresh.freed:
                moments = {**moments, **dict.fromkeys(refresh.freed, moment)}
        if len(moments) > len(hosts):
            # Hosts have gone since.
            moments = {uuid: at for uuid, at in moments.items() if uuid in hosts}
        return moments
