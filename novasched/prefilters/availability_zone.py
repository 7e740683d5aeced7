# SPDX-License-Identifier: Apache-2.0
"""A requested availability zone becomes a membership in its aggregates."""

from __future__ import annotations

from novasched.model.host import AVAILABILITY_ZONE
from novasched.model.request import Destination, Request
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
        found = self.aggregates.having(AVAILABILITY_ZONE, zone)
        uuids = frozenset(each.uuid for each in found if each.uuid)
        if not uuids:
            return request
        destination = request.requested_destination or Destination()
        return request.wanting(aggregates=(*destination.aggregates, uuids))
