# SPDX-License-Identifier: Apache-2.0
"""The scheduler on a landscape of its own: it decides one request after the other, and each
finds what those before it have left."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from novasched.drivers import Parts
from novasched.drivers.filter_scheduler import FilterScheduler
from novasched.errors import NoValidHost, NovaschedError
from novasched.inflight import InFlight
from novasched.model.host import Host
from novasched.model.request import InstanceGroup, Request
from novasched.model.selection import Selection
from novasched.recorder.keeper import Ask as Inquire
from novasched.records.account import Account
from novasched.records.causes import Causes
from novasched.records.record import Inquiry, Record
from novasched.simulating.landscape import Landscape, Settled
from novasched.simulating.rehearsal import Rehearsal

SEEDS = 32
"""Bits of the seed of a decision, as the daemon draws it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a request: the host of each server, none if it was refused.

    :ivar beyond: how many candidates were not looked at, for the limit of the query.
    :ivar full: how many there are not any more, for want of which resource classes.
    """

    hosts: tuple[str, ...]
    account: Account
    seed: int
    inquiry: Inquiry | None = None
    beyond: int = 0
    full: Mapping[str, int] = field(default_factory=dict)

    def record(self, number: int) -> Record:
        """What is kept of it; no times, which differ from one run to the next."""
        record = self.account.record(f'simulated-{number}', 0.0)
        return replace(record, steps={}, inquiry=self.inquiry)

    def causes(self) -> Causes:
        """Why not, for each host that could have been one."""
        return self.account.causes()


class Simulator:
    """Decides, and remembers what it decided.

    :param real: the scheduler that nova.conf describes; of it nothing is changed.
    :param moment: nothing that is older is used (monotonic seconds).
    :param inquire: finds out why Placement itself offers nothing.
    """

    def __init__(
        self,
        real: FilterScheduler,
        placement: Rehearsal,
        seed: int,
        moment: float,
        inquire: Inquire | None = None,
    ) -> None:
        settings = self.settings = real.pipeline.settings
        self.placement = placement
        self.landscape = Landscape(real.hosts, settings, moment)
        self._random = Random(seed)
        self._moment = moment
        self._inquire = inquire
        self._groups: dict[str, InstanceGroup] = {}
        self._driver = FilterScheduler(
            Parts(
                settings,
                real.prefilters,
                placement,
                self.landscape,
                real.pipeline.filters,
                real.pipeline.weighers,
                InFlight(settings, timeout=0),  # what was decided before, hosts show
            )
        )

    @property
    def hosts(self) -> Sequence[Host]:
        """All hosts as they are now."""
        return self.landscape.hosts

    def servers(self, number: int) -> tuple[str, ...]:
        """UUIDs for so many new servers."""
        draw = self._random.getrandbits
        return tuple(str(uuid.UUID(int=draw(128), version=4)) for _ in range(number))

    def anew(self, request: Request) -> Request:
        """The same request for other servers; a rebuild is for the one that it names."""
        if request.is_rebuild:
            return request
        uuids = self.servers(request.count)
        return replace(request, instance_uuids=uuids, instance_uuid=uuids[0])

    def decide(self, request: Request, named: bool = False) -> Outcome:
        """Place the servers of a request, or refuse it.

        :param named: the outcome can tell why not of each single host.
        :raises NovaschedError: it cannot be decided: Placement or a database is away.
        """
        request = replace(self._known(request), arrived=self._moment)
        seed = self._random.getrandbits(SEEDS)
        account = Account(request, seed, lambda: 0.0, detailed=named)
        try:
            answer = self._driver.answer(request, seed, account)
        except NoValidHost as error:
            account.failed(error)
            return self._refused(account, seed)
        account.chose(answer)
        chosen = [selections[0] for selections in answer]
        if not request.is_rebuild:
            self._settle(request, chosen)
        return Outcome(tuple(each.service_host for each in chosen), account, seed)

    def _settle(self, request: Request, chosen: Sequence[Selection]) -> None:
        uuids = request.instance_uuids or [None] * len(chosen)
        self.landscape.settle(
            [
                Settled(request.for_instance(uuid), each)
                for uuid, each in zip(uuids, chosen, strict=True)
            ]
        )
        group = request.instance_group
        if group is not None and group.uuid:
            hosts = group.hosts.union(each.service_host for each in chosen)
            members = group.members.union(request.instance_uuids or ())
            self._groups[group.uuid] = replace(group, hosts=hosts, members=members)

    def _known(self, request: Request) -> Request:
        """The request with the servers that its group has got meanwhile."""
        group = request.instance_group
        if group is None:
            return request
        known = self._groups.get(group.uuid or '', group)
        members = group.members.union(known.members, request.instance_uuids or ())
        group = replace(group, hosts=group.hosts | known.hosts, members=members)
        return replace(request, instance_group=group)

    def _refused(self, account: Account, seed: int) -> Outcome:
        offer, asked = account.record('', 0.0).offer, account.narrowed
        if asked is None or offer is None or not offer.asked:
            return Outcome((), account, seed)
        inquiry = None if offer.candidates else self._why_nothing(asked)
        full = self.placement.full(asked)
        return Outcome((), account, seed, inquiry, self.placement.beyond, full)

    def _why_nothing(self, asked: Request) -> Inquiry | None:
        """Why Placement would offer nothing."""
        found = self.placement.why_nothing(asked)
        if found is not None or self._inquire is None:
            return found
        try:
            return self._inquire(asked)
        except NovaschedError:
            return None
