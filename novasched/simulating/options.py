# SPDX-License-Identifier: Apache-2.0
"""Options that are other than nova.conf has them: ``GROUP.NAME=VALUE``."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from oslo_config import cfg

from novasched.conf.options import OPTIONS, field_of
from novasched.errors import ConfigError
from novasched.model.settings import Settings

FLAG = '--set'
DEFAULT = 'DEFAULT'
_FIELDS = {field.name for field in dataclasses.fields(Settings)}
CHANGEABLE = {
    f'{group}.{option.dest}': (group, option)
    for group, option in OPTIONS
    if field_of(group, option.dest) in _FIELDS
}
"""The options that a decision depends on, by the name that they go by here."""


def change(conf: cfg.ConfigOpts, texts: Sequence[str]) -> None:
    """Let options have other values, in memory.

    :raises ConfigError: there is no such option, or a decision does not depend on it, or it
        cannot have the value.
    """
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition('='))
        if not equals:
            raise ConfigError(FLAG, text, 'GROUP.NAME=VALUE is needed')
        if name not in CHANGEABLE:
            raise ConfigError(
                f'{FLAG} {name}', value, 'no decision depends on an option of that name'
            )
        group, option = CHANGEABLE[name]
        given = value.split(',') if isinstance(option, cfg.MultiOpt) else value
        try:
            conf.set_override(option.dest, given, None if group == DEFAULT else group)
        except ValueError as error:
            raise ConfigError(f'{FLAG} {name}', value, str(error)) from None


def pci_aliases(conf: cfg.ConfigOpts) -> Sequence[str]:
    """``[pci] alias``, which nova-api reads."""
    old = [cfg.DeprecatedOpt('pci_alias', group=DEFAULT)]
    conf.register_opt(cfg.MultiStrOpt('alias', default=[], deprecated_opts=old), group='pci')
    aliases: Sequence[str] = conf.pci.alias
    return aliases
