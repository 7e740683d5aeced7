# SPDX-License-Identifier: Apache-2.0
"""ImagePropertiesFilter: the host's hypervisor can run the image.

An image may name an architecture, a hypervisor type and a virtual machine mode; the
host lists the triples that it supports. It may also ask for a hypervisor version
(``img_hv_requested_version``, such as ``'>=6.0,<7'``) and a physical address width.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Mapping, Sequence
from typing import Any

from packaging.version import Version

from novasched.filters.alike import Column, SharingFilter
from novasched.model.host import Host
from novasched.model.image_properties import KINDS_OF_SERVER, canonical
from novasched.model.request import Request

_COMPARISONS = {
    '<': operator.lt, '<=': operator.le, '==': operator.eq,
    '>': operator.gt, '>=': operator.ge, '!=': operator.ne,
}  # fmt: skip
_PREDICATE = re.compile(r'\s*(<=|>=|<|>|!=|==)\s*(\S+)\s*$')


class ImagePropertiesFilter(SharingFilter):
    """Reject hosts that support no combination of what the image asks for."""

    once_per_request = True
    on_rebuild = True

    def applies(self, request: Request) -> bool:
        return bool(self._wanted(request))

    def looks_at(self, hosts: Sequence[Host], request: Request) -> Sequence[Column]:
        return [
            [host.supported_instances for host in hosts],
            [host.hypervisor_version for host in hosts],
            [host.cpu_info for host in hosts],
        ]

    def reject(self, host: Host, request: Request) -> str | None:
        wanted = self._wanted(request)
        if not any(wanted <= set(triple) for triple in host.supported_instances):
            return f'image wants {", ".join(sorted(wanted))}, host supports ' + (
                ', '.join('/'.join(triple) for triple in host.supported_instances) or 'nothing'
            )
        properties = request.image.properties if request.image else {}
        return _version_mismatch(host, properties) or _address_mismatch(host, properties)

    def _wanted(self, request: Request) -> set[str]:
        properties = request.image.properties if request.image else {}
        default = {'hw_architecture': self.settings.image_properties_default_architecture}
        wanted = {kind: properties.get(kind, default.get(kind)) for kind in KINDS_OF_SERVER}
        return {canonical(kind, str(value)) for kind, value in wanted.items() if value}


def _version_mismatch(host: Host, properties: Mapping[str, Any]) -> str | None:
    wanted = properties.get('img_hv_requested_version')
    number = host.hypervisor_version or 0
    if not wanted or number <= 0:
        return None
    have = _version(number)
    for predicate in str(wanted).split(','):
        match = _PREDICATE.match(predicate)
        try:
            met = match is not None and _COMPARISONS[match[1]](have, Version(match[2]))
        except ValueError:  # InvalidVersion is one, and so is a number without end
            met = False
        if not met:
            return f'hypervisor version {have}, image wants {wanted}'
    return None


def _address_mismatch(host: Host, properties: Mapping[str, Any]) -> str | None:
    wanted = properties.get('hw_maxphysaddr_bits')
    if not wanted:
        return None
    try:
        bits = json.loads(host.cpu_info or '{}').get('maxphysaddr', {}).get('bits')
    except (ValueError, AttributeError, TypeError, RecursionError):
        return None
    try:
        enough = not bits or int(bits) >= int(wanted)
    except (ValueError, TypeError):
        enough = False
    return None if enough else f'{bits} physical address bits, image wants {wanted}'


def _version(number: int) -> Version:
    """nova stores a version as one number above 0, three decimal digits a part."""
    parts: list[str] = []
    while number:
        number, part = divmod(number, 1000)
        parts.insert(0, str(part))
    return Version('.'.join(parts))
