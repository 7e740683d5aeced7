# SPDX-License-Identifier: Apache-2.0
"""nova's options, as far as a scheduler reads them, with their older spellings.

Each row of ``OPTIONS`` is (group, option). The option's name is also the field of
:class:`~novasched.model.settings.Settings` that it fills, which holds the default;
options without such a field configure the process and are read where it is built.
"""

from __future__ import annotations

from typing import Any

from oslo_config import cfg

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


def _opt(kind: type[cfg.Opt], name: str, help: str, **kwargs: Any) -> cfg.Opt:
    """An option whose default is that of the field of the same name."""
    default = getattr(_DEFAULTS, name)
    return kind(
        name,
        default=list(default) if isinstance(default, tuple) else default,
        help=help,
        **kwargs,
    )


def _multiplier(name: str, help: str, *old: str) -> tuple[str, cfg.Opt]:
    return 'filter_scheduler', _opt(cfg.FloatOpt, name, help, deprecated_opts=_old(*old))


OPTIONS: list[tuple[str, cfg.Opt]] = [
    ('DEFAULT', cfg.StrOpt('host', sample_default='<current hostname>', help=(
        'Name under which this scheduler listens and appears in the services table.'))),
    ('DEFAULT', _opt(cfg.StrOpt, 'default_availability_zone',
        'Zone of the hosts that no aggregate puts into one.')),
    ('DEFAULT', _opt(cfg.IntOpt, 'service_down_time',
        'Seconds of silence after which a compute service counts as down.')),
    ('DEFAULT', _opt(cfg.IntOpt, 'report_interval',
        'Seconds between two heartbeats in the services table.', min=1)),
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

    ('workarounds', _opt(cfg.BoolOpt, 'disable_fallback_pcpu_query',
        'Do not look for hosts that report pinned CPUs as VCPU.')),

    ('novasched', _opt(cfg.FloatOpt, 'cell_timeout',
        'Seconds after which a cell that does not answer is left out.', min=0.1)),
]  # fmt: skip
