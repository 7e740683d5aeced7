# SPDX-License-Identifier: Apache-2.0
"""What filters share whose verdict is the same for many hosts."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from types import NoneType

from novasched.filters import Filter
from novasched.model.host import Host
from novasched.model.request import Request

Column = Sequence[object]
PLAIN = ({str}, {int}, {float}, {str, NoneType}, {int, NoneType})


class SharingFilter(Filter):
    """Judges one of the hosts that are alike in what it looks at, for all of them."""

    def looks_at(self, hosts: Sequence[Host], request: Request) -> Sequence[Column]:
        """All of the hosts that the verdicts depend on: columns, with a value for each."""
        raise NotImplementedError

    def reject_all(self, hosts: Sequence[Host], request: Request) -> Sequence[str | None]:
        columns = self.looks_at(hosts, request)  # kept: some is told apart by identity
        kinds = alike(columns)
        one_of_each = dict(zip(kinds, hosts, strict=True))
        verdicts = {kind: self.reject(host, request) for kind, host in one_of_each.items()}
        return [verdicts[kind] for kind in kinds]


class AggregatesFilter(SharingFilter):
    """Looks at nothing of a host but the aggregates that it is in."""

    def looks_at(self, hosts: Sequence[Host], request: Request) -> Sequence[Column]:
        return [[host.aggregates for host in hosts]]


def alike(columns: Sequence[Column]) -> Sequence[Hashable]:
    """Something for each host, equal for those that have the same in every column."""
    told = list(map(_told_apart, columns))
    return list(zip(*told, strict=True)) if len(told) > 1 else told[0]


def _told_apart(column: Column) -> Sequence[Hashable]:
    """Texts and numbers by value; all else by identity, since hosts share what is long."""
    plain = set(map(type, column)) in PLAIN
    return column if plain else list(map(id, column))
