# SPDX-License-Identifier: Apache-2.0
"""Which themes reach every branch of each filter, weigher and part of a query. A new one
is a line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.parity.generator import Theme
from tests.parity.themes import placement, topology
from tests.parity.themes.abilities import capabilities, image_kind, metrics, odd_versions
from tests.parity.themes.aggregates import (
    extra_specs_of_aggregates,
    flavors_of_aggregates,
    image_properties_of_aggregates,
    isolation,
    limits_of_aggregates,
    multipliers,
    ratios_of_aggregates,
    tenants,
    zones,
)
from tests.parity.themes.capacity import (
    odd_columns,
    odd_metrics,
    services,
    sizes,
    versions,
    workload,
)
from tests.parity.themes.hints import addresses, odd_hints, query
from tests.parity.themes.neighbours import (
    cells,
    group,
    hints_of_servers,
    images_of_servers,
    narrowed,
    retries,
    servers,
)

NOT_COMPARED = {
    'TrustedFilter': 'its attestation server no longer exists',
}
"""What nova has and no plan below, and why."""

FILTERS: Mapping[str, Sequence[Theme]] = {
    'AggregateCoreFilter': [sizes, ratios_of_aggregates],
    'AggregateDiskFilter': [sizes, ratios_of_aggregates],
    'AggregateImagePropertiesIsolation': [image_properties_of_aggregates],
    'AggregateInstanceExtraSpecsFilter': [extra_specs_of_aggregates],
    'AggregateIoOpsFilter': [workload, limits_of_aggregates],
    'AggregateMultiTenancyIsolation': [tenants],
    'AggregateNumInstancesFilter': [workload, limits_of_aggregates],
    'AggregateRamFilter': [sizes, ratios_of_aggregates],
    'AggregateTypeAffinityFilter': [flavors_of_aggregates],
    'AllHostsFilter': [odd_columns, narrowed],
    'AvailabilityZoneFilter': [zones],
    'ComputeCapabilitiesFilter': [capabilities],
    'ComputeFilter': [services],
    'CoreFilter': [sizes, ratios_of_aggregates],
    'DifferentHostFilter': [servers, hints_of_servers, odd_hints],
    'DiskFilter': [sizes, ratios_of_aggregates],
    'ExactCoreFilter': [sizes],
    'ExactDiskFilter': [sizes],
    'ExactRamFilter': [sizes],
    'ImagePropertiesFilter': [image_kind, odd_versions],
    'IoOpsFilter': [workload, limits_of_aggregates, narrowed],
    'IsolatedHostsFilter': [isolation],
    'JsonFilter': [query, odd_hints],
    'MetricsFilter': [metrics],
    'NUMATopologyFilter': [topology.devices, topology.cells, topology.hard_guests],
    'NumInstancesFilter': [workload, limits_of_aggregates],
    'PciPassthroughFilter': [topology.devices],
    'RamFilter': [sizes, ratios_of_aggregates],
    'RetryFilter': [retries],
    'SameHostFilter': [servers, hints_of_servers, odd_hints],
    'ServerGroupAffinityFilter': [servers, group],
    'ServerGroupAntiAffinityFilter': [servers, group],
    'SimpleCIDRAffinityFilter': [addresses, odd_hints],
    'TypeAffinityFilter': [servers, flavors_of_aggregates],
}

WEIGHERS: Mapping[str, Sequence[Theme]] = {
    'BuildFailureWeigher': [workload, multipliers],
    'CPUWeigher': [sizes, multipliers],
    'CrossCellWeigher': [cells, multipliers],
    'DiskWeigher': [sizes, multipliers],
    'HypervisorVersionWeigher': [versions, multipliers],
    'ImagePropertiesWeigher': [servers, images_of_servers, multipliers],
    'IoOpsWeigher': [workload, multipliers],
    'MetricsWeigher': [metrics, odd_metrics, multipliers],
    'NumInstancesWeigher': [workload, multipliers],
    'PCIWeigher': [topology.devices, multipliers],
    'RAMWeigher': [sizes, multipliers],
    'ServerGroupSoftAffinityWeigher': [servers, group, multipliers],
    'ServerGroupSoftAntiAffinityWeigher': [servers, group, multipliers],
}

QUERIES: Mapping[str, Sequence[Theme]] = {
    'sizes': [placement.flavor],
    'resources and traits': [placement.flavor, placement.resources_and_traits],
    'pinning': [placement.flavor, placement.pinning],
    'mixed CPUs': [placement.flavor, placement.mixed],
    'features': [placement.features],
    'TPM': [placement.tpm],
    'memory encryption': [placement.encryption],
    'image': [placement.image_devices],
    'groups from outside': [placement.outside_groups, placement.resources_and_traits],
    'isolated aggregates': [placement.outside_groups, placement.isolated],
    'destination': [placement.aim, placement.flavor],
    'networks': [placement.networks],
    'everything': [
        placement.flavor, placement.resources_and_traits, placement.pinning, placement.image_devices,
        placement.features, placement.outside_groups, placement.aim, placement.networks,
    ],
}  # fmt: skip

NOISE: Sequence[Theme] = [
    services, sizes, workload, servers, group, tenants, zones, image_kind, capabilities, metrics,
    cells, addresses, query, retries,
]  # fmt: skip
