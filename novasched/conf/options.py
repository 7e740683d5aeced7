# SPDX-License-Identifier: Apache-2.0
"""nova's options, as far as a scheduler reads them, made of the fields that they fill.

Each row of ``OPTIONS`` is (group, option). The option's name is also that of its field
of :class:`~novasched.conf.settings.Settings` or
:class:`~novasched.conf.settings.ServiceSettings`; for ``[metrics]`` the group's name
comes in front (:func:`field_of`).
"""

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from oslo_config import cfg, types

from novasched.conf.settings import Address, ServiceSettings, Settings, SocketFile

DRIVER_ALIASES = {
    'nova.scheduler.filter_scheduler.FilterScheduler': 'filter_scheduler',
    'nova.scheduler.caching_scheduler.CachingScheduler': 'caching_scheduler',
    'nova.scheduler.chance.ChanceScheduler': 'chance_scheduler',
}

TRACES_PATH = '/v1/traces'
"""Path at which a collector of OTLP takes traces, unless the URL has another."""
TRAIT = types.String(max_length=255, regex='^[A-Z0-9_]+$')
_NAME = types.HostDomain()
_IPV6 = types.IPAddress(version=6)
_PORT = types.Port(min=1)
_URL = types.URI(schemes=['http', 'https'])


class OptionalType(types.String):
    """A type whose empty value is None.

    :param parse: reads a text that is not empty, or raises ValueError.
    """

    def __init__(self, parse: Callable[[str], object], type_name: str) -> None:
        super().__init__(type_name=type_name)
        self.parse = parse

    def __call__(self, value: object) -> Any:
        text = str(value or '').strip()
        if text:
            return self.parse(text)
        return None


def parse_address(text: str) -> Address:
    """Read ``HOST:PORT`` or ``[::1]:PORT``."""
    host, _, port = text.rpartition(':')
    bracketed = host.startswith('[') and host.endswith(']')
    try:
        if not (port.isascii() and port.isdigit()) or (':' in host and not bracketed):
            raise ValueError
        return Address(
            _IPV6(host[1:-1]) if bracketed else _NAME(host), int(_PORT(port) or 0)
        )
    except ValueError:
        raise ValueError('HOST:PORT or [::1]:PORT is wanted') from None


def parse_bind(text: str) -> Address | SocketFile:
    """Read ``unix:/PATH``, or what :func:`parse_address` reads."""
    scheme, _, path = text.partition(':')
    if scheme == 'unix' and path.startswith(('/', '$')):
        return SocketFile(path)
    try:
        return parse_address(text)
    except ValueError:
        raise ValueError('unix:/PATH, HOST:PORT or [::1]:PORT is wanted') from None


def parse_collector(text: str) -> str:
    """Read the URL of a collector that speaks OTLP over HTTP; the answer has its
    path."""
    try:
        parts = urlsplit(_URL(text))
        is_usable = (
            parts.hostname and parts.port != 0 and not (parts.query or parts.fragment)
        )
    except ValueError:
        is_usable = False
    if not is_usable:  # the text quotes no part of the URL, which may be secret
        raise ValueError('http[s]://HOST[:PORT][/PATH] is wanted')
    return parts._replace(
        path=parts.path if parts.path.strip('/') else TRACES_PATH
    ).geturl()


STATE_PATH = '/var/lib/nova'
PYTHON_PATH = '/usr/lib/python3/dist-packages'
PYBASEDIR_HELP = (
    "Folder of nova's Python package, to which nova's default of state_path refers."
)
ADDRESS = OptionalType(parse_address, 'address and port value')
KINDS: Mapping[str, Callable[..., cfg.Opt]] = {
    'bool': cfg.BoolOpt,
    'int': cfg.IntOpt,
    'float': cfg.FloatOpt,
    'str': cfg.StrOpt,
    'tuple[str, ...]': cfg.ListOpt,
    'Address': partial(cfg.Opt, type=ADDRESS),
    'Address | SocketFile': partial(
        cfg.Opt, type=OptionalType(parse_bind, 'address value')
    ),
    'available_filters': cfg.MultiStrOpt,
    'avoided_traits': partial(cfg.ListOpt, item_type=TRAIT),
    'tracing_endpoint': partial(
        cfg.Opt, type=OptionalType(parse_collector, 'URL value')
    ),
}
"""By the annotation of a field, or its name."""


def field_of(group: str, name: str) -> str:
    """The field of the settings that an option fills."""
    if group == 'metrics':
        return f'metrics_{name}'
    return name


def _option(field: dataclasses.Field[Any]) -> tuple[str, cfg.Opt]:
    rules = dict(field.metadata)
    group = rules.pop('group')
    old = rules.pop('old')
    kind = KINDS.get(field.name) or KINDS[str(field.type).removesuffix(' | None')]
    default = list(field.default) if isinstance(field.default, tuple) else field.default
    default = rules.pop('written', default)
    option = kind(
        field.name.removeprefix('metrics_') if group == 'metrics' else field.name,
        default=None if default == '' else default,
        deprecated_opts=[cfg.DeprecatedOpt(name, group='DEFAULT') for name in old],
        **rules,
    )
    return group, option


OPTIONS: list[tuple[str, cfg.Opt]] = [
    (
        'DEFAULT',
        cfg.StrOpt(
            'state_path', default=STATE_PATH, help="Folder of nova's own files."
        ),
    ),
    ('DEFAULT', cfg.StrOpt('pybasedir', default=PYTHON_PATH, help=PYBASEDIR_HELP)),
    *map(
        _option, (*dataclasses.fields(Settings), *dataclasses.fields(ServiceSettings))
    ),
]
