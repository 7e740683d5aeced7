# SPDX-License-Identifier: Apache-2.0
"""A filter and a weigher for novasched."""

from __future__ import annotations

from novasched.scheduler.filters import Filter, Scope
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request
from novasched.scheduler.weighers import Weigher


# [filter]
class WindowsLicenseFilter(Filter):
    """Windows goes to hosts of aggregates whose metadata says
    ``windows_licensed=true``."""

    scope = Scope.REQUEST
    """All instances of a request have one image, and aggregates do not change
    meanwhile."""

    phrase = 'lack a Windows licence'
    """As in "No valid host: 12 of 40 hosts lack a Windows licence"."""

    def applies(self, request: Request) -> bool:
        image = request.image
        return image is not None and image.properties.get('os_type') == 'windows'

    def reject(self, host: Host, request: Request) -> str | None:
        if 'true' in host.metadata('windows_licensed'):
            return None
        return 'no Windows licence'


# [weigher]
class PowerWeigher(Weigher):
    """Prefer hosts of aggregates whose metadata says that they need less power for a
    vCPU."""

    multiplier = 'power_weight_multiplier'
    """The metadata key by which an aggregate scales the weigher for its hosts."""

    scope = Scope.HOST
    """The weight of a host does not depend on where the request's other instances
    went."""

    def weigh(self, host: Host, request: Request) -> float:
        watts = host.metadata('watts_per_vcpu')
        return -min(map(float, watts)) if watts else -100.0
