# SPDX-License-Identifier: Apache-2.0
"""nova's options, as far as a scheduler reads them, with their older spellings.

Each row of ``OPTIONS`` is (group, option). The option's name is also the field that it fills of
:class:`~novasched.conf.settings.Settings` or :class:`~novasched.conf.settings.ServiceSettings`,
which holds the default; for ``[metrics]`` the group's name comes in front (:func:`field_of`).
"""

from __future__ import annotations

import dataclasses
from typing import Any
from urllib.parse import urlsplit

from oslo_config import cfg, types

from novasched.conf.settings import Address, ServiceSettings, Settings

DRIVER_ALIASES = {
    'nova.scheduler.filter_scheduler.FilterScheduler': 'filter_scheduler',
    'nova.scheduler.caching_scheduler.CachingScheduler': 'caching_scheduler',
    'nova.scheduler.chance.ChanceScheduler': 'chance_scheduler',
}
ALLOCATION_RATIOS = (('cpu', 'vCPU'), ('ram', 'Memory'), ('disk', 'Disk'))

TRACES_PATH = '/v1/traces'
"""Path at which a collector of OTLP takes traces, unless the URL has another."""

_NAME, _IPV6, _PORT = types.HostDomain(), types.IPAddress(version=6), types.Port(min=1)
_URL = types.URI(schemes=['http', 'https'])

KINDS = {
    'bool': cfg.BoolOpt,
    'int': cfg.IntOpt,
    'float': cfg.FloatOpt,
    'str': cfg.StrOpt,
    'tuple[str, ...]': cfg.ListOpt,
}
"""By the annotation of a field."""
_DEFAULTS = {**dataclasses.asdict(ServiceSettings()), **dataclasses.asdict(Settings())}
_TYPES = {
    field.name: str(field.type).removesuffix(' | None')
    for kind in (ServiceSettings, Settings)
    for field in dataclasses.fields(kind)
}


