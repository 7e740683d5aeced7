# SPDX-License-Identifier: Apache-2.0
"""chance_scheduler: any live host will do.

nova's driver of this name (removed after Queens) drew from all hosts with a live
nova-compute that the request does not ignore, and left it to nova-compute to allocate.
No later nova-compute does that, so this one draws from the candidates that Placement
offers, and claims.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from novasched.drivers import Parts
from novasched.drivers.filter_scheduler import FilterScheduler
from novasched.errors import NoValidHost
from novasched.model.host import Host
from novasched.model.request import Request
from novasched.narrowing import narrow
from novasched.pipeline import Pipeline
from novasched.records.looks import UNSEEN, Unseen

STAGE, NOT_LIVE = 'chance_scheduler', 'disabled, or has not been heard from in a while'


class ChanceScheduler(FilterScheduler):
    """Asks no filter and no weigher. Prefilters still shape what Placement is asked."""

    def make_pipeline(self, parts: Parts) -> Pipeline:
        return Lottery(parts.settings, (), ())


class Lottery(Pipeline):
    """Draws where others rank."""

    def rank(
        self,
        hosts: Sequence[Host],
        request: Request,
        index: int,
        random: Random,
        look: Unseen = UNSEEN,
    ) -> list[Host]:
        """Live hosts in random order, behind the others those that another server of the
        request was placed on; the same for everyone who asks with the same seed.

        :raises NoValidHost: there are none, for nova's two reasons.
        """
        live = [host for host in hosts if host.service.up and not host.service.disabled]
        alive = set(map(id, live))
        dead = {id(host): NOT_LIVE for host in hosts if id(host) not in alive}
        look.passed(STAGE, hosts, dead, len(hosts))
        if not live:
            raise NoValidHost('Is the appropriate service running?')
        left = narrow(live, request, look)
        if not left:
            raise NoValidHost('Could not find another compute')
        siblings = frozenset(request.instance_uuids or ())
        drawn = random.sample(left, len(left))
        return sorted(drawn, key=lambda host: not siblings.isdisjoint(host.instances))
