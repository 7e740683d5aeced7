# SPDX-License-Identifier: Apache-2.0
"""Values of nova.conf as two frozen objects: for decisions, and for the process that
makes them.

A field is named after its nova.conf option; options of ``[metrics]`` carry that group's
name in front. ``conf/options.py`` declares the options by what is written here.
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

    :param old: its spellings in ``[DEFAULT]`` that releases up to Mitaka used.
    :param rules: what oslo.config is told beside that, such as bounds; ``written`` is
        the default as text that refers to other options.
    """
    metadata = {'group': group, 'help': help, 'old': old, **rules}
    return field(default=default, repr=repr, metadata=metadata)


@dataclass(frozen=True, slots=True)
class Settings:
    """The options that a decision depends on; made once per start or reload."""

    default_availability_zone: str | None = option(
        'DEFAULT', 'nova', 'Zone of the hosts that no aggregate puts into one.'
    )
    service_down_time: int = option(
        'DEFAULT',
        60,
        'Seconds of silence after which a compute service counts as down.',
    )
    report_interval: int = option(
        'DEFAULT', 10, 'Seconds between two heartbeats in the services table.', min=1
    )
    servicegroup_driver: str = option(
        'DEFAULT',
        'db',
        'Where services show that they are up: db, in the services table; mc, in the'
        ' memcached of [cache].',
        choices=['db', 'mc'],
    )
    periodic_enable: bool = option(
        'DEFAULT',
        True,
        'Run what is to be done from time to time, the heartbeat apart.',
    )
    cpu_allocation_ratio: float | None = option(
        'DEFAULT', None, 'vCPU allocation ratio of hosts that report none.', min=0.0
    )
    ram_allocation_ratio: float | None = option(
        'DEFAULT', None, 'Memory allocation ratio of hosts that report none.', min=0.0
    )
    disk_allocation_ratio: float | None = option(
        'DEFAULT', None, 'Disk allocation ratio of hosts that report none.', min=0.0
    )
    initial_cpu_allocation_ratio: float = option(
        'DEFAULT',
        4.0,
        'vCPU allocation ratio where cpu_allocation_ratio is not set.',
        min=0.0,
    )
    initial_ram_allocation_ratio: float = option(
        'DEFAULT',
        1.0,
        'Memory allocation ratio where ram_allocation_ratio is not set.',
        min=0.0,
    )
    initial_disk_allocation_ratio: float = option(
        'DEFAULT',
        1.0,
        'Disk allocation ratio where disk_allocation_ratio is not set.',
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
        'How often a build may be tried; one less is how many alternates are given.',
        'scheduler_max_attempts',
        min=1,
    )
    max_placement_results: int = option(
        'scheduler',
        1000,
        'Upper limit of the allocation candidates asked of Placement.',
        min=1,
    )
    query_placement_for_availability_zone: bool = option(
        'scheduler',
        True,
        'Let Placement select by zone; false leaves it to AvailabilityZoneFilter.',
    )
    query_placement_for_image_type_support: bool = option(
        'scheduler', False, "Ask only for hosts that can run the image's disk format."
    )
    query_placement_for_routed_network_aggregates: bool = option(
        'scheduler',
        False,
        'Ask only for hosts that reach the segments of the requested networks.',
    )
    limit_tenants_to_placement_aggregate: bool = option(
        'scheduler',
        False,
        "Ask only for hosts in the aggregates that name the request's project.",
    )
    placement_aggregate_required_for_tenants: bool = option(
        'scheduler', False, 'Refuse projects that no aggregate names.'
    )
    enable_isolated_aggregate_filtering: bool = option(
        'scheduler',
        False,
        'Keep servers without their traits out of aggregates that require these.',
    )
    image_metadata_prefilter: bool = option(
        'scheduler',
        False,
        'Ask for the traits that the properties of the image amount to.',
    )
    discover_hosts_in_cells_interval: int = option(
        'scheduler',
        -1,
        'Seconds between two searches for new computes, to map their hosts to their'
        ' cells; -1 leaves that to nova-manage.',
        min=-1,
    )
    periodic_task_interval: int = option(
        'scheduler',
        60,
        'Seconds between two refreshes of what caching_scheduler knows.',
        'scheduler_driver_task_period',
    )

    host_subset_size: int = option(
        'filter_scheduler',
        1,
        'The host is drawn by lot from this many of the best.',
        'scheduler_host_subset_size',
        min=1,
    )
    shuffle_best_same_weighed_hosts: bool = option(
        'filter_scheduler', False, 'Shuffle the hosts that share the best weight.'
    )
    available_filters: tuple[str, ...] = option(
        'filter_scheduler',
        (ALL_FILTERS,),
        'Where filters may be taken from: all built-in ones, or import paths.',
        'scheduler_available_filters',
    )
    enabled_filters: tuple[str, ...] = option(
        'filter_scheduler',
        DEFAULT_FILTERS,
        'The filters that run, in this order.',
        'scheduler_default_filters',
    )
    weight_classes: tuple[str, ...] = option(
        'filter_scheduler',
        (ALL_WEIGHERS,),
        'The weighers that run: all built-in ones, or import paths.',
        'scheduler_weight_classes',
    )
    image_properties_default_architecture: str | None = option(
        'filter_scheduler', None, 'Architecture of the images that name none.'
    )
    max_io_ops_per_host: int = option(
        'filter_scheduler',
        8,
        'I/O operations at which IoOpsFilter rejects a host.',
        'max_io_ops_per_host',
        min=0,
    )
    max_instances_per_host: int = option(
        'filter_scheduler',
        50,
        'Number of instances at which NumInstancesFilter rejects a host.',
        'max_instances_per_host',
        min=1,
    )
    isolated_images: tuple[str, ...] = option(
        'filter_scheduler',
        (),
        'UUIDs of the images that run on isolated hosts alone.',
        'isolated_images',
    )
    isolated_hosts: tuple[str, ...] = option(
        'filter_scheduler',
        (),
        'Names of the hosts for isolated images.',
        'isolated_hosts',
    )
    restrict_isolated_hosts_to_isolated_images: bool = option(
        'filter_scheduler',
        True,
        'Keep other images off isolated hosts.',
        'restrict_isolated_hosts_to_isolated_images',
    )
    aggregate_image_properties_isolation_namespace: str | None = option(
        'filter_scheduler',
        None,
        'Prefix of the metadata keys that AggregateImagePropertiesIsolation looks at.',
        'aggregate_image_properties_isolation_namespace',
    )
    aggregate_image_properties_isolation_separator: str = option(
        'filter_scheduler',
        '.',
        'What stands between that prefix and the name of the image property.',
        'aggregate_image_properties_isolation_separator',
    )
    pci_in_placement: bool = option(
        'filter_scheduler', False, 'Ask Placement for PCI devices too.'
    )
    image_props_weight_setting: tuple[str, ...] = option(
        'filter_scheduler', (), 'Weights of image properties, as name=weight.'
    )
    ram_weight_multiplier: float = option(
        'filter_scheduler',
        1.0,
        'Positive prefers hosts with free memory.',
        'ram_weight_multiplier',
    )
    cpu_weight_multiplier: float = option(
        'filter_scheduler', 1.0, 'Positive prefers hosts with free vCPUs.'
    )
    disk_weight_multiplier: float = option(
        'filter_scheduler',
        1.0,
        'Positive prefers hosts with free disk.',
        'disk_weight_multiplier',
    )
    io_ops_weight_multiplier: float = option(
        'filter_scheduler',
        -1.0,
        'Negative prefers hosts with little I/O.',
        'io_ops_weight_multiplier',
    )
    num_instances_weight_multiplier: float = option(
        'filter_scheduler', 0.0, 'Negative prefers hosts with few servers.'
    )
    build_failure_weight_multiplier: float = option(
        'filter_scheduler',
        1000000.0,
        'Positive keeps away from hosts whose builds failed of late.',
    )
    hypervisor_version_weight_multiplier: float = option(
        'filter_scheduler', 1.0, 'Positive prefers hosts with newer hypervisors.'
    )
    image_props_weight_multiplier: float = option(
        'filter_scheduler',
        0.0,
        'Positive prefers hosts whose servers have similar images.',
    )
    pci_weight_multiplier: float = option(
        'filter_scheduler',
        1.0,
        'Keeps servers that need no PCI devices off hosts that have them.',
        min=0.0,
    )
    soft_affinity_weight_multiplier: float = option(
        'filter_scheduler',
        1.0,
        'How strongly the servers of a soft-affinity group attract each other.',
        'soft_affinity_weight_multiplier',
        min=0.0,
    )
    soft_anti_affinity_weight_multiplier: float = option(
        'filter_scheduler',
        1.0,
        'How strongly the servers of a soft-anti-affinity group repel each other.',
        'soft_anti_affinity_weight_multiplier',
        min=0.0,
    )
    cross_cell_move_weight_multiplier: float = option(
        'filter_scheduler',
        1000000.0,
        'Positive prefers hosts in the cell that a moving server is in.',
    )

    metrics_weight_multiplier: float = option(
        'metrics', 1.0, 'Scales what the metrics of a host weigh.'
    )
    metrics_weight_setting: tuple[str, ...] = option(
        'metrics', (), 'Weights of metrics, as name=weight.'
    )
    metrics_required: bool = option(
        'metrics', True, 'Whether a host without one of the metrics is an error.'
    )
    metrics_weight_of_unavailable: float = option(
        'metrics',
        -10000.0,
        'What a host weighs that lacks one of the metrics, where they are not'
        ' required.',
    )

    packing_host_numa_cells_allocation_strategy: bool = option(
        'compute',
        False,
        'Put guests on NUMA cells that are used already, before empty ones.',
    )

    disable_fallback_pcpu_query: bool = option(
        'workarounds', False, 'Do not look for hosts that report pinned CPUs as VCPU.'
    )

    cell_timeout: float = option(
        'novasched',
        60.0,
        'Seconds after which a cell that does not answer is left out; other databases'
        ' are waited for as long.',
        min=0.1,
        max=86400.0,
    )
    candidates_max_age: float | None = option(
        'novasched',
        None,
        'Seconds for which an answer of Placement about all hosts serves later'
        ' requests, too. A claim verifies the answer, and before a request is refused'
        ' Placement is asked anew. Default: 3.2 ms for each host, which is the age of'
        ' the data that nova-scheduler claims on, at most 60 s. 0 asks Placement for'
        ' each request.',
        min=0,
    )
    traits_weight_multiplier: float = option(
        'novasched',
        1000.0,
        'Positive prefers hosts with the traits that a flavor has as trait:X=preferred,'
        ' and keeps away from those with trait:X=avoided, and with avoided_traits.',
    )
    avoided_traits: tuple[str, ...] = option(
        'novasched',
        (),
        'Traits of hosts that servers are kept away from while there are others, such'
        ' as CUSTOM_PRESSURE_CPU; not those whose flavor has trait:X=preferred, nor'
        ' where flavor or image require it.',
    )
    failure_domain_key: str = option(
        'novasched',
        'failure_domain',
        'Metadata of aggregates by which FailureDomainFilter and FailureDomainWeigher'
        ' know which hosts fail together, as those of a rack do.',
    )
    failure_domain_weight_multiplier: float = option(
        'novasched',
        0.0,
        'Positive spreads the servers of a server group over failure domains where its'
        ' policy is anti-affinity or soft-anti-affinity, and gathers them in one where'
        ' it is affinity or soft-affinity; 0 does not look at domains.',
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
        'For so many seconds a server counts on the host that was chosen for it, unless'
        ' the host shows it earlier; 0 believes what hosts report, as nova-scheduler'
        ' does.',
        min=0,
    )
    decisions_kept: int = option(
        'novasched',
        500,
        'So many of the newest decision records are kept in the memory of each worker;'
        ' 0 keeps none, neither there nor in the file.',
        min=0,
    )
    decisions_stored: int = option(
        'novasched',
        10_000,
        'So many of the newest decision records are kept in the file.',
        min=1,
    )
    decisions_size: int = option(
        'novasched',
        100,
        'MiB of the file of decision records at the most; before it grows larger, the'
        ' oldest records go.',
        min=1,
    )
    decisions_hash_ids: bool = option(
        'novasched',
        False,
        'Show a keyed hash in place of the ids of projects and users in decision'
        ' records. The key is made when novasched starts, unless decisions_hash_key is'
        ' set.',
    )
    decisions_hash_key: str | None = option(
        'novasched',
        None,
        'Key of the hashes of decisions_hash_ids: with the same key, the same id has'
        ' the same hash after a restart and on other controllers.',
        secret=True,
        repr=False,
    )
    decisions_questions: int = option(
        'novasched',
        20,
        'How often Placement is asked after a request was refused, about one constraint'
        ' each time, to find out what the hosts lack that it did not offer; 0 asks'
        ' never. No request waits for that.',
        min=0,
    )
    fault_detail: str = option(
        'novasched',
        'none',
        "What NoValidHost tells users: none: what nova's does; counts: also how many"
        ' hosts dropped out for which reason.',
        choices=['none', 'counts'],
    )


