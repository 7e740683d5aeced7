# SPDX-License-Identifier: Apache-2.0
"""Why hosts drop out, in a few words that go behind a number of hosts."""

from __future__ import annotations

DISABLED, DOWN = 'disabled', 'down'
WORDS = {
    'AggregateCoreFilter': 'lack free vCPUs',
    'AggregateDiskFilter': 'lack free disk',
    'AggregateImagePropertiesIsolation': 'in aggregates for other images',
    'AggregateInstanceExtraSpecsFilter': 'in aggregates for other flavors',
    'AggregateIoOpsFilter': 'busy with I/O',
    'AggregateMultiTenancyIsolation': 'for other projects',
    'AggregateNumInstancesFilter': 'with too many servers',
    'AggregateRamFilter': 'lack free memory',
    'AggregateTypeAffinityFilter': 'in aggregates for other flavors',
    'AvailabilityZoneFilter': 'in another zone',
    'ComputeCapabilitiesFilter': 'lack a capability',
    'CoreFilter': 'lack free vCPUs',
    'DifferentHostFilter': 'have a server to keep away from',
    'DiskFilter': 'lack free disk',
    'ExactCoreFilter': 'have other vCPUs free',
    'ExactDiskFilter': 'have other disk free',
    'ExactRamFilter': 'have other memory free',
    'ImagePropertiesFilter': 'cannot run the image',
    'IoOpsFilter': 'busy with I/O',
    'IsolatedHostsFilter': 'isolated from the image',
    'JsonFilter': 'do not meet the query',
    'MetricsFilter': 'lack a metric',
    'NUMATopologyFilter': 'do not fit the NUMA topology',
    'NumInstancesFilter': 'with too many servers',
    'PciPassthroughFilter': 'lack PCI devices',
    'RamFilter': 'lack free memory',
    'RetryFilter': 'tried before',
    'SameHostFilter': 'lack a server to be with',
    'ServerGroupAffinityFilter': 'outside of the server group',
    'ServerGroupAntiAffinityFilter': 'have a server of the group',
    'SimpleCIDRAffinityFilter': 'not near the address',
    'TypeAffinityFilter': 'have servers of other flavors',
    'chance_scheduler': 'disabled or down',
    'requested_destination': 'not the requested destination',
    'ignore_hosts': 'ignored by the request',
    'force_hosts': 'not forced by the request',
    'force_nodes': 'not forced by the request',
}


def of(stage: str, reason: str) -> str:
    """What a filter, or a field of the request, has against hosts; its name where the filter
    is not ours."""
    if stage == 'ComputeFilter':
        return DISABLED if reason.startswith(DISABLED) else DOWN
    return WORDS.get(stage, f'rejected by {stage}')
