# SPDX-License-Identifier: Apache-2.0
"""filter_scheduler: the cycle as it stands."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from random import Random

from novasched.cycle import Cycle, Hosts, Placement
from novasched.errors import NoValidHost, PlacementUnavailable
from novasched.filters import Filter
from novasched.model.request import Request
from novasched.model.selection import Selection
from novasched.model.settings import Settings
from novasched.pipeline import Pipeline
from novasched.prefilters import Prefilter
from novasched.weighers import Weigher

LOG = logging.getLogger('nova.scheduler.manager')


class FilterScheduler:
    """Implements :class:`novasched.drivers.Driver`."""

    def __init__(
        self,
        settings: Settings,
        prefilters: Sequence[Prefilter],
        placement: Placement,
        hosts: Hosts,
        filters: Sequence[Filter],
        weighers: Sequence[Weigher],
    ) -> None:
        self.cycle = Cycle(prefilters, placement, hosts, Pipeline(settings, filters, weighers))

    def select_destinations(self, request: Request) -> list[list[Selection]]:
        """See :class:`novasched.drivers.Driver`.

        The seed of every draw is logged, so that a decision can be repeated. While
        Placement fails no host is valid: callers understand that answer alone.
        """
        seed = secrets.randbits(32)
        LOG.debug('Seed of the draws for instances %s: %d', request.instance_uuids, seed)
        try:
            return self.cycle.select_destinations(request, Random(seed))
        except PlacementUnavailable as error:
            LOG.error('Cannot schedule, since Placement fails: %s', error)
            raise NoValidHost() from error
