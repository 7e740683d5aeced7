# SPDX-License-Identifier: Apache-2.0
"""nova's options, as far as a scheduler reads them, with their older spellings.

Each row of ``OPTIONS`` is (group, option). The option's name is also the field of
:class:`~novasched.model.settings.Settings` that it fills, which holds the default; for
``[metrics]`` the group's name comes in front (:func:`field_of`). Options without such a
field configure the process and are read where it is built.
"""

from __future__ import annotations

from typing import Any

from oslo_config import cfg

from novasched.conf.address import AddressType
from novasched.conf.endpoint import EndpointType
from novasched.model.settings import Settings

DRIVER_ALIASES = {
    'nova.scheduler.filter_scheduler.FilterScheduler': 'filter_scheduler',
    'nova.scheduler.caching_scheduler.CachingScheduler': 'caching_scheduler',
    'nova.scheduler.chance.ChanceScheduler': 'chance_scheduler',
}
RATIOS = (('cpu', 'vCPU'), ('ram', 'Memory'), ('disk', 'Disk'))

_DEFAULTS = Settings()


def _old(*names: str) -> list[cfg.DeprecatedOpt]:
    """The spellings in ``[DEFAULT]`` that releases up to Mitaka used."""
    return [cfg.DeprecatedOpt(name, group='DEFAULT') for name in names]


def field_of(group: str, name: str) -> str:
    """The field of Settings that an option fills, if there is one of that name."""
    return f'metrics_{name}' if group == 'metrics' else name


def _opt(kind: type[cfg.Opt], name: str, help: str, group: str = '', **kwargs: Any) -> cfg.Opt:
    """An option whose default is that of the field that it fills."""
    default = getattr(_DEFAULTS, field_of(group, name))
    return kind(
        name,
        default=list(default) if isinstance(default, tuple) else default,
        help=help,
        **kwargs,
    )


def _multiplier(name: str, help: str, *old: str, **kwargs: Any) -> tuple[str, cfg.Opt]:
    return 'filter_scheduler', _opt(cfg.FloatOpt, name, help, deprecated_opts=_old(*old), **kwargs)


def _metric(kind: type[cfg.Opt], name: str, help: str) -> tuple[str, cfg.Opt]:
    return 'metrics', _opt(kind, name, help, group='metrics')


