# SPDX-License-Identifier: Apache-2.0
"""ImagePropertiesFilter: hypervisors that can run the image.

An image may name an architecture, a hypervisor type and a virtual machine mode. A host
reports the combinations of the three that the hypervisor supports. The image may also
require a hypervisor version (``img_hv_requested_version``, such as ``'>=6.0,<7'``) and
a physical address width (``hw_maxphysaddr_bits``).
"""

import json
import operator
import re
from collections.abc import Callable, Hashable, Mapping
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
"""The properties of an image that the filter reads."""

MAX_VERSION_CHARACTERS = 255
"""Maximum length of ``img_hv_requested_version``. No host meets a longer requirement:
30,000 predicates would take a quarter of a second."""

_COMPARISONS: Mapping[str, Callable[[Version, Version], bool]] = {
    '<': operator.lt,
    '<=': operator.le,
    '==': operator.eq,
    '>': operator.gt,
    '>=': operator.ge,
    '!=': operator.ne,
}
_PREDICATE = re.compile(r'\A\s*(<=|>=|<|>|!=|==)\s*(\S+)\s*$')


class ImagePropertiesFilter(KeyedFilter):
    """Reject hosts whose hypervisor does not support the properties of the image."""

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
        # Texts, since an invalid property may be a list, which cannot be hashed.
        return tuple(
            repr(request.requirements.properties.get(name)) for name in PROPERTIES
        )

    def reject(self, host: Host, request: Request) -> str | None:
        properties = request.requirements.properties
        required = set()
        for kind, default in zip(SUPPORTED_TRIPLE, self._defaults, strict=True):
            value = properties.get(kind, default)
            if value:
                required.add(canonical(kind, str(value)))

        supported = host.supported_instances
        if not any(required.issubset(triple) for triple in supported):
            wanted = ', '.join(sorted(required))
            triples = ', '.join(map('/'.join, supported)) or 'nothing'
            return f'image wants {wanted}, host supports {triples}'

        reason = _version_mismatch(host, properties)
        return reason or _address_mismatch(host, properties)


def _version_mismatch(host: Host, properties: Mapping[str, Any]) -> str | None:
    """The reason against the hypervisor version of a host; ``None`` if the version
    matches, or if the host reports no version, as in nova."""
    required = properties.get(VERSION)
    number = host.hypervisor_version or 0
    if not required or number <= 0:
        return None

    version = _version(number)
    text = str(required)
    if len(text) > MAX_VERSION_CHARACTERS:
        return f'hypervisor version {version}, image wants too much to be read'

    for predicate in text.split(','):
        if not _meets(version, predicate):
            return f'hypervisor version {version}, image wants {required}'
    return None


def _meets(version: Version, predicate: str) -> bool:
    """True if a version meets a predicate such as ``>=6.0``; False on a predicate that
    cannot be parsed."""
    match = _PREDICATE.match(predicate)
    if match is None:
        return False
    try:
        return _COMPARISONS[match[1]](version, Version(match[2]))
    except ValueError:
        # InvalidVersion is a ValueError, and so is the error of int() on a number of
        # too many digits.
        return False


def _address_mismatch(host: Host, properties: Mapping[str, Any]) -> str | None:
    """The reason against the physical address width of a host; ``None`` if the width is
    sufficient or not reported."""
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
    """The version that nova stores as a number, three decimal digits for each part."""
    parts: list[str] = []
    while number:
        number, part = divmod(number, 1000)
        parts.insert(0, str(part))
    return Version('.'.join(parts))
