# SPDX-License-Identifier: Apache-2.0
"""Prefilters: a request is made more precise before Placement is asked.

What they look up comes in through the ports below. Each runs for every request but a
rebuild in place, and tells the log what it added.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from novasched.model.host import Aggregate
from novasched.model.request import Destination, Request
from novasched.model.settings import Settings

LOG = logging.getLogger('nova.scheduler.request_filter')


class Aggregates(Protocol):
    """Host aggregates (``cells/aggregates.py``), as they were at the moment ``since``
    (monotonic seconds) or later."""

    def having(self, key: str, value: str, since: float) -> Sequence[Aggregate]:
        """The aggregates whose metadata says ``value`` for ``key``."""

    def all(self, since: float) -> Sequence[Aggregate]:
        """Every aggregate."""


class Computes(Protocol):
    """The nova-compute services of all cells (``cells/snapshot.py``)."""

    def minimum_version(self, since: float) -> int:
        """The least version that one of them reports; 0 if none does."""


@dataclass(frozen=True, slots=True)
class Port:
    """A port of a network; ``subnet_id`` is that of its first fixed address, if any."""

    network_id: str
    subnet_id: str | None = None
    vnic_type: str = 'normal'


class Network(Protocol):
    """What Neutron knows of networks (``network.py``).

    :raises NetworkUnavailable: it does not answer, or contradicts Placement.
    """

    def ports(self, uuids: Collection[str]) -> Mapping[str, Port]:
        """Those of the ports that exist, by UUID."""

    def network_aggregates(self, uuid: str) -> frozenset[str]:
        """The aggregates of all segments of a network; none if it is not routed."""

    def subnet_aggregates(self, uuid: str) -> frozenset[str]:
        """The aggregates of the segment of a subnet; none if its network is not routed."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Where prefilters look things up; without ``[neutron]`` there is no network."""

    aggregates: Aggregates
    computes: Computes
    network: Network | None = None


class Prefilter:
    """Takes a request and returns it, or a narrower one.

    :raises NoValidHost: the request can be refused without asking Placement.
    """

    def __init__(self, settings: Settings, sources: Sources) -> None:
        self.settings = settings
        self.sources = sources

    def __call__(self, request: Request) -> Request:
        raise NotImplementedError

    def requiring(self, request: Request, *traits: str) -> Request:
        """The request, for hosts whose own provider has these traits too."""
        self._tell('required traits', traits)
        return replace(request, root_required=request.root_required.union(traits))

    def forbidding(self, request: Request, *traits: str) -> Request:
        """The request, for hosts whose own provider has none of these traits."""
        self._tell('forbidden traits', traits)
        return replace(request, root_forbidden=request.root_forbidden.union(traits))

    def within(self, request: Request, aggregates: Collection[str]) -> Request:
        """The request, for hosts that are also in one of these aggregates (UUIDs)."""
        self._tell('aggregates', aggregates)
        wanted = request.requested_destination or Destination()
        return request.wanting(aggregates=(*wanted.aggregates, frozenset(aggregates)))

    def outside(self, request: Request, aggregates: Collection[str]) -> Request:
        """The request, for hosts that are in none of these aggregates (UUIDs) either."""
        self._tell('forbidden aggregates', aggregates)
        wanted = request.requested_destination or Destination()
        return request.wanting(forbidden_aggregates=wanted.forbidden_aggregates.union(aggregates))

    def _tell(self, what: str, added: Collection[str]) -> None:
        LOG.debug('%s added %s %s', type(self).__name__, what, ', '.join(sorted(added)))
