# SPDX-License-Identifier: Apache-2.0
"""ComputeCapabilitiesFilter: flavor extra specs against capabilities of a host.

The extra spec ``capabilities:NAME[:NAME...]`` is a path into the attributes and the
statistics of a host. The extra spec ``NAME``, without a scope, is checked if the host
has an attribute or a statistic of the name, and belongs to another filter otherwise.
Extra specs in a different scope are skipped.
"""

import json
from collections.abc import Hashable
from functools import partial
from typing import Any

from novasched.scheduler.filters import Scope
from novasched.scheduler.filters.operators import meets
from novasched.scheduler.filters.shared import Key, KeyedFilter
from novasched.scheduler.model.host import ATTRIBUTES, Host
from novasched.scheduler.model.request import Request

SCOPE = 'capabilities'
PHYSICAL_ADDRESS_BITS = 'hw:maxphysaddr_bits'
ADDRESS_BITS_PATH = ['cpu_info', 'maxphysaddr', 'bits']
MAX_PATH_LENGTH = 16
"""Names in a path. No capability of a host is nested as deeply."""
ABSENT = object()


class ComputeCapabilitiesFilter(KeyedFilter):
    """Reject hosts that do not meet the capability extra specs of the flavor."""

    scope = Scope.REQUEST
    phrase = 'lack a capability'

    def applies(self, request: Request) -> bool:
        return bool(request.flavor.extra_specs and _requirements(request))

    def key(self, request: Request) -> Key:
        names = {path[0] for path, _, _ in _requirements(request)}
        return [partial(_named, name=name, default=ABSENT) for name in names]

    def request_key(self, request: Request) -> Hashable | None:
        return tuple(request.flavor.extra_specs.items())

    def reject(self, host: Host, request: Request) -> str | None:
        for path, bare, requirement in _requirements(request):
            # An unknown name may belong to AggregateInstanceExtraSpecsFilter.
            if bare and path[0] not in ATTRIBUTES and path[0] not in host.stats:
                continue
            value = _capability(host, path)
            if value is None:
                return f"no capability '{':'.join(path)}'"
            if not meets(str(value), requirement):
                return f"'{':'.join(path)}' is '{value}', '{requirement}' wanted"
        return None


def _requirements(request: Request) -> list[tuple[list[str], bool, str]]:
    """The extra specs to check: the path, True for an extra spec without a scope, and
    the requirement."""
    requirements = []
    for key, requirement in request.flavor.extra_specs.items():
        scope, colon, name = key.partition(':')
        if key == PHYSICAL_ADDRESS_BITS:
            requirements.append((ADDRESS_BITS_PATH, False, f'>= {requirement}'))
        elif not colon:
            requirements.append(([key], True, requirement))
        elif scope == SCOPE:
            path = name.split(':', MAX_PATH_LENGTH)
            requirements.append((path, False, requirement))
    return requirements


def _named(host: Host, name: str, default: Any = None) -> Any:
    """The attribute of a host with a name, or else the statistic with the name."""
    value = None
    if name in ATTRIBUTES:
        value = getattr(host, name, None)
    if value is None:
        return host.stats.get(name, default)
    return value


def _capability(host: Host, path: list[str]) -> Any:
    """The value at a path, ``None`` for a path that does not exist.

    A text within the path, such as ``cpu_info``, is decoded as JSON.
    """
    name, *rest = path
    value = _named(host, name)
    for name in rest:
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except (ValueError, RecursionError):
                return None
        if not isinstance(value, dict):
            return None
        value = value.get(name)

    # nova's HostState has lists here, and the text of a list is compared.
    if isinstance(value, tuple):
        items = []
        for item in value:
            items.append(list(item) if isinstance(item, tuple) else item)
        return items
    return value
