# SPDX-License-Identifier: Apache-2.0
"""How servers get their hosts: the whole story, in order.

    request -> prefilters -> Placement's candidates -> hosts
        -> [for each server: rank -> choose] -> claim -> alternates -> selections

Data flows one way. What talks to the outside comes in through ``ports.py``; what was chosen
and is not shown by its host yet stands in ``inflight.py``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import islice
from random import Random

from novasched.errors import NoValidHost
from novasched.inflight import Flight, InFlight
from novasched.model.candidate import Candidate
from novasched.model.host import Fleet, Host
from novasched.model.request import Request
from novasched.model.selection import Selection
from novasched.pipeline import Pipeline
from novasched.ports import Candidates, Hosts, Notices, Placement, Silence
from novasched.prefilters import Prefilter
from novasched.records.account import ALTERNATES, CLAIM, UNRECORDED, Unrecorded

LOG = logging.getLogger('nova.scheduler.manager')
CLAIMS = logging.getLogger('nova.scheduler.utils')
NOT_ENOUGH = 'There are not enough hosts available.'


@dataclass(frozen=True, slots=True)
class Placed:
    """A server in hand, the host that it goes to as it was before, and what it takes."""

    request: Request
    host: Host
    candidate: Candidate | None
    flight: Flight


@dataclass(frozen=True, slots=True)
class Progress:
    """A request part of whose servers are placed, and the hosts left for the others."""

    request: Request
    fleet: Fleet
    uuids: Sequence[str]
    candidates: Candidates | None
    in_flight: InFlight
    placed: tuple[Placed, ...] = ()

    def with_one_more(self, placed: Placed, ranked: Sequence[Host]) -> Progress:
        """The next server finds the hosts that this one found fit, in their order."""
        return replace(
            self,
            request=placed.request.having_placed(placed.host.host, placed.candidate),
            uuids=[host.uuid for host in ranked],
            placed=(*self.placed, placed),
        )


class Cycle:
    """Places the servers of one request."""

    def __init__(
        self,
        prefilters: Sequence[Prefilter],
        placement: Placement,
        hosts: Hosts,
        pipeline: Pipeline,
        in_flight: InFlight,
        notices: Notices | None = None,
        account: Unrecorded = UNRECORDED,
    ) -> None:
        self.prefilters = prefilters
        self.placement = placement
        self.hosts = hosts
        self.pipeline = pipeline
        self.in_flight = in_flight
        self.notices = notices or Silence()
        self.account = account
        self.settings = pipeline.settings

    def select_destinations(self, request: Request, random: Random) -> list[list[Selection]]:
        """A host for each server, claimed, with its alternates behind it.

        :raises NoValidHost: not every server found a host; nothing stays claimed.
        """
        self.hosts.prepare(request.arrived)
        candidates = None
        if not request.is_rebuild:
            self.placement.expect(request.arrived)
            for prefilter in self.prefilters:
                request = prefilter(request)
            request = self.hosts.aimed(request)
            self.account.asked(request)
            candidates = self._candidates(request)
        self.notices.started(request)
        progress = self._begun(request, candidates)
        with ExitStack() as undo:
            progress = self._placed_together(progress, random, undo) or self._placed_in_turn(
                progress, random, undo
            )
            answer = self._with_alternates(progress, random)
            self.account.did(ALTERNATES)
            undo.pop_all()
        self.notices.ended(progress.request, [each.flight for each in progress.placed])
        return answer

    def _candidates(self, request: Request) -> Candidates:
        candidates = self.placement.candidates(request)
        self.account.offered(candidates)
        if not candidates:
            LOG.info(
                'Got no allocation candidates from the Placement API. This could be due to '
                'insufficient resources or a temporary occurrence as compute nodes start up.'
            )
            raise NoValidHost()
        return candidates

    def _begun(self, request: Request, candidates: Candidates | None) -> Progress:
        """The candidates' hosts in Placement's order; a rebuild considers every host."""
        instances = self.pipeline.reads_instances(request)
        images = self.pipeline.reads_images(request)
        fleet = self.hosts.read(candidates, request, instances, images)
        uuids = [uuid for uuid in candidates or fleet.hosts if uuid in fleet.hosts]
        self.account.read(fleet, uuids, candidates)
        return Progress(
            request,
            fleet,
            uuids,
            candidates if request.claims else None,
            self.in_flight.for_request(request),
        )

    def _placed_together(
        self, progress: Progress, random: Random, undo: ExitStack
    ) -> Progress | None:
        """Every server on the best host that the servers before it leave, in one claim;
        None for one server alone, and where Placement refuses any of them."""
        if progress.candidates is not None and progress.request.count == 1:
            return None
        with ExitStack() as choices:
            with progress.in_flight.deciding():
                for uuid in _servers(progress.request):
                    request = progress.request.for_instance(uuid)
                    ranked = self._rank(progress, request, random)
                    placed = self._choose(ranked[0], request, progress, choices)
                    progress = progress.with_one_more(placed, ranked)
            if progress.candidates is not None:
                wanted = [(x.request, x.candidate) for x in progress.placed if x.candidate]
                claims = self.placement.claim_together(wanted)
                if claims is None:
                    self.account.again()
                    return None
                for claim in claims:
                    undo.callback(self.placement.give_back, claim)
            undo.push(choices.pop_all())
        self.account.did(CLAIM)
        return progress

    def _placed_in_turn(self, progress: Progress, random: Random, undo: ExitStack) -> Progress:
        """Each server claimed on the best host that lets us, before the next is looked at."""
        for uuid in _servers(progress.request):
            request = progress.request.for_instance(uuid)
            with progress.in_flight.deciding():
                ranked = self._rank(progress, request, random)
                choice = self._choose(ranked[0], request, progress, undo)
            for placed in self._choices(choice, ranked, progress, undo):
                claim = placed.candidate and self.placement.claim(request, placed.candidate)
                if claim:
                    undo.callback(self.placement.give_back, claim)
                    progress = progress.with_one_more(placed, ranked)
                    self.account.did(CLAIM)
                    break
                progress.in_flight.drop(placed.flight)
                self.account.refused(placed.host, len(progress.placed))
            else:
                LOG.debug('Unable to successfully claim against any host.')
                raise _not_enough(progress)
        return progress

    def _rank(self, progress: Progress, request: Request, random: Random) -> list[Host]:
        """The hosts for the server in hand, best first, less what is in flight to them."""
        index = len(progress.placed)
        look = self.account.look(request, index)
        hosts = progress.in_flight.view(progress.fleet, progress.uuids, look)
        ranked = self.pipeline.rank(hosts, request, index, random, look)
        if not ranked:
            raise _not_enough(progress)
        return ranked

    def _choose(self, host: Host, request: Request, progress: Progress, undo: ExitStack) -> Placed:
        """Send the server in hand to a host, on what Placement offers there first."""
        candidate = None
        if progress.candidates is not None:
            candidate = progress.candidates[host.uuid][0].apart()
            CLAIMS.debug(
                'Attempting to claim resources in the placement API for instance %s',
                request.instance_uuid,
            )
        limits = self.pipeline.limits(host, request)
        flight = progress.in_flight.add(host, request, candidate, limits)
        undo.callback(progress.in_flight.drop, flight)
        return Placed(request, host, candidate, flight)

    def _choices(
        self, first: Placed, ranked: Sequence[Host], progress: Progress, undo: ExitStack
    ) -> Iterator[Placed]:
        """The first choice, then the hosts behind it that are still fit: another request
        may have sent a server there since they were ranked."""
        yield first
        request, index = first.request, len(progress.placed)
        for host in ranked[1:]:
            with progress.in_flight.deciding():
                now = progress.in_flight.view(progress.fleet, [host.uuid])
                if now[0] is not host and not self.pipeline.rank(now, request, index, Random(0)):
                    self.account.unfit(host, index)
                    continue
                choice = self._choose(now[0], request, progress, undo)
            yield choice

    def _with_alternates(self, progress: Progress, random: Random) -> list[list[Selection]]:
        """Behind each chosen host, the best of its cell that were not chosen."""
        request, placed, candidates = progress.request, progress.placed, progress.candidates
        wanted = self.settings.max_attempts - 1 if request.return_alternates else 0
        spare = progress.in_flight.view(progress.fleet, progress.uuids) if wanted else []
        if wanted and len(placed) > 1:
            spare = self.pipeline.rank(spare, request, len(placed) - 1, random)
        chosen = {each.host.key for each in placed}
        zone = self.settings.default_availability_zone

        def alternate(host: Host) -> Selection:
            candidate = candidates[host.uuid][0] if candidates else None
            return Selection.of(host, candidate, zone, self.pipeline.limits(host, request))

        answer = []
        for each in placed:
            uuid = each.request.instance_uuid
            LOG.debug('Selected host: %s', each.host, extra={'instance_uuid': uuid})
            others = (
                host
                for host in spare
                if host.key not in chosen and host.cell_uuid == each.host.cell_uuid
            )
            first = Selection.of(each.host, each.candidate, zone, each.flight.limits)
            answer.append([first, *map(alternate, islice(others, wanted))])
        return answer


def _servers(request: Request) -> Sequence[str | None]:
    return request.instance_uuids or [None] * request.count


def _not_enough(progress: Progress) -> NoValidHost:
    LOG.debug(
        'There are %d hosts available but %d instances requested to build.',
        len(progress.placed),
        progress.request.count,
    )
    return NoValidHost(NOT_ENOUGH)
