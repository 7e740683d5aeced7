# SPDX-License-Identifier: Apache-2.0
"""A filter and a weigher for novasched."""

from __future__ import annotations

from novasched.filters import Filter
from novasched.model.host import Host
from novasched.model.request import Request
from novasched.weighers import Weigher


# [filter]
class WindowsLicenseFilter(Filter):
    """Windows goes to hosts of aggregates whose metadata says ``windows_licensed=true``."""

    once_per_request = True
    """All servers of a request have one image, and aggregates do not change meanwhile."""

    def applies(self, request: Request) -> bool:
        image = request.image
        return image is not None and image.properties.get('os_type') == 'windows'

    def reject(self, host: Host, request: Request) -> str | None:
        if 'true' in host.metadata('windows_licensed'):
            return None
        return 'no Windows licence'


# [weigher]
class PowerWeigher(Weigher):
    """Prefer hosts of aggregates whose metadata says that they need less power for a vCPU."""

    multiplier = 'power_weight_multiplier'
    """The metadata key by which an aggregate scales the weigher for its hosts."""

    once_per_host = True
    """What a host weighs does not depend on where the request's other servers went."""

    @property
    def default_scale(self) -> float:
        return 1.0

    def weigh(self, host: Host, request: Request) -> float:
        watts = host.metadata('watts_per_vcpu')
        return -min(map(float, watts)) if watts else -100.0
