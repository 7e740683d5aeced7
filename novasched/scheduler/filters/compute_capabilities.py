# SPDX-License-Identifier: Apache-2.0
"""ComputeCapabilitiesFilter: flavor extra specs against what a host can do.

Keys are ``capabilities:NAME[:NAME...]``, a path into the host's attributes and
statistics, or a bare NAME. A bare one that the host does not know is for another
filter and is passed over; keys in other scopes are not looked at.
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
ABSENT = object()


class ComputeCapabilitiesFilter(KeyedFilter):
    """Reject hosts that do not meet the flavor's capability extra specs."""

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
            if bare and path[0] not in ATTRIBUTES and path[0] not in host.stats:
                continue
            value = _capability(host, path)
            if value is None:
                return f"no capability '{':'.join(path)}'"
            if not meets(str(value), requirement):
                return f"'{':'.join(path)}' is '{value}', '{requirement}' wanted"
        return None


def _requirements(request: Request) -> list[tuple[list[str], bool, str]]:
    """The extra specs to check: path, True for one without a scope, requirement."""
    requirements = []
    for key, requirement in request.flavor.extra_specs.items():
        scope, *path = key.split(':')
        if key == PHYSICAL_ADDRESS_BITS:
            requirements.append(
                (['cpu_info', 'maxphysaddr', 'bits'], False, f'>= {requirement}')
            )
        elif not path:
            requirements.append(([scope], True, requirement))
        elif scope == SCOPE:
            requirements.append((path, False, requirement))
    return requirements


def _named(host: Host, name: str, default: Any = None) -> Any:
    """A host's attribute, or else its statistic, of that name."""
    value = getattr(host, name, None) if name in ATTRIBUTES else None
    if value is None:
        return host.stats.get(name, default)
    return value


def _capability(host: Host, path: list[str]) -> Any:
    """The value at a path; None where it leads nowhere. Text is read as JSON."""
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
    if isinstance(
        value, tuple
    ):  # of tuples: what is compared is the text of nova's lists
        return [list(each) if isinstance(each, tuple) else each for each in value]
    return value
