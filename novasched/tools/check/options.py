# SPDX-License-Identifier: Apache-2.0
"""nova.conf, as written and as read by oslo.config: unknown, deprecated and ignored
names, and invalid values."""

import io
import re
from collections.abc import Iterator, Mapping, Sequence
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

from novasched.conf import loading
from novasched.conf.errors import ConfigError, NovaschedError
from novasched.conf.loading import Written, merged, parsed, secret_values, within
from novasched.conf.options import UNSUPPORTED_OPTIONS
from novasched.conf.redaction import Secrets
from novasched.conf.settings import ServiceSettings, Settings
from novasched.tools import config_files
from novasched.tools.check.findings import Finding, Level


class NoFile(NovaschedError):
    """For the operator: a named file does not exist, or no nova.conf is found."""


class UnreadableFile(NovaschedError):
    """For the operator: a file cannot be parsed. The text does not quote the file."""


@dataclass(frozen=True, slots=True)
class NovaConf:
    """Input of the checks.

    :ivar conf: the configuration, with all options of the daemon declared.
    :ivar timeout: how long a server may take to answer, in seconds.
    """

    conf: cfg.ConfigOpts
    settings: Settings
    service: ServiceSettings
    timeout: float


def files_read(files: Sequence[str], folders: Sequence[str]) -> list[str]:
    """The files read by the daemon with these arguments, in order. If only files are
    named, the daemon's default folders come first.

    :raises NoFile: a named file or folder does not exist, or no nova.conf is found.
    """
    for path in (*files, *folders):
        if not Path(path).exists():
            raise NoFile(f'{path}: not found')

    program = (loading.PROJECT, 'novasched')
    named = [*(files or cfg.find_config_files(*program))]
    inside = [*within(folders or cfg.find_config_dirs(*program))]
    if not named and not folders:
        raise NoFile('no nova.conf is found; name one with --config-file')
    if files and not folders:
        return [*inside, *named]
    return [*named, *inside]


def load(
    files: Sequence[str], folders: Sequence[str]
) -> tuple[cfg.ConfigOpts, Written]:
    """The configuration as the daemon loads it, and the options as written.

    :raises NoFile: a file does not exist, or cannot be opened.
    :raises UnreadableFile: a file cannot be parsed, or an option needed for loading has
        an invalid value.
    """
    written = merged(map(read_file, files_read(files, folders)))
    secrets = Secrets(secret_values(written))
    output = io.StringIO()
    try:
        # argparse reads the options that a command line may give. After an invalid
        # value it prints an error and exits.
        with redirect_stderr(output):
            return loading.load(config_files(files, folders), 'novasched'), written
    except ConfigError as error:
        why = secrets.redact(str(error))
    except SystemExit:
        why = secrets.hide(' '.join(output.getvalue().split()))
    raise UnreadableFile(why)


def read_file(path: str) -> Written:
    """The options of one file, as written.

    :raises NoFile: the file cannot be opened, or is no text.
    :raises UnreadableFile: the file cannot be parsed.
    """
    try:
        return parsed(path)
    except cfg.ParseError as error:
        # The text of the error quotes the line, which may hold a password.
        raise UnreadableFile(f'{path}, line {error.lineno}: {error.msg}') from None
    except UnicodeDecodeError:
        raise NoFile(f'{path}: no text') from None
    except OSError as error:
        raise NoFile(f'{path}: {error.strerror or "no text"}') from None


Known = Mapping[str, Mapping[str, cfg.Opt]]
"""Options by group and name."""


def known_options(written: Written) -> Known:
    """All options of the daemon. The options of keystoneauth1 depend on
    ``auth_type``."""
    listed: list[tuple[Any, Sequence[cfg.Opt]]] = [*loading.list_opts()]
    # The libraries that read nova.conf in the daemon.
    names = ['oslo.messaging', 'oslo.log', 'oslo.service.service']
    libraries: stevedore.NamedExtensionManager[Any] = stevedore.NamedExtensionManager(
        'oslo.config.opts', names, invoke_on_load=True
    )
    for library in libraries:
        listed += library.obj or ()
    for group in ('database', 'api_database'):
        listed.append((group, db_options.database_opts))
    for group in loading.CLIENTS:
        auth_types = written.get(group, {}).get('auth_type', ())
        listed.append((group, [*_keystone_options(auth_types)]))
        listed.append((group, loading.adapter_options(group)))
    for group, option in UNSUPPORTED_OPTIONS:
        listed.append((group, [option]))

    known: dict[str, dict[str, cfg.Opt]] = {}
    for group, options in listed:
        # Libraries list a group as a name, as an OptGroup, or as None for DEFAULT.
        name = getattr(group, 'name', group) or 'DEFAULT'
        by_name = known.setdefault(name, {})
        for option in options:
            by_name[option.dest] = option
    return known


