# SPDX-License-Identifier: Apache-2.0
"""Projects that have aggregates of their own stay in them."""

from __future__ import annotations

from novasched.errors import NoValidHost
from novasched.model.request import Request
from novasched.prefilters import LOG, Prefilter

TENANT = 'filter_tenant_id'


class TenantAggregatePrefilter(Prefilter):
    """Ask only for hosts in the aggregates that name the request's project.

    The name is the whole value of a metadata key that begins with ``filter_tenant_id``.
    ``[scheduler] limit_tenants_to_placement_aggregate`` switches the rule on;
    ``placement_aggregate_required_for_tenants`` refuses projects that have none.
    """

    def __call__(self, request: Request) -> Request:
        if not self.settings.limit_tenants_to_placement_aggregate:
            return request
        project = request.project_id
        uuids = {
            each.uuid
            for each in self.sources.aggregates.all(request.arrived)
            if each.uuid
            and any(k.startswith(TENANT) and v == project for k, v in each.metadata.items())
        }
        if uuids:
            return self.within(request, uuids)
        if self.settings.placement_aggregate_required_for_tenants:
            LOG.warning('Tenant %s has no available aggregates', project)
            raise NoValidHost('Scheduling failed: No hosts available for tenant')
        return request
