# SPDX-License-Identifier: Apache-2.0
"""A filter and a weigher for novasched."""

from __future__ import annotations

from novasched.scheduler.filters import Filter, Scope
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request
from novasched.scheduler.weighers import Weigher


# [filter]
class WindowsLicenseFilter(Filter):
    """Place Windows on hosts of aggregates with ``windows_licensed=true``."""

    phrase = 'lack a Windows licence'
    """Follows a number, as in "12 hosts lack a Windows licence"."""

    scope = Scope.REQUEST
    """All instances of a request have the same image, and none of them changes the
    aggregates of a host."""

    def applies(self, request: Request) -> bool:
        image = request.image
        return image is not None and image.properties.get('os_type') == 'windows'

    def reject(self, host: Host, request: Request) -> str | None:
        if 'true' in host.metadata('windows_licensed'):
            return None
        return 'no Windows licence'


# [weigher]
class PowerWeigher(Weigher):
    """Prefer hosts of aggregates with less power for a vCPU (``watts_per_vcpu``)."""

    multiplier = 'power_weight_multiplier'
    """The metadata key with which an aggregate scales the weigher for its hosts."""

    scope = Scope.HOST
    """The weight of a host does not depend on earlier instances of the request."""

    def weigh(self, host: Host, request: Request) -> float:
        watts = host.metadata('watts_per_vcpu')
        if not watts:
            return -100.0
        return -min(map(float, watts))
