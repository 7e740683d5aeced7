# SPDX-License-Identifier: Apache-2.0
"""nova.conf: declared here, read once, handed on as a frozen Settings."""

from __future__ import annotations

import dataclasses
import math
import os
import re
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from keystoneauth1 import loading
from oslo_config import cfg
from oslo_db import options as db_options
from oslo_log import log as logging
from oslo_reports import opts as report_options
from oslo_service import opts as service_options

from novasched.conf.address import Address
from novasched.conf.options import DRIVER_ALIASES, OPTIONS, field_of
from novasched.conf.written import (
    Written,
    environment,
    leading_back,
    merged,
    parsed,
    referring,
    secret_values,
    within,
)
from novasched.connections import TIMEOUT
from novasched.errors import ConfigError
from novasched.model import ratios
from novasched.model.settings import Settings
from novasched.secrets import hide, learn

PROJECT = 'nova'
CLIENTS = (('placement', 'placement'), ('neutron', 'network'))
"""The groups that keystoneauth1 reads, and the services that they are for."""
RATIOS = ('metrics_weight_setting', 'image_props_weight_setting')
"""The fields of Settings that list ``name=ratio``."""

CIRCLE = 'its value is filled in with its own, by a $; a $ that is meant as such is written $$'
MOST = 2**31 - 1
"""No whole number means anything beyond: in seconds it is longer than a life."""

LOG = logging.getLogger('nova.scheduler.utils')
_FIELDS = frozenset(field.name for field in dataclasses.fields(Settings))


def register(conf: cfg.ConfigOpts) -> None:
    """Declare every option that the daemon reads on ``conf``."""
    for group, option in OPTIONS:
        conf.register_opt(option, group=None if group == 'DEFAULT' else group)
    logging.register_options(conf)
    service_options.register_service_opts(conf)
    report_options.set_defaults(conf)
    conf.register_opts(db_options.database_opts, group='database')
    conf.register_opts(db_options.database_opts, group='api_database')
    for group, service_type in CLIENTS:
        loading.register_auth_conf_options(conf, group)
        loading.register_session_conf_options(conf, group)
        loading.register_adapter_conf_options(conf, group)
        conf.set_default('service_type', service_type, group=group)
        conf.set_default('valid_interfaces', ['internal', 'public'], group=group)
        conf.set_default('timeout', TIMEOUT, group=group)


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """The options declared here, for oslo-config-generator. ``[database]`` is oslo.db's own."""
    groups: dict[str, list[cfg.Opt]] = {}
    for group, option in OPTIONS:
        groups.setdefault(group, []).append(option)
    groups['api_database'] = list(db_options.database_opts)
    for group, service_type in CLIENTS:
        known = [
            *loading.get_auth_common_conf_options(),
            *loading.get_auth_plugin_conf_options('password'),
            *loading.get_session_conf_options(),
            *loading.get_adapter_conf_options(),
        ]
        shown = {
            'service_type': service_type,
            'valid_interfaces': ['internal', 'public'],
            'timeout': TIMEOUT,
        }
        for each in known:
            if each.dest in shown:
                each.default = shown[each.dest]
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
        raise ConfigError('--config-file', ', '.join(error.config_files), 'not found') from None
    except cfg.ConfigFileParseError as error:
        raise ConfigError('--config-file', error.config_file, _where(error)) from None
    except OSError as error:
        raise ConfigError('--config-file', error.filename, error.strerror or '') from None
    except UnicodeDecodeError:
        raise ConfigError('--config-file', _no_text(args, prog), 'it is no UTF-8') from None
    except RecursionError:
        raise _circle(merged(map(parsed, _files(args, prog)))) from None
    except cfg.Error as error:
        raise ConfigError('command line', ' '.join(args), hide(error)) from None
    learn(secret_values(_written(conf)))
    learn(secret_values(environment()))
    return conf


def refusal(conf: cfg.ConfigOpts | None, error: Exception) -> str:
    """What an error that ends the start tells the operator. One of oslo.config's own is that
    of an option that is read where nobody expects it to be wrong: one with a ``$``."""
    if conf is not None and isinstance(error, RecursionError):
        return str(_circle(_written(conf)))
    lost = (cfg.NoSuchOptError, cfg.NoSuchGroupError, cfg.TemplateSubstitutionError)
    if conf is None or not isinstance(error, lost):
        return hide(error)
    names = referring(_written(conf), set(re.findall(r'\w+', str(error))))
    why = 'a $ in it names no option; a $ that is meant as such is written $$'
    return str(ConfigError(', '.join(names) or 'an option', '(not shown)', why))


def _where(error: cfg.ConfigFileParseError) -> str:
    """The place of a broken line. The line may hold anything, so it is not shown."""
    cause = error.__context__
    if isinstance(cause, cfg.ParseError):
        return f'line {cause.lineno}: {cause.msg}'
    return hide(error.msg)


def _no_text(args: Sequence[str], prog: str) -> str:
    """The file that could not be decoded, which the error does not name."""
    for path in _files(args, prog):
        try:
            Path(path).read_text()
        except UnicodeDecodeError:
            return path
        except OSError:
            continue
    return ' '.join(args)


