# SPDX-License-Identifier: Apache-2.0
"""Lists of thousands of hosts, of which a request replaces and leaves out a few.

A request looks at all offered hosts, less the pending claims; then at the hosts that
pass the filters; then at the same hosts in the order of weight. All these lists are
orders over the same rows of hosts, so that no list is made host by host, and the
answers that are kept by row (:mod:`novasched.scheduler.host_table`) serve every list.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from novasched.scheduler.model.host import Host

Rows: TypeAlias = NDArray[np.intp]
"""The row of each host of a list, in the order of the list."""


@dataclass(frozen=True, slots=True, eq=False)
class HostRows:
    """A host in each row. Never changes.

    :ivar hosts: an array of objects. None in the row of a compute node that the cells
        do not have.
    :ivar row_of: the row by UUID of the compute node, in the order of the rows. Other
        hosts of the same compute nodes share the mapping object.
    :ivar ids: ``id()`` of each host. Comparing these numbers takes a hundredth of the
        time of comparing the objects, which are spread over the memory.
    """

    hosts: NDArray[Any]
    row_of: Mapping[str, int]
    ids: NDArray[np.intp]

    @classmethod
    def of(cls, row_of: Mapping[str, int], hosts: Mapping[str, Host]) -> 'HostRows':
        """The hosts of compute nodes.

        :param hosts: by UUID; may have more hosts, and not all.
        """
        of_rows = [*map(hosts.get, row_of)]
        ids = np.fromiter(map(id, of_rows), np.intp, len(of_rows))
        return cls(np.fromiter(of_rows, object, len(of_rows)), row_of, ids)

    def get(self, uuid: str) -> Host | None:
        """The host of a compute node; None without a row or a host."""
        if uuid not in self.row_of:
            return None
        host: Host | None = self.hosts[self.row_of[uuid]]
        return host

    def with_hosts(self, others: Mapping[str, Host | None]) -> 'HostRows':
        """The rows with other hosts of some compute nodes. Compute nodes without a row
        are left out."""
        hosts = self.hosts.copy()
        ids = self.ids.copy()
        for uuid, host in others.items():
            if uuid in self.row_of:
                row = self.row_of[uuid]
                hosts[row] = host
                ids[row] = id(host)
        return HostRows(hosts, self.row_of, ids)


class HostList(Sequence[Host]):
    """Some of the hosts in rows, in any order. Never changes.

    :ivar base: the hosts in rows.
    """

    def __init__(self, base: HostRows, order: Rows) -> None:
        """:param order: the row of each host of the list."""
        self.base = base
        self._order = order

    @classmethod
    def of(cls, hosts: Iterable[Host]) -> 'HostList':
        """The list of these hosts, in this order."""
        if isinstance(hosts, HostList):
            return hosts
        by_uuid = {host.uuid: host for host in hosts}
        row_of = {uuid: row for row, uuid in enumerate(by_uuid)}
        return HostList(HostRows.of(row_of, by_uuid), np.arange(len(row_of)))

    def __repr__(self) -> str:
        """The text of a list, as nova's log lines show hosts."""
        return repr([*self])

    @property
    def order(self) -> Rows:
        """The row of each host of the list."""
        return self._order

    def __len__(self) -> int:
        return len(self.order)

    def __iter__(self) -> Iterator[Host]:
        return iter(self.base.hosts[self.order].tolist())

    @overload
    def __getitem__(self, index: int) -> Host: ...
    @overload
    def __getitem__(self, index: slice) -> list[Host]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return self.base.hosts[self.order[index]].tolist()
        return self.base.hosts[self.order[index]]

    def with_hosts(self, others: Mapping[str, Host]) -> 'HostList':
        """The list with other hosts in place of the hosts of the same compute nodes.
        Compute nodes without a row are left out."""
        if not others:
            return self
        return HostList(self.base.with_hosts(others), self.order)

    def where(self, is_kept: NDArray[np.bool_]) -> 'HostList':
        """The hosts with True, in the same order.

        :param is_kept: True or False for each host of the list.
        """
        return HostList(self.base, self.order[is_kept])

    def without(self, uuids: Collection[str]) -> 'HostList':
        """The hosts of other compute nodes, in the same order."""
        return self.where(~self._is_among(uuids))

    def number_among(self, uuids: Collection[str]) -> int:
        """The number of hosts of the list among the UUIDs of compute nodes."""
        return int(np.count_nonzero(self._is_among(uuids)))

    def _is_among(self, uuids: Collection[str]) -> NDArray[np.bool_]:
        """For each host of the list, True if the compute node is among the UUIDs."""
        row_of = self.base.row_of
        is_among = np.zeros(len(row_of), bool)
        for uuid in uuids:
            if uuid in row_of:
                is_among[row_of[uuid]] = True
        of_list: NDArray[np.bool_] = is_among[self.order]
        return of_list


NO_HOST_LIST = HostList.of(())
