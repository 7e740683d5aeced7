# SPDX-License-Identifier: Apache-2.0
"""Where a socket listens, as nova.conf says it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from oslo_config import types

MOST = 65_535
_FORM = re.compile(
    r'(?:\[(?P<six>[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*)\]|(?P<host>[A-Za-z0-9._-]+)):(?P<port>[0-9]{1,5})'
)


@dataclass(frozen=True, slots=True)
class Address:
    """A host, by name or number, and a TCP port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f'[{self.host}]:{self.port}' if ':' in self.host else f'{self.host}:{self.port}'


class AddressType(types.ConfigType):
    """``HOST:PORT`` or ``[::1]:PORT``; what is empty is None."""

    def __init__(self) -> None:
        super().__init__(type_name='address and port value')

    def __call__(self, value: object) -> Address | None:
        """:raises ValueError: it is neither of these."""
        text = str(value or '').strip()
        if not text:
            return None
        if not (found := _FORM.fullmatch(text)) or not 0 < int(found['port']) <= MOST:
            raise ValueError('HOST:PORT or [::1]:PORT is wanted')
        return Address(found['six'] or found['host'], int(found['port']))

    def __repr__(self) -> str:
        return 'Address'

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def _formatter(self, value: object) -> str:
        return str(value)
