# SPDX-License-Identifier: Apache-2.0
"""A request to place instances, complete and frozen.

The decoder (``rpc/decode.py``) fills every field once, for callers of all supported
releases. The fields have the names of nova's RequestSpec.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from novasched.scheduler.model.candidate import Candidate
from novasched.scheduler.model.flavor import NO_PROPERTIES, Flavor, Image, RequestGroup
from novasched.scheduler.model.numa import GuestTopology
from novasched.scheduler.model.pci import PciRequest
from novasched.scheduler.model.usual_guests import NO_USUAL_GUESTS, UsualGuests
from novasched.scheduler.requirements import Requirements

CHECK_TYPE = '_nova_check_type'
"""The hint with which nova-api marks a rebuild."""
REBUILD = ('rebuild',)
REQUEST_LIMIT_S = 1800.0
"""Seconds after which no request is in progress any more: nova-conductor no longer
waits for the answer (``[DEFAULT] long_rpc_timeout``)."""
NO_REQUIREMENTS = Requirements(Flavor())


class InAggregates(Protocol):
    """A host with the metadata of its aggregates."""

    def metadata(self, name: str) -> frozenset[str]:
        """Return all values of a metadata key in the aggregates of the host."""


@dataclass(frozen=True, slots=True)
class ServerGroup:
    """A server group with the names of the members' hosts.

    ``located`` has the hosts of the other members by UUID, if a filter or weigher needs
    the hosts (``Data.MEMBERS``). A member that moves has two hosts.
    """

    uuid: str | None = None
    name: str | None = None
    policy: str | None = None
    rules: Mapping[str, str] = field(default_factory=dict)
    members: frozenset[str] = frozenset()
    hosts: frozenset[str] = frozenset()
    located: Mapping[str, tuple[InAggregates, ...]] = field(
        default_factory=dict, repr=False, compare=False
    )

    def members_near(self, host: InAggregates, key: str) -> int:
        """Count the members on hosts near ``host``.

        Hosts are near if their aggregates have a common value of the metadata key, or
        if neither host has a value.
        """
        values = host.metadata(key)
        count = 0
        for member_hosts in self.located.values():
            for member_host in member_hosts:
                member_values = member_host.metadata(key)
                if member_values & values or member_values == values:
                    count += 1
                    break
        return count


@dataclass(frozen=True, slots=True)
class Destination:
    """The host, node, cell or aggregates that the caller requests.

    ``aggregates`` is a conjunction of alternatives: a host must be in an aggregate of
    every set of aggregate UUIDs.
    """

    host: str | None = None
    node: str | None = None
    cell_uuid: str | None = None
    aggregates: tuple[frozenset[str], ...] = ()
    forbidden_aggregates: frozenset[str] = frozenset()
    allow_cross_cell_move: bool = False

    @property
    def names_aggregates(self) -> bool:
        """True if a host has to be in some aggregates, or outside of them."""
        return bool(self.aggregates or self.forbidden_aggregates)


@dataclass(frozen=True, slots=True)
class RequestedNetwork:
    """A network or port to attach the instance to."""

    network_id: str | None = None
    port_id: str | None = None
    pci_request_id: str | None = None


@dataclass(frozen=True, slots=True)
class Retry:
    """The hosts on which a build has failed, as (host, node)."""

    num_attempts: int = 1
    hosts: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Origin:
    """The message of a request, for notifications and traces.

    The message has the RequestSpec object, the context of the caller, and the trace of
    the caller (W3C traceparent). Only plugins with ``Data.CALLER`` decide by it.

    :ivar context: the context for logs and notifications, without the token.
    :ivar caller: all values of the context, with the token; empty unless a plugin reads
        the values.
    """

    spec: Any
    context: Any
    traceparent: str | None = None
    caller: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Request:
    """A call of ``select_destinations``. Moments are monotonic seconds.

    :ivar instance_uuids: None means: choose hosts, claim nothing.
    :ivar instance_uuid: the current instance, while the instances of a request are
        placed in turn.
    :ivar physnets: physical networks of the instance; None if the caller says nothing
        of networks, as for an instance without networks.
    :ivar received: when the message reached this process. The patience of the request
        (``placement_patience``) counts from this moment. Infinity: the driver sets the
        moment.
    :ivar had_false_hint: a user has set the hint of a rebuild, which the request no
        longer has.
    :ivar usual_guests: the usual guests of the cloud, if a weigher needs them
        (``Data.USUAL_GUESTS``).
    :ivar requirements: the requirements of flavor and image.
    """

    flavor: Flavor
    instance_uuids: tuple[str, ...] | None = None
    instance_uuid: str | None = None
    num_instances: int = 1
    return_alternates: bool = False
    project_id: str | None = None
    user_id: str | None = None
    request_id: str | None = None
    global_request_id: str | None = None
    availability_zone: str | None = None
    image: Image | None = None
    is_bfv: bool = False
    scheduler_hints: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    instance_group: ServerGroup | None = None
    requested_destination: Destination | None = None
    ignore_hosts: tuple[str, ...] = ()
    force_hosts: tuple[str, ...] = ()
    force_nodes: tuple[str, ...] = ()
    retry: Retry | None = None
    numa_topology: GuestTopology | None = None
    pci_requests: tuple[PciRequest, ...] = ()
    requested_networks: tuple[RequestedNetwork, ...] = ()
    security_groups: tuple[str, ...] = ()
    physnets: frozenset[str] | None = None
    tunneled: bool = False
    requested_resources: tuple[RequestGroup, ...] = ()
    root_required: frozenset[str] = frozenset()
    root_forbidden: frozenset[str] = frozenset()
    same_subtree: tuple[frozenset[str], ...] = ()
    in_tree: str | None = None
    unlimited: bool = False
    had_false_hint: bool = False
    received: float = math.inf
    origin: Origin | None = field(default=None, repr=False, compare=False)
    usual_guests: UsualGuests = field(
        default=NO_USUAL_GUESTS, repr=False, compare=False
    )
    requirements: Requirements = field(
        default=NO_REQUIREMENTS, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        """Renew the requirements if flavor or image changed, as ``replace`` allows."""
        properties = NO_PROPERTIES
        if self.image:
            properties = self.image.properties
        current = self.requirements
        if current.flavor is not self.flavor or current.properties is not properties:
            # The dataclass is frozen.
            object.__setattr__(
                self, 'requirements', Requirements(self.flavor, properties)
            )

    @property
    def count(self) -> int:
        """The number of instances to place."""
        # num_instances is stored with the request that created the instance: for a
        # move, only the number of UUIDs is right.
        if self.instance_uuids:
            return len(self.instance_uuids)
        return self.num_instances

    @property
    def moves(self) -> bool:
        """True for an instance that was in a cell before the request: nova restricts
        such a request to the cell."""
        destination = self.requested_destination
        return destination is not None and destination.cell_uuid is not None

    @property
    def trace_id(self) -> str | None:
        """The request id for the logs of other services."""
        return self.global_request_id or self.request_id

    @property
    def is_rebuild(self) -> bool:
        """True for a rebuild in place, which only checks the host of the instance.

        A user may have set the hint, until :meth:`Cycle.decide` has checked the request
        (``without_false_hint``).
        """
        return self.scheduler_hints.get(CHECK_TYPE) == REBUILD

    @property
    def names_hosts(self) -> bool:
        """True for a requested destination, ignored hosts, forced hosts or nodes."""
        if self.ignore_hosts or self.force_hosts or self.force_nodes:
            return True
        destination = self.requested_destination
        return destination is not None and destination.host is not None

    @property
    def skips_filters(self) -> bool:
        """True for forced hosts without a check type, which nova does not filter."""
        forced = self.force_hosts or self.force_nodes
        return bool(forced) and not self.scheduler_hints.get(CHECK_TYPE)

    @property
    def claims(self) -> bool:
        """True if the chosen hosts are claimed in Placement."""
        return bool(self.instance_uuids) and not self.is_rebuild

    def request_groups(self, pinned: bool = True) -> dict[str, RequestGroup]:
        """Return the request groups of the query for candidates.

        See :meth:`Requirements.request_groups`.
        """
        return self.requirements.request_groups(
            self.requested_resources, self.is_bfv, pinned
        )

    def hint(self, name: str) -> tuple[str, ...]:
        """Return the values of a scheduler hint, empty without the hint."""
        return self.scheduler_hints.get(name, ())

    def has_hint(self, name: str) -> bool:
        """Return True if the hint has a value; a single empty text is no value."""
        return self.hint(name) not in ((), ('',))

    def single_hint(self, name: str, default: str = '') -> str:
        """Return the value of a hint that takes a single value.

        :raises ValueError: the hint has several values.
        """
        values = self.hint(name) or (default,)
        if len(values) > 1:
            raise ValueError(f'{name} takes one value, not {len(values)}')
        return values[0]

    def for_instance(self, uuid: str | None) -> 'Request':
        """Return the request with another current instance."""
        if uuid:
            return replace(self, instance_uuid=uuid)
        return self

    def without_false_hint(self) -> 'Request':
        """Return the request without the hint of a rebuild, which a user has set."""
        hints = dict(self.scheduler_hints)
        del hints[CHECK_TYPE]
        return replace(self, scheduler_hints=hints, had_false_hint=True)

    def with_requested_destination(self, **changes: Any) -> 'Request':
        """Return the request with changed fields of the requested destination."""
        destination = self.requested_destination or Destination()
        return replace(self, requested_destination=replace(destination, **changes))

    def with_members(
        self, uuids: Iterable[str], hosts: Iterable[str] = ()
    ) -> 'Request':
        """Return the request with more members in its server group.

        :param hosts: the names of more hosts of members.
        """
        group = self.instance_group
        if group is None:
            return self
        group = replace(
            group, members=group.members.union(uuids), hosts=group.hosts.union(hosts)
        )
        return replace(self, instance_group=group)

    def with_placed_instance(self, host: str, candidate: Candidate | None) -> 'Request':
        """Return the request after an instance was placed on ``host``.

        ``host`` joins the hosts of the server group, and the request groups get the
        resource providers of the candidate.
        """
        group = self.instance_group
        if group is not None:
            group = replace(group, hosts=group.hosts | {host})

        resource_groups = self.requested_resources
        if candidate is not None and resource_groups:
            providers = candidate.providers_by_group()
            served_groups = []
            for resource_group in resource_groups:
                uuids = tuple(providers.get(str(resource_group.requester_id), ()))
                served_groups.append(replace(resource_group, provider_uuids=uuids))
            resource_groups = tuple(served_groups)

        return replace(self, instance_group=group, requested_resources=resource_groups)
