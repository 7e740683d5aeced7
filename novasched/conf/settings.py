# SPDX-License-Identifier: Apache-2.0
"""The options of nova.conf as two frozen values: for decisions, and for the process.

A field has the name of its option; fields for ``[metrics]`` have the group as prefix.
``conf/options.py`` declares the options from the fields.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

DEFAULT_FILTERS = (
    'ComputeFilter',
    'ComputeCapabilitiesFilter',
    'ImagePropertiesFilter',
    'ServerGroupAntiAffinityFilter',
    'ServerGroupAffinityFilter',
)
ALL_FILTERS = 'nova.scheduler.filters.all_filters'
ALL_WEIGHERS = 'nova.scheduler.weights.all_weighers'
DECISIONS_FILE = '$state_path/novasched/decisions.sqlite'


def option(
    group: str,
    default: object,
    help: str,
    *old: str,
    repr: bool = True,
    **rules: object,
) -> Any:
    """Declare a field that an option of nova.conf fills.

    :param old: older names in ``[DEFAULT]``, which releases up to Mitaka used.
    :param rules: further arguments for oslo.config, such as bounds; ``written`` is a
        default that refers to other options.
    """
    metadata = {'group': group, 'help': help, 'old': old, **rules}
    return field(default=default, repr=repr, metadata=metadata)


@dataclass(frozen=True, slots=True)
class Settings:
    """The options on which decisions depend; made at the start and at a reload."""

    default_availability_zone: str | None = option(
        'DEFAULT', 'nova', 'Availability zone of hosts without a zone of an aggregate.'
    )
    service_down_time: int = option(
        'DEFAULT',
        60,
        'Seconds since the last heartbeat after which a compute service counts as '
        'down. Must exceed report_interval.',
    )
    report_interval: int = option(
        'DEFAULT', 10, 'Seconds between two heartbeats of the scheduler.', min=1
    )
    servicegroup_driver: str = option(
        'DEFAULT',
        'db',
        'Where services store their heartbeats. Must be the same for all services of '
        'the cloud.',
        choices=[
            ('db', 'The services table of the databases.'),
            ('mc', 'The memcached servers of [cache] memcache_servers.'),
        ],
    )
    periodic_enable: bool = option(
        'DEFAULT',
        True,
        'Run the discovery of hosts and the periodic task of the driver. Heartbeats '
        'are always sent.',
    )
    cpu_allocation_ratio: float | None = option(
        'DEFAULT',
        None,
        'Allocation ratio of vCPUs for hosts that report no ratio. 0 or unset uses '
        'initial_cpu_allocation_ratio.',
        min=0.0,
    )
    ram_allocation_ratio: float | None = option(
        'DEFAULT',
        None,
        'Allocation ratio of memory for hosts that report no ratio. 0 or unset uses '
        'initial_ram_allocation_ratio.',
        min=0.0,
    )
    disk_allocation_ratio: float | None = option(
        'DEFAULT',
        None,
        'Allocation ratio of disk for hosts that report no ratio. 0 or unset uses '
        'initial_disk_allocation_ratio.',
        min=0.0,
    )
    initial_cpu_allocation_ratio: float = option(
        'DEFAULT',
        4.0,
        'Allocation ratio of vCPUs if cpu_allocation_ratio is not set.',
        min=0.0,
    )
    initial_ram_allocation_ratio: float = option(
        'DEFAULT',
        1.0,
        'Allocation ratio of memory if ram_allocation_ratio is not set.',
        min=0.0,
    )
    initial_disk_allocation_ratio: float = option(
        'DEFAULT',
        1.0,
        'Allocation ratio of disk if disk_allocation_ratio is not set.',
        min=0.0,
    )

    driver: str = option(
        'scheduler',
        'filter_scheduler',
        'Scheduler driver: an entry point of novasched.drivers.',
        'scheduler_driver',
    )
    max_attempts: int = option(
        'scheduler',
        3,
        'Maximum number of attempts to build a server. A request gets one alternate '
        'host less than attempts.',
        'scheduler_max_attempts',
        min=1,
    )
    max_placement_results: int = option(
        'scheduler',
        1000,
        'Maximum number of allocation candidates in an answer of Placement.',
        min=1,
    )
    query_placement_for_availability_zone: bool = option(
        'scheduler',
        True,
        'Restrict allocation candidates to the requested availability zone. If false, '
        'AvailabilityZoneFilter must be enabled.',
    )
    query_placement_for_image_type_support: bool = option(
        'scheduler',
        False,
        'Restrict allocation candidates to hosts that support the disk format of the '
        'image.',
    )
    query_placement_for_routed_network_aggregates: bool = option(
        'scheduler',
        False,
        'Restrict allocation candidates to hosts that reach the segments of the '
        'requested routed networks. Needs credentials in [neutron].',
    )
    limit_tenants_to_placement_aggregate: bool = option(
        'scheduler',
        False,
        'Restrict allocation candidates to aggregates with the project in the metadata '
        'filter_tenant_id.',
    )
    placement_aggregate_required_for_tenants: bool = option(
        'scheduler',
        False,
        'Refuse requests of projects without an aggregate. Needs '
        'limit_tenants_to_placement_aggregate.',
    )
    enable_isolated_aggregate_filtering: bool = option(
        'scheduler',
        False,
        'Exclude hosts in aggregates with required traits (metadata trait:X=required) '
        'that flavor and image do not require.',
    )
    image_metadata_prefilter: bool = option(
        'scheduler',
        False,
        'Restrict allocation candidates to hosts with the traits for the properties of '
        'the image.',
    )
    discover_hosts_in_cells_interval: int = option(
        'scheduler',
        -1,
        'Seconds between two searches for new hosts, which are mapped to their cells. '
        '0 means 60 seconds. -1 disables the search.',
        min=-1,
    )
    periodic_task_interval: int = option(
        'scheduler',
        60,
        'Seconds between two runs of the periodic task of the driver, in which '
        'caching_scheduler reads all hosts. 0 means 60 seconds. A negative value '
        'disables the task.',
        'scheduler_driver_task_period',
    )

    host_subset_size: int = option(
        'filter_scheduler',
        1,
        'Number of best hosts from which a host is selected at random.',
        'scheduler_host_subset_size',
        min=1,
    )
    shuffle_best_same_weighed_hosts: bool = option(
        'filter_scheduler', False, 'Shuffle the hosts with the best weight.'
    )
    available_filters: tuple[str, ...] = option(
        'filter_scheduler',
        (ALL_FILTERS,),
        'Filters that enabled_filters may name: all built-in filters, or the import '
        'path of a filter. May be given several times.',
        'scheduler_available_filters',
    )
    enabled_filters: tuple[str, ...] = option(
        'filter_scheduler',
        DEFAULT_FILTERS,
        'Names of the filters, in the order in which the filters run.',
        'scheduler_default_filters',
    )
    weight_classes: tuple[str, ...] = option(
        'filter_scheduler',
        (ALL_WEIGHERS,),
        'Weighers: all built-in weighers, or import paths of weighers.',
        'scheduler_weight_classes',
    )
    image_properties_default_architecture: str | None = option(
        'filter_scheduler', None, 'Architecture of images without an architecture.'
    )
    max_io_ops_per_host: int = option(
        'filter_scheduler',
        8,
        'Number of I/O operations in progress at which IoOpsFilter rejects a host.',
        'max_io_ops_per_host',
        min=0,
    )
    max_instances_per_host: int = option(
        'filter_scheduler',
        50,
        'Number of servers at which NumInstancesFilter rejects a host.',
        'max_instances_per_host',
        min=1,
    )
    isolated_images: tuple[str, ...] = option(
        'filter_scheduler',
        (),
        'UUIDs of images that may run only on isolated_hosts.',
        'isolated_images',
    )
    isolated_hosts: tuple[str, ...] = option(
        'filter_scheduler',
        (),
        'Names of hosts for isolated_images.',
        'isolated_hosts',
    )
    restrict_isolated_hosts_to_isolated_images: bool = option(
        'filter_scheduler',
        True,
        'Reject isolated_hosts for all images outside isolated_images.',
        'restrict_isolated_hosts_to_isolated_images',
    )
    aggregate_image_properties_isolation_namespace: str | None = option(
        'filter_scheduler',
        None,
        'Prefix of the metadata keys that AggregateImagePropertiesIsolation compares '
        'with image properties. Unset compares all properties.',
        'aggregate_image_properties_isolation_namespace',
    )
    aggregate_image_properties_isolation_separator: str = option(
        'filter_scheduler',
        '.',
        'Separator between the prefix and the name of the image property.',
        'aggregate_image_properties_isolation_separator',
    )
    pci_in_placement: bool = option(
        'filter_scheduler',
        False,
        'Request PCI devices from Placement. Needs [pci] report_in_placement on all '
        'compute hosts.',
    )
    image_props_weight_setting: tuple[str, ...] = option(
        'filter_scheduler',
        (),
        'Weights of image properties for ImagePropertiesWeigher, as name=weight. Empty '
        'weighs all properties equally.',
    )
    ram_weight_multiplier: float = option(
        'filter_scheduler',
        1.0,
        'Multiplier of RAMWeigher. A positive value prefers hosts with more free '
        'memory, a negative value hosts with less. 0 disables the weigher.',
        'ram_weight_multiplier',
    )
    cpu_weight_multiplier: float = option(
        'filter_scheduler',
        1.0,
        'Multiplier of CPUWeigher. A positive value prefers hosts with more free '
        'vCPUs, a negative value hosts with fewer. 0 disables the weigher.',
    )
    disk_weight_multiplier: float = option(
        'filter_scheduler',
        1.0,
        'Multiplier of DiskWeigher. A positive value prefers hosts with more free '
        'disk, a negative value hosts with less. 0 disables the weigher.',
        'disk_weight_multiplier',
    )
    io_ops_weight_multiplier: float = option(
        'filter_scheduler',
        -1.0,
        'Multiplier of IoOpsWeigher. A negative value prefers hosts with fewer I/O '
        'operations in progress, a positive value hosts with more. 0 disables the '
        'weigher.',
        'io_ops_weight_multiplier',
    )
    num_instances_weight_multiplier: float = option(
        'filter_scheduler',
        0.0,
        'Multiplier of NumInstancesWeigher. A negative value prefers hosts with fewer '
        'servers, a positive value hosts with more. 0 disables the weigher.',
    )
    build_failure_weight_multiplier: float = option(
        'filter_scheduler',
        1000000.0,
        'Multiplier of BuildFailureWeigher. A positive value avoids hosts with failed '
        'builds since the last successful build. 0 disables the weigher.',
    )
    hypervisor_version_weight_multiplier: float = option(
        'filter_scheduler',
        1.0,
        'Multiplier of HypervisorVersionWeigher. A positive value prefers hosts with '
        'newer hypervisors, a negative value hosts with older. 0 disables the weigher.',
    )
    image_props_weight_multiplier: float = option(
        'filter_scheduler',
        0.0,
        'Multiplier of ImagePropertiesWeigher. A positive value prefers hosts whose '
        'servers have similar images, a negative value avoids these hosts. 0 disables '
        'the weigher.',
    )
    pci_weight_multiplier: float = option(
        'filter_scheduler',
        1.0,
        'Multiplier of PCIWeigher. A positive value keeps servers without PCI devices '
        'off hosts with PCI devices. 0 disables the weigher.',
        min=0.0,
    )
    soft_affinity_weight_multiplier: float = option(
        'filter_scheduler',
        1.0,
        'Multiplier of ServerGroupSoftAffinityWeigher: how strongly the servers of a '
        'soft-affinity group attract each other. 0 disables the weigher.',
        'soft_affinity_weight_multiplier',
        min=0.0,
    )
    soft_anti_affinity_weight_multiplier: float = option(
        'filter_scheduler',
        1.0,
        'Multiplier of ServerGroupSoftAntiAffinityWeigher: how strongly the servers of '
        'a soft-anti-affinity group repel each other. 0 disables the weigher.',
        'soft_anti_affinity_weight_multiplier',
        min=0.0,
    )
    cross_cell_move_weight_multiplier: float = option(
        'filter_scheduler',
        1000000.0,
        'Multiplier of CrossCellWeigher. A positive value prefers hosts in the current '
        'cell of a moving server, a negative value hosts in other cells. 0 disables '
        'the weigher.',
    )

    metrics_weight_multiplier: float = option(
        'metrics', 1.0, 'Multiplier of MetricsWeigher. 0 disables the weigher.'
    )
    metrics_weight_setting: tuple[str, ...] = option(
        'metrics', (), 'Weights of host metrics, as name=weight.'
    )
    metrics_required: bool = option(
        'metrics',
        True,
        'Refuse requests while a host lacks a metric of weight_setting; MetricsFilter '
        'rejects such hosts. If false, such a host gets weight_of_unavailable.',
    )
    metrics_weight_of_unavailable: float = option(
        'metrics',
        -10000.0,
        'Weight of a host that lacks a metric of weight_setting, if required is false.',
    )

    packing_host_numa_cells_allocation_strategy: bool = option(
        'compute',
        False,
        'Place guest NUMA cells on the most used host NUMA cells. If false, on the '
        'least used host NUMA cells.',
    )

    disable_fallback_pcpu_query: bool = option(
        'workarounds',
        False,
        'Do not repeat a query for PCPU as a query for VCPU. The second query finds '
        'hosts that still pin CPUs by vcpu_pin_set.',
    )

    cell_timeout: float = option(
        'novasched',
        60.0,
        'How long to wait for the database of a cell before its hosts are left out, in '
        'seconds. Also the timeout of the API database and of [database].',
        min=0.1,
        max=86400.0,
    )
    candidates_max_age: float | None = option(
        'novasched',
        None,
        'How long an answer of Placement about all hosts also serves later requests, '
        'in seconds. Placement verifies each claim, and is queried again before a '
        'request is refused. Unset: 3.2 ms per host, which is the age of the answer on '
        'which nova-scheduler claims, or until the next answer if Placement takes '
        'longer; at most 60 seconds. 0 queries Placement for each request.',
        min=0,
    )
    traits_weight_multiplier: float = option(
        'novasched',
        1000.0,
        'Multiplier of TraitsWeigher. A positive value prefers hosts with preferred '
        'traits of the flavor (trait:X=preferred), and avoids hosts with avoided '
        'traits (trait:X=avoided, avoided_traits). 0 disables the weigher.',
    )
    avoided_traits: tuple[str, ...] = option(
        'novasched',
        (),
        'Traits of hosts that servers avoid while other hosts are available, such as '
        'CUSTOM_PRESSURE_CPU. A trait is not avoided if the flavor prefers the trait '
        '(trait:X=preferred), or if flavor or image require the trait.',
    )
    failure_domain_key: str = option(
        'novasched',
        'failure_domain',
        'Metadata key of aggregates with the failure domain of the hosts, such as the '
        'rack, for FailureDomainFilter and FailureDomainWeigher.',
    )
    failure_domain_weight_multiplier: float = option(
        'novasched',
        0.0,
        'Multiplier of FailureDomainWeigher. A positive value spreads the servers of '
        'an anti-affinity or soft-anti-affinity group over failure domains, and '
        'gathers the servers of an affinity or soft-affinity group in one failure '
        'domain. 0 disables the weigher.',
    )
    fragmentation_weight_multiplier: float = option(
        'novasched',
        0.0,
        'Multiplier of FragmentationWeigher. A positive value keeps capacity usable '
        'for the usual servers of the cloud: a server goes where the fewest of them '
        'no longer fit. To let it decide alone, choose a value far above the '
        'multipliers of the other weighers. 0 disables the weigher.',
    )
    usual_flavors: tuple[str, ...] = option(
        'novasched',
        (),
        'Names or ids of the flavors for which FragmentationWeigher keeps capacity '
        'usable, all equally. Empty: the 64 most frequent flavors of the servers in '
        'the cloud, each by its number of servers.',
    )
    placement_patience: float = option(
        'novasched',
        30.0,
        'How long a request waits for an unavailable Placement before it is refused, '
        'in seconds from the arrival of its message at the scheduler. 0 refuses '
        'immediately.',
        min=0,
        max=86400.0,
    )
    database_patience: float = option(
        'novasched',
        30.0,
        'How long a request waits for an unavailable database that its decision needs, '
        'before it is refused, in seconds from the arrival of its message at the '
        'scheduler. 0 refuses immediately.',
        min=0,
        max=86400.0,
    )
    in_flight_timeout: float = option(
        'novasched',
        60.0,
        'How long a claimed server counts on its host before the host reports the '
        'server, in seconds. 0 counts only reported servers, like nova-scheduler.',
        min=0,
    )
    decisions_stored: int = option(
        'novasched',
        10_000,
        'Number of decision records in the file. The oldest records are deleted first.',
        min=1,
    )
    decisions_size: int = option(
        'novasched',
        100,
        'Maximum size of the file of decision records in MiB. The oldest records are '
        'deleted first.',
        min=1,
    )
    decisions_questions: int = option(
        'novasched',
        20,
        'Maximum number of queries to Placement after a request was refused, to find '
        'the constraints that excluded hosts. No request waits for these queries. 0 '
        'disables the queries.',
        min=0,
    )
    fault_detail: str = option(
        'novasched',
        'none',
        'Details in the NoValidHost fault, which users see.',
        choices=[
            ('none', 'The text of nova-scheduler.'),
            ('counts', 'Also the number of rejected hosts by reason.'),
        ],
    )


@dataclass(frozen=True, slots=True)
class Address:
    """A host name or IP address, and a TCP port."""

    host: str
    port: int

    def __str__(self) -> str:
        if ':' in self.host:
            return f'[{self.host}]:{self.port}'
        return f'{self.host}:{self.port}'


@dataclass(frozen=True, slots=True)
class SocketFile:
    """The path of a Unix socket."""

    path: str

    def __str__(self) -> str:
        return f'unix:{self.path}'


DEFAULT_HEALTH_BIND = SocketFile('/var/lib/nova/novasched/health.sock')
"""The default of ``health_bind`` with the default of ``state_path``."""


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """The options that configure the process; decisions do not depend on them."""

    host: str = option(
        'DEFAULT',
        '',
        'Name of this scheduler in the services table and in the message queue. Empty '
        'uses the host name.',
        sample_default='<current hostname>',
    )

    workers: int = option(
        'scheduler',
        1,
        'Number of worker processes. A worker handles requests in many threads, so 1 '
        'is enough for most clouds. 0 means 1.',
        min=0,
    )

    notification_format: str = option(
        'notifications',
        'unversioned',
        'Format of the notifications. Notifications are sent only if '
        '[oslo_messaging_notifications] driver is set.',
        choices=[
            ('unversioned', 'Notifications in the legacy format.'),
            ('versioned', 'Notifications in the versioned format.'),
            ('both', 'Notifications in both formats.'),
        ],
        deprecated_group='DEFAULT',
    )
    versioned_notifications_topics: tuple[str, ...] = option(
        'notifications',
        ('versioned_notifications',),
        'Topics of versioned notifications.',
    )

    share_pending_claims: bool = option(
        'novasched',
        True,
        'Share pending claims with the other schedulers of the cloud over RabbitMQ: '
        'claims whose server no host reports yet. Without sharing, schedulers and '
        'workers can choose the same NUMA cells or PCI devices, or hosts against a '
        'server group policy.',
    )

    http_retries: int = option(
        'neutron', 3, 'Number of retries of a failed connection to Neutron.', min=0
    )

    max_answer_size: int = option(
        'novasched',
        64,
        'Maximum size of an answer of Placement or Neutron in MiB. A larger answer '
        'counts as a failure of the service. Placement sends about 0.6 KiB for each '
        'allocation candidate.',
        min=1,
    )
    decisions_file: str | None = option(
        'novasched',
        DECISIONS_FILE,
        'SQLite file with decision records for novaschedctl explain, on a local file '
        'system. Its folder is created. Empty disables the file.',
    )
    tracing_endpoint: str | None = option(
        'novasched',
        None,
        'URL of a collector for traces that speaks OTLP over HTTP, such as '
        'http://localhost:4318. The default path is /v1/traces. Unset disables '
        'tracing. Needs the extra novasched[tracing].',
    )
    health_bind: Address | SocketFile | None = option(  # noqa: RUF009
        'novasched',
        DEFAULT_HEALTH_BIND,
        'Where health is served over HTTP without a login: unix:/PATH, HOST:PORT or '
        '[::1]:PORT. Empty disables health checks. If the default cannot be used, '
        'health is not served.',
        written='unix:$state_path/novasched/health.sock',
    )
    metrics_bind: Address | None = option(  # noqa: RUF009
        'novasched',
        None,
        'Where metrics for Prometheus are served over HTTP: HOST:PORT or [::1]:PORT. '
        'Unset disables metrics. Needs the extra novasched[metrics].',
    )
    page: bool = option(
        'novasched',
        False,
        'Serve a web page with hosts and decisions at metrics_bind. Needs the extra '
        'novasched[page].',
    )
    page_remote: bool = option(
        'novasched',
        False,
        'Show the page to all clients that reach metrics_bind, without a login. If '
        'false, only to clients on this machine, such as a reverse proxy.',
    )


Ratios = tuple[tuple[str, float], ...]


def parse_ratios(setting: Iterable[str]) -> tuple[Ratios, tuple[str, ...]]:
    """Parse an option that lists ``name=ratio``, such as ``[metrics] weight_setting``.

    :returns: the pairs in order, and the invalid elements.
    """
    pairs: list[tuple[str, float]] = []
    bad: list[str] = []
    for element in setting:
        name, _, text = element.partition('=')
        try:
            if not name:
                raise ValueError
            pairs.append((name, float(text)))
        except ValueError:
            bad.append(element)
    return tuple(pairs), tuple(bad)
