# SPDX-License-Identifier: Apache-2.0
"""What novasched does in another way than nova-scheduler would with the same nova.conf."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from novasched.checking.finding import Finding, Level
from novasched.checking.nova_conf import NovaConf
from novasched.conf.options import OPTIONS
from novasched.model.settings import Settings

AREA = 'differences'

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
"""Filters that nova has no more, and the first of its releases without each."""
ONLY_DRIVER = 'filter_scheduler'

UNSERVED: Mapping[tuple[str, str], tuple[Callable[[str], bool], str]] = {
    ('scheduler', 'discover_hosts_in_cells_interval'): (
        lambda value: value.isdigit() and int(value) > 0,
        'new hosts are not discovered; run nova-manage cell_v2 discover_hosts',
    ),
    ('DEFAULT', 'servicegroup_driver'): (
        lambda value: value != 'db',
        'computes are looked for in the databases, and seem down if they report elsewhere',
    ),
    ('notifications', 'notification_format'): (
        lambda value: True,
        'no notification is sent about the choice of hosts',
    ),
    ('oslo_messaging_notifications', 'driver'): (
        lambda value: value != 'noop',
        'no notification is sent about the choice of hosts',
    ),
}
"""Options that nova-scheduler obeys: the values (as written) that have an effect there, and
what is missing here. One that novasched declares is obeyed here too."""
NOTIFICATIONS = ('notifications', 'notification_format')


def check(nova_conf: NovaConf) -> Iterator[Finding]:
    """Compare by the options alone; nobody is asked."""
    yield from _of_settings(nova_conf.settings)
    yield from _of_filters(nova_conf.settings)
    workers = nova_conf.conf.scheduler.workers
    if workers > 1:
        text = f'{workers} processes; requests run in threads here, so that one is mostly enough'
        yield _note('[scheduler] workers', text)
    for (group, name), (matters, text) in UNSERVED.items():
        value = nova_conf.value(group, name)
        if value is not None and matters(value.strip()) and not _is_served(group, name):
            yield Finding(AREA, Level.WARNING, f'[{group}] {name}', text)


def _of_settings(settings: Settings) -> Iterator[Finding]:
    seconds = settings.in_flight_timeout
    if seconds > 0:
        text = (
            f'for {seconds:g} s a server counts on the host chosen for it, so that requests at '
            'once spread; 0 believes what hosts report, as nova-scheduler does'
        )
        yield _note('[novasched] in_flight_timeout', text)
    if settings.driver != ONLY_DRIVER:
        text = f'{settings.driver} runs here; nova of today has only {ONLY_DRIVER}'
        yield _note('[scheduler] driver', text)
    if not settings.query_placement_for_availability_zone:
        text = 'false leaves zones to AvailabilityZoneFilter; nova of today always asks Placement'
        yield _note('[scheduler] query_placement_for_availability_zone', text)
        if 'AvailabilityZoneFilter' not in settings.enabled_filters:
            text = 'nothing looks at zones, since AvailabilityZoneFilter is not enabled'
            yield Finding(AREA, Level.WARNING, '[filter_scheduler] enabled_filters', text)


def _of_filters(settings: Settings) -> Iterator[Finding]:
    for name in settings.enabled_filters:
        if name in REMOVED:
            text = (
                f'runs here; nova has it no more since release {REMOVED[name]}, and does not start'
            )
            yield _note(f'filter {name}', text)


def _is_served(group: str, name: str) -> bool:
    declared = {(place, option.dest) for place, option in OPTIONS}
    return (group, name) in declared or (
        group == 'oslo_messaging_notifications' and NOTIFICATIONS in declared
    )


def _note(subject: str, text: str) -> Finding:
    return Finding(AREA, Level.NOTE, subject, text)
