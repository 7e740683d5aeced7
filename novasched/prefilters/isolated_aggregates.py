# SPDX-License-Identifier: Apache-2.0
"""Aggregates that are kept for servers with certain traits."""

from __future__ import annotations

from novasched.model.request import Request
from novasched.placement import query
from novasched.prefilters import Prefilter

TRAIT = 'trait:'


class IsolatedAggregatesPrefilter(Prefilter):
    """Forbid the aggregates whose metadata requires a trait that the request does not.

    Such metadata is ``trait:<name>`` = ``required``. The traits of the request are those
    that flavor, image and ports require of any provider.
    ``[scheduler] enable_isolated_aggregate_filtering`` switches the rule on.
    """

    def __call__(self, request: Request) -> Request:
        if not self.settings.enable_isolated_aggregate_filtering:
            return request
        keys = {TRAIT + trait for trait in query.required_traits(request)}
        uuids = {
            each.uuid
            for each in self.sources.aggregates.all(request.arrived)
            if each.uuid
            and any(
                key.startswith(TRAIT) and value == 'required' and key not in keys
                for key, value in each.metadata.items()
            )
        }
        return self.outside(request, uuids) if uuids else request
