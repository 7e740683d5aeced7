# SPDX-License-Identifier: Apache-2.0
"""How servers get their hosts: the whole story, in order.

    request -> prefilters -> Placement's candidates -> hosts
        -> [for each server: rank -> claim] -> alternates -> selections

Data flows one way. What talks to the outside comes in through the two ports below.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Any, Protocol

from novasched import fitting
from novasched.errors import NoValidHost
from novasched.model.candidate import Candidate
from novasched.model.host import Host
from novasched.model.request import Request
from novasched.model.selection import Selection
from novasched.pipeline import Pipeline
from novasched.prefilters import Prefilter

LOG = logging.getLogger('nova.scheduler.manager')
NOT_ENOUGH = 'There are not enough hosts available.'

Candidates = Mapping[str, Sequence[Candidate]]


class Placement(Protocol):
    """What the cycle asks of the Placement service (``placement/client.py``)."""

    def candidates(self, request: Request) -> Candidates:
        """Ways to serve the request, by the UUID of each provider involved."""

    def claim(self, request: Request, candidate: Candidate) -> object | None:
        """Allocate a candidate to the server in hand; None if somebody has it."""

    def give_back(self, claim: Any) -> None:
        """Undo what :meth:`claim` returned; never raises."""


class Hosts(Protocol):
    """What the cycle asks of the cells (``cells/snapshot.py``)."""

    def aimed(self, request: Request) -> Request:
        """The request with the host or node that it names looked up.

        :raises NoValidHost: there is no such host.
        """

    def read(
        self,
        uuids: Collection[str] | None,
        request: Request,
        instances: bool,
        images: bool = False,
    ) -> Mapping[str, Host]:
        """Hosts by compute node UUID, as they are now; all of them for None.

        :param instances: with the servers on each host.
        :param images: these with the properties of their images.
        """


@dataclass(frozen=True, slots=True)
class Placed:
    """A server's host, and the candidate that was claimed on it."""

    host: Host
    candidate: Candidate | None = None
    claim: object | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """A request part of whose servers are placed, and the hosts left for the others."""

    request: Request
    hosts: Sequence[Host]
    placed: tuple[Placed, ...] = ()


class Cycle:
    """Places the servers of one request after the other."""

    def __init__(
        self,
        prefilters: Sequence[Prefilter],
        placement: Placement,
        hosts: Hosts,
        pipeline: Pipeline,
    ) -> None:
        self.prefilters = prefilters
        self.placement = placement
        self.hosts = hosts
        self.pipeline = pipeline
        self.settings = pipeline.settings

    def select_destinations(self, request: Request, random: Random) -> list[list[Selection]]:
        """A host for each server, claimed, with its alternates behind it.

        :raises NoValidHost: not every server found a host; nothing stays claimed.
        """
        candidates = None
        if not request.is_rebuild:
            for prefilter in self.prefilters:
                request = prefilter(request)
            request = self.hosts.aimed(request)
            candidates = self._candidates(request)
        hosts = self._read(request, candidates)
        if not request.claims:
            candidates = None

        progress = Progress(request, hosts)
        with ExitStack() as undo:
            for uuid in request.instance_uuids or [None] * request.count:
                progress = self._place(uuid, progress, candidates, random)
                if claim := progress.placed[-1].claim:
                    undo.callback(self.placement.give_back, claim)
                progress = self._consumed(progress)
            answer = self._with_alternates(progress, candidates, random)
            undo.pop_all()
        return answer

    def _candidates(self, request: Request) -> Candidates:
        candidates = self.placement.candidates(request)
        if not candidates:
            LOG.info(
                'Got no allocation candidates from the Placement API. This could be due to '
                'insufficient resources or a temporary occurrence as compute nodes start up.'
            )
            raise NoValidHost()
        return candidates

    def _read(self, request: Request, candidates: Candidates | None) -> list[Host]:
        """The candidates' hosts in Placement's order; a rebuild considers every host."""
        instances = self.pipeline.reads_instances(request)
        images = self.pipeline.reads_images(request)
        read = self.hosts.read(candidates, request, instances, images)
        return [read[uuid] for uuid in candidates or read if uuid in read]

    def _place(
        self,
        uuid: str | None,
        before: Progress,
        candidates: Candidates | None,
        random: Random,
    ) -> Progress:
        """Rank the hosts for one server, claim on the best that lets us."""
        request = before.request.for_instance(uuid)
        hosts = self.pipeline.rank(before.hosts, request, len(before.placed), random)
        choice = self._first_claimed(hosts, request, candidates)
        if choice is None:
            LOG.debug(
                'There are %d hosts available but %d instances requested to build.',
                len(before.placed),
                request.count,
            )
            raise NoValidHost(NOT_ENOUGH)
        LOG.debug('Selected host: %s', choice.host)
        return Progress(request, hosts, (*before.placed, choice))

    def _consumed(self, placed: Progress) -> Progress:
        """The hosts with the last server on the one that it was claimed on."""
        request, choice = placed.request, placed.placed[-1]
        limits = self.pipeline.limits(choice.host, request)
        after = fitting.after(choice.host, request, choice.candidate, limits, self.settings)
        return Progress(
            request=request.having_placed(after.host),
            hosts=[after if host is choice.host else host for host in placed.hosts],
            placed=placed.placed,
        )

    def _first_claimed(
        self, hosts: Sequence[Host], request: Request, candidates: Candidates | None
    ) -> Placed | None:
        """The first host on which a claim succeeds; without candidates, the first."""
        for host in hosts:
            if candidates is None:
                return Placed(host)
            candidate = candidates[host.uuid][0]
            LOG.debug(
                'Attempting to claim resources in the placement API for instance %s',
                request.instance_uuid,
            )
            if claim := self.placement.claim(request, candidate):
                return Placed(host, candidate, claim)
        if hosts:
            LOG.debug('Unable to successfully claim against any host.')
        return None

    def _with_alternates(
        self, progress: Progress, candidates: Candidates | None, random: Random
    ) -> list[list[Selection]]:
        """Behind each chosen host, the best of its cell that were not chosen."""
        request, placed, spare = progress.request, progress.placed, progress.hosts
        wanted = self.settings.max_attempts - 1 if request.return_alternates else 0
        if wanted and len(placed) > 1:
            spare = self.pipeline.rank(spare, request, len(placed) - 1, random)
        chosen = {each.host.key for each in placed}

        def selection(host: Host, candidate: Candidate | None) -> Selection:
            limits = self.pipeline.limits(host, request)
            return Selection.of(host, candidate, self.settings.default_availability_zone, limits)

        answer = []
        for each in placed:
            others = (
                selection(host, candidates[host.uuid][0] if candidates else None)
                for host in spare
                if host.key not in chosen and host.cell_uuid == each.host.cell_uuid
            )
            answer.append([selection(each.host, each.candidate), *islice(others, wanted)])
        return answer
