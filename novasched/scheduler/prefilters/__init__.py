# SPDX-License-Identifier: Apache-2.0
"""Prefilters make a request more precise before Placement is asked.

They look things up through the ports below. None runs for a rebuild in place. Each logs
what it adds.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import starmap
from typing import Protocol

import os_traits

from novasched.conf.settings import Settings
from novasched.scheduler.model.basis import FRESH, Basis
from novasched.scheduler.model.host import Aggregate
from novasched.scheduler.model.request import Destination, Request

LOG = logging.getLogger('nova.scheduler.request_filter')


class Aggregates(Protocol):
    """Host aggregates (``cells/aggregates.py``), as they were at the moment ``since``
    (monotonic seconds) or later."""

    def all(self, since: float) -> Sequence[Aggregate]:
        """Every aggregate."""


@dataclass(frozen=True, slots=True)
class Port:
    """A port of a network; ``subnet_id`` is that of its first fixed address, if any."""

    network_id: str
    subnet_id: str | None = None
    vnic_type: str = 'normal'


class Network(Protocol):
    """Neutron's knowledge of networks (``neutron.py``).

    :raises NetworkUnavailable: it does not answer, or contradicts Placement.
    """

    def ports(self, uuids: Collection[str]) -> Mapping[str, Port]:
        """The ports that exist, by UUID."""

    def network_aggregates(self, uuid: str) -> frozenset[str]:
        """The aggregates of all segments of a network; none if it is not routed."""

    def subnet_aggregates(self, uuid: str) -> frozenset[str]:
        """The aggregates of the segment of a subnet; none if its network is not
        routed."""


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources of prefilters; without ``[neutron]`` there is no network."""

    aggregates: Aggregates
    network: Network | None = None


class Prefilter:
    """Takes a request and returns it, or a narrower one.

    The basis tells how fresh the data must be that a prefilter reads, and the lowest
    version of nova-compute.

    :raises NoValidHost: the request can be refused without asking Placement.
    """

    option: str | None = None
    """The field of the settings that switches the prefilter on, if there is one."""

    keys: frozenset[str] = frozenset()
    """Extra specs and image properties: only a request that has one of them is of
    concern; every request where none is named."""

    def __init__(self, settings: Settings, sources: Sources) -> None:
        self.settings = settings
        self.sources = sources

    def __call__(self, request: Request, basis: Basis = FRESH) -> Request:
        raise NotImplementedError

    def requiring(self, request: Request, *traits: str) -> Request:
        """The request, for hosts whose own provider has these traits too."""
        self._log('required traits', traits)
        return replace(request, root_required=request.root_required.union(traits))

    def requiring_known(self, request: Request, *traits: str) -> Request:
        """The same for names that were made; unchanged if os-traits does not have one
        of them."""
        for trait in traits:
            if not hasattr(os_traits, trait):
                LOG.error(
                    'Computed trait name %r is not valid; is os-traits up to date?',
                    trait,
                )
                return request
        if traits:
            return self.requiring(request, *traits)
        return request

    def forbidding(self, request: Request, *traits: str) -> Request:
        """The request, for hosts whose own provider has none of these traits."""
        self._log('forbidden traits', traits)
        return replace(request, root_forbidden=request.root_forbidden.union(traits))

    def aggregates_with(
        self, test: Callable[[str, str], bool], basis: Basis
    ) -> set[str]:
        """The aggregates (UUIDs) of which a metadata key and its value pass the test.

        If no aggregate passes among those that were read shortly before the try began,
        the aggregates are read again: a zone may have been made in between.
        """
        uuids = self._aggregates_with(test, basis.read_since)
        if not uuids and basis.read_since < basis.began:
            uuids = self._aggregates_with(test, basis.began)
        return uuids

    def _aggregates_with(
        self,
        test: Callable[[str, str], bool],
        since: float,
    ) -> set[str]:
        return {
            aggregate.uuid
            for aggregate in self.sources.aggregates.all(since)
            if aggregate.uuid and any(starmap(test, aggregate.metadata.items()))
        }

    def within(self, request: Request, aggregates: Collection[str]) -> Request:
        """The request, for hosts that are also in one of these aggregates (UUIDs)."""
        self._log('aggregates', aggregates)
        destination = request.requested_destination or Destination()
        return request.wanting(
            aggregates=(*destination.aggregates, frozenset(aggregates))
        )

    def outside(self, request: Request, aggregates: Collection[str]) -> Request:
        """The request, for hosts that are in none of these aggregates (UUIDs)
        either."""
        self._log('forbidden aggregates', aggregates)
        destination = request.requested_destination or Destination()
        forbidden = destination.forbidden_aggregates.union(aggregates)
        return request.wanting(forbidden_aggregates=forbidden)

    def _log(self, kind: str, added: Collection[str]) -> None:
        LOG.debug('%s added %s %s', type(self).__name__, kind, ', '.join(sorted(added)))
