# SPDX-License-Identifier: Apache-2.0
"""caching_scheduler: the filter scheduler on hosts as they were a moment ago.

A periodic task reads hosts and their aggregates, which are not read for each request.
Instances that were placed since then are subtracted from the free amounts of their
hosts. Claims are made in Placement, so that a stale host costs another try and never a
double booking. Candidates may come from an earlier answer of Placement, as with the
filter scheduler, unless the answer may lack the aggregates that the periodic task has
read.
"""

from dataclasses import replace

from novasched.scheduler.attempt import End, Outcome
from novasched.scheduler.claims.pending_claims import PendingClaims
from novasched.scheduler.claims.shared_ledger import SharedLedger
from novasched.scheduler.drivers import SchedulerDeps
from novasched.scheduler.drivers.filter_scheduler import FilterScheduler
from novasched.scheduler.memory import HostCache
from novasched.scheduler.model.basis import RequestId
from novasched.scheduler.model.request import Request


class CachingScheduler(FilterScheduler):
    """Decides on the hosts that the periodic task has read."""

    def __init__(self, deps: SchedulerDeps) -> None:
        self.host_cache = HostCache(deps.hosts, deps.settings)
        # The cache itself takes off what was placed.
        by_hosts = PendingClaims(deps.settings, SharedLedger(timeout=0))
        super().__init__(replace(deps, hosts=self.host_cache, pending_claims=by_hosts))

    def periodic(self) -> None:
        """Read the hosts anew.

        :raises DatabaseUnavailable: the API database fails; the hosts stay as they
            were.
        """
        self.host_cache.refresh()

    def _decide_patiently(
        self, request: Request, seed: int, request_id: RequestId
    ) -> Outcome:
        """Take the resources of the placed instances off the hosts in memory."""
        outcome = super()._decide_patiently(request, seed, request_id)
        # Not the request that came in, which may have a false hint.
        decided = outcome.decision.request
        if decided.is_rebuild or outcome.end is not End.PLACED:
            return outcome

        selections = outcome.decision.selections
        uuids = decided.instance_uuids or [None] * len(selections)
        for uuid, (selection, *_) in zip(uuids, selections, strict=True):
            self.host_cache.place(decided.for_instance(uuid), selection)
        return outcome
