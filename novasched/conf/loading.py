# SPDX-License-Identifier: Apache-2.0
"""Read nova.conf once, and make frozen settings of the options."""

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
from novasched.conf.options import (
    DRIVER_ALIASES,
    OPTIONS,
    UNSUPPORTED_OPTIONS,
    field_of,
)
from novasched.conf.redaction import hide, is_telling, learn, redact
from novasched.conf.settings import ServiceSettings, Settings, parse_ratios

PROJECT = 'nova'
Written = Mapping[str, Mapping[str, Sequence[str]]]
"""Values by group and option; the names have no hyphens."""
_REFERENCE = re.compile(r'(?<![$\\])\$\{?\w')
"""The begin of a reference to another option, which oslo.config substitutes."""
_BAD_VALUE = re.compile(
    r'\AValue for option (\S+) from LocationInfo.* is not valid: (.*)', re.DOTALL
)
"""The error of oslo.config about a value, with the place in the code of oslo.config."""
_VARIABLE = re.compile(r'\AOS_(?=\w+\Z)\w+?__(\w+)')
"""An environment variable that oslo.config takes for an option."""
GRACEFUL_SHUTDOWN_S = 180
"""Default of ``[DEFAULT] graceful_shutdown_timeout`` in seconds, as in nova; the
default of oslo.service is a third."""
HTTP_TIMEOUT_S = 60
"""Default of ``timeout``: seconds until an answer begins, and again until the answer
is complete."""
CLIENTS: Mapping[str, Mapping[str, Any]] = {
    group: {
        'service_type': service_type,
        'valid_interfaces': ['internal', 'public'],
        'timeout': HTTP_TIMEOUT_S,
    }
    for group, service_type in (('placement', 'placement'), ('neutron', 'network'))
}
"""Groups with keystoneauth1 options, and the defaults of nova."""
OLD_ADAPTER_NAMES: Mapping[str, Mapping[str, str]] = {
    'placement': {'region-name': 'os_region_name', 'valid-interfaces': 'os_interface'},
    'neutron': {'endpoint-override': 'url'},
}
"""Names of nova's releases up to Stein, by group and option of keystoneauth1."""
RATIO_OPTIONS = {
    'image_props_weight_setting': 'filter_scheduler.image_props_weight_setting',
    'metrics_weight_setting': 'metrics.weight_setting',
}
"""Option by field of Settings, for options that list ``name=ratio``."""
BAD_REFERENCE = (
    cfg.NoSuchOptError,
    cfg.NoSuchGroupError,
    cfg.TemplateSubstitutionError,
    RecursionError,
)
WHY_DOLLAR = 'a $ in the value must refer to another option; write $$ for a literal $'
MAX_INTEGER = 2**31 - 1
"""Limit of whole numbers; as seconds, 68 years."""
LOG = logging.getLogger('nova.scheduler.utils')


def register(conf: cfg.ConfigOpts) -> None:
    """Declare every option of the daemon on ``conf``."""
    for group, option in (*OPTIONS, *UNSUPPORTED_OPTIONS):
        conf.register_opt(option, group=_section(group))

    logging.register_options(conf)
    set_defaults()
    service_options.register_service_opts(conf)
    report_options.set_defaults(conf)
    conf.register_opts(db_options.database_opts, group='database')
    conf.register_opts(db_options.database_opts, group='api_database')

    for group, defaults in CLIENTS.items():
        loading.register_auth_conf_options(conf, group)
        loading.register_session_conf_options(conf, group)
        conf.register_opts(adapter_options(group), group)
        for name, default in defaults.items():
            conf.set_default(name, default, group=group)


def adapter_options(group: str) -> list[cfg.Opt]:
    """Return the options of keystoneauth1 for an endpoint, with nova's older names."""
    deprecated = {}
    for name, old_name in OLD_ADAPTER_NAMES[group].items():
        deprecated[name] = [cfg.DeprecatedOpt(old_name, group)]
    options: list[cfg.Opt] = loading.get_adapter_conf_options(
        deprecated_opts=deprecated
    )
    return options


def _section(group: str) -> str | None:
    """Return the group as oslo.config expects: None stands for ``[DEFAULT]``."""
    if group == 'DEFAULT':
        return None
    return group


