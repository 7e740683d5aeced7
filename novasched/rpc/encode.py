# SPDX-License-Identifier: Apache-2.0
"""From the hosts that were chosen to what the caller reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from novasched import objects
from novasched.model.numa import TopologyLimits
from novasched.model.selection import Selection

# The microversion in which a caller must send an allocation request to Placement.
ALLOCATION_REQUEST_VERSION = '1.36'
NO_ALLOCATION = 'null'

LIMITS = ('vcpu', 'disk_gb', 'memory_mb')

Reply = list[list[objects.Selection]] | list[dict[str, Any]]


def reply(selections: Sequence[Sequence[Selection]], return_objects: bool) -> Reply:
    """The answer to select_destinations: for each server the chosen host, then its
    alternates. Callers before 4.5 get one dict for each server instead."""
    if return_objects:
        return [[selection(each) for each in chosen] for chosen in selections]
    return [as_dict(chosen[0]) for chosen in selections]


def selection(chosen: Selection) -> objects.Selection:
    """The wire object of a choice."""
    candidate = chosen.candidate
    return objects.Selection(
        compute_node_uuid=chosen.compute_node_uuid,
        service_host=chosen.service_host,
        nodename=chosen.nodename,
        cell_uuid=chosen.cell_uuid,
        limits=limits(chosen.limits),
        allocation_request=candidate.body() if candidate else NO_ALLOCATION,
        allocation_request_version=ALLOCATION_REQUEST_VERSION if candidate else None,
        availability_zone=chosen.availability_zone,
    )


def as_dict(chosen: Selection) -> dict[str, Any]:
    """``{'host', 'nodename', 'limits'}``, with those limits that are set; the one for
    the NUMA topology is an object, which the serializer makes a primitive of."""
    wire = limits(chosen.limits)
    each = {name: wire.value(name) for name in wire.fields}
    return {
        'host': chosen.service_host,
        'nodename': chosen.nodename,
        'limits': {name: value for name, value in each.items() if value is not None},
    }


def limits(values: Mapping[str, Any]) -> objects.SchedulerLimits:
    """Limits as nova sends them: all are named, whole numbers, null where not set.
    Entries that nova has no name for stay with the scheduler."""
    numa = values.get('numa_topology')
    return objects.SchedulerLimits(
        numa_topology=None if numa is None else topology_limits(numa),
        **{name: values.get(name) for name in LIMITS},
    )


def topology_limits(limits: TopologyLimits) -> objects.NUMATopologyLimits:
    """The wire object; it speaks of networks where the request does."""
    networks = {}
    if limits.physnets is not None:
        networks['network_metadata'] = objects.NetworkMetadata(
            physnets=set(limits.physnets), tunneled=limits.tunneled
        )
    return objects.NUMATopologyLimits(
        cpu_allocation_ratio=limits.cpu_allocation_ratio,
        ram_allocation_ratio=limits.ram_allocation_ratio,
        **networks,
    )
