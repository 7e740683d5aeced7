# SPDX-License-Identifier: Apache-2.0
"""How full hosts are, and how evenly."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from novasched.model.host import Host


@dataclass(frozen=True, slots=True)
class Use:
    """What runs on a host: servers, and memory (MiB) with what the host keeps for itself."""

    host: str
    node: str
    servers: int
    ram_mb: int
    total_mb: int

    @property
    def key(self) -> tuple[str, str]:
        """What tells hosts apart: one nova-compute may run many nodes."""
        return self.host, self.node

    @property
    def share(self) -> float:
        """The part of the memory that is in use; more than 1 where it is overcommitted."""
        return self.ram_mb / self.total_mb if self.total_mb else 0.0


@dataclass(frozen=True, slots=True)
class Spread:
    """All hosts in a few numbers. Deviations are standard deviations over the hosts.

    :ivar touched: the hosts that run more servers than before.
    :ivar empty: those that run none.
    """

    hosts: int
    touched: int
    empty: int
    servers_deviation: float
    ram_deviation_mb: float
    fullest: str
    fullest_share: float


def uses(hosts: Iterable[Host]) -> tuple[Use, ...]:
    """The use of each host, in the order of their names."""
    found = (
        Use(
            each.host,
            each.nodename,
            each.num_instances,
            each.total_usable_ram_mb - each.free_ram_mb,
            each.total_usable_ram_mb,
        )
        for each in hosts
    )
    return tuple(sorted(found, key=lambda use: use.key))


def spread(before: Sequence[Use], after: Sequence[Use]) -> Spread:
    """What became of hosts. Some may have come or gone meanwhile."""
    if not after:
        return Spread(0, 0, 0, 0.0, 0.0, '', 0.0)
    known = {use.key: use.servers for use in before}
    fullest = max(after, key=lambda use: use.share)
    return Spread(
        hosts=len(after),
        touched=sum(use.servers > known.get(use.key, 0) for use in after),
        empty=sum(not use.servers for use in after),
        servers_deviation=statistics.pstdev(use.servers for use in after),
        ram_deviation_mb=statistics.pstdev(use.ram_mb for use in after),
        fullest=fullest.host,
        fullest_share=fullest.share,
    )
