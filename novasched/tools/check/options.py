# SPDX-License-Identifier: Apache-2.0
"""nova.conf as it is written and as it is understood: names that are unknown, renamed
or useless here, values that cannot be used, and what novasched does differently with
the same file."""

import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import stevedore
from keystoneauth1 import exceptions as ks_exc
from keystoneauth1 import loading as keystone
from oslo_config import cfg
from oslo_db import options as db_options
from oslo_utils.strutils import bool_from_string

from novasched.conf import loading
from novasched.conf.errors import ConfigError, NovaschedError
from novasched.conf.loading import (
    RATIO_OPTIONS,
    Written,
    merged,
    parsed,
    secret_values,
    within,
)
from novasched.conf.redaction import Secrets
from novasched.conf.settings import ServiceSettings, Settings, parse_ratios
from novasched.tools import config_files
from novasched.tools.check.findings import Finding, Level


class NoFile(NovaschedError):
    """For the operator: there is no such file, or none was named and none is found."""


class UnreadableFile(NovaschedError):
    """For the operator: a file breaks off the reading. The text does not quote it."""


@dataclass(frozen=True, slots=True)
class NovaConf:
    """Input of the checks; ``conf`` has every option that the daemon declares."""

    conf: cfg.ConfigOpts
    settings: Settings
    service: ServiceSettings
    timeout: float  # seconds


def files_read(files: Sequence[str], folders: Sequence[str]) -> list[str]:
    """The files that the daemon reads with these arguments, in order: where files alone
    are named, those in its own folders come before them.

    :raises NoFile: there is none, or one that is named is not there.
    """
    for path in (*files, *folders):
        if not Path(path).exists():
            raise NoFile(f'{path}: not found')
    ours = loading.PROJECT, 'novasched'
    named = [*(files or cfg.find_config_files(*ours))]
    inside = [*within(folders or cfg.find_config_dirs(*ours))]
    if not named and not folders:
        raise NoFile('no nova.conf is found; name one with --config-file')
    if files and not folders:
        return [*inside, *named]
    return [*named, *inside]


def load(
    files: Sequence[str], folders: Sequence[str]
) -> tuple[cfg.ConfigOpts, Written]:
    """Read the files as the daemon would, and once more as they are written.

    :raises NoFile: a file is not there, or cannot be opened.
    :raises UnreadableFile: a file is no list of options, or one that was to be read at
        once is bad.
    """
    written = merged(map(read_file, files_read(files, folders)))
    said = io.StringIO()
    try:
        # Values that a command line may also give are read by argparse, which would
        # exit.
        with redirect_stderr(said):
            return loading.load(config_files(files, folders), 'novasched'), written
    except ConfigError as error:
        why = Secrets(secret_values(written)).redact(str(error))
    except SystemExit:
        why = Secrets(secret_values(written)).hide(' '.join(said.getvalue().split()))
    raise UnreadableFile(why)


def read_file(path: str) -> Written:
    """The options of one file. Raises what :func:`load` raises."""
    try:
        return parsed(path)
    except cfg.ParseError as error:
        # Its own text quotes the line, which may hold anything.
        raise UnreadableFile(f'{path}, line {error.lineno}: {error.msg}') from None
    except (OSError, UnicodeDecodeError) as error:
        raise NoFile(
            f'{path}: {getattr(error, "strerror", None) or "no text"}'
        ) from None


Known = Mapping[str, Mapping[str, cfg.Opt]]


def known_options(written: Written) -> Known:
    """Every option; which ones keystoneauth1 has depends on the ``auth_type``
    chosen."""
    known: dict[str, dict[str, cfg.Opt]] = {}

    def add(group: Any, several: Iterable[cfg.Opt]) -> None:
        name = getattr(group, 'name', group) or 'DEFAULT'
        known.setdefault(name, {}).update({option.dest: option for option in several})

    # Libraries that read nova.conf in the daemon.
    names = ['oslo.messaging', 'oslo.log', 'oslo.service.service']
    libraries: stevedore.NamedExtensionManager[Any] = stevedore.NamedExtensionManager(
        'oslo.config.opts', names, invoke_on_load=True
    )
    for options in (loading.list_opts(), *(library.obj or () for library in libraries)):
        for group, several in options:
            add(group, several)
    for group in ('database', 'api_database'):
        add(group, db_options.database_opts)
    for group in ('placement', 'neutron'):
        add(group, _of_keystone(written.get(group, {}).get('auth_type', ())))
    return known


