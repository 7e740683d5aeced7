# SPDX-License-Identifier: Apache-2.0
"""nova.conf: declared here, read once, handed on as a frozen Settings."""

import dataclasses
import math
import os
import re
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from keystoneauth1 import loading
from oslo_config import cfg
from oslo_db import options as db_options
from oslo_log import log as logging
from oslo_reports import opts as report_options
from oslo_service import opts as service_options

from novasched.conf.errors import ConfigError, NovaschedError
from novasched.conf.options import DRIVER_ALIASES, OPTIONS, field_of
from novasched.conf.redaction import hide, is_telling, learn, redact
from novasched.conf.settings import ServiceSettings, Settings, parse_ratios

PROJECT = 'nova'
Written = Mapping[str, Mapping[str, Sequence[str]]]
"""Group to option to its values; names have no hyphens."""
_REFERENCE = re.compile(r'(?<![$\\])\$\{?\w')
"""The begin of an option's name in the value of another, as oslo.config fills it in."""
_VARIABLE = re.compile(r'\AOS_(?=\w+\Z)\w+?__(\w+)')
"""A variable of the environment that oslo.config takes for an option."""
GRACEFUL_SHUTDOWN_S = 180
"""``[DEFAULT] graceful_shutdown_timeout`` unless set; oslo.service's own is a third of
it."""
HTTP_TIMEOUT_S = 60
"""``timeout`` unless set: seconds for an answer to begin, and as many for the rest of
it."""
CLIENTS: Mapping[str, Mapping[str, Any]] = {
    group: {
        'service_type': service_type,
        'valid_interfaces': ['internal', 'public'],
        'timeout': HTTP_TIMEOUT_S,
    }
    for group, service_type in (('placement', 'placement'), ('neutron', 'network'))
}
"""The groups that keystoneauth1 reads, and nova's defaults for their options."""
RATIO_OPTIONS = {
    'image_props_weight_setting': 'filter_scheduler.image_props_weight_setting',
    'metrics_weight_setting': 'metrics.weight_setting',
}
"""The fields of Settings that list ``name=ratio``, and their options."""
BAD_REFERENCE = (
    cfg.NoSuchOptError,
    cfg.NoSuchGroupError,
    cfg.TemplateSubstitutionError,
    RecursionError,
)
WHY_DOLLAR = (
    'a $ in it names no option or leads back; a $ that is meant as such is written $$'
)
MAX_INTEGER = 2**31 - 1
"""No whole number means anything beyond: in seconds it is longer than a life."""
LOG = logging.getLogger('nova.scheduler.utils')


def register(conf: cfg.ConfigOpts) -> None:
    """Declare every option that the daemon reads on ``conf``."""
    for group, option in OPTIONS:
        conf.register_opt(option, group=None if group == 'DEFAULT' else group)
    logging.register_options(conf)
    set_defaults()
    service_options.register_service_opts(conf)
    report_options.set_defaults(conf)
    conf.register_opts(db_options.database_opts, group='database')
    conf.register_opts(db_options.database_opts, group='api_database')
    for group, defaults in CLIENTS.items():
        loading.register_auth_conf_options(conf, group)
        loading.register_session_conf_options(conf, group)
        loading.register_adapter_conf_options(conf, group)
        for name, default in defaults.items():
            conf.set_default(name, default, group=group)


def set_defaults() -> None:
    """Give options of libraries the defaults that nova's services give them.

    oslo-config-generator calls this, too, before it lists them.
    """
    service_options.set_service_opts_defaults(
        cfg.ConfigOpts(), graceful_shutdown_timeout=GRACEFUL_SHUTDOWN_S
    )


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """The options declared here, for oslo-config-generator. ``[database]`` is oslo.db's
    own."""
    groups: dict[str, list[cfg.Opt]] = {}
    for group, option in OPTIONS:
        groups.setdefault(group, []).append(option)
    groups['api_database'] = list(db_options.database_opts)
    for group, defaults in CLIENTS.items():
        known = [
            *loading.get_auth_common_conf_options(),
            *loading.get_auth_plugin_conf_options('password'),
            *loading.get_session_conf_options(),
            *loading.get_adapter_conf_options(),
        ]
        for each in known:
            each.default = defaults.get(each.dest, each.default)
        groups.setdefault(group, []).extend(known)
    return list(groups.items())