class OptionalType(types.ConfigType):
    """A type whose empty value is None."""

    def __call__(self, value: object) -> object:
        """:raises ValueError: the value is of another form."""
        text = str(value or '').strip()
        return self.parse(text) if text else None

    def parse(self, text: str) -> object:
        """The value of a text that is not empty; for a subclass."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return type(self).__name__

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def _formatter(self, value: object) -> str:
        return str(value)


class AddressType(OptionalType):
    """``HOST:PORT`` or ``[::1]:PORT``."""

    def __init__(self) -> None:
        super().__init__(type_name='address and port value')

    def parse(self, text: str) -> Address:
        host, _, port = text.rpartition(':')
        bracketed = host.startswith('[') and host.endswith(']')
        try:
            if not (port.isascii() and port.isdigit()) or (':' in host and not bracketed):
                raise ValueError
            return Address(_IPV6(host[1:-1]) if bracketed else _NAME(host), int(_PORT(port) or 0))
        except ValueError:
            raise ValueError('HOST:PORT or [::1]:PORT is wanted') from None


class CollectorType(OptionalType):
    """The URL of a collector that speaks OTLP over HTTP, with its path."""

    def __init__(self) -> None:
        super().__init__(type_name='URL value')

    def parse(self, text: str) -> str:
        try:
            parts = urlsplit(_URL(text))
            is_usable = parts.hostname and parts.port != 0 and not (parts.query or parts.fragment)
        except ValueError:
            is_usable = False
        if not is_usable:  # the text quotes no part of the URL, which may be secret
            raise ValueError('http[s]://HOST[:PORT][/PATH] is wanted')
        return parts._replace(path=parts.path if parts.path.strip('/') else TRACES_PATH).geturl()


def field_of(group: str, name: str) -> str:
    """The field of the settings that an option fills."""
    return f'metrics_{name}' if group == 'metrics' else name


def _opt(
    group: str, name: str, help: str, *old: str, kind: type[cfg.Opt] | None = None, **kwargs: Any
) -> tuple[str, cfg.Opt]:
    """An option with the type and the default of the field that it fills.

    :param old: its spellings in ``[DEFAULT]`` that releases up to Mitaka used.
    """
    field = field_of(group, name)
    default = _DEFAULTS[field]
    option = (kind or KINDS[_TYPES[field]])(
        name,
        default=list(default) if isinstance(default, tuple) else default,
        help=help,
        deprecated_opts=[cfg.DeprecatedOpt(each, group='DEFAULT') for each in old],
        **kwargs,
    )
    return group, option


OPTIONS: list[tuple[str, cfg.Opt]] = [
    ('DEFAULT', cfg.StrOpt('host', sample_default='<current hostname>', help=(
        'Name under which this scheduler listens and appears in the services table.'))),
    ('DEFAULT', cfg.StrOpt('state_path', help=(
        "Folder of nova's own files."))),
    _opt('DEFAULT', 'default_availability_zone',
        'Zone of the hosts that no aggregate puts into one.'),
    _opt('DEFAULT', 'service_down_time',
        'Seconds of silence after which a compute service counts as down.'),
    _opt('DEFAULT', 'report_interval',
        'Seconds between two heartbeats in the services table.', min=1),
    _opt('DEFAULT', 'periodic_enable',
        'Run what is to be done from time to time, the heartbeat apart.'),
    _opt('DEFAULT', 'servicegroup_driver',
        'Where services show that they are up: db, in the services table; mc, in the '
        'memcached of [cache].', choices=['db', 'mc']),
    *(_opt('DEFAULT', f'{name}_allocation_ratio',
        f'{what} allocation ratio of hosts that report none.', min=0.0)
      for name, what in ALLOCATION_RATIOS),
    *(_opt('DEFAULT', f'initial_{name}_allocation_ratio',
        f'{what} allocation ratio where {name}_allocation_ratio is not set.', min=0.0)
      for name, what in ALLOCATION_RATIOS),

    _opt('scheduler', 'driver',
        'Scheduler driver: an entry point of novasched.drivers.', 'scheduler_driver'),
    _opt('scheduler', 'max_attempts',
        'How often a build may be tried; one less is how many alternates are given.',
        'scheduler_max_attempts', min=1),
    _opt('scheduler', 'max_placement_results',
        'Upper limit of the allocation candidates asked of Placement.', min=1),
    _opt('scheduler', 'workers',
        'Worker processes. Requests run in threads of each worker, so that one is enough for '
        'most clouds; 0 means one too.', min=0),
    _opt('scheduler', 'query_placement_for_availability_zone',
        'Let Placement select by zone; false leaves it to AvailabilityZoneFilter.'),
    _opt('scheduler', 'query_placement_for_image_type_support',
        "Ask only for hosts that can run the image's disk format."),
    _opt('scheduler', 'query_placement_for_routed_network_aggregates',
        'Ask only for hosts that reach the segments of the requested networks.'),
    _opt('scheduler', 'limit_tenants_to_placement_aggregate',
        "Ask only for hosts in the aggregates that name the request's project."),
    _opt('scheduler', 'placement_aggregate_required_for_tenants',
        'Refuse projects that no aggregate names.'),
    _opt('scheduler', 'enable_isolated_aggregate_filtering',
        'Keep servers without their traits out of aggregates that require these.'),
    _opt('scheduler', 'image_metadata_prefilter',
        'Ask for the traits that the properties of the image amount to.'),
    _opt('scheduler', 'discover_hosts_in_cells_interval',
        'Seconds between two searches for new computes, to map their hosts to their cells; -1 '
        'leaves that to nova-manage.', min=-1),
    _opt('scheduler', 'periodic_task_interval',
        'Seconds between two refreshes of what caching_scheduler knows.',
        'scheduler_driver_task_period'),

    _opt('filter_scheduler', 'host_subset_size',
        'The host is drawn by lot from this many of the best.',
        'scheduler_host_subset_size', min=1),
    _opt('filter_scheduler', 'shuffle_best_same_weighed_hosts',
        'Shuffle the hosts that share the best weight.'),
    _opt('filter_scheduler', 'available_filters',
        'Where filters may be taken from: all built-in ones, or import paths.',
        'scheduler_available_filters', kind=cfg.MultiStrOpt),
    _opt('filter_scheduler', 'enabled_filters',
        'The filters that run, in this order.', 'scheduler_default_filters'),
    _opt('filter_scheduler', 'weight_classes',
        'The weighers that run: all built-in ones, or import paths.', 'scheduler_weight_classes'),
    _opt('filter_scheduler', 'image_properties_default_architecture',
        'Architecture of the images that name none.'),
    _opt('filter_scheduler', 'max_io_ops_per_host',
        'I/O operations at which IoOpsFilter rejects a host.', 'max_io_ops_per_host', min=0),
    _opt('filter_scheduler', 'max_instances_per_host',
        'Number of instances at which NumInstancesFilter rejects a host.',
        'max_instances_per_host', min=1),
    _opt('filter_scheduler', 'isolated_images',
        'UUIDs of the images that run on isolated hosts alone.', 'isolated_images'),
    _opt('filter_scheduler', 'isolated_hosts',
        'Names of the hosts for isolated images.', 'isolated_hosts'),
    _opt('filter_scheduler', 'restrict_isolated_hosts_to_isolated_images',
        'Keep other images off isolated hosts.', 'restrict_isolated_hosts_to_isolated_images'),
    _opt('filter_scheduler', 'aggregate_image_properties_isolation_namespace',
        'Prefix of the metadata keys that AggregateImagePropertiesIsolation looks at.',
        'aggregate_image_properties_isolation_namespace'),
    _opt('filter_scheduler', 'aggregate_image_properties_isolation_separator',
        'What stands between that prefix and the name of the image property.',
        'aggregate_image_properties_isolation_separator'),
    _opt('filter_scheduler', 'pci_in_placement', 'Ask Placement for PCI devices too.'),
    _opt('filter_scheduler', 'image_props_weight_setting',
        'Weights of image properties, as name=weight.'),
    _opt('filter_scheduler', 'ram_weight_multiplier',
        'Positive prefers hosts with free memory.', 'ram_weight_multiplier'),
    _opt('filter_scheduler', 'cpu_weight_multiplier', 'Positive prefers hosts with free vCPUs.'),
    _opt('filter_scheduler', 'disk_weight_multiplier',
        'Positive prefers hosts with free disk.', 'disk_weight_multiplier'),
    _opt('filter_scheduler', 'io_ops_weight_multiplier',
        'Negative prefers hosts with little I/O.', 'io_ops_weight_multiplier'),
    _opt('filter_scheduler', 'num_instances_weight_multiplier',
        'Negative prefers hosts with few servers.'),
    _opt('filter_scheduler', 'build_failure_weight_multiplier',
        'Positive keeps away from hosts whose builds failed of late.'),
    _opt('filter_scheduler', 'hypervisor_version_weight_multiplier',
        'Positive prefers hosts with newer hypervisors.'),
    _opt('filter_scheduler', 'image_props_weight_multiplier',
        'Positive prefers hosts whose servers have similar images.'),
    _opt('filter_scheduler', 'pci_weight_multiplier',
        'Keeps servers that need no PCI devices off hosts that have them.', min=0.0),
    _opt('filter_scheduler', 'soft_affinity_weight_multiplier',
        'How strongly the servers of a soft-affinity group attract each other.',
        'soft_affinity_weight_multiplier', min=0.0),
    _opt('filter_scheduler', 'soft_anti_affinity_weight_multiplier',
        'How strongly the servers of a soft-anti-affinity group repel each other.',
        'soft_anti_affinity_weight_multiplier', min=0.0),
    _opt('filter_scheduler', 'cross_cell_move_weight_multiplier',
        'Positive prefers hosts in the cell that a moving server is in.'),

    _opt('metrics', 'weight_multiplier', 'Scales what the metrics of a host weigh.'),
    _opt('metrics', 'weight_setting', 'Weights of metrics, as name=weight.'),
    _opt('metrics', 'required', 'Whether a host without one of the metrics is an error.'),
    _opt('metrics', 'weight_of_unavailable',
        'What a host weighs that lacks one of the metrics, where they are not required.'),

    _opt('notifications', 'notification_format',
        'Format of the notifications, for which [oslo_messaging_notifications] driver must '
        'name a driver.', choices=('unversioned', 'versioned', 'both'), deprecated_group='DEFAULT'),
    _opt('notifications', 'versioned_notifications_topics',
        'Topics of the notifications in the versioned format.'),

    _opt('neutron', 'http_retries', 'How often a connection to Neutron is tried again.', min=0),

    _opt('compute', 'packing_host_numa_cells_allocation_strategy',
        'Put guests on NUMA cells that are used already, before empty ones.'),

    _opt('workarounds', 'disable_fallback_pcpu_query',
        'Do not look for hosts that report pinned CPUs as VCPU.'),

    _opt('novasched', 'cell_timeout',
        'Seconds after which a cell that does not answer is left out; other databases are '
        'waited for as long.', min=0.1, max=86400.0),
    _opt('novasched', 'placement_patience',
        'For so many seconds after it was begun a request waits for Placement to work again, '
        'if that fails, before it is refused; 0 refuses at once.', min=0, max=86400.0),
    _opt('novasched', 'database_patience',
        'For so many seconds after it was begun a request waits for a database to work again '
        'that it cannot be decided without, before it is refused; 0 refuses at once.',
        min=0, max=86400.0),
    _opt('novasched', 'in_flight_timeout',
        'For so many seconds a server counts on the host that was chosen for it, unless the '
        'host shows it earlier; 0 believes what hosts report, as nova-scheduler does.', min=0),
    _opt('novasched', 'max_answer_size',
        'MiB of the largest answer of Placement or Neutron that is read. A larger one counts '
        'as a failure of the service. Placement sends some 0.6 KiB for each candidate.', min=1),
    _opt('novasched', 'decisions_kept',
        'So many of the newest decision records are kept in the memory of each worker; 0 '
        'keeps none, neither there nor in the file.', min=0),
    ('novasched', cfg.StrOpt('decisions_file', help=(
        'SQLite file in which decision records are kept for novaschedctl explain, on a local '
        'file system, such as $state_path/decisions.sqlite. None is written unless this is set.'))),
    _opt('novasched', 'decisions_stored',
        'So many of the newest decision records are kept in the file.', min=1),
    _opt('novasched', 'decisions_hash_ids',
        'Show a keyed hash in place of the ids of projects and users in decision records. The '
        'key is made when novasched starts, unless decisions_hash_key is set.'),
    ('novasched', cfg.StrOpt('decisions_hash_key', secret=True, help=(
        'Key of the hashes of decisions_hash_ids: with the same key, the same id has the same '
        'hash after a restart and on other controllers.'))),
    _opt('novasched', 'decisions_questions',
        'How often Placement is asked again, with one constraint less each time, after it '
        'offered nothing, to find out why; 0 asks never. No request waits for that.', min=0),
    _opt('novasched', 'fault_detail',
        "What NoValidHost tells users: none: what nova's does; counts: also how many hosts "
        'dropped out for which reason.', choices=['none', 'counts']),
    ('novasched', cfg.Opt('tracing_endpoint', type=CollectorType(), help=(
        'Where traces of decisions go: the URL of a collector that speaks OTLP over HTTP, such as '
        'http://localhost:4318; without a path, /v1/traces. Nothing is traced unless this is set; '
        'novasched[tracing] must be installed.'))),
    ('novasched', cfg.Opt('metrics_bind', type=AddressType(), help=(
        'Where metrics for Prometheus are served by HTTP: HOST:PORT or [::1]:PORT. Nothing is '
        'measured or served unless this is set; novasched[metrics] must be installed.'))),
    _opt('novasched', 'page',
        'Show hosts and decisions as a page, to be read in a browser, where metrics_bind '
        'says; novasched[page] must be installed.'),
    _opt('novasched', 'page_remote',
        'Show the page to whoever reaches metrics_bind, without a login. Otherwise it is '
        'shown on this machine alone, and through a proxy there.'),
]  # fmt: skip
