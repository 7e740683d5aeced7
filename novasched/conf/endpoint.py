# SPDX-License-Identifier: Apache-2.0
"""Where traces go: the URL of a collector that speaks OTLP over HTTP."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, urlsplit

from oslo_config import types

TRACES = '/v1/traces'
"""Where a collector takes them, unless the URL says otherwise."""

_BLANK = re.compile(r'[\s\x00-\x1f\x7f]')


class EndpointType(types.ConfigType):
    """The URL in full; what is empty is None."""

    def __init__(self) -> None:
        super().__init__(type_name='URL value')

    def __call__(self, value: object) -> str | None:
        """:raises ValueError: it is no URL, or not one to which anything could be sent."""
        text = str(value or '').strip()
        if not text:
            return None
        parts = _split(text)
        path = parts.path if parts.path.strip('/') else TRACES
        return parts._replace(path=path).geturl()

    def __repr__(self) -> str:
        return 'Endpoint'

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def _formatter(self, value: object) -> str:
        return str(value)


def _split(text: str) -> SplitResult:
    """The parts of a URL. What is wrong is said without a part of it, which may be secret."""
    if _BLANK.search(text):
        raise ValueError('there is a blank in it')
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError('its host or port is none') from None
    if parts.scheme not in ('http', 'https'):
        raise ValueError('http://HOST:PORT or https://HOST:PORT is wanted')
    if not host or port == 0:
        raise ValueError('its host or port is none')
    if parts.query or parts.fragment:
        raise ValueError('it ends with the path, and has neither ? nor #')
    return parts
