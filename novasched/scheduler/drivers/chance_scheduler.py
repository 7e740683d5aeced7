# SPDX-License-Identifier: Apache-2.0
"""chance_scheduler: any live host will do.

nova's driver of this name (removed after Queens) drew from all hosts with a live
nova-compute that the request does not ignore, and left it to nova-compute to allocate.
No later nova-compute does that, so this one draws from the candidates that Placement
offers, and claims.
"""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from novasched.scheduler.decision import FilterResult, Ranking
from novasched.scheduler.drivers import SchedulerDeps
from novasched.scheduler.drivers.filter_scheduler import FilterScheduler
from novasched.scheduler.model.candidate import Candidates
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request
from novasched.scheduler.pipeline import Pipeline
from novasched.scheduler.requested_hosts import keep_requested_hosts

STAGE = 'chance_scheduler'
NOT_LIVE = 'disabled, or has not been heard from in a while'


class ChanceScheduler(FilterScheduler):
    """Asks no filter and no weigher. Prefilters still shape what Placement is asked."""

    def make_pipeline(self, deps: SchedulerDeps) -> Pipeline:
        return RandomPipeline(deps.settings, (), (), clock=deps.clock)


class RandomPipeline(Pipeline):
    """Draws hosts by lot instead of weighing them."""

    def filter(
        self,
        hosts: Sequence[Host],
        request: Request,
        index: int,
        candidates: Candidates | None = None,
    ) -> Ranking:
        """Live hosts that the request does not rule out, or nova's reason why there is
        none."""
        live: list[Host] = []
        dead: list[Host] = []
        for host in hosts:
            (live if host.service.up and not host.service.disabled else dead).append(
                host
            )
        liveness = FilterResult(STAGE, len(hosts), dead, [NOT_LIVE] * len(dead))
        if not live:
            return Ranking(
                (), (liveness,), refusal='Is the appropriate service running?'
            )
        left, results = keep_requested_hosts(live, request, self.clock)
        refusal = None if left else 'Could not find another compute'
        return Ranking(
            left, (liveness, *results), refusal=refusal, candidates=candidates
        )

    def weigh(
        self, ranking: Ranking, request: Request, index: int, random: Random
    ) -> Ranking:
        """The hosts in random order. Hosts with another instance of the request come
        last. The order follows from the seed."""
        drawn = random.sample(ranking.hosts, len(ranking.hosts))
        siblings = frozenset(request.instance_uuids or ())
        drawn.sort(key=lambda host: not siblings.isdisjoint(host.instances))
        return replace(ranking, hosts=drawn)
