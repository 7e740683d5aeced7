# SPDX-License-Identifier: Apache-2.0
"""From the hosts that were chosen to what the caller reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from novasched import objects
from novasched.model.numa import TopologyLimits
from novasched.model.selection import Selection
from novasched.rpc.reader import Reader

# The microversion in which a caller must send an allocation request to Placement, and the
# one for callers that know nothing of what came between.
ALLOCATION_REQUEST_VERSION = '1.36'
PLAIN_ALLOCATION_REQUEST_VERSION = '1.12'
NO_ALLOCATION = 'null'

LIMITS = ('vcpu', 'disk_gb', 'memory_mb')

Reply = list[list[objects.Selection]] | list[dict[str, Any]]


def reply(selections: Sequence[Sequence[Selection]], return_objects: bool, reader: Reader) -> Reply:
    """The answer to select_destinations: for each server the chosen host, then its
    alternates. Callers before 4.5 get one dict for each server instead."""
    if return_objects:
        return [[selection(each, reader) for each in chosen] for chosen in selections]
    return [as_dict(chosen[0], reader) for chosen in selections]


def selection(chosen: Selection, reader: Reader) -> objects.Selection:
    """The wire object of a choice."""
    request, version = _allocation_request(chosen, reader)
    zone = {'availability_zone': chosen.availability_zone} if reader.knows_zones else {}
    wire = objects.Selection(
        compute_node_uuid=chosen.compute_node_uuid,
        service_host=chosen.service_host,
        nodename=chosen.nodename,
        cell_uuid=chosen.cell_uuid,
        limits=limits(chosen.limits, reader),
        allocation_request=request,
        allocation_request_version=version,
        **zone,
    )
    if not reader.knows_zones:
        wire.VERSION = '1.0'
    return wire


def _allocation_request(chosen: Selection, reader: Reader) -> tuple[str, str | None]:
    """What the caller is to send to Placement if it falls back on this host, and how."""
    if chosen.candidate is None:
        return NO_ALLOCATION, None
    if reader.sends_generations:
        return chosen.candidate.body(), ALLOCATION_REQUEST_VERSION
    return chosen.candidate.allocations_alone(), PLAIN_ALLOCATION_REQUEST_VERSION


def as_dict(chosen: Selection, reader: Reader) -> dict[str, Any]:
    """``{'host', 'nodename', 'limits'}``, with those limits that are set; the one for
    the NUMA topology is an object, which the serializer makes a primitive of."""
    wire = limits(chosen.limits, reader)
    each = {name: wire.value(name) for name in wire.fields}
    return {
        'host': chosen.service_host,
        'nodename': chosen.nodename,
        'limits': {name: value for name, value in each.items() if value is not None},
    }


def limits(values: Mapping[str, Any], reader: Reader) -> objects.SchedulerLimits:
    """Limits as nova sends them: all are named, whole numbers, null where not set.
    Entries that nova has no name for stay with the scheduler."""
    numa = values.get('numa_topology')
    return objects.SchedulerLimits(
        numa_topology=None if numa is None else topology_limits(numa, reader),
        **{name: values.get(name) for name in LIMITS},
    )


def topology_limits(limits: TopologyLimits, reader: Reader) -> objects.NUMATopologyLimits:
    """The wire object; it speaks of networks where the request does."""
    networks = {}
    if reader.knows_networks and limits.physnets is not None:
        networks['network_metadata'] = objects.NetworkMetadata(
            physnets=set(limits.physnets), tunneled=limits.tunneled
        )
    wire = objects.NUMATopologyLimits(
        cpu_allocation_ratio=limits.cpu_allocation_ratio,
        ram_allocation_ratio=limits.ram_allocation_ratio,
        **networks,
    )
    if not reader.knows_networks:
        wire.VERSION = '1.0'
    return wire
