# SPDX-License-Identifier: Apache-2.0
"""Values of nova.conf as two frozen objects: for decisions, and for the process that makes them.

A field is named after its nova.conf option; options of ``[metrics]`` carry that
group's name in front. The defaults written here are the only ones: ``conf/``
declares its options with them. Sizes and times state their unit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

DEFAULT_FILTERS = (
    'ComputeFilter',
    'ComputeCapabilitiesFilter',
    'ImagePropertiesFilter',
    'ServerGroupAntiAffinityFilter',
    'ServerGroupAffinityFilter',
)
ALL_FILTERS = 'nova.scheduler.filters.all_filters'
ALL_WEIGHERS = 'nova.scheduler.weights.all_weighers'


@dataclass(frozen=True, slots=True)
class Settings:
    """The options that a decision depends on; made once per start or reload."""

    # [DEFAULT]
    default_availability_zone: str | None = 'nova'
    service_down_time: int = 60  # seconds
    report_interval: int = 10  # seconds
    servicegroup_driver: str = 'db'
    periodic_enable: bool = True
    cpu_allocation_ratio: float | None = None
    ram_allocation_ratio: float | None = None
    disk_allocation_ratio: float | None = None
    initial_cpu_allocation_ratio: float = 4.0
    initial_ram_allocation_ratio: float = 1.0
    initial_disk_allocation_ratio: float = 1.0

    # [scheduler]
    driver: str = 'filter_scheduler'
    max_attempts: int = 3
    max_placement_results: int = 1000
    query_placement_for_availability_zone: bool = True
    query_placement_for_image_type_support: bool = False
    query_placement_for_routed_network_aggregates: bool = False
    limit_tenants_to_placement_aggregate: bool = False
    placement_aggregate_required_for_tenants: bool = False
    enable_isolated_aggregate_filtering: bool = False
    image_metadata_prefilter: bool = False
    discover_hosts_in_cells_interval: int = -1  # seconds
    periodic_task_interval: int = 60  # seconds

    # [filter_scheduler]
    host_subset_size: int = 1
    shuffle_best_same_weighed_hosts: bool = False
    available_filters: tuple[str, ...] = (ALL_FILTERS,)
    enabled_filters: tuple[str, ...] = DEFAULT_FILTERS
    weight_classes: tuple[str, ...] = (ALL_WEIGHERS,)
    image_properties_default_architecture: str | None = None
    max_io_ops_per_host: int = 8
    max_instances_per_host: int = 50
    isolated_images: tuple[str, ...] = ()
    isolated_hosts: tuple[str, ...] = ()
    restrict_isolated_hosts_to_isolated_images: bool = True
    aggregate_image_properties_isolation_namespace: str | None = None
    aggregate_image_properties_isolation_separator: str = '.'
    pci_in_placement: bool = False
    image_props_weight_setting: tuple[str, ...] = ()
    ram_weight_multiplier: float = 1.0
    cpu_weight_multiplier: float = 1.0
    disk_weight_multiplier: float = 1.0
    io_ops_weight_multiplier: float = -1.0
    num_instances_weight_multiplier: float = 0.0
    build_failure_weight_multiplier: float = 1000000.0
    hypervisor_version_weight_multiplier: float = 1.0
    image_props_weight_multiplier: float = 0.0
    pci_weight_multiplier: float = 1.0
    soft_affinity_weight_multiplier: float = 1.0
    soft_anti_affinity_weight_multiplier: float = 1.0
    cross_cell_move_weight_multiplier: float = 1000000.0

    # [metrics]
    metrics_weight_multiplier: float = 1.0
    metrics_weight_setting: tuple[str, ...] = ()
    metrics_required: bool = True
    metrics_weight_of_unavailable: float = -10000.0

    # [compute]
    packing_host_numa_cells_allocation_strategy: bool = False

    # [workarounds]
    disable_fallback_pcpu_query: bool = False

    # [novasched]
    cell_timeout: float = 60.0  # seconds
    placement_patience: float = 30.0  # seconds
    database_patience: float = 30.0  # seconds
    in_flight_timeout: float = 60.0  # seconds
    decisions_kept: int = 500
    decisions_stored: int = 10_000
    decisions_hash_ids: bool = False
    decisions_hash_key: str | None = field(default=None, repr=False)
    decisions_questions: int = 12
    fault_detail: str = 'none'


@dataclass(frozen=True, slots=True)
class Address:
    """A host, by name or number, and a TCP port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f'[{self.host}]:{self.port}' if ':' in self.host else f'{self.host}:{self.port}'


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """The options that configure the process; no decision depends on them."""

    # [DEFAULT]
    host: str = ''  # the machine's name, where nova.conf has none

    # [scheduler]
    workers: int = 1

    # [notifications]
    notification_format: str = 'unversioned'
    versioned_notifications_topics: tuple[str, ...] = ('versioned_notifications',)

    # [neutron]
    http_retries: int = 3

    # [novasched]
    max_answer_size: int = 64  # MiB
    decisions_file: str | None = None
    tracing_endpoint: str | None = None
    metrics_bind: Address | None = None
    page: bool = False
    page_remote: bool = False


Ratios = tuple[tuple[str, float], ...]


def parse_ratios(setting: Iterable[str]) -> tuple[Ratios, tuple[str, ...]]:
    """The pairs of an option that lists ``name=ratio``, such as ``[metrics] weight_setting``,
    in their order, and its elements that are no such pair."""
    pairs: list[tuple[str, float]] = []
    bad: list[str] = []
    for element in setting:
        name, _, text = element.partition('=')
        try:
            ratio = float(text)
        except ValueError:
            bad.append(element)
            continue
        if name:
            pairs.append((name, ratio))
        else:
            bad.append(element)
    return tuple(pairs), tuple(bad)
