# SPDX-License-Identifier: Apache-2.0
"""AvailabilityZoneFilter: the requested zone. nova had it until Antelope (27)."""

from collections.abc import Hashable

from novasched.scheduler.filters.shared import AggregatesFilter, parts
from novasched.scheduler.model.host import AVAILABILITY_ZONE, Host
from novasched.scheduler.model.request import Request


class AvailabilityZoneFilter(AggregatesFilter):
    """Reject hosts outside the requested zone.

    A host is in every zone that its aggregates name, with commas between; without any
    it is in ``default_availability_zone``.
    """

    phrase = 'in another zone'

    def applies(self, request: Request) -> bool:
        return bool(request.availability_zone)

    def request_key(self, request: Request) -> Hashable | None:
        return request.availability_zone

    def reject(self, host: Host, request: Request) -> str | None:
        zones = parts(host.metadata(AVAILABILITY_ZONE))
        default = self.settings.default_availability_zone
        if not zones and default:
            zones = frozenset({default})
        if request.availability_zone in zones:
            return None
        return (
            f'in {", ".join(sorted(zones)) or "no zone"}, {request.availability_zone}'
            ' wanted'
        )
