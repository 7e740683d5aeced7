# SPDX-License-Identifier: Apache-2.0
"""ImagePropertiesFilter: the host's hypervisor can run the image.

An image may name an architecture, a hypervisor type and a virtual machine mode; the
host lists the triples that it supports. It may also ask for a hypervisor version
(``img_hv_requested_version``, such as ``'>=6.0,<7'``) and a physical address width.
"""

import json
import operator
import re
from collections.abc import Hashable, Mapping
from typing import Any

from packaging.version import Version

from novasched.conf.settings import Settings
from novasched.scheduler.filters import Scope
from novasched.scheduler.filters.shared import Key, KeyedFilter, attributes
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.image_properties import SUPPORTED_TRIPLE, canonical
from novasched.scheduler.model.request import Request

VERSION = 'img_hv_requested_version'
ADDRESS_BITS = 'hw_maxphysaddr_bits'
PROPERTIES = (*SUPPORTED_TRIPLE, VERSION, ADDRESS_BITS)
"""The properties of an image that the filter looks at."""

MAX_VERSION_CHARACTERS = 255
"""Maximum length of a required version. No host meets a longer requirement: 30,000
predicates would take a quarter of a second."""

_COMPARISONS = {
    '<': operator.lt,
    '<=': operator.le,
    '==': operator.eq,
    '>': operator.gt,
    '>=': operator.ge,
    '!=': operator.ne,
}
_PREDICATE = re.compile(r'\A\s*(<=|>=|<|>|!=|==)\s*(\S+)\s*$')


class ImagePropertiesFilter(KeyedFilter):
    """Reject hosts that support no combination of what the image asks for."""

    scope = Scope.REQUEST
    on_rebuild = True
    phrase = 'cannot run the image'

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._defaults = (settings.image_properties_default_architecture, None, None)

    def applies(self, request: Request) -> bool:
        return any(
            map(request.requirements.properties.get, SUPPORTED_TRIPLE, self._defaults)
        )

    def key(self, request: Request) -> Key:
        return attributes('supported_instances', 'hypervisor_version', 'cpu_info')

    def request_key(self, request: Request) -> Hashable | None:
        return tuple(
            repr(request.requirements.properties.get(name)) for name in PROPERTIES
        )

    def reject(self, host: Host, request: Request) -> str | None:
        properties = request.requirements.properties
        asked = map(properties.get, SUPPORTED_TRIPLE, self._defaults)
        required = {
            canonical(kind, str(value))
            for kind, value in zip(SUPPORTED_TRIPLE, asked, strict=True)
            if value
        }
        if not any(required <= set(triple) for triple in host.supported_instances):
            return f'image wants {", ".join(sorted(required))}, host supports ' + (
                ', '.join('/'.join(triple) for triple in host.supported_instances)
                or 'nothing'
            )
        return _version_mismatch(host, properties) or _address_mismatch(
            host, properties
        )


def _version_mismatch(host: Host, properties: Mapping[str, Any]) -> str | None:
    required = properties.get(VERSION)
    number = host.hypervisor_version or 0
    if not required or number <= 0:
        return None
    have = _version(number)
    text = str(required)
    if len(text) > MAX_VERSION_CHARACTERS:
        return f'hypervisor version {have}, image wants too much to be read'
    for predicate in text.split(','):
        match = _PREDICATE.match(predicate)
        try:
            met = match is not None and _COMPARISONS[match[1]](have, Version(match[2]))
        except ValueError:  # InvalidVersion is one, and so is a number without end
            met = False
        if not met:
            return f'hypervisor version {have}, image wants {required}'
    return None


def _address_mismatch(host: Host, properties: Mapping[str, Any]) -> str | None:
    required = properties.get(ADDRESS_BITS)
    if not required:
        return None
    try:
        bits = json.loads(host.cpu_info or '{}').get('maxphysaddr', {}).get('bits')
    except (ValueError, AttributeError, TypeError, RecursionError):
        return None
    try:
        enough = not bits or int(bits) >= int(required)
    except (ValueError, TypeError):
        enough = False
    if enough:
        return None
    return f'{bits} physical address bits, image wants {required}'


def _version(number: int) -> Version:
    """nova stores a version as one number above 0, three decimal digits a part."""
    parts: list[str] = []
    while number:
        number, part = divmod(number, 1000)
        parts.insert(0, str(part))
    return Version('.'.join(parts))
