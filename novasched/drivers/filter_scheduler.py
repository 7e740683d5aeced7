# SPDX-License-Identifier: Apache-2.0
"""filter_scheduler: the cycle as it stands."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from typing import Any

from novasched.cycle import Cycle
from novasched.drivers import Parts
from novasched.errors import (
    DatabaseUnavailable,
    InstancesUnread,
    NoValidHost,
    PlacementUnavailable,
)
from novasched.filters import CANDIDATES
from novasched.inflight import InFlight
from novasched.model.request import Request
from novasched.model.selection import Selection
from novasched.pipeline import Pipeline
from novasched.ports import Candidates, Forgetful, Notices, Placement, Silence
from novasched.records import story
from novasched.records.account import UNRECORDED, Unrecorded

COUNTS = 'counts'
"""The value of ``[novasched] fault_detail`` with which refusals say why."""

LOG = logging.getLogger('nova.scheduler.manager')


class FilterScheduler:
    """Implements :class:`novasched.drivers.Driver`."""

    def __init__(self, parts: Parts) -> None:
        self.prefilters = parts.prefilters
        self.placement = parts.placement
        self.hosts = parts.hosts
        self.in_flight = parts.in_flight or InFlight(parts.settings)
        self.notices = parts.notices or Silence()
        self.records = parts.records or Forgetful()
        self.fault_detail = parts.settings.fault_detail
        self.pipeline = self.make_pipeline(parts)

    def make_pipeline(self, parts: Parts) -> Pipeline:
        """How hosts are ranked, for a driver that does it differently."""
        return Pipeline(parts.settings, parts.filters, parts.weighers)

    def select_destinations(self, request: Request) -> list[list[Selection]]:
        """See :class:`novasched.drivers.Driver`.

        The seed of every draw is logged, so that a decision can be repeated. While
        Placement or a database fails that the request cannot do without, no host is valid:
        callers understand that answer alone.
        """
        request = replace(request, arrived=time.monotonic())
        seed = secrets.randbits(32)
        LOG.debug('Seed of the draws for instances %s: %d', request.instance_uuids, seed)
        with self._recorded(request, seed) as account:
            try:
                answer = self.answer(request, seed, account)
            except PlacementUnavailable as error:
                LOG.error('Cannot schedule, since Placement fails: %s', error)
                raise NoValidHost() from error
            except DatabaseUnavailable as error:
                LOG.error('Cannot schedule, since a database fails: %s', error)
                raise NoValidHost() from error
            account.chose(answer)
        return answer

    @contextmanager
    def _recorded(self, request: Request, seed: int) -> Iterator[Unrecorded]:
        """The account of a request, which is kept when the request has been decided."""
        account = self.records.opened(request, seed)
        if account is None:
            yield UNRECORDED
            return
        try:
            yield account
        except Exception as error:
            account.failed(error)
            if isinstance(error, NoValidHost) and self.fault_detail == COUNTS:
                raise NoValidHost(story.detailed(error.reason, account)) from error
            raise
        finally:
            self.records.closed(account)

    def answer(
        self, request: Request, seed: int, account: Unrecorded = UNRECORDED
    ) -> list[list[Selection]]:
        """One cycle; another one if the first finds out what it should have read.

        :raises NoValidHost: not every server found a host; nothing stays claimed.
        :raises NovaschedError: what the request cannot do without fails.
        """
        try:
            return self._cycle(self.notices, account).select_destinations(request, Random(seed))
        except InstancesUnread as error:
            LOG.debug('Once more, with the servers on each host: %s', error)
        again = Again(self.notices)
        return self._cycle(again, account).select_destinations(request, Random(seed))

    def _cycle(self, notices: Notices, account: Unrecorded) -> Cycle:
        memory: dict[str, Any] = {}
        line = self.pipeline.for_request(memory)
        offer = Offer(self.placement, memory)
        return Cycle(self.prefilters, offer, self.hosts, line, self.in_flight, notices, account)


class Again:
    """Notices of a request whose start is told already."""

    def __init__(self, notices: Notices) -> None:
        self.ended = notices.ended
        self.close = notices.close

    def started(self, request: Request) -> None:
        """See :class:`novasched.ports.Notices`."""


class Offer:
    """Placement, with its candidates open to the plugins of one request."""

    def __init__(self, placement: Placement, memory: dict[str, Any]) -> None:
        self.expect = placement.expect
        self.claim = placement.claim
        self.claim_together = placement.claim_together
        self.give_back = placement.give_back
        self._placement = placement
        self._memory = memory

    def candidates(self, request: Request) -> Candidates:
        """See :class:`novasched.ports.Placement`."""
        found = self._placement.candidates(request)
        self._memory[CANDIDATES] = found
        return found
