# SPDX-License-Identifier: Apache-2.0
"""A requested availability zone becomes a membership in its aggregates."""

from __future__ import annotations

from novasched.model.host import AVAILABILITY_ZONE
from novasched.model.request import Request
from novasched.prefilters import Prefilter


class AvailabilityZonePrefilter(Prefilter):
    """Ask only for providers in the zone's aggregates.

    A zone that no aggregate bears is left alone: it is the default zone, whose hosts
    are those that are in no other. ``[scheduler] query_placement_for_availability_zone``
    of older releases switches the rule off.
    """

    def __call__(self, request: Request) -> Request:
        zone = request.availability_zone
        if not zone or not self.settings.query_placement_for_availability_zone:
            return request
        found = self.sources.aggregates.having(AVAILABILITY_ZONE, zone, request.arrived)
        uuids = {each.uuid for each in found if each.uuid}
        return self.within(request, uuids) if uuids else request
