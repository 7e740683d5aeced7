# SPDX-License-Identifier: Apache-2.0
"""From the hosts that were chosen to the answer, in objects that the caller's release
knows.

A conductor that gets a newer object asks another for an older form of it, and that one
does not know the object either. A message's release shows, well enough, in the version
of its RequestSpec.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from novasched.rpc import wire as objects
from novasched.rpc.versions import SpecVersion
from novasched.scheduler.model.host import Selection
from novasched.scheduler.model.numa import TopologyLimits

# The microversion in which a caller must send an allocation request to Placement, and
# the one for callers that know nothing of what came between.
ALLOCATION_REQUEST_VERSION = '1.36'
PLAIN_ALLOCATION_REQUEST_VERSION = '1.12'
NO_ALLOCATION = 'null'

NETWORKS_SINCE: SpecVersion = (1, 10)
"""The RequestSpec of Rocky, whose NUMATopologyLimits is 1.1, not 1.0, and may name
networks."""
GENERATIONS_SINCE: SpecVersion = (1, 12)
"""The RequestSpec of Stein, whose conductor claims an alternate in whatever
microversion it is told to. Those before send no consumer generation, which Placement
wants from 1.28 on."""
ZONES_SINCE: SpecVersion = (1, 13)
"""The RequestSpec of Ussuri, whose Selection is 1.1, not 1.0, and names the
availability zone."""
LIMIT_NAMES = ('vcpu', 'disk_gb', 'memory_mb')

Reply = list[list[objects.Selection]] | list[dict[str, Any]]


def reply(
    selections: Sequence[Sequence[Selection]],
    return_objects: bool,
    version: SpecVersion,
) -> Reply:
    """The answer to select_destinations: for each instance the chosen host, then its
    alternates. Callers before 4.5 get one dict for each instance instead.

    :param version: the version of the caller's RequestSpec.
    """
    if return_objects:
        return [
            [_selection(chosen, version) for chosen in hosts] for hosts in selections
        ]
    return [_as_dict(hosts[0], version) for hosts in selections]


def _selection(chosen: Selection, version: SpecVersion) -> objects.Selection:
    """The wire object, with a claim's body and microversion for a caller that needs the
    host."""
    allocation_request = NO_ALLOCATION
    microversion = None
    if chosen.candidate and version >= GENERATIONS_SINCE:
        allocation_request = chosen.candidate.body()
        microversion = ALLOCATION_REQUEST_VERSION
    elif chosen.candidate:
        allocation_request = chosen.candidate.allocations_alone()
        microversion = PLAIN_ALLOCATION_REQUEST_VERSION
    if version >= ZONES_SINCE:
        zone = {'availability_zone': chosen.availability_zone}
    else:
        zone = {}
    wire = objects.Selection(
        compute_node_uuid=chosen.compute_node_uuid,
        service_host=chosen.service_host,
        nodename=chosen.nodename,
        cell_uuid=chosen.cell_uuid,
        limits=_limits(chosen.limits, version),
        allocation_request=allocation_request,
        allocation_request_version=microversion,
        **zone,
    )
    if not zone:
        wire.VERSION = '1.0'
    return wire


def _as_dict(chosen: Selection, version: SpecVersion) -> dict[str, Any]:
    """``{'host', 'nodename', 'limits'}``, with those limits that are set; the one for
    the NUMA topology is an object, which the serializer makes a primitive of."""
    wire = _limits(chosen.limits, version)
    limits = {
        name: wire.value(name) for name in wire.fields if wire.value(name) is not None
    }
    return {'host': chosen.service_host, 'nodename': chosen.nodename, 'limits': limits}


def _limits(values: Mapping[str, Any], version: SpecVersion) -> objects.SchedulerLimits:
    """Limits as nova sends them: all are named, whole numbers, null where not set.
    Entries that nova has no name for stay with the scheduler."""
    numa = values.get('numa_topology')
    return objects.SchedulerLimits(
        numa_topology=None if numa is None else _topology_limits(numa, version),
        **{name: values.get(name) for name in LIMIT_NAMES},
    )


def _topology_limits(
    limits: TopologyLimits, version: SpecVersion
) -> objects.NUMATopologyLimits:
    """The wire object, which names networks where the request does."""
    knows_networks = version >= NETWORKS_SINCE
    networks = {}
    if knows_networks and limits.physnets is not None:
        networks['network_metadata'] = objects.NetworkMetadata(
            physnets=set(limits.physnets), tunneled=limits.tunneled
        )
    wire = objects.NUMATopologyLimits(
        cpu_allocation_ratio=limits.cpu_allocation_ratio,
        ram_allocation_ratio=limits.ram_allocation_ratio,
        **networks,
    )
    if not knows_networks:
        wire.VERSION = '1.0'
    return wire
