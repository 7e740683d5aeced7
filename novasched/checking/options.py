# SPDX-License-Identifier: Apache-2.0
"""Options that are unknown, have a newer name, or mean nothing here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches

from oslo_config import cfg

from novasched.checking.differences import UNSERVED
from novasched.checking.finding import Finding, Level
from novasched.checking.known import Known
from novasched.conf.written import Written

AREA = 'options'
SCHEDULERS = (
    'scheduler',
    'filter_scheduler',
    'metrics',
    'novasched',
    'placement',
    'database',
    'api_database',
    'notifications',
    'oslo_messaging_rabbit',
    'oslo_messaging_notifications',
)
"""Groups whose every option a scheduler would read, so that any other name is a mistake."""
SHARED = ('neutron', 'workarounds', 'compute')
"""Groups that are other services' too: a name is a mistake if it nearly is one of ours."""

NOVAS = ('scheduler', 'filter_scheduler', 'metrics')
"""Those that nova itself declares."""

NEAR, LIKELY = 0.6, 0.85
"""How alike a name must be to be proposed, and to be taken for a mistake (difflib)."""

IGNORED: Mapping[tuple[str, str], str] = {
    ('filter_scheduler', 'track_instance_changes'): 'servers are read when a filter asks for them',
    ('filter_scheduler', 'use_baremetal_filters'): 'list the filters in enabled_filters instead',
    ('filter_scheduler', 'baremetal_enabled_filters'): 'list them in enabled_filters instead',
    ('scheduler', 'host_manager'): 'there is one way to keep hosts',
    ('DEFAULT', 'scheduler_host_manager'): 'there is one way to keep hosts',
    ('DEFAULT', 'scheduler_tracks_instance_changes'): 'servers are read when a filter asks',
    ('DEFAULT', 'scheduler_use_baremetal_filters'): 'list the filters in enabled_filters instead',
    ('DEFAULT', 'baremetal_scheduler_default_filters'): 'list them in enabled_filters instead',
    ('DEFAULT', 'scheduler_json_config_location'): 'its file is not read',
    ('scheduler', 'scheduler_json_config_location'): 'its file is not read',
    ('DEFAULT', 'scheduler_manager'): 'there is one manager',
    ('placement', 'os_region_name'): 'set region_name',
    ('placement', 'os_interface'): 'set valid_interfaces',
}
"""Options of some release of nova-scheduler without a use here, and what to do."""

OTHERS: Mapping[str, frozenset[str]] = {
    'notifications': frozenset(
        {
            'notify_on_state_change',
            'notify_on_api_faults',
            'default_level',
            'default_publisher_id',
            'versioned_notifications_topics',
            'bdms_in_notifications',
            'include_share_mapping',
        }
    ),
    'placement': frozenset(
        {
            'randomize_allocation_candidates',
            'policy_file',
            'incomplete_consumer_project_id',
            'incomplete_consumer_user_id',
            'allocation_conflict_retry_count',
        }
    ),
}
"""Options that other services read in the groups above."""

_NAME = re.compile(r'\w[\w.-]*\Z')


def check(written: Written, known: Known) -> Iterator[Finding]:
    """What the names in the files tell; other services' options are only counted."""
    renamed = _renamed(known)
    left_alone = 0
    for group, options in written.items():
        near = get_close_matches(group, SCHEDULERS, 1, LIKELY)
        if near and group not in known and group not in SCHEDULERS:
            yield _finding(Level.WARNING, f'[{group}]', f'unknown group; is it [{near[0]}]?')
        for name in options:
            if name in known.get(group, {}) or (group, name) in UNSERVED:
                continue
            found = list(_of_name(group, name, known, renamed, written))
            yield from found
            left_alone += not found
    if left_alone:
        text = f"{left_alone} options that a scheduler does not read are other services'"
        yield _finding(Level.OK, 'other options', text)


def names_of(group: str, option: cfg.Opt) -> list[tuple[str, str]]:
    """Where an option may be written: by its own name, then by its older ones."""
    old = [
        (each.group or group, (each.name or option.name).replace('-', '_'))
        for each in option.deprecated_opts
    ]
    return [(group, option.dest), *(each for each in old if each != (group, option.dest))]


def _of_name(
    group: str,
    name: str,
    known: Known,
    renamed: Mapping[tuple[str, str], tuple[str, str]],
    written: Written,
) -> Iterator[Finding]:
    subject = f'[{group}] {name}'
    if (group, name) in IGNORED:
        yield _finding(Level.NOTE, subject, f'ignored: {IGNORED[group, name]}')
    elif (group, name) in renamed:
        new_group, new = renamed[group, name]
        yield _deprecated(subject, new_group, new, written)
    elif name not in OTHERS.get(group, ()):
        yield from _unknown(group, name, subject, known.get(group, {}))


def _deprecated(subject: str, group: str, name: str, written: Written) -> Finding:
    """An older name; nova forgot those of its scheduler's options, which we still obey."""
    text = f'deprecated: the name is [{group}] {name}'
    if name in written.get(group, {}):
        return _finding(Level.NOTE, subject, f'{text}, which is set too and counts')
    if group not in NOVAS:
        return _finding(Level.NOTE, subject, text)
    text += '. It is obeyed here, while recent releases of nova pass it over'
    return _finding(Level.WARNING, subject, text)


def _unknown(group: str, name: str, subject: str, known: Iterable[str]) -> Iterator[Finding]:
    if group not in SCHEDULERS and group not in SHARED:
        return
    near = get_close_matches(name, list(known), 1, NEAR if group in SCHEDULERS else LIKELY)
    if near:
        yield _finding(Level.WARNING, subject, f'unknown; is it {near[0]}?')
    elif group in SCHEDULERS:
        # A broken line may have made anything into a name, a password for instance.
        subject = subject if _NAME.match(name) else f'[{group}] (no name)'
        yield _finding(Level.WARNING, subject, 'unknown: nobody reads it')


def _renamed(known: Known) -> Mapping[tuple[str, str], tuple[str, str]]:
    """Each older place of an option, and its place today."""
    return {
        old: (group, option.dest)
        for group, options in known.items()
        for option in options.values()
        for old in names_of(group, option)[1:]
    }


def _finding(level: Level, subject: str, text: str) -> Finding:
    return Finding(AREA, level, subject, text)
