# SPDX-License-Identifier: Apache-2.0
"""nova.conf as it is written and as it is understood, and the options that there are."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
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
from novasched.conf.redaction import Secrets
from novasched.conf.settings import ServiceSettings, Settings
from novasched.tools import config_files


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


def load(files: Sequence[str], folders: Sequence[str]) -> tuple[cfg.ConfigOpts, Written]:
    """Read the files as the daemon would, and once more as they are written.

    :raises NoFile: a file is not there, or cannot be opened.
    :raises UnreadableFile: a file is no list of options, or one that was to be read at once is bad.
    """
    for path in (*files, *folders):
        if not Path(path).exists():
            raise NoFile(f'{path}: not found')
    files = files or ([] if folders else cfg.find_config_files(loading.PROJECT, 'novasched'))
    if not files and not folders:
        raise NoFile('no nova.conf is found; name one with --config-file')
    written = merged(map(_parsed, [*files, *within(folders)]))
    said = io.StringIO()
    try:
        # Values that a command line may also give are read by argparse, which would exit.
        with contextlib.redirect_stderr(said):
            return loading.load(config_files(files, folders), 'novasched'), written
    except ConfigError as error:
        why = Secrets.of(secret_values(written)).redact(str(error))
    except SystemExit:
        why = Secrets.of(secret_values(written)).hide(' '.join(said.getvalue().split()))
    raise UnreadableFile(why)


def _parsed(path: str) -> Written:
    try:
        return parsed(path)
    except cfg.ParseError as error:
        # Its own text quotes the line, which may hold anything.
        raise UnreadableFile(f'{path}, line {error.lineno}: {error.msg}') from None
    except (OSError, UnicodeDecodeError) as error:
        raise NoFile(f'{path}: {getattr(error, "strerror", None) or "no text"}') from None


Known = Mapping[str, Mapping[str, cfg.Opt]]


def known_options(written: Written) -> Known:
    """Every option; which ones keystoneauth1 has depends on the ``auth_type`` chosen."""
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
