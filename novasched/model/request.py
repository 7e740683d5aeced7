# SPDX-License-Identifier: Apache-2.0
"""A request to place servers, complete and frozen.

The decoder (``rpc/decode.py``) fills every field once, whatever release the
caller runs, so nobody downstream asks whether a field is there. Names are those
of nova's RequestSpec.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from novasched.model.candidate import Candidate
from novasched.model.numa import GuestTopology
from novasched.model.pci import PciRequest

REBUILD = ('rebuild',)


@dataclass(frozen=True, slots=True)
class Flavor:
    """The size that was asked for: memory and swap in MiB, disks in GiB."""

    name: str = ''
    flavorid: str = ''
    id: int | None = None
    vcpus: int = 1
    memory_mb: int = 0
    root_gb: int = 0
    ephemeral_gb: int = 0
    swap: int = 0
    extra_specs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Image:
    """The image's record in Glance; ``properties`` holds only what is set."""

    id: str | None = None
    name: str | None = None
    disk_format: str | None = None
    container_format: str | None = None
    min_ram: int = 0
    min_disk: int = 0
    size: int | None = None
    properties: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class InstanceGroup:
    """A server group: its policy, and where its members are (host names)."""

    uuid: str | None = None
    name: str | None = None
    policy: str | None = None
    rules: Mapping[str, str] = field(default_factory=dict)
    members: frozenset[str] = frozenset()
    hosts: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Destination:
    """Where the caller wants the server: a host, a node, a cell, aggregates.

    ``aggregates`` is a conjunction of alternatives, each a set of aggregate UUIDs.
    """

    host: str | None = None
    node: str | None = None
    cell_uuid: str | None = None
    aggregates: tuple[frozenset[str], ...] = ()
    forbidden_aggregates: frozenset[str] = frozenset()
    allow_cross_cell_move: bool = False


@dataclass(frozen=True, slots=True)
class RequestGroup:
    """One group of a Placement query; a requester_id of None is the unsuffixed group."""

    requester_id: str | None = None
    resources: Mapping[str, int] = field(default_factory=dict)
    required_traits: frozenset[str] = frozenset()
    forbidden_traits: frozenset[str] = frozenset()
    aggregates: tuple[frozenset[str], ...] = ()
    forbidden_aggregates: frozenset[str] = frozenset()
    in_tree: str | None = None
    use_same_provider: bool = True
    provider_uuids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NetworkRequest:
    """A network or port that the server is to be attached to."""

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
    """What a request was read from: the object that came, its caller's context, and the trace
    that the caller is in (W3C's traceparent). Nothing is decided by these; they are for whoever
    tells others of the request."""

    spec: Any
    context: Any
    traceparent: str | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """One call of ``select_destinations``.

    ``instance_uuids`` of None means: choose hosts, claim nothing. While servers of
    one request are placed in turn, ``instance_uuid`` names the one in hand. ``physnets``
    of None: the caller says nothing of networks, as it does where there are none.
    ``arrived`` is when the call came (monotonic seconds): nothing that is older is used for
    it.
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
    requested_networks: tuple[NetworkRequest, ...] = ()
    security_groups: tuple[str, ...] = ()
    physnets: frozenset[str] | None = None
    tunneled: bool = False
    requested_resources: tuple[RequestGroup, ...] = ()
    root_required: frozenset[str] = frozenset()
    root_forbidden: frozenset[str] = frozenset()
    same_subtree: tuple[frozenset[str], ...] = ()
    in_tree: str | None = None
    unlimited: bool = False
    arrived: float = math.inf
    origin: Origin | None = field(default=None, repr=False, compare=False)

    @property
    def count(self) -> int:
        """How many servers to place. ``num_instances`` is what the server was once
        created with, so it counts only where no UUIDs are given."""
        return len(self.instance_uuids) if self.instance_uuids else self.num_instances

    @property
    def trace_id(self) -> str | None:
        """The request id that other services' logs are to carry."""
        return self.global_request_id or self.request_id

    @property
    def is_rebuild(self) -> bool:
        """A rebuild in place asks whether the server's own host still suits it."""
        return self.scheduler_hints.get('_nova_check_type') == REBUILD

    @property
    def is_checked(self) -> bool:
        """Forced hosts are filtered all the same when a check type is named."""
        return bool(self.scheduler_hints.get('_nova_check_type'))

    @property
    def claims(self) -> bool:
        """Whether what is chosen is also claimed in Placement."""
        return bool(self.instance_uuids) and not self.is_rebuild

    def hint(self, name: str) -> tuple[str, ...]:
        """The values of a scheduler hint; empty when it is not given."""
        return self.scheduler_hints.get(name, ())

    def for_instance(self, uuid: str | None) -> Request:
        """The same request, with another of its servers in hand."""
        return replace(self, instance_uuid=uuid) if uuid else self

    def wanting(self, **changes: Any) -> Request:
        """The same request with its destination narrowed (fields of Destination)."""
        destination = self.requested_destination or Destination()
        return replace(self, requested_destination=replace(destination, **changes))

    def having_placed(self, host: str, candidate: Candidate | None) -> Request:
        """The same request after one of its servers went to ``host``, which the policies of
        its server group must know, with what its request groups have in the candidate."""
        group, groups = self.instance_group, self.requested_resources
        if group is not None:
            group = replace(group, hosts=group.hosts | {host})
        if candidate is not None and groups:
            serving = candidate.providers_by_group()
            groups = tuple(
                replace(each, provider_uuids=tuple(serving.get(str(each.requester_id), ())))
                for each in groups
            )
        return replace(self, instance_group=group, requested_resources=groups)
