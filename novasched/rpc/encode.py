# SPDX-License-Identifier: Apache-2.0
"""Encodes the chosen hosts as objects that the caller's release knows.

A conductor that gets an object of a newer version asks another conductor for an older
version, and no conductor of that release knows the object. The version of the
RequestSpec in a message tells the release of the caller well enough.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from novasched.rpc import wire as objects
from novasched.rpc.versions import SpecVersion
from novasched.scheduler.model.host import Selection
from novasched.scheduler.model.numa import TopologyLimits

ALLOCATION_REQUEST_VERSION = '1.36'
"""The microversion of Placement in which the caller sends an allocation request."""
PLAIN_ALLOCATION_REQUEST_VERSION = '1.12'
"""The microversion for callers that send neither consumer generations nor mappings."""
NO_ALLOCATION = 'null'
"""The allocation request of a Selection without a claim."""

NETWORKS_SINCE: SpecVersion = (1, 10)
"""The RequestSpec of Rocky. From Rocky on, NUMATopologyLimits has version 1.1, with
networks."""
GENERATIONS_SINCE: SpecVersion = (1, 12)
"""The RequestSpec of Stein. From Stein on, a conductor claims an alternate in the
microversion that the Selection names. Conductors of earlier releases send no consumer
generation, which Placement requires from microversion 1.28 on."""
ZONES_SINCE: SpecVersion = (1, 13)
"""The RequestSpec of Ussuri. From Ussuri on, Selection has version 1.1, with the
availability zone."""
LIMIT_NAMES = ('vcpu', 'disk_gb', 'memory_mb')

Reply = list[list[objects.Selection]] | list[dict[str, Any]]


def reply(
    selections: Sequence[Sequence[Selection]],
    return_objects: bool,
    version: SpecVersion,
) -> Reply:
    """The answer to select_destinations: a list per instance, with the chosen host in
    front of the alternates. Callers of RPC versions before 4.5 get a dict per instance.

    :param version: the version of the caller's RequestSpec.
    """
    answer: list[Any] = []
    for hosts in selections:
        if return_objects:
            answer.append([_selection(host, version) for host in hosts])
        else:
            answer.append(_as_dict(hosts[0], version))
    return answer


def _selection(host: Selection, version: SpecVersion) -> objects.Selection:
    """The wire object of a chosen host or an alternate. The caller claims an alternate
    with the allocation request."""
    allocation_request = NO_ALLOCATION
    microversion = None
    if host.candidate and version >= GENERATIONS_SINCE:
        allocation_request = host.candidate.body()
        microversion = ALLOCATION_REQUEST_VERSION
    elif host.candidate:
        allocation_request = host.candidate.allocations_alone()
        microversion = PLAIN_ALLOCATION_REQUEST_VERSION

    zone = {}
    if version >= ZONES_SINCE:
        zone['availability_zone'] = host.availability_zone
    wire = objects.Selection(
        compute_node_uuid=host.compute_node_uuid,
        service_host=host.service_host,
        nodename=host.nodename,
        cell_uuid=host.cell_uuid,
        limits=_limits(host.limits, version),
        allocation_request=allocation_request,
        allocation_request_version=microversion,
        **zone,
    )
    if version < ZONES_SINCE:
        wire.VERSION = '1.0'
    return wire


def _as_dict(host: Selection, version: SpecVersion) -> dict[str, Any]:
    """The chosen host as a dict, without empty limits. The serializer encodes the limit
    of the NUMA topology as an object."""
    wire = _limits(host.limits, version)
    limits = {}
    for name in wire.fields:
        if wire.value(name) is not None:
            limits[name] = wire.value(name)
    return {'host': host.service_host, 'nodename': host.nodename, 'limits': limits}


def _limits(values: Mapping[str, Any], version: SpecVersion) -> objects.SchedulerLimits:
    """The limits of nova's filters. A missing limit is null. Limits of out-of-tree
    filters are not sent."""
    topology_limits = None
    numa = values.get('numa_topology')
    if numa is not None:
        topology_limits = _topology_limits(numa, version)

    amounts = {name: values.get(name) for name in LIMIT_NAMES}
    return objects.SchedulerLimits(numa_topology=topology_limits, **amounts)


def _topology_limits(
    limits: TopologyLimits, version: SpecVersion
) -> objects.NUMATopologyLimits:
    """The wire object. It has networks if the request has networks."""
    networks = {}
    if version >= NETWORKS_SINCE and limits.physnets is not None:
        networks['network_metadata'] = objects.NetworkMetadata(
            physnets=set(limits.physnets), tunneled=limits.tunneled
        )

    wire = objects.NUMATopologyLimits(
        cpu_allocation_ratio=limits.cpu_allocation_ratio,
        ram_allocation_ratio=limits.ram_allocation_ratio,
        **networks,
    )
    if version < NETWORKS_SINCE:
        wire.VERSION = '1.0'
    return wire
