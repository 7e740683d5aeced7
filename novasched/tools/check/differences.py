# SPDX-License-Identifier: Apache-2.0
"""Options with another meaning in novasched than in nova-scheduler, and options of
other services with an effect on a scheduler."""

from collections.abc import Iterator, Mapping

from oslo_utils.strutils import bool_from_string

from novasched.conf.loading import RATIO_OPTIONS, Written
from novasched.conf.settings import ServiceSettings, Settings, parse_ratios
from novasched.tools.check.findings import Finding, Level
from novasched.tools.check.options import NovaConf

REMOVED: Mapping[str, int] = {
    'TypeAffinityFilter': 17,
    'ExactCoreFilter': 18,
    'ExactDiskFilter': 18,
    'ExactRamFilter': 18,
    'CoreFilter': 20,
    'DiskFilter': 20,
    'RamFilter': 20,
    'RetryFilter': 22,
    'AggregateCoreFilter': 22,
    'AggregateDiskFilter': 22,
    'AggregateRamFilter': 22,
    'AvailabilityZoneFilter': 28,
}
"""Filters that nova has removed, and the first release of nova without the filter."""

OWN_FILTER = 'FailureDomainFilter'

WORKAROUNDS: Mapping[str, tuple[Level, str]] = {
    'disable_group_policy_check_upcall': (
        Level.NOTE,
        'nova-compute does not check the policy of a server group again: a conflict of'
        ' simultaneous decisions of several schedulers stands',
    ),
    'skip_reserve_in_use_ironic_nodes': (
        Level.WARNING,
        'Placement offers ironic nodes as soon as their servers are deleted. If ironic'
        " cleans nodes, remove the option from nova-compute's nova.conf, since cleaning"
        ' takes longer',
    ),
}
"""Options of ``[workarounds]`` with which nova-compute makes Placement offer hosts that
cannot be used, or does not notice a broken policy."""


def check_together(settings: Settings, written: Written) -> Iterator[Finding]:
    """Find contradictory values, and values with ignored elements."""
    for field in RATIO_OPTIONS:
        _, bad = parse_ratios(getattr(settings, field))
        if bad:
            text = f'ignored elements: {", ".join(bad)}'
            yield Finding(Level.WARNING, field, text)

    down_time = written.get('DEFAULT', {}).get('service_down_time')
    if down_time and str(settings.service_down_time) != down_time[-1].strip():
        text = (
            'must be greater than report_interval; novasched uses'
            f' {settings.service_down_time} s'
        )
        yield Finding(Level.WARNING, '[DEFAULT] service_down_time', text)


def check_others_options(
    written: Written, service: ServiceSettings
) -> Iterator[Finding]:
    """Find enabled options of nova-compute and of OSProfiler with an effect on a
    scheduler."""
    for name, (level, text) in WORKAROUNDS.items():
        if _is_enabled(written, 'workarounds', name):
            yield Finding(level, f'[workarounds] {name}', text)

    if _is_enabled(written, 'profiler', 'enabled'):
        text = 'OSProfiler is not supported: its traces lack the scheduler'
        if service.tracing_endpoint:
            level = Level.NOTE
            text += '; [novasched] tracing_endpoint gets the traces of novasched'
        else:
            level = Level.WARNING
            text += '; set [novasched] tracing_endpoint for traces by OpenTelemetry'
        yield Finding(level, '[profiler] enabled', text)


def _is_enabled(written: Written, group: str, name: str) -> bool:
    values = written.get(group, {}).get(name, ())
    return len(values) > 0 and bool_from_string(values[-1])


def check_differences(nova_conf: NovaConf) -> Iterator[Finding]:
    """Find options and filters with another effect than in nova-scheduler."""
    settings = nova_conf.settings
    seconds = settings.in_flight_timeout
    if seconds > 0:
        text = (
            f'novasched counts a new server on its host for up to {seconds:g} s before'
            ' the host reports it, so that simultaneous requests spread; 0 disables'
            ' this, as in nova-scheduler'
        )
        yield Finding(Level.NOTE, '[novasched] in_flight_timeout', text)

    if settings.driver != 'filter_scheduler':
        text = f'{settings.driver} is used; current nova has only filter_scheduler'
        yield Finding(Level.NOTE, '[scheduler] driver', text)

    if not settings.query_placement_for_availability_zone:
        subject = '[scheduler] query_placement_for_availability_zone'
        text = (
            'false leaves zones to AvailabilityZoneFilter; current nova always asks'
            ' Placement'
        )
        yield Finding(Level.NOTE, subject, text)
        if 'AvailabilityZoneFilter' not in settings.enabled_filters:
            subject = '[filter_scheduler] enabled_filters'
            text = 'zones are not checked: AvailabilityZoneFilter is not enabled'
            yield Finding(Level.WARNING, subject, text)

    for name in settings.enabled_filters:
        release = REMOVED.get(name)
        if release:
            text = (
                f'is used; nova has removed the filter in release {release} and does'
                ' not start with it'
            )
            yield Finding(Level.NOTE, f'filter {name}', text)
        elif name == OWN_FILTER:
            text = 'is used; nova has no such filter and does not start with it'
            yield Finding(Level.NOTE, f'filter {name}', text)

    workers = nova_conf.service.workers
    if workers > 1:
        text = (
            f'{workers} processes; requests run in threads, so that one process is'
            ' usually enough'
        )
        yield Finding(Level.NOTE, '[scheduler] workers', text)