def load(args: Sequence[str], prog: str, version: str | None = None) -> cfg.ConfigOpts:
    """Read nova.conf as nova's own services do, and learn the secrets in it.

    :raises ConfigError: a file cannot be read, or an option's value is not valid.
    """
    conf = cfg.ConfigOpts()
    register(conf)
    try:
        conf(args, project=PROJECT, prog=prog, version=version)
    except cfg.ConfigFilesNotFoundError as error:
        raise ConfigError(
            '--config-file', ', '.join(error.config_files), 'not found'
        ) from None
    except cfg.ConfigFileParseError as error:
        # The broken line may hold anything, so it is not shown.
        cause: Any = error.__context__
        is_line = isinstance(cause, cfg.ParseError)
        why = f'line {cause.lineno}: {cause.msg}' if is_line else hide(error.msg)
        raise ConfigError('--config-file', error.config_file, why) from None
    except OSError as error:
        raise ConfigError(
            '--config-file', error.filename, error.strerror or ''
        ) from None
    except UnicodeDecodeError as error:
        files = ', '.join(_files(args, prog))
        raise ConfigError(
            '--config-file', files, f'it is no UTF-8: {error.reason}'
        ) from None
    except RecursionError:
        raise _bad_reference(merged(map(parsed, _files(args, prog)))) from None
    except cfg.Error as error:
        raise ConfigError('command line', ' '.join(args), hide(error)) from None
    learn(secret_values(_written(conf)))
    learn(secret_values(environment()))
    return conf


def refusal(conf: cfg.ConfigOpts | None, error: Exception) -> str:
    """The line that tells the operator of an error that ends the start. One of
    oslo.config's own is that of an option of a library, which has a ``$``: it quotes a
    part of the value."""
    if conf is not None and isinstance(error, BAD_REFERENCE):
        error = _bad_reference(_written(conf))
    if isinstance(error, NovaschedError):
        return redact(str(error))
    return hide(error)


def _files(args: Sequence[str], prog: str) -> list[str]:
    """The files that oslo.config takes, for an error that does not name its file."""
    named = [part for each in args for part in each.split('=', 1)]
    files = [*filter(os.path.isfile, named), *within(filter(os.path.isdir, named))]
    return files or cfg.find_config_files(PROJECT, prog)


def _bad_reference(written: Written) -> ConfigError:
    """The error of options that by a ``$`` refer to another."""
    names = [
        f'[{group}] {name}'
        for group, options in written.items()
        for name, values in options.items()
        if any(map(_REFERENCE.search, values))
    ]
    return ConfigError(', '.join(names) or 'an option', '(not shown)', WHY_DOLLAR)


def _written(conf: cfg.ConfigOpts) -> Written:
    files = [*(conf.config_file or []), *within(_folders(conf))]
    return merged(map(parsed, files))


def _folders(conf: cfg.ConfigOpts) -> list[str]:
    """The folders that are read: oslo.config's own option has but the last
    ``--config-dir``."""
    return list(conf.config_dirs or conf.config_dir or [])


def settings(conf: cfg.ConfigOpts) -> Settings:
    """The values on which decisions depend.

    :raises ConfigError: an option's value is not valid.
    """
    values = _values(conf, Settings)
    for name, option in RATIO_OPTIONS.items():
        _, bad = parse_ratios(values[name])
        if bad:
            LOG.warning(
                'Ignoring the invalid elements of the option %s: %s',
                option,
                ', '.join(bad),
            )
    values['driver'] = DRIVER_ALIASES.get(values['driver'], values['driver'])
    seconds = values['service_down_time']
    interval = values['report_interval']
    if seconds <= interval:  # which no service's heartbeats could keep
        values['service_down_time'] = int(2.5 * interval)
        LOG.warning(
            'service_down_time (%d s) must be more than report_interval (%d s); taking'
            ' %d s for it',
            seconds,
            interval,
            values['service_down_time'],
        )
    return Settings(**values)