def _files(args: Sequence[str], prog: str) -> list[str]:
    """Those that oslo.config takes, for an error of which it does not say in which it is."""
    named = [part for each in args for part in each.split('=', 1)]
    folders = [*cfg.find_config_dirs(PROJECT, prog), *filter(os.path.isdir, named)]
    files = [*cfg.find_config_files(PROJECT, prog), *filter(os.path.isfile, named)]
    return [*files, *within(folders)]


def _circle(written: Written) -> ConfigError:
    """What is to be said of options that oslo.config fills in without end."""
    return ConfigError(', '.join(leading_back(written)) or 'an option', '(not shown)', CIRCLE)


def _written(conf: cfg.ConfigOpts) -> Written:
    files = [*(conf.config_file or []), *within(conf.config_dir or [])]
    return merged(map(parsed, files))


def settings(conf: cfg.ConfigOpts) -> Settings:
    """The values in force.

    :raises ConfigError: an option's value is not valid.
    """
    values: dict[str, Any] = {}
    for group, option in OPTIONS:
        value = _read(conf, group, option)
        name = field_of(group, option.dest)
        if name in _FIELDS:
            if value is None and option.default is not None:  # so oslo.config reads a number
                raise ConfigError(f'[{group}] {option.name}', '', 'it is empty')
            values[name] = tuple(value) if isinstance(value, list) else value
            if name in RATIOS:
                _warn_of_nonsense(f'{group}.{option.dest}', values[name])
    values['driver'] = DRIVER_ALIASES.get(values['driver'], values['driver'])
    values['service_down_time'] = _down_time(values['service_down_time'], values['report_interval'])
    return Settings(**values)


def _down_time(seconds: int, interval: int) -> int:
    """``service_down_time``; one that no service's heartbeats could keep is made longer."""
    if seconds > interval:
        return seconds
    longer = int(2.5 * interval)
    LOG.warning(
        'service_down_time (%d s) must be more than report_interval (%d s); taking %d s for it',
        seconds,
        interval,
        longer,
    )
    return longer


def _warn_of_nonsense(option: str, value: Sequence[str]) -> None:
    _, bad = ratios.parse(value)
    if bad:
        LOG.warning('Ignoring the invalid elements of the option %s: %s', option, ', '.join(bad))


def host(conf: cfg.ConfigOpts) -> str:
    """``[DEFAULT] host``, by default the machine's name."""
    return conf.host or socket.gethostname()


def decisions_file(conf: cfg.ConfigOpts) -> str | None:
    """``[novasched] decisions_file``; None where nova.conf has none."""
    path: str | None = conf.novasched.decisions_file
    return path or None


def tracing_endpoint(conf: cfg.ConfigOpts) -> str | None:
    """``[novasched] tracing_endpoint`` in full; None where nothing is traced."""
    url: str | None = conf.novasched.tracing_endpoint
    return url


def metrics_bind(conf: cfg.ConfigOpts) -> Address | None:
    """``[novasched] metrics_bind``; None where metrics are off.

    :raises ConfigError: it is no address.
    """
    address: Address | None = _own(conf, 'metrics_bind')
    return address


def page(conf: cfg.ConfigOpts) -> bool:
    """``[novasched] page``.

    :raises ConfigError: it is neither true nor false.
    """
    return bool(_own(conf, 'page'))


def page_remote(conf: cfg.ConfigOpts) -> bool:
    """``[novasched] page_remote``.

    :raises ConfigError: it is neither true nor false.
    """
    return bool(_own(conf, 'page_remote'))


def _own(conf: cfg.ConfigOpts, name: str) -> Any:
    """An option of ours that fills no field of Settings."""
    return _read(conf, 'novasched', next(each for _, each in OPTIONS if each.dest == name))


def _read(conf: cfg.ConfigOpts, group: str, option: cfg.Opt) -> Any:
    section = conf if group == 'DEFAULT' else conf[group]
    try:
        value = section[option.dest]
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f'[{group}] {option.name}', value, 'is no finite number')
        if isinstance(value, int) and abs(value) > MOST:
            raise ConfigError(f'[{group}] {option.name}', value, f'is not within {MOST}')
        return value
    except cfg.ConfigSourceValueError as error:
        name = f'[{group}] {option.name}'
        why = str(error).rpartition('is not valid: ')[2]
        raise ConfigError(name, _text(conf, group, option), why) from None


def _text(conf: cfg.ConfigOpts, group: str, option: cfg.Opt) -> str:
    """An option's value as it stands in the files, for the text of an error."""
    plain = cfg.ConfigOpts()
    section = None if group == 'DEFAULT' else group
    plain.register_opt(cfg.StrOpt(option.name, deprecated_opts=option.deprecated_opts), section)
    files, folders = conf.config_file or [], conf.config_dir or []
    plain([], default_config_files=files, default_config_dirs=folders)
    return str((plain[section] if section else plain)[option.dest])