OPTIONS: list[tuple[str, cfg.Opt]] = [
    ('DEFAULT', cfg.StrOpt('host', sample_default='<current hostname>', help=(
        'Name under which this scheduler listens and appears in the services table.'))),
    ('DEFAULT', cfg.StrOpt('state_path', help=(
        "Folder of nova's own files."))),
    ('DEFAULT', _opt(cfg.StrOpt, 'default_availability_zone',
        'Zone of the hosts that no aggregate puts into one.')),
    ('DEFAULT', _opt(cfg.IntOpt, 'service_down_time',
        'Seconds of silence after which a compute service counts as down.')),
    ('DEFAULT', _opt(cfg.IntOpt, 'report_interval',
        'Seconds between two heartbeats in the services table.', min=1)),
    ('DEFAULT', _opt(cfg.BoolOpt, 'periodic_enable',
        'Run what is to be done from time to time, the heartbeat apart.')),
    ('DEFAULT', _opt(cfg.StrOpt, 'servicegroup_driver',
        'Where services show that they are up: db, in the services table; mc, in the memcached '
        'of [cache].', choices=['db', 'mc'])),
    *(('DEFAULT', _opt(cfg.FloatOpt, f'{name}_allocation_ratio',
        f'{what} allocation ratio of hosts that report none.', min=0.0))
      for name, what in RATIOS),
    *(('DEFAULT', _opt(cfg.FloatOpt, f'initial_{name}_allocation_ratio',
        f'{what} allocation ratio where {name}_allocation_ratio is not set.', min=0.0))
      for name, what in RATIOS),

    ('scheduler', _opt(cfg.StrOpt, 'driver',
        'Scheduler driver: an entry point of novasched.drivers.',
        deprecated_opts=_old('scheduler_driver'))),
    ('scheduler', _opt(cfg.IntOpt, 'max_attempts',
        'How often a build may be tried; one less is how many alternates are given.',
        min=1, deprecated_opts=_old('scheduler_max_attempts'))),
    ('scheduler', _opt(cfg.IntOpt, 'max_placement_results',
        'Upper limit of the allocation candidates asked of Placement.', min=1)),
    ('scheduler', cfg.IntOpt('workers', min=0, default=1, help=(
        'Worker processes. Requests run in threads of each worker, so that one is '
        'enough for most clouds; 0 means one too.'))),
    ('scheduler', _opt(cfg.BoolOpt, 'query_placement_for_availability_zone',
        'Let Placement select by zone; false leaves it to AvailabilityZoneFilter.')),
    ('scheduler', _opt(cfg.BoolOpt, 'query_placement_for_image_type_support',
        "Ask only for hosts that can run the image's disk format.")),
    ('scheduler', _opt(cfg.BoolOpt, 'query_placement_for_routed_network_aggregates',
        'Ask only for hosts that reach the segments of the requested networks.')),
    ('scheduler', _opt(cfg.BoolOpt, 'limit_tenants_to_placement_aggregate',
        "Ask only for hosts in the aggregates that name the request's project.")),
    ('scheduler', _opt(cfg.BoolOpt, 'placement_aggregate_required_for_tenants',
        'Refuse projects that no aggregate names.')),
    ('scheduler', _opt(cfg.BoolOpt, 'enable_isolated_aggregate_filtering',
        'Keep servers without their traits out of aggregates that require these.')),
    ('scheduler', _opt(cfg.BoolOpt, 'image_metadata_prefilter',
        'Ask for the traits that the properties of the image amount to.')),
    ('scheduler', _opt(cfg.IntOpt, 'discover_hosts_in_cells_interval',
        'Seconds between two searches for new computes, to map their hosts to their cells; '
        '-1 leaves that to nova-manage.', min=-1)),
    ('scheduler', _opt(cfg.IntOpt, 'periodic_task_interval',
        'Seconds between two refreshes of what caching_scheduler knows.',
        deprecated_opts=_old('scheduler_driver_task_period'))),

    ('filter_scheduler', _opt(cfg.IntOpt, 'host_subset_size',
        'The host is drawn by lot from this many of the best.',
        min=1, deprecated_opts=_old('scheduler_host_subset_size'))),
    ('filter_scheduler', _opt(cfg.BoolOpt, 'shuffle_best_same_weighed_hosts',
        'Shuffle the hosts that share the best weight.')),
    ('filter_scheduler', _opt(cfg.MultiStrOpt, 'available_filters',
        'Where filters may be taken from: all built-in ones, or import paths.',
        deprecated_opts=_old('scheduler_available_filters'))),
    ('filter_scheduler', _opt(cfg.ListOpt, 'enabled_filters',
        'The filters that run, in this order.',
        deprecated_opts=_old('scheduler_default_filters'))),
    ('filter_scheduler', _opt(cfg.ListOpt, 'weight_classes',
        'The weighers that run: all built-in ones, or import paths.',
        deprecated_opts=_old('scheduler_weight_classes'))),
    ('filter_scheduler', _opt(cfg.StrOpt, 'image_properties_default_architecture',
        'Architecture of the images that name none.')),
    ('filter_scheduler', _opt(cfg.IntOpt, 'max_io_ops_per_host',
        'I/O operations at which IoOpsFilter rejects a host.',
        min=0, deprecated_opts=_old('max_io_ops_per_host'))),
    ('filter_scheduler', _opt(cfg.IntOpt, 'max_instances_per_host',
        'Number of instances at which NumInstancesFilter rejects a host.',
        min=1, deprecated_opts=_old('max_instances_per_host'))),
    ('filter_scheduler', _opt(cfg.ListOpt, 'isolated_images',
        'UUIDs of the images that run on isolated hosts alone.',
        deprecated_opts=_old('isolated_images'))),
    ('filter_scheduler', _opt(cfg.ListOpt, 'isolated_hosts',
        'Names of the hosts for isolated images.',
        deprecated_opts=_old('isolated_hosts'))),
    ('filter_scheduler', _opt(cfg.BoolOpt, 'restrict_isolated_hosts_to_isolated_images',
        'Keep other images off isolated hosts.',
        deprecated_opts=_old('restrict_isolated_hosts_to_isolated_images'))),
    ('filter_scheduler', _opt(cfg.StrOpt, 'aggregate_image_properties_isolation_namespace',
        'Prefix of the metadata keys that AggregateImagePropertiesIsolation looks at.',
        deprecated_opts=_old('aggregate_image_properties_isolation_namespace'))),
    ('filter_scheduler', _opt(cfg.StrOpt, 'aggregate_image_properties_isolation_separator',
        'What stands between that prefix and the name of the image property.',
        deprecated_opts=_old('aggregate_image_properties_isolation_separator'))),
    ('filter_scheduler', _opt(cfg.BoolOpt, 'pci_in_placement',
        'Ask Placement for PCI devices too.')),
    ('filter_scheduler', _opt(cfg.ListOpt, 'image_props_weight_setting',
        'Weights of image properties, as name=weight.')),
    _multiplier('ram_weight_multiplier', 'Positive prefers hosts with free memory.',
        'ram_weight_multiplier'),
    _multiplier('cpu_weight_multiplier', 'Positive prefers hosts with free vCPUs.'),
    _multiplier('disk_weight_multiplier', 'Positive prefers hosts with free disk.',
        'disk_weight_multiplier'),
    _multiplier('io_ops_weight_multiplier', 'Negative prefers hosts with little I/O.',
        'io_ops_weight_multiplier'),
    _multiplier('num_instances_weight_multiplier',
        'Negative prefers hosts with few servers.'),
    _multiplier('build_failure_weight_multiplier',
        'Positive keeps away from hosts whose builds failed of late.'),
    _multiplier('hypervisor_version_weight_multiplier',
        'Positive prefers hosts with newer hypervisors.'),
    _multiplier('image_props_weight_multiplier',
        'Positive prefers hosts whose servers have similar images.'),
    _multiplier('pci_weight_multiplier',
        'Keeps servers that need no PCI devices off hosts that have them.', min=0.0),
    _multiplier('soft_affinity_weight_multiplier',
        'How strongly the servers of a soft-affinity group attract each other.',
        'soft_affinity_weight_multiplier', min=0.0),
    _multiplier('soft_anti_affinity_weight_multiplier',
        'How strongly the servers of a soft-anti-affinity group repel each other.',
        'soft_anti_affinity_weight_multiplier', min=0.0),
    _multiplier('cross_cell_move_weight_multiplier',
        'Positive prefers hosts in the cell that a moving server is in.'),

    _metric(cfg.FloatOpt, 'weight_multiplier', 'Scales what the metrics of a host weigh.'),
    _metric(cfg.ListOpt, 'weight_setting', 'Weights of metrics, as name=weight.'),
    _metric(cfg.BoolOpt, 'required', 'Whether a host without one of the metrics is an error.'),
    _metric(cfg.FloatOpt, 'weight_of_unavailable',
        'What a host weighs that lacks one of the metrics, where they are not required.'),

    ('notifications', cfg.StrOpt('notification_format', default='unversioned',
        choices=('unversioned', 'versioned', 'both'), deprecated_group='DEFAULT', help=(
        'Format of the notifications, for which [oslo_messaging_notifications] driver must '
        'name a driver.'))),
    ('notifications', cfg.ListOpt('versioned_notifications_topics',
        default=['versioned_notifications'], help=(
        'Topics of the notifications in the versioned format.'))),

    ('neutron', cfg.IntOpt('http_retries', min=0, default=3, help=(
        'How often a connection to Neutron is tried again.'))),

    ('compute', _opt(cfg.BoolOpt, 'packing_host_numa_cells_allocation_strategy',
        'Put guests on NUMA cells that are used already, before empty ones.')),

    ('workarounds', _opt(cfg.BoolOpt, 'disable_fallback_pcpu_query',
        'Do not look for hosts that report pinned CPUs as VCPU.')),

    ('novasched', _opt(cfg.FloatOpt, 'cell_timeout',
        'Seconds after which a cell that does not answer is left out; other databases are '
        'waited for as long.', min=0.1, max=86400.0)),
    ('novasched', _opt(cfg.FloatOpt, 'in_flight_timeout',
        'For so many seconds a server counts on the host that was chosen for it, unless the '
        'host shows it earlier; 0 believes what hosts report, as nova-scheduler does.', min=0)),
    ('novasched', _opt(cfg.IntOpt, 'decisions_kept',
        'So many of the newest decision records are kept in the memory of each worker; 0 '
        'keeps none, neither there nor in the file.', min=0)),
    ('novasched', cfg.StrOpt('decisions_file', help=(
        'SQLite file in which decision records are kept for novaschedctl explain, on a local '
        'file system, such as $state_path/decisions.sqlite. None is written unless this is set.'))),
    ('novasched', _opt(cfg.IntOpt, 'decisions_stored',
        'So many of the newest decision records are kept in the file.', min=1)),
    ('novasched', _opt(cfg.BoolOpt, 'decisions_hash_ids',
        'Show a hash in place of the ids of projects and users in decision records.')),
    ('novasched', _opt(cfg.IntOpt, 'decisions_questions',
        'How often Placement is asked again, with one constraint less each time, after it '
        'offered nothing, to find out why; 0 asks never. No request waits for that.', min=0)),
    ('novasched', _opt(cfg.StrOpt, 'fault_detail',
        "What NoValidHost tells users: none: what nova's does; counts: also how many hosts "
        'dropped out for which reason.', choices=['none', 'counts'])),
    ('novasched', cfg.Opt('tracing_endpoint', type=EndpointType(), help=(
        'Where traces of decisions go: the URL of a collector that speaks OTLP over HTTP, such as '
        'http://localhost:4318; without a path, /v1/traces. Nothing is traced unless this is set; '
        'novasched[tracing] must be installed.'))),
    ('novasched', cfg.Opt('metrics_bind', type=AddressType(), help=(
        'Where metrics for Prometheus are served by HTTP: HOST:PORT or [::1]:PORT. Nothing is '
        'measured or served unless this is set; novasched[metrics] must be installed.'))),
    ('novasched', cfg.BoolOpt('page', default=False, help=(
        'Show hosts and decisions as a page, to be read in a browser, where metrics_bind says; '
        'novasched[page] must be installed.'))),
    ('novasched', cfg.BoolOpt('page_remote', default=False, help=(
        'Show the page to whoever reaches metrics_bind, without a login. Otherwise it is shown '
        'on this machine alone, and through a proxy there.'))),
]  # fmt: skip