def set_defaults() -> None:
    """Set the defaults of nova for options of libraries.

    oslo-config-generator calls the function as well, before listing the options.
    """
    service_options.set_service_opts_defaults(
        cfg.ConfigOpts(), graceful_shutdown_timeout=GRACEFUL_SHUTDOWN_S
    )


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """Return the declared options by group, for oslo-config-generator.

    oslo.db lists ``[database]`` itself.
    """
    groups: dict[str, list[cfg.Opt]] = {}
    for group, option in OPTIONS:
        groups.setdefault(group, []).append(option)
    groups['api_database'] = list(db_options.database_opts)

    for group, defaults in CLIENTS.items():
        client_options = [
            *loading.get_auth_common_conf_options(),
            *loading.get_auth_plugin_conf_options('password'),
            *loading.get_session_conf_options(),
            *adapter_options(group),
        ]
        # The lists have new objects at each call, so no other caller sees the defaults.
        for client_option in client_options:
            default = defaults.get(client_option.dest, client_option.default)
            client_option.default = default
        groups.setdefault(group, []).extend(client_options)
    return list(groups.items())


def load(args: Sequence[str], prog: str, version: str | None = None) -> cfg.ConfigOpts:
    """Read nova.conf like the services of nova, and learn the secrets in the files.

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
        # The broken line is not shown, since it may contain a secret.
        cause: Any = error.__context__
        if isinstance(cause, cfg.ParseError):
            why = f'line {cause.lineno}: {cause.msg}'
        else:
            why = hide(error.msg)
        raise ConfigError('--config-file', error.config_file, why) from None
    except OSError as error:
        raise ConfigError(
            '--config-file', error.filename, error.strerror or ''
        ) from None
    except UnicodeDecodeError as error:
        files = ', '.join(_files(args, prog))
        raise ConfigError(
            '--config-file', files, f'not UTF-8: {error.reason}'
        ) from None
    except RecursionError:
        # oslo.config follows a reference of an option to itself without end.
        raise _bad_reference(merged(map(parsed, _files(args, prog)))) from None
    except cfg.Error as error:
        raise ConfigError('command line', ' '.join(args), hide(error)) from None

    # From here on, texts of libraries may quote values of options.
    learn(secret_values(_written(conf)))
    learn(secret_values(environment()))
    return conf


def refusal(conf: cfg.ConfigOpts | None, error: Exception) -> str:
    """Return the line for the operator about an error that ends the start."""
    # The error of oslo.config about a reference ($) in an option of a library quotes a
    # part of the value, which may be secret.
    if conf is not None and isinstance(error, BAD_REFERENCE):
        error = _bad_reference(_written(conf))
    if isinstance(error, NovaschedError):
        return redact(str(error))
    bad_value = _BAD_VALUE.match(str(error))
    if bad_value is not None:
        return hide(f'option {bad_value[1]}: {bad_value[2]}')
    return hide(error)


def _files(args: Sequence[str], prog: str) -> list[str]:
    """Return the files that oslo.config reads, for an error that names no file."""
    names: list[str] = []
    for argument in args:
        names += argument.split('=', 1)
    files = list(filter(os.path.isfile, names))
    files += within(filter(os.path.isdir, names))
    return files or cfg.find_config_files(PROJECT, prog)


def _bad_reference(written: Written) -> ConfigError:
    """Return the error about all options that refer to another option by ``$``."""
    names = []
    for group, options in written.items():
        for name, values in options.items():
            if any(map(_REFERENCE.search, values)):
                names.append(f'[{group}] {name}')
    return ConfigError(', '.join(names) or 'an option', '(not shown)', WHY_DOLLAR)


def _written(conf: cfg.ConfigOpts) -> Written:
    files = [*(conf.config_file or []), *within(folders(conf))]
    return merged(map(parsed, files))


def folders(conf: cfg.ConfigOpts) -> list[str]:
    """Return the folders of all ``--config-dir``."""
    # conf.config_dir has only the last folder.
    return list(conf.config_dirs or conf.config_dir or [])


def settings(conf: cfg.ConfigOpts) -> Settings:
    """Return the values on which decisions depend.

    :raises ConfigError: the value of an option is invalid.
    """
    for group, option in UNSUPPORTED_OPTIONS:
        _value(conf, group, option)
    values = _values(conf, Settings)
    for name, shown in RATIO_OPTIONS.items():
        _, bad = parse_ratios(values[name])
        if bad:
            LOG.warning(
                'Ignoring the invalid elements of the option %s: %s',
                shown,
                ', '.join(bad),
            )

    values['driver'] = DRIVER_ALIASES.get(values['driver'], values['driver'])

    # As in nova: with a shorter service_down_time, every service would count as down.
    down_time = values['service_down_time']
    interval = values['report_interval']
    if down_time <= interval:
        values['service_down_time'] = int(2.5 * interval)
        LOG.warning(
            'service_down_time (%d s) must exceed report_interval (%d s), using %d s',
            down_time,
            interval,
            values['service_down_time'],
        )
    return Settings(**values)


def service_settings(conf: cfg.ConfigOpts) -> ServiceSettings:
    """Return the values that configure the process.

    :raises ConfigError: the value of an option is invalid.
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
    """Return the value of each field of the settings.

    :raises ConfigError: a value is invalid, or empty and must not be empty.
    """
    names = {field.name for field in dataclasses.fields(kind)}
    values: dict[str, Any] = {}
    for group, option in OPTIONS:
        name = field_of(group, option.dest)
        if name not in names:
            continue

        shown = f'[{group}] {option.name}'
        value = _value(conf, group, option)
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(shown, value, 'not a finite number')
        if isinstance(value, int) and abs(value) > MAX_INTEGER:
            raise ConfigError(
                shown, value, f'not between -{MAX_INTEGER} and {MAX_INTEGER}'
            )

        if value is None and kind is ServiceSettings:
            continue
        # oslo.config reads an empty text as None where a number is expected.
        if value is None and option.default is not None:
            raise ConfigError(shown, '', 'must not be empty')

        if isinstance(value, list):
            value = tuple(value)
        values[name] = value
    return values


