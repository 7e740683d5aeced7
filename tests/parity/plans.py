# SPDX-License-Identifier: Apache-2.0
"""The themes that reach every branch of the filters, the weighers and the parts of a
query. A new filter needs a new line."""

from collections.abc import Mapping, Sequence

from tests.parity.dice import Theme
from tests.parity.themes import (
    abilities,
    aggregates,
    capacity,
    neighbours,
    placement,
    topology,
)

CURRENT_FILTERS: Mapping[str, Sequence[Theme]] = {
    'AggregateImagePropertiesIsolation': [aggregates.image_properties_of_aggregates],
    'AggregateInstanceExtraSpecsFilter': [aggregates.extra_specs_of_aggregates],
    'AggregateIoOpsFilter': [capacity.workload, aggregates.limits_of_aggregates],
    'AggregateMultiTenancyIsolation': [aggregates.tenants],
    'AggregateNumInstancesFilter': [capacity.workload, aggregates.limits_of_aggregates],
    'AggregateTypeAffinityFilter': [aggregates.flavors_of_aggregates],
    'AllHostsFilter': [capacity.odd_columns, neighbours.narrowed],
    'ComputeCapabilitiesFilter': [abilities.capabilities],
    'ComputeFilter': [capacity.services],
    'DifferentHostFilter': [
        neighbours.servers,
        neighbours.hints_of_servers,
        neighbours.odd_hints,
    ],
    'ImagePropertiesFilter': [abilities.image_kind, abilities.odd_versions],
    'IoOpsFilter': [
        capacity.workload,
        aggregates.limits_of_aggregates,
        neighbours.narrowed,
    ],
    'IsolatedHostsFilter': [aggregates.isolation],
    'JsonFilter': [neighbours.query, neighbours.odd_hints],
    'MetricsFilter': [abilities.metrics],
    'NUMATopologyFilter': [topology.devices, topology.cells, topology.hard_guests],
    'NumInstancesFilter': [capacity.workload, aggregates.limits_of_aggregates],
    'PciPassthroughFilter': [topology.devices],
    'SameHostFilter': [
        neighbours.servers,
        neighbours.hints_of_servers,
        neighbours.odd_hints,
    ],
    'ServerGroupAffinityFilter': [neighbours.servers, neighbours.group],
    'ServerGroupAntiAffinityFilter': [neighbours.servers, neighbours.group],
    'SimpleCIDRAffinityFilter': [neighbours.addresses, neighbours.odd_hints],
}
"""Filters of nova 34."""

OLDER_FILTERS: Mapping[str, Sequence[Theme]] = {
    'AggregateCoreFilter': [capacity.sizes, aggregates.ratios_of_aggregates],
    'AggregateDiskFilter': [capacity.sizes, aggregates.ratios_of_aggregates],
    'AggregateRamFilter': [capacity.sizes, aggregates.ratios_of_aggregates],
    'AvailabilityZoneFilter': [aggregates.zones],
    'CoreFilter': [capacity.sizes, aggregates.ratios_of_aggregates],
    'DiskFilter': [capacity.sizes, aggregates.ratios_of_aggregates],
    'ExactCoreFilter': [capacity.sizes],
    'ExactDiskFilter': [capacity.sizes],
    'ExactRamFilter': [capacity.sizes],
    'RamFilter': [capacity.sizes, aggregates.ratios_of_aggregates],
    'RetryFilter': [neighbours.retries],
    'TypeAffinityFilter': [neighbours.servers, aggregates.flavors_of_aggregates],
}
FILTERS = {**CURRENT_FILTERS, **OLDER_FILTERS}

WEIGHERS: Mapping[str, Sequence[Theme]] = {
    'BuildFailureWeigher': [capacity.workload],
    'CPUWeigher': [capacity.sizes],
    'CrossCellWeigher': [neighbours.cells],
    'DiskWeigher': [capacity.sizes],
    'HypervisorVersionWeigher': [capacity.versions],
    'ImagePropertiesWeigher': [neighbours.servers, neighbours.images_of_servers],
    'IoOpsWeigher': [capacity.workload],
    'MetricsWeigher': [abilities.metrics, capacity.odd_metrics],
    'NumInstancesWeigher': [capacity.workload],
    'PCIWeigher': [topology.devices],
    'RAMWeigher': [capacity.sizes],
    'ServerGroupSoftAffinityWeigher': [neighbours.servers, neighbours.group],
    'ServerGroupSoftAntiAffinityWeigher': [neighbours.servers, neighbours.group],
}
"""Every weigher is compared with multipliers of aggregates too."""

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
        placement.flavor,
        placement.resources_and_traits,
        placement.pinning,
        placement.image_devices,
        placement.features,
        placement.outside_groups,
        placement.aim,
        placement.networks,
    ],
}

NOISE: Sequence[Theme] = [
    capacity.services,
    capacity.sizes,
    capacity.workload,
    neighbours.servers,
    neighbours.group,
    aggregates.tenants,
    aggregates.zones,
    abilities.image_kind,
    abilities.capabilities,
    abilities.metrics,
    neighbours.cells,
    neighbours.addresses,
    neighbours.query,
    neighbours.retries,
]