def _of_keystone(auth_types: Sequence[str]) -> Iterator[cfg.Opt]:
    for name in ('password', *auth_types):
        # A name that is wrong is told where Placement is asked.
        with suppress(ks_exc.NoMatchingPlugin):
            yield from keystone.get_auth_plugin_conf_options(name)
    yield from keystone.get_auth_common_conf_options()
    yield from keystone.get_session_conf_options()
    yield from keystone.get_adapter_conf_options()


NOVAS = ('scheduler', 'filter_scheduler', 'metrics')
"""Groups that nova itself declares."""
SCHEDULERS = (
    *NOVAS,
    'novasched',
    'placement',
    'database',
    'api_database',
    'notifications',
    'oslo_messaging_rabbit',
    'oslo_messaging_notifications',
)
"""Groups whose every option a scheduler would read, so that any other name is a
mistake."""
SHARED = ('neutron', 'workarounds', 'compute')
"""Groups that are other services' too: a name is a mistake if it nearly is one of
ours."""

NEAR = 0.6
LIKELY = 0.85
"""How alike a name must be to be proposed, and to be taken for a mistake (difflib)."""

IGNORED: Mapping[tuple[str, str], str] = {
    (
        'filter_scheduler',
        'track_instance_changes',
    ): 'servers are read when a filter asks for them',
    (
        'filter_scheduler',
        'use_baremetal_filters',
    ): 'list the filters in enabled_filters instead',
    (
        'filter_scheduler',
        'baremetal_enabled_filters',
    ): 'list them in enabled_filters instead',
    ('scheduler', 'host_manager'): 'there is one way to keep hosts',
    ('DEFAULT', 'scheduler_host_manager'): 'there is one way to keep hosts',
    (
        'DEFAULT',
        'scheduler_tracks_instance_changes',
    ): 'servers are read when a filter asks',
    (
        'DEFAULT',
        'scheduler_use_baremetal_filters',
    ): 'list the filters in enabled_filters instead',
    (
        'DEFAULT',
        'baremetal_scheduler_default_filters',
    ): 'list them in enabled_filters instead',
    ('DEFAULT', 'scheduler_json_config_location'): 'its file is not read',
    ('scheduler', 'scheduler_json_config_location'): 'its file is not read',
    ('DEFAULT', 'scheduler_manager'): 'there is one manager',
    ('placement', 'os_region_name'): 'set region_name',
    ('placement', 'os_interface'): 'set valid_interfaces',
}
"""Options of some release of nova-scheduler without a use here, and what to do."""

OTHER_SERVICES_OPTIONS: Mapping[str, tuple[str, ...]] = {
    'notifications': (
        'notify_on_state_change',
        'notify_on_api_faults',
        'default_level',
        'default_publisher_id',
        'versioned_notifications_topics',
        'bdms_in_notifications',
        'include_share_mapping',
    ),
    'placement': (
        'randomize_allocation_candidates',
        'policy_file',
        'incomplete_consumer_project_id',
        'incomplete_consumer_user_id',
        'allocation_conflict_retry_count',
    ),
}
"""Options that other services read in the groups above."""

_OPTION_NAME = re.compile(r'\A\w[\w.-]*\Z')