@dataclass(frozen=True, slots=True)
class Address:
    """A host, by name or number, and a TCP port."""

    host: str
    port: int

    def __str__(self) -> str:
        if ':' in self.host:
            return f'[{self.host}]:{self.port}'
        return f'{self.host}:{self.port}'


@dataclass(frozen=True, slots=True)
class SocketFile:
    """A Unix socket, by the path of its file."""

    path: str

    def __str__(self) -> str:
        return f'unix:{self.path}'


DEFAULT_HEALTH_BIND = SocketFile('/var/lib/nova/novasched/health.sock')


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """The options that configure the process; no decision depends on them."""

    host: str = option(
        'DEFAULT',
        '',
        'Name under which this scheduler listens and appears in the services table.',
        sample_default='<current hostname>',
    )

    workers: int = option(
        'scheduler',
        1,
        'Worker processes. Requests run in threads of each worker, so that one is'
        ' enough for most clouds; 0 means one too.',
        min=0,
    )

    notification_format: str = option(
        'notifications',
        'unversioned',
        'Format of the notifications, for which [oslo_messaging_notifications] driver'
        ' must name a driver.',
        choices=('unversioned', 'versioned', 'both'),
        deprecated_group='DEFAULT',
    )
    versioned_notifications_topics: tuple[str, ...] = option(
        'notifications',
        ('versioned_notifications',),
        'Topics of the notifications in the versioned format.',
    )

    share_pending_claims: bool = option(
        'novasched',
        True,
        'Tell other schedulers of the cloud, over RabbitMQ, which hosts were chosen for'
        ' servers that no host shows yet, and listen to theirs, so that they do not'
        ' collide on NUMA cells, devices and hosts of a server group. Worker processes'
        ' of one host are several, too.',
    )

    http_retries: int = option(
        'neutron', 3, 'How often a connection to Neutron is tried again.', min=0
    )

    max_answer_size: int = option(
        'novasched',
        64,
        'MiB of the largest answer of Placement or Neutron that is read. A larger one'
        ' counts as a failure of the service. Placement sends some 0.6 KiB for each'
        ' candidate.',
        min=1,
    )
    decisions_file: str | None = option(
        'novasched',
        DECISIONS_FILE,
        'SQLite file in which decision records are kept for novaschedctl explain, on a'
        ' local file system; the folder that it is in is made. Empty for no file.',
    )
    tracing_endpoint: str | None = option(
        'novasched',
        None,
        'Where traces of decisions go: the URL of a collector that speaks OTLP over'
        ' HTTP, such as http://localhost:4318; without a path, /v1/traces. Nothing is'
        ' traced unless this is set; novasched[tracing] must be installed.',
    )
    health_bind: Address | SocketFile | None = option(  # noqa: RUF009  (it makes a field)
        'novasched',
        DEFAULT_HEALTH_BIND,  # with the default of state_path
        'Where probes ask for health by HTTP, without a login: unix:/PATH,'
        ' HOST:PORT or [::1]:PORT. Nothing is served if it is empty, or if the'
        ' default cannot be used.',
        written='unix:$state_path/novasched/health.sock',
    )
    metrics_bind: Address | None = option(  # noqa: RUF009  (it makes a field)
        'novasched',
        None,
        'Where metrics for Prometheus are served by HTTP: HOST:PORT or [::1]:PORT.'
        ' Nothing is measured or served unless this is set; novasched[metrics] must be'
        ' installed.',
    )
    page: bool = option(
        'novasched',
        False,
        'Show hosts and decisions as a page, to be read in a browser, where'
        ' metrics_bind says; novasched[page] must be installed.',
    )
    page_remote: bool = option(
        'novasched',
        False,
        'Show the page to whoever reaches metrics_bind, without a login. Otherwise it'
        ' is shown on this machine alone, and through a proxy there.',
    )


Ratios = tuple[tuple[str, float], ...]


def parse_ratios(setting: Iterable[str]) -> tuple[Ratios, tuple[str, ...]]:
    """The pairs of an option that lists ``name=ratio``, such as ``[metrics]
    weight_setting``, in their order, and its elements that are no such pair."""
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
