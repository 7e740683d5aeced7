# SPDX-License-Identifier: Apache-2.0
"""The options of nova.conf that a scheduler reads, made of the fields of the settings.

Each row of ``OPTIONS`` is (group, option). The fields of
:class:`~novasched.conf.settings.Settings` and
:class:`~novasched.conf.settings.ServiceSettings` have the names of the options; fields
of ``[metrics]`` have the group as prefix (:func:`field_of`).
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
"""Path of an OTLP collector for traces, for a URL without a path."""
TRAIT = types.String(max_length=255, regex='^[A-Z0-9_]+$')
_NAME = types.HostDomain()
_IPV6 = types.IPAddress(version=6)
_PORT = types.Port(min=1)
_URL = types.URI(schemes=['http', 'https'])


class OptionalType(types.String):
    """A type of option whose empty value is None.

    :param parse: parses a text that is not empty, or raises ValueError.
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
    """Parse ``HOST:PORT`` or ``[::1]:PORT``.

    :raises ValueError: the text is no address.
    """
    host, _, port = text.rpartition(':')
    is_bracketed = host.startswith('[') and host.endswith(']')
    is_number = port.isascii() and port.isdigit()
    try:
        if not is_number or (':' in host and not is_bracketed):
            raise ValueError
        if is_bracketed:
            name = _IPV6(host[1:-1])
        else:
            name = _NAME(host)
        return Address(name, int(_PORT(port) or 0))
    except ValueError:
        raise ValueError('expected HOST:PORT or [::1]:PORT') from None


def parse_bind(text: str) -> Address | SocketFile:
    """Parse ``unix:/PATH``, ``HOST:PORT`` or ``[::1]:PORT``.

    :raises ValueError: the text is neither.
    """
    scheme, _, path = text.partition(':')
    if scheme == 'unix' and path.startswith(('/', '$')):
        return SocketFile(path)
    try:
        return parse_address(text)
    except ValueError:
        raise ValueError('expected unix:/PATH, HOST:PORT or [::1]:PORT') from None


def parse_collector(text: str) -> str:
    """Parse the URL of a collector for OTLP over HTTP, and add the default path.

    :raises ValueError: the text is no such URL.
    """
    try:
        parts = urlsplit(_URL(text))
        is_complete = parts.hostname and parts.port != 0
        is_usable = is_complete and not (parts.query or parts.fragment)
    except ValueError:
        is_usable = False
    if not is_usable:
        # The error quotes no part of the URL, which may contain a secret.
        raise ValueError('expected http[s]://HOST[:PORT][/PATH]')

    if not parts.path.strip('/'):
        parts = parts._replace(path=TRACES_PATH)
    return parts.geturl()


STATE_PATH = '/var/lib/nova'
PYTHON_PATH = '/usr/lib/python3/dist-packages'
STATE_PATH_HELP = 'Folder for the files of nova, such as the file of decision records.'
PYBASEDIR_HELP = (
    "Folder of nova's Python package, which the default of state_path in nova names."
)
ADDRESS = OptionalType(parse_address, 'address and port value')
OPTION_TYPES: Mapping[str, Callable[..., cfg.Opt]] = {
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
"""Type of the option by annotation of the field, or by name of the field."""


BAREMETAL = (
    'nova up to 17 takes baremetal_enabled_filters in place of enabled_filters, later '
    'releases ignore the option; list the filters in enabled_filters, and remove the '
    'option'
)
OTHER_TOPIC = (
    'nova up to 15 takes requests from the queue of this name, later releases from the '
    'queue scheduler, as novasched does; remove the option'
)


class OnlyValue(types.String):
    """A type of option that accepts a single value.

    :param why: the reason that a different value is refused.
    """

    def __init__(self, parse: Callable[[Any], object], value: object, why: str) -> None:
        super().__init__(type_name='single value')
        self.parse = parse
        self.value = value
        self.why = why

    def __call__(self, text: Any) -> Any:
        if self.parse(text) != self.value:
            raise ValueError(self.why)
        return self.value


UNSUPPORTED_OPTIONS: list[tuple[str, cfg.Opt]] = [
    (
        'filter_scheduler',
        cfg.Opt(
            'use_baremetal_filters',
            type=OnlyValue(types.Boolean(), False, BAREMETAL),
            default=False,
            deprecated_opts=[
                cfg.DeprecatedOpt('scheduler_use_baremetal_filters', 'DEFAULT')
            ],
        ),
    ),
    (
        'DEFAULT',
        cfg.Opt(
            'scheduler_topic',
            type=OnlyValue(types.String(), 'scheduler', OTHER_TOPIC),
            default='scheduler',
        ),
    ),
]
"""Options of older releases of nova with another effect on decisions than novasched
has. The start ends with a value that has an effect."""


def field_of(group: str, name: str) -> str:
    """Return the field of the settings for an option."""
    if group == 'metrics':
        return f'metrics_{name}'
    return name


def _option(field: dataclasses.Field[Any]) -> tuple[str, cfg.Opt]:
    """Make the option of a field; see :func:`novasched.conf.settings.option`."""
    rules = dict(field.metadata)
    group = rules.pop('group')
    old_names = rules.pop('old')

    option_type = OPTION_TYPES.get(field.name)
    if option_type is None:
        option_type = OPTION_TYPES[str(field.type).removesuffix(' | None')]

    name = field.name
    if group == 'metrics':
        name = name.removeprefix('metrics_')

    default = rules.pop('written', field.default)
    if isinstance(default, tuple):
        default = list(default)
    elif default == '':
        default = None

    deprecated = [cfg.DeprecatedOpt(old, group='DEFAULT') for old in old_names]
    option = option_type(name, default=default, deprecated_opts=deprecated, **rules)
    return group, option


OPTIONS: list[tuple[str, cfg.Opt]] = [
    ('DEFAULT', cfg.StrOpt('state_path', default=STATE_PATH, help=STATE_PATH_HELP)),
    ('DEFAULT', cfg.StrOpt('pybasedir', default=PYTHON_PATH, help=PYBASEDIR_HELP)),
    *map(_option, dataclasses.fields(Settings)),
    *map(_option, dataclasses.fields(ServiceSettings)),
]
