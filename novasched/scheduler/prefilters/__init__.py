# SPDX-License-Identifier: Apache-2.0
"""The contract of prefilters, which restrict a request before Placement is asked.

Prefilters read aggregates and networks through the protocols of this module. A rebuild
on the same host skips all prefilters.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import os_traits

from novasched.conf.settings import Settings
from novasched.scheduler.model.aggregate_list import AggregateList
from novasched.scheduler.model.basis import FRESH, Basis
from novasched.scheduler.model.host import Aggregate
from novasched.scheduler.model.request import Destination, Request

LOG = logging.getLogger('nova.scheduler.request_filter')


class Aggregates(Protocol):
    """Host aggregates (``cells/aggregates.py``)."""

    def all(self, since: float) -> AggregateList:
        """All aggregates, as read at the moment ``since`` (monotonic seconds) or
        later."""


@dataclass(frozen=True, slots=True)
class Port:
    """A port of Neutron; ``subnet_id`` is the subnet of the first fixed address."""

    network_id: str
    subnet_id: str | None = None
    vnic_type: str = 'normal'


class Network(Protocol):
    """The networks of Neutron (``neutron.py``).

    :raises NetworkUnavailable: Neutron does not answer, or contradicts Placement.
    """

    def ports(self, uuids: Collection[str]) -> Mapping[str, Port]:
        """The ports with these UUIDs, by UUID. Ports that do not exist are missing."""

    def network_aggregates(self, uuid: str) -> frozenset[str]:
        """The aggregates of all segments of a network; empty if the network is not
        routed."""

    def subnet_aggregates(self, uuid: str) -> frozenset[str]:
        """The aggregates of the segment of a subnet; empty if the network of the subnet
        is not routed."""


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources of data for prefilters.

    :ivar network: ``None`` without a section ``[neutron]``.
    """

    aggregates: Aggregates
    network: Network | None = None


class Prefilter:
    """A function of a request that returns the request, or a more restricted request.

    The basis tells how fresh the data must be that the prefilter reads, and the lowest
    version that a nova-compute service has reported.

    :raises NoValidHost: the request can be refused without asking Placement.
    """

    option: str | None = None
    """The field of :class:`Settings` that enables the prefilter. ``None``: the
    prefilter is always enabled."""

    keys: frozenset[str] = frozenset()
    """The flavor extra specs and image properties that concern the prefilter. Requests
    without any of the keys skip the prefilter. Empty: all requests concern it."""

    def __init__(self, settings: Settings, sources: Sources) -> None:
        self.settings = settings
        self.sources = sources

    def __call__(self, request: Request, basis: Basis = FRESH) -> Request:
        raise NotImplementedError

    def with_required_traits(self, request: Request, *traits: str) -> Request:
        """The request with further traits required of the compute node's provider."""
        self._log('required traits', traits)
        return replace(request, root_required=request.root_required.union(traits))

    def with_computed_traits(self, request: Request, *traits: str) -> Request:
        """The request with further traits required, if os-traits has all of the names.

        The caller computed the names from a value of the user, so that a name may not
        exist. nova then logs an error and requires no trait.
        """
        for trait in traits:
            if not hasattr(os_traits, trait):
                LOG.error(
                    'Computed trait name %r is not valid; is os-traits up to date?',
                    trait,
                )
                return request
        if traits:
            return self.with_required_traits(request, *traits)
        return request

    def with_forbidden_traits(self, request: Request, *traits: str) -> Request:
        """The request with further traits forbidden on the compute node's provider."""
        self._log('forbidden traits', traits)
        return replace(request, root_forbidden=request.root_forbidden.union(traits))

    def matching_aggregates(
        self, search: Callable[[AggregateList], Iterable[Aggregate]], basis: Basis
    ) -> set[str]:
        """The UUIDs of the aggregates that a search finds among all aggregates.

        The aggregates may be as old as ``basis.read_since``. If the search finds none,
        aggregates that were read before the try began are read again, since the
        operator may have created the availability zone in the meantime.
        """
        uuids = self._matching_aggregates(search, basis.read_since)
        if not uuids and basis.read_since < basis.began:
            uuids = self._matching_aggregates(search, basis.began)
        return uuids

    def _matching_aggregates(
        self, search: Callable[[AggregateList], Iterable[Aggregate]], since: float
    ) -> set[str]:
        aggregates = self.sources.aggregates.all(since)
        # Placement knows aggregates by UUID only.
        return {aggregate.uuid for aggregate in search(aggregates) if aggregate.uuid}

    def within_aggregates(
        self, request: Request, aggregates: Collection[str]
    ) -> Request:
        """The request restricted to hosts that are in at least one of the aggregates
        (UUIDs), in addition to earlier restrictions."""
        self._log('aggregates', aggregates)
        destination = request.requested_destination or Destination()
        alternatives = (*destination.aggregates, frozenset(aggregates))
        return request.with_requested_destination(aggregates=alternatives)

    def outside_aggregates(
        self, request: Request, aggregates: Collection[str]
    ) -> Request:
        """The request restricted to hosts outside of all of the aggregates (UUIDs)."""
        self._log('forbidden aggregates', aggregates)
        destination = request.requested_destination or Destination()
        forbidden = destination.forbidden_aggregates.union(aggregates)
        return request.with_requested_destination(forbidden_aggregates=forbidden)

    def _log(self, kind: str, added: Collection[str]) -> None:
        LOG.debug('%s added %s %s', type(self).__name__, kind, ', '.join(sorted(added)))