def check_names(written: Written, known: Known) -> Iterator[Finding]:
    """Compare the names in the files with the known ones; options of other services are
    counted."""
    renamed = {
        old: (group, option.dest)
        for group, options in known.items()
        for option in options.values()
        for old in names_of(group, option)[1:]
    }
    of_others = 0
    for group, options in written.items():
        near = get_close_matches(group, SCHEDULERS, 1, LIKELY)
        if near and group not in known and group not in SCHEDULERS:
            yield Finding(
                Level.WARNING, f'[{group}]', f'unknown group; is it [{near[0]}]?'
            )
        for name in options:
            if name in known.get(group, {}):
                continue
            if finding := _of_name(group, name, known, renamed, written):
                yield finding
            else:
                of_others += 1
    if of_others:
        text = f"{of_others} options that a scheduler does not read are other services'"
        yield Finding(Level.OK, 'other options', text)


def names_of(group: str, option: cfg.Opt) -> list[tuple[str, str]]:
    """Groups and names by which an option may be written: its own, then its older
    ones."""
    old = [
        (each.group or group, (each.name or option.name).replace('-', '_'))
        for each in option.deprecated_opts
    ]
    return [
        (group, option.dest),
        *(each for each in old if each != (group, option.dest)),
    ]


def _of_name(
    group: str,
    name: str,
    known: Known,
    renamed: Mapping[tuple[str, str], tuple[str, str]],
    written: Written,
) -> Finding | None:
    """The finding on a name that is none of today's; None if other services may read
    it."""
    subject = f'[{group}] {name}'
    if (group, name) in IGNORED:
        return Finding(Level.NOTE, subject, f'ignored: {IGNORED[group, name]}')
    if (group, name) in renamed:
        new_group, new = renamed[group, name]
        return _deprecated(subject, new_group, new, written)
    if group not in (*SCHEDULERS, *SHARED) or name in OTHER_SERVICES_OPTIONS.get(
        group, ()
    ):
        return None
    least = NEAR if group in SCHEDULERS else LIKELY
    if near := get_close_matches(name, list(known.get(group, {})), 1, least):
        return Finding(Level.WARNING, subject, f'unknown; is it {near[0]}?')
    if group in SHARED:
        return None
    # A broken line may have made anything into a name, a password for instance.
    if _OPTION_NAME.match(name):
        subject = subject
    else:
        subject = f'[{group}] (no name)'
    return Finding(Level.WARNING, subject, 'unknown: nobody reads it')


def _deprecated(subject: str, group: str, name: str, written: Written) -> Finding:
    """An older name; nova forgot those of its scheduler's options, which we still
    obey."""
    text = f'deprecated: the name is [{group}] {name}'
    if name in written.get(group, {}):
        return Finding(Level.NOTE, subject, f'{text}, which is set too and counts')
    if group not in NOVAS:
        return Finding(Level.NOTE, subject, text)
    text += '. It is obeyed here, while recent releases of nova pass it over'
    return Finding(Level.WARNING, subject, text)


def check_values(
    conf: cfg.ConfigOpts, written: Written, known: Known
) -> Iterator[Finding]:
    """Read whatever is written and known. A bad value is replaced by the option's
    default in ``conf``, so that the other checks can go on."""
    for group, options in known.items():
        section = None if group == 'DEFAULT' else group
        for option in options.values():
            if not any(
                name in written.get(place, {})
                for place, name in names_of(group, option)
            ):
                continue
            with suppress(
                cfg.DuplicateOptError
            ):  # then it is declared, with another default
                conf.register_opt(option, section)
            if why := _wrong(conf, option, section):
                conf.set_override(option.dest, option.default, section)
                yield Finding(Level.ERROR, f'[{group}] {option.dest}', why)


def check_together(settings: Settings, written: Written) -> Iterator[Finding]:
    """Values that do not go together, or of which novasched takes a part alone."""
    for field in RATIO_OPTIONS:
        _, bad = parse_ratios(getattr(settings, field))
        if bad:
            yield Finding(
                Level.WARNING, field, f'elements are ignored: {", ".join(bad)}'
            )
    down = written.get('DEFAULT', {}).get('service_down_time')
    if down and str(settings.service_down_time) != down[-1].strip():
        text = (
            f'must be more than report_interval; {settings.service_down_time} s is'
            ' taken for it'
        )
        yield Finding(Level.WARNING, '[DEFAULT] service_down_time', text)