def _keystone_options(auth_types: Sequence[str]) -> Iterator[cfg.Opt]:
    for name in ('password', *auth_types):
        # The check of Placement reports an unknown auth_type.
        with suppress(ks_exc.NoMatchingPlugin):
            yield from keystone.get_auth_plugin_conf_options(name)
    yield from keystone.get_auth_common_conf_options()
    yield from keystone.get_session_conf_options()


NOVA_GROUPS = ('scheduler', 'filter_scheduler', 'metrics')
"""Groups whose options nova declares for its scheduler."""
SCHEDULER_GROUPS = (
    *NOVA_GROUPS,
    'novasched',
    'placement',
    'database',
    'api_database',
    'notifications',
    'oslo_messaging_rabbit',
    'oslo_messaging_notifications',
)
"""Groups that a scheduler reads completely, so that an unknown name is a mistake."""

GROUP_SIMILARITY = 0.85
"""How similar (difflib) an unknown group is to a group above if it is misspelt. Lower
values report groups of other services."""

_BAREMETAL = 'without use_baremetal_filters, nova does not read the option either'
_INSTANCES = 'instances are read when a filter needs them'
_HOST_MANAGER = 'novasched has one host manager'
_THREADS = 'novasched has one pool, of [DEFAULT] executor_thread_pool_size'
_URL = 'oslo.messaging has removed the option; set [DEFAULT] transport_url'
IGNORED: Mapping[tuple[str, str], str] = {
    ('filter_scheduler', 'track_instance_changes'): _INSTANCES,
    ('filter_scheduler', 'baremetal_enabled_filters'): _BAREMETAL,
    ('scheduler', 'host_manager'): _HOST_MANAGER,
    ('DEFAULT', 'scheduler_host_manager'): _HOST_MANAGER,
    ('DEFAULT', 'scheduler_tracks_instance_changes'): _INSTANCES,
    ('DEFAULT', 'baremetal_scheduler_default_filters'): _BAREMETAL,
    ('DEFAULT', 'scheduler_json_config_location'): 'the file is not read',
    ('scheduler', 'scheduler_json_config_location'): 'the file is not read',
    ('DEFAULT', 'scheduler_manager'): 'novasched has one manager',
    ('DEFAULT', 'concurrency_backend'): 'novasched has native threads only',
    ('DEFAULT', 'default_green_pool_size'): _THREADS,
    ('DEFAULT', 'default_thread_pool_size'): _THREADS,
    ('DEFAULT', 'cell_worker_thread_pool_size'): _THREADS,
    ('DEFAULT', 'thread_pool_statistic_period'): (
        '[novasched] metrics_bind serves the number of messages in progress'
    ),
    ('DEFAULT', 'manager_shutdown_timeout'): (
        'graceful_shutdown_timeout is the time for requests in progress'
    ),
    ('DEFAULT', 'periodic_fuzzy_delay'): 'periodic tasks begin without a random delay',
    ('DEFAULT', 'rpc_backend'): _URL,
    ('oslo_messaging_rabbit', 'heartbeat_in_pthread'): (
        'heartbeats are always sent by a native thread'
    ),
    ('oslo_messaging_rabbit', 'rabbit_host'): _URL,
    ('oslo_messaging_rabbit', 'rabbit_hosts'): _URL,
    ('oslo_messaging_rabbit', 'rabbit_password'): _URL,
    ('oslo_messaging_rabbit', 'rabbit_port'): _URL,
    ('oslo_messaging_rabbit', 'rabbit_use_ssl'): _URL,
    ('oslo_messaging_rabbit', 'rabbit_userid'): _URL,
    ('oslo_messaging_rabbit', 'rabbit_virtual_host'): _URL,
}
"""Options of nova-scheduler, in any release, that novasched does not use, and the
reason, or the option to set."""
REMOVED_FROM_LIBRARIES = (_URL,)
"""Reasons that are a warning: the value had an effect in older releases."""

HOST_MANAGERS = (
    'host_manager',
    'ironic_host_manager',
    'nova.scheduler.host_manager.HostManager',
    'nova.scheduler.ironic_host_manager.IronicHostManager',
)
"""Host managers of nova up to 17. Placement counts what these managers counted."""

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
"""Options of other services in the groups above."""

_OPTION_NAME = re.compile(r'\A\w[\w.-]*\Z')


