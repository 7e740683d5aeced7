# SPDX-License-Identifier: Apache-2.0
"""A request to place instances, complete and frozen.

The decoder (``rpc/decode.py``) fills every field once, whatever release the caller
runs. Names are those of nova's RequestSpec.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from novasched.scheduler.model.candidate import Candidate
from novasched.scheduler.model.flavor import NO_PROPERTIES, Flavor, Image, RequestGroup
from novasched.scheduler.model.numa import GuestTopology
from novasched.scheduler.model.pci import PciRequest
from novasched.scheduler.requirements import Requirements

REBUILD = ('rebuild',)
NO_REQUIREMENTS = Requirements(Flavor())


class InAggregates(Protocol):
    """A host, as far as a group looks at it."""

    def metadata(self, name: str) -> frozenset[str]:
        """Every value that the host's aggregates give to a metadata key."""


@dataclass(frozen=True, slots=True)
class InstanceGroup:
    """A group of instances: its policy, its members, and the names of their hosts.
    ``located`` are the hosts of the other members by their UUIDs, both of one that
    moves, if a filter or weigher looks at them (``locates_members``)."""

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
        """The number of members on hosts whose aggregates give the key a value that
        those of this one give it, too; or none where those of this one give it none."""
        values = host.metadata(key)
        near = [
            any(
                each & values or each == values
                for each in (on.metadata(key) for on in hosts)
            )
            for hosts in self.located.values()
        ]
        return sum(near)


@dataclass(frozen=True, slots=True)
class Destination:
    """The caller's wish for a host, a node, a cell, aggregates.

    ``aggregates`` is a conjunction of alternatives, each a set of aggregate UUIDs.
    """

    host: str | None = None
    node: str | None = None
    cell_uuid: str | None = None
    aggregates: tuple[frozenset[str], ...] = ()
    forbidden_aggregates: frozenset[str] = frozenset()
    allow_cross_cell_move: bool = False


@dataclass(frozen=True, slots=True)
class RequestedNetwork:
    """A network or port to attach the instance to."""

    network_id: str | None = None
    port_id: str | None = None
    pci_request_id: str | None = None


@dataclass(frozen=True, slots=True)
class Retry:
    """The hosts that a build has failed on already, as (host, node)."""

    num_attempts: int = 1
    hosts: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Origin:
    """The message that a request was read from: its object, its caller's context, and
    the caller's trace (W3C's traceparent). No decision depends on these; notifications
    and traces need them."""

    spec: Any
    context: Any
    traceparent: str | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """One call of ``select_destinations``.

    ``instance_uuids`` of None means: choose hosts, claim nothing. While instances of
    one request are placed in turn, ``instance_uuid`` names the current one.
    ``physnets`` of None: the caller says nothing of networks, as it does where there
    are none. ``received`` is when the message reached this process (monotonic seconds):
    the patience of the request counts from then. Infinity means that the driver sets
    the moment. ``requirements`` are those of the flavor and the image.
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
    instance_group: InstanceGroup | None = None
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
    received: float = math.inf
    origin: Origin | None = field(default=None, repr=False, compare=False)
    requirements: Requirements = field(
        default=NO_REQUIREMENTS, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        """Keep the requirements in step with flavor and image, and as long as these
        stay."""
        properties = self.image.properties if self.image else NO_PROPERTIES
        current = self.requirements
        if current.flavor is not self.flavor or current.properties is not properties:
            object.__setattr__(
                self, 'requirements', Requirements(self.flavor, properties)
            )

    @property
    def count(self) -> int:
        """The number of instances to place. ``num_instances`` is that of the request
        that once created the instance, so it counts only where no UUIDs are given."""
        if self.instance_uuids:
            return len(self.instance_uuids)
        return self.num_instances

    @property
    def trace_id(self) -> str | None:
        """The request id that other services' logs are to carry."""
        return self.global_request_id or self.request_id

    @property
    def is_rebuild(self) -> bool:
        """True for a rebuild in place: does the instance's own host still suit it?"""
        return self.scheduler_hints.get('_nova_check_type') == REBUILD

    @property
    def names_hosts(self) -> bool:
        """True if it wants certain hosts or nodes, or rules some out."""
        destination = self.requested_destination
        forced = self.force_hosts or self.force_nodes
        return bool(
            self.ignore_hosts
            or forced
            or (destination and destination.host is not None)
        )

    @property
    def skips_filters(self) -> bool:
        """True if hosts are forced, which are not filtered unless a check type is
        named."""
        forced = self.force_hosts or self.force_nodes
        return bool(forced) and not self.scheduler_hints.get('_nova_check_type')

    @property
    def claims(self) -> bool:
        """True if chosen hosts are also claimed in Placement."""
        return bool(self.instance_uuids) and not self.is_rebuild

    def request_groups(self, pinned: bool = True) -> dict[str, RequestGroup]:
        """The groups of the query for candidates; see
        :meth:`Requirements.request_groups`."""
        return self.requirements.request_groups(
            self.requested_resources, self.is_bfv, pinned
        )

    def hint(self, name: str) -> tuple[str, ...]:
        """The values of a scheduler hint; empty when it is not given."""
        return self.scheduler_hints.get(name, ())

    def has_hint(self, name: str) -> bool:
        """True if a hint says anything: one empty text does not."""
        return self.hint(name) not in ((), ('',))

    def single_hint(self, name: str, default: str = '') -> str:
        """The value of a hint that takes one.

        :raises ValueError: it has several.
        """
        values = self.hint(name) or (default,)
        if len(values) > 1:
            raise ValueError(f'{name} takes one value, not {len(values)}')
        return values[0]

    def for_instance(self, uuid: str | None) -> 'Request':
        """The same request with another current instance."""
        if uuid:
            return replace(self, instance_uuid=uuid)
        return self

    def wanting(self, **changes: Any) -> 'Request':
        """The same request with its destination narrowed (fields of Destination)."""
        destination = self.requested_destination or Destination()
        return replace(self, requested_destination=replace(destination, **changes))

    def having_placed(self, host: str, candidate: Candidate | None) -> 'Request':
        """The same request after one of its instances went to ``host``, which joins the
        hosts of its group; its request groups have the candidate's providers."""
        group = self.instance_group
        groups = self.requested_resources
        if group is not None:
            group = replace(group, hosts=group.hosts | {host})
        if candidate is not None and groups:
            serving = candidate.providers_by_group()
            groups = tuple(
                replace(
                    each, provider_uuids=tuple(serving.get(str(each.requester_id), ()))
                )
                for each in groups
            )
        return replace(self, instance_group=group, requested_resources=groups)