def _wrong(conf: cfg.ConfigOpts, option: cfg.Opt, section: str | None) -> str | None:
    try:
        (conf[section] if section else conf)[option.dest]
    except cfg.ConfigSourceValueError as error:
        if option.secret:
            return 'not valid'
        return str(error).rpartition('is not valid: ')[2]
    except (cfg.NoSuchOptError, cfg.TemplateSubstitutionError):
        return 'holds a $ that names no option; a $ of the value itself is written $$'
    return None


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
OURS = 'FailureDomainFilter'


OF_COMPUTES: Mapping[str, tuple[Level, str]] = {
    'disable_group_policy_check_upcall': (
        Level.NOTE,
        (
            'nova-compute does not look again whether a server group keeps its policy:'
            ' what several schedulers decide at the same moment stands'
        ),
    ),
    'skip_reserve_in_use_ironic_nodes': (
        Level.WARNING,
        (
            'Placement offers ironic nodes as soon as their servers are deleted; take'
            " it out of nova-compute's nova.conf if ironic cleans nodes, which takes"
            ' longer'
        ),
    ),
}
"""Options of ``[workarounds]`` by which nova-compute makes Placement offer what cannot
be had, or does not notice it."""


def check_others_options(
    written: Written, service: ServiceSettings
) -> Iterator[Finding]:
    """Options that other services and libraries read, and that matter to a
    scheduler."""
    for name, (level, text) in OF_COMPUTES.items():
        if _is_on(written, 'workarounds', name):
            yield Finding(level, f'[workarounds] {name}', text)
    if _is_on(written, 'profiler', 'enabled'):
        text = 'OSProfiler is not supported: its traces lack what happens here'
        subject = '[profiler] enabled'
        if service.tracing_endpoint:
            yield Finding(
                Level.NOTE, subject, f'{text}; [novasched] tracing_endpoint gets that'
            )
        else:
            remedy = 'set [novasched] tracing_endpoint for traces by OpenTelemetry'
            yield Finding(Level.WARNING, subject, f'{text}; {remedy}')


def _is_on(written: Written, group: str, name: str) -> bool:
    return bool_from_string((written.get(group, {}).get(name) or ['false'])[-1])


def check_differences(nova_conf: NovaConf) -> Iterator[Finding]:
    """Compare by the options alone; nobody is asked."""
    settings = nova_conf.settings
    workers = nova_conf.service.workers
    seconds = settings.in_flight_timeout
    if seconds > 0:
        text = (
            f'for {seconds:g} s a server counts on the host chosen for it, so that'
            ' requests at once spread; 0 believes what hosts report, as nova-scheduler'
            ' does'
        )
        yield Finding(Level.NOTE, '[novasched] in_flight_timeout', text)
    if settings.driver != 'filter_scheduler':
        text = f'{settings.driver} runs here; nova of today has only filter_scheduler'
        yield Finding(Level.NOTE, '[scheduler] driver', text)
    if not settings.query_placement_for_availability_zone:
        text = (
            'false leaves zones to AvailabilityZoneFilter; nova of today always asks'
            ' Placement'
        )
        yield Finding(
            Level.NOTE, '[scheduler] query_placement_for_availability_zone', text
        )
        if 'AvailabilityZoneFilter' not in settings.enabled_filters:
            text = 'nothing looks at zones, since AvailabilityZoneFilter is not enabled'
            yield Finding(Level.WARNING, '[filter_scheduler] enabled_filters', text)
    for name in settings.enabled_filters:
        if release := REMOVED.get(name):
            text = (
                f'runs here; nova has it no more since release {release}, and does not'
                ' start'
            )
            yield Finding(Level.NOTE, f'filter {name}', text)
        elif name == OURS:
            text = 'runs here; nova has no such filter, and does not start'
            yield Finding(Level.NOTE, f'filter {name}', text)
    if workers > 1:
        text = (
            f'{workers} processes; requests run in threads here, so that one is mostly'
            ' enough'
        )
        yield Finding(Level.NOTE, '[scheduler] workers', text)