def check_names(written: Written, known: Known) -> Iterator[Finding]:
    """Find ignored, deprecated and unknown names, and count the options of other
    services."""
    current_names: dict[tuple[str, str], tuple[str, str]] = {}
    for group, options in known.items():
        for option in options.values():
            for deprecated in names_of(group, option)[1:]:
                current_names[deprecated] = (group, option.dest)

    other_options = 0
    for group, names in written.items():
        if group not in known:
            similar = _similar_group(group)
            if similar:
                text = f'unknown group; is it [{similar}]?'
                yield Finding(Level.WARNING, f'[{group}]', text)

        for name in names:
            if name in known.get(group, {}):
                continue
            subject = f'[{group}] {name}'
            if (group, name) in IGNORED:
                yield _ignored(group, name, names[name])
            elif (group, name) in current_names:
                yield _deprecated(subject, *current_names[group, name], written)
            elif _is_unknown(group, name):
                yield _unknown(group, name, known)
            else:
                other_options += 1

    if other_options:
        text = f'{other_options} options of other services are not checked'
        yield Finding(Level.OK, 'other options', text)


def _similar_group(group: str) -> str | None:
    """The group of a scheduler that an unknown group may stand for. oslo.config tells
    blanks and the case of letters apart."""
    plain = group.strip()
    if plain.upper() == 'DEFAULT':
        return 'DEFAULT'
    similar = get_close_matches(plain.lower(), SCHEDULER_GROUPS, 1, GROUP_SIMILARITY)
    if similar:
        return similar[0]
    return None


def _ignored(group: str, name: str, values: Sequence[str]) -> Finding:
    """A finding on an option of nova-scheduler without an effect."""
    why = IGNORED[group, name]
    level = Level.NOTE
    if why in REMOVED_FROM_LIBRARIES:
        level = Level.WARNING
    if why == _HOST_MANAGER and values[-1].strip() not in HOST_MANAGERS:
        level = Level.WARNING
        why = f'{why}, and {values[-1].strip()} may offer other hosts'
    return Finding(level, f'[{group}] {name}', f'ignored: {why}')


def names_of(group: str, option: cfg.Opt) -> list[tuple[str, str]]:
    """The current group and name of an option, followed by the deprecated groups and
    names."""
    current = (group, option.dest)
    names = [current]
    for deprecated in option.deprecated_opts:
        name = (deprecated.name or option.name).replace('-', '_')
        if (deprecated.group or group, name) != current:
            names.append((deprecated.group or group, name))
    return names


def _deprecated(subject: str, group: str, name: str, written: Written) -> Finding:
    """A finding on a deprecated name.

    :param group: group of the current name.
    :param name: current name.
    """
    if name in written.get(group, {}):
        text = f'deprecated, and overridden by [{group}] {name}'
        return Finding(Level.NOTE, subject, text)

    text = f'deprecated: use [{group}] {name}'
    if group not in NOVA_GROUPS:
        return Finding(Level.NOTE, subject, text)
    # nova has removed the deprecated names of its scheduler's options.
    text += '. novasched still reads the old name, recent releases of nova do not'
    return Finding(Level.WARNING, subject, text)


def _is_unknown(group: str, name: str) -> bool:
    """True if no service reads the option."""
    if group not in SCHEDULER_GROUPS:
        return False
    return name not in OTHER_SERVICES_OPTIONS.get(group, ())


def _unknown(group: str, name: str, known: Known) -> Finding:
    # A broken line may turn anything into a name, even a password.
    if not _OPTION_NAME.match(name):
        return Finding(Level.WARNING, f'[{group}] (no name)', 'unknown option')

    text = 'unknown option'
    similar = get_close_matches(name, [*known.get(group, {})], 1)
    if similar:
        text = f'unknown option; is it {similar[0]}?'
    return Finding(Level.WARNING, f'[{group}] {name}', text)


def check_values(
    conf: cfg.ConfigOpts, written: Written, known: Known
) -> Iterator[Finding]:
    """Read the value of each known and written option. The default replaces an invalid
    value in ``conf``, so later checks can go on."""
    for group, options in known.items():
        section = None if group == 'DEFAULT' else group
        for option in options.values():
            if not _is_written(group, option, written):
                continue
            # The daemon may have declared the option with another default.
            with suppress(cfg.DuplicateOptError):
                conf.register_opt(option, section)
            why = _value_error(conf, option, section)
            if why:
                conf.set_override(option.dest, option.default, section)
                yield Finding(Level.ERROR, f'[{group}] {option.dest}', why)


def _is_written(group: str, option: cfg.Opt, written: Written) -> bool:
    names = names_of(group, option)
    return any(name in written.get(place, {}) for place, name in names)


def _value_error(
    conf: cfg.ConfigOpts, option: cfg.Opt, section: str | None
) -> str | None:
    """The reason why the value of an option is invalid; None if it is valid. The value
    of a secret option is not quoted."""
    try:
        (conf[section] if section else conf)[option.dest]
    except cfg.ConfigSourceValueError as error:
        if option.secret:
            return 'not valid'
        return str(error).rpartition('is not valid: ')[2]
    except (cfg.NoSuchOptError, cfg.TemplateSubstitutionError):
        return 'holds a $ that names no option; a $ of the value itself is written $$'
    return None
