# SPDX-License-Identifier: Apache-2.0
"""nova.conf as it is written, and as it is understood."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from oslo_config import cfg

from novasched import conf as configuration
from novasched.conf.written import Written, merged, parsed, secret_values, within
from novasched.errors import ConfigError, NovaschedError
from novasched.model.settings import Settings
from novasched.secrets import Secrets

PROG = 'novasched'


class NoFile(NovaschedError):
    """For the operator: there is no such file, or none was named and none is found."""


class Unreadable(NovaschedError):
    """For the operator: a file breaks off the reading. The text does not quote it."""


@dataclass(frozen=True, slots=True)
class NovaConf:
    """What the checks look at; ``conf`` has every option that the daemon declares."""

    conf: cfg.ConfigOpts
    settings: Settings
    written: Written
    timeout: float  # seconds

    def value(self, group: str, name: str) -> str | None:
        """What the files say for an option, wherever the last of them says it."""
        values = self.written.get(group, {}).get(name)
        return values[-1] if values else None


def load(files: Sequence[str], folders: Sequence[str]) -> tuple[cfg.ConfigOpts, Written]:
    """Read the files as the daemon would, and once more as they are written.

    :raises NoFile: a file is not there, or cannot be opened.
    :raises Unreadable: a file is no list of options, or one that was to be read at once is bad.
    """
    for path in (*files, *folders):
        if not Path(path).exists():
            raise NoFile(f'{path}: not found')
    files = files or ([] if folders else cfg.find_config_files(configuration.PROJECT, PROG))
    if not files and not folders:
        raise NoFile('no nova.conf is found; name one with --config-file')
    written = merged(map(_parsed, [*files, *within(folders)]))
    args = [f'--config-file={path}' for path in files]
    args += [f'--config-dir={path}' for path in folders]
    said = io.StringIO()
    try:
        # Values that a command line may also give are read by argparse, which would exit.
        with contextlib.redirect_stderr(said):
            return configuration.load(args, PROG), written
    except ConfigError as error:
        why = str(error)
    except SystemExit:
        why = ' '.join(said.getvalue().split())
    raise Unreadable(Secrets.of(secret_values(written)).hide(why))


def _parsed(path: str) -> Written:
    try:
        return parsed(path)
    except cfg.ParseError as error:
        # Its own text quotes the line, which may hold anything.
        raise Unreadable(f'{path}, line {error.lineno}: {error.msg}') from None
    except (OSError, UnicodeDecodeError) as error:
        raise NoFile(f'{path}: {getattr(error, "strerror", None) or "no text"}') from None
