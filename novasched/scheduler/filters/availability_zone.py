# SPDX-License-Identifier: Apache-2.0
"""AvailabilityZoneFilter, which nova had until Antelope (27).

Since then nova leaves availability zones to Placement, by a prefilter.
"""

from collections.abc import Hashable

from novasched.scheduler.filters.shared import AggregatesFilter, split_values
from novasched.scheduler.model.host import AVAILABILITY_ZONE, Host
from novasched.scheduler.model.request import Request


class AvailabilityZoneFilter(AggregatesFilter):
    """Reject hosts outside the requested availability zone.

    The metadata key ``availability_zone`` of an aggregate lists zones, separated by
    commas. A host without this metadata is in ``[DEFAULT] default_availability_zone``.
    """

    phrase = 'in another zone'

    def applies(self, request: Request) -> bool:
        return bool(request.availability_zone)

    def request_key(self, request: Request) -> Hashable | None:
        return request.availability_zone

    def reject(self, host: Host, request: Request) -> str | None:
        zones = split_values(host.metadata(AVAILABILITY_ZONE))
        default = self.settings.default_availability_zone
        if not zones and default:
            zones = frozenset({default})
        if request.availability_zone in zones:
            return None
        present = ', '.join(sorted(zones)) or 'no zone'
        return f'in {present}, {request.availability_zone} wanted'
