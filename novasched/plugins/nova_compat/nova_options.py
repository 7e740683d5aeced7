# SPDX-License-Identifier: Apache-2.0
"""The options of nova's services, for plugins that read them without nova.

``nova_options.json`` lists the options of nova from Newton to 2026.2 that novasched and
its libraries do not declare: kind and default of the newest release with the option,
and older groups and names. The bounds of values are not listed, since the services of
nova check their options.
"""

import json
import socket
from importlib import resources
from typing import Any

from oslo_config import cfg, types
from oslo_utils import netutils

from novasched.conf.redaction import is_telling

KINDS = {
    'bool': types.Boolean,
    'dict': types.Dict,
    'float': types.Float,
    'int': types.Integer,
    'list': types.List,
    'str': types.String,
}


class NovaOpt(cfg.Opt):
    """An option of nova, which a plugin may declare again."""

    def __ne__(self, other: object) -> bool:
        # oslo.config refuses the second declaration of an option that is not equal.
        # nova's plugins can declare an option of nova only with nova's declaration.
        return False


class NovaMultiOpt(cfg.MultiStrOpt):
    """An option of nova with several values; see :class:`NovaOpt`."""

    __ne__ = NovaOpt.__ne__


def register(conf: cfg.ConfigOpts) -> None:
    """Declare the options of nova that are not declared yet."""
    listed = resources.files(__package__).joinpath('nova_options.json').read_text()
    for group, options in json.loads(listed).items():
        section = None if group == 'DEFAULT' else group
        for name, declaration in options.items():
            conf.register_opt(_option(name, *declaration), section)

    conf.set_default('host', socket.gethostname())
    conf.set_default('my_ip', netutils.get_my_ipv4())


def _option(
    name: str, kind: str, default: Any, old: list[tuple[str, str]] | None = None
) -> cfg.Opt:
    # The value is hidden if a plugin logs its configuration.
    is_secret = is_telling(name, '')
    rules: dict[str, Any] = {
        'default': default,
        'deprecated_opts': [],
        'secret': is_secret,
    }
    for group, old_name in old or ():
        rules['deprecated_opts'].append(cfg.DeprecatedOpt(old_name, group))
    if kind == 'multi':
        return NovaMultiOpt(name, **rules)
    return NovaOpt(name, type=KINDS[kind](), **rules)