def _value(conf: cfg.ConfigOpts, group: str, option: cfg.Opt) -> Any:
    """Return the value of an option.

    :raises ConfigError: the value is invalid.
    """
    section = _section(group)
    try:
        options = conf[section] if section else conf
        return options[option.dest]
    except ValueError as error:
        # oslo.config raises a subclass of ValueError for an invalid value.
        why = str(error).rpartition('is not valid: ')[2]
        text = _text(conf, group, option)
        raise ConfigError(f'[{group}] {option.name}', text, why) from None


def _text(conf: cfg.ConfigOpts, group: str, option: cfg.Opt) -> str:
    """Return the value of an option as written in the files, for an error.

    Without a value in the files, the default.
    """
    plain = cfg.ConfigOpts()
    section = _section(group)
    text_option = cfg.StrOpt(option.name, deprecated_opts=option.deprecated_opts)
    plain.register_opt(text_option, section)
    files = conf.config_file or []
    plain([], default_config_files=files, default_config_dirs=folders(conf))

    options = plain[section] if section else plain
    written = options[option.dest]
    if written is None:
        written = option.default
    return str(written)


def within(folders: Iterable[str]) -> Iterator[str]:
    """Yield the files in folders of ``--config-dir``, in the order of oslo.config."""
    for folder in folders:
        yield from map(str, sorted(Path(folder).glob('*.conf')))


def parsed(path: str) -> Written:
    """Return the options of a file.

    :raises oslo_config.cfg.ParseError: the error quotes a line, which may contain a
        secret.
    :raises OSError: the file cannot be read.
    :raises UnicodeDecodeError: the file is no text in UTF-8.
    """
    sections: dict[str, dict[str, list[str]]] = {}
    cfg.ConfigParser(os.path.expanduser(path), sections).parse()
    return sections


def merged(files: Iterable[Written]) -> Written:
    """Merge the options of several files; values of later files come last."""
    groups: dict[str, dict[str, list[str]]] = {}
    for sections in files:
        for section, options in sections.items():
            group = groups.setdefault(section, {})
            for name, values in options.items():
                group.setdefault(name.replace('-', '_'), []).extend(values)
    return groups


def secret_values(written: Written) -> Iterator[str]:
    """Yield the values of options that hold a secret, by name or by look."""
    for options in written.values():
        for name, values in options.items():
            for value in values:
                if is_telling(name, value):
                    yield value
                    # With $ unescaped, as oslo.config returns the value.
                    yield value.replace('$$', '$').replace(r'\$', '$')


def environment() -> Written:
    """Return the options in environment variables, in the group ``environment``."""
    options = {}
    for variable, value in os.environ.items():
        match = _VARIABLE.match(variable)
        if match:
            options[match[1].lower()] = [value]
    return {'environment': options}
