# SPDX-License-Identifier: Apache-2.0
"""Decide a request as the daemon would, claim nothing, and remember what was looked at."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from novasched.cycle import Cycle
from novasched.drivers.filter_scheduler import FilterScheduler, Offer
from novasched.errors import InstancesUnread, NoValidHost
from novasched.inflight import InFlight
from novasched.model.candidate import Candidate
from novasched.model.host import Host
from novasched.model.request import Request
from novasched.pipeline import Pipeline
from novasched.ports import Candidates, Placement
from novasched.records.looks import UNSEEN, Unseen

ALONE = 0.0
"""Seconds for which one decision counts for the next: each is made for itself."""


@dataclass(frozen=True, slots=True)
class Look:
    """The hosts that one server of a request could choose from."""

    hosts: Sequence[Host]
    request: Request
    index: int


@dataclass(frozen=True, slots=True)
class Decision:
    """The hosts chosen, none if the request was refused, and a look for each server."""

    hosts: tuple[str, ...]
    refusal: str | None
    looks: Sequence[Look]
    pipeline: Pipeline


@dataclass(frozen=True, slots=True)
class Unclaimed:
    """Placement, of which candidates are asked and nothing is taken: every claim succeeds."""

    placement: Placement

    def expect(self, moment: float) -> None:
        """Nobody waits."""

    def candidates(self, request: Request) -> Candidates:
        """See :class:`novasched.ports.Placement`."""
        return self.placement.candidates(request)

    def claim(self, request: Request, candidate: Candidate) -> object:
        """Nothing is claimed."""
        return candidate

    def claim_together(self, wanted: Sequence[tuple[Request, Candidate]]) -> Sequence[object]:
        """Nothing is claimed."""
        return [candidate for _, candidate in wanted]

    def give_back(self, claim: Any) -> None:
        """There is nothing to give back."""


@dataclass(slots=True)
class Shadow:
    """A filter scheduler's parts, and a seed that every decision starts from."""

    driver: FilterScheduler
    seed: int
    clock: Callable[[], float] = field(default=time.monotonic)

    def decide(self, request: Request) -> Decision:
        """What the daemon would answer now.

        :raises NovaschedError: it cannot be decided: Placement or the API database is away.
        """
        request = replace(request, arrived=self.clock())
        try:
            return self._decided(request)
        except InstancesUnread:
            return self._decided(request)

    def _decided(self, request: Request) -> Decision:
        memory: dict[str, Any] = {}
        line = _Watched(self.driver.pipeline, memory)
        offer = Offer(Unclaimed(self.driver.placement), memory)
        in_flight = InFlight(line.settings, self.clock, timeout=ALONE)
        cycle = Cycle(self.driver.prefilters, offer, self.driver.hosts, line, in_flight)
        hosts: tuple[str, ...] = ()
        refusal = None
        try:
            answer = cycle.select_destinations(request, Random(self.seed))
            hosts = tuple(selections[0].service_host for selections in answer)
        except NoValidHost as error:
            refusal = error.reason or 'Placement offers no candidate.'
        return Decision(hosts, refusal, tuple(line.looks), line)


class _Watched(Pipeline):
    """The pipeline of one request, which keeps what it was given for each server."""

    def __init__(self, pipeline: Pipeline, memory: dict[str, Any]) -> None:
        super().__init__(
            pipeline.settings,
            [each.for_request(memory) for each in pipeline.filters],
            [each.for_request(memory) for each in pipeline.weighers],
            remembers=True,
        )
        self.looks: list[Look] = []

    def rank(
        self,
        hosts: Sequence[Host],
        request: Request,
        index: int,
        random: Random,
        look: Unseen = UNSEEN,
    ) -> list[Host]:
        """See :meth:`novasched.pipeline.Pipeline.rank`."""
        self.looks.append(Look(tuple(hosts), request, index))
        return super().rank(hosts, request, index, random, look)