def service_settings(conf: cfg.ConfigOpts) -> ServiceSettings:
    """The values that configure the process.

    :raises ConfigError: an option's value is not valid.
    """
    values = _values(conf, ServiceSettings)
    values['host'] = values.get('host') or socket.gethostname()
    values['workers'] = values.get('workers') or 1
    values['decisions_file'] = values.get('decisions_file') or None
    values.setdefault('health_bind', None)
    return ServiceSettings(**values)


def _values(
    conf: cfg.ConfigOpts, kind: type[Settings | ServiceSettings]
) -> dict[str, Any]:
    """The value of each field of the settings.

    :raises ConfigError: a value is not valid, or is empty and must not be.
    """
    names = {field.name for field in dataclasses.fields(kind)}
    values: dict[str, Any] = {}
    for group, option in OPTIONS:
        name = field_of(group, option.dest)
        if name not in names:
            continue
        shown = f'[{group}] {option.name}'
        try:
            value = (conf if group == 'DEFAULT' else conf[group])[option.dest]
        except ValueError as error:  # oslo.config's own for what nova.conf says is one
            why = str(error).rpartition('is not valid: ')[2]
            raise ConfigError(shown, _text(conf, group, option), why) from None
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(shown, value, 'is no finite number')
        if isinstance(value, int) and abs(value) > MAX_INTEGER:
            raise ConfigError(shown, value, f'is not within {MAX_INTEGER}')
        if value is None and kind is ServiceSettings:
            continue
        if (
            value is None and option.default is not None
        ):  # so oslo.config reads a number
            raise ConfigError(shown, '', 'it is empty')
        values[name] = tuple(value) if isinstance(value, list) else value
    return values


def _text(conf: cfg.ConfigOpts, group: str, option: cfg.Opt) -> str:
    """An option's value as it stands in the files, else its default, for the text of an
    error."""
    plain = cfg.ConfigOpts()
    section = None if group == 'DEFAULT' else group
    plain.register_opt(
        cfg.StrOpt(option.name, deprecated_opts=option.deprecated_opts), section
    )
    files = conf.config_file or []
    plain([], default_config_files=files, default_config_dirs=_folders(conf))
    written = (plain[section] if section else plain)[option.dest]
    return str(option.default if written is None else written)


def within(folders: Iterable[str]) -> Iterator[str]:
    """The files that oslo.config takes from ``--config-dir``, in its order."""
    for folder in folders:
        yield from (str(path) for path in sorted(Path(folder).glob('*.conf')))


def parsed(path: str) -> Written:
    """The options of one file.

    :raises ParseError: oslo.config's; its text quotes a line, which may hold anything.
    :raises OSError: the file cannot be read.
    :raises UnicodeDecodeError: it is no text.
    """
    sections: dict[str, dict[str, list[str]]] = {}
    cfg.ConfigParser(os.path.expanduser(path), sections).parse()
    return sections


def merged(files: Iterable[Written]) -> Written:
    """The options of several files, values of later ones behind those of earlier
    ones."""
    groups: dict[str, dict[str, list[str]]] = {}
    for sections in files:
        for section, options in sections.items():
            group = groups.setdefault(section, {})
            for name, values in options.items():
                group.setdefault(name.replace('-', '_'), []).extend(values)
    return groups


def secret_values(written: Written) -> Iterator[str]:
    """The values of all options that by their name or look hold a secret."""
    for options in written.values():
        for name, values in options.items():
            for value in values:
                if is_telling(name, value):
                    yield from (value, value.replace('$$', '$').replace(r'\$', '$'))


def environment() -> Written:
    """The options that variables of the environment set, all in one group
    ``environment``."""
    named = ((_VARIABLE.match(name), value) for name, value in os.environ.items())
    return {
        'environment': {found[1].lower(): [value] for found, value in named if found}
    }
