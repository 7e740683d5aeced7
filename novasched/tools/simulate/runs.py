# SPDX-License-Identifier: Apache-2.0
"""Runs of many requests: until no more fit, or all requests of a file; and the use of
the hosts afterwards."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from novasched.observe.records import render
from novasched.observe.records.record import Record
from novasched.scheduler.errors import BadPlugin, BadRequest, MetricMissing
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request
from novasched.tools.shadow.replay import Recorded
from novasched.tools.simulate.simulator import SimulatedDecision, Simulator


@dataclass(frozen=True, slots=True)
class HostUse:
    """Use of a node of a host: instances, and memory (MiB) with what the host keeps for itself."""

    host: str
    node: str
    servers: int
    ram_mb: int
    total_mb: int

    @property
    def share(self) -> float:
        """The part of the memory that is in use; more than 1 where it is overcommitted."""
        return self.ram_mb / self.total_mb if self.total_mb else 0.0


@dataclass(frozen=True, slots=True)
class Spread:
    """All hosts in a few numbers. Deviations are standard deviations over the hosts.

    :ivar touched: the hosts that run more instances than before.
    :ivar empty: those that run none.
    """

    hosts: int
    touched: int
    empty: int
    servers_deviation: float
    ram_deviation_mb: float
    fullest: str
    fullest_share: float


def uses(hosts: Iterable[Host]) -> tuple[HostUse, ...]:
    """The use of each host, in the order of their names."""
    found = []
    for each in sorted(hosts, key=lambda host: (host.host, host.nodename)):
        total = each.total_usable_ram_mb
        used = total - each.free_ram_mb
        found.append(HostUse(each.host, each.nodename, each.num_instances, used, total))
    return tuple(found)


def spread(before: Sequence[HostUse], after: Sequence[HostUse]) -> Spread:
    """Compare hosts before and after. Some may have come or gone meanwhile."""
    if not after:
        return Spread(0, 0, 0, 0.0, 0.0, '', 0.0)
    known = Counter({(use.host, use.node): use.servers for use in before})
    fullest = max(after, key=lambda use: use.share)
    return Spread(
        hosts=len(after),
        touched=sum(use.servers > known[use.host, use.node] for use in after),
        empty=sum(not use.servers for use in after),
        servers_deviation=statistics.pstdev(use.servers for use in after),
        ram_deviation_mb=statistics.pstdev(use.ram_mb for use in after),
        fullest=fullest.host,
        fullest_share=fullest.share,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The use of all hosts before some requests and after them."""

    before: tuple[HostUse, ...]
    after: tuple[HostUse, ...]

    @property
    def spread(self) -> Spread:
        """The use of the hosts afterwards."""
        return spread(self.before, self.after)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled(Change):
    """Number of placed instances by host, and the decision that refused the next; None where no
    more were requested."""

    placed: Mapping[str, int]
    refused: SimulatedDecision | None

    @property
    def fit(self) -> int:
        return sum(self.placed.values())

    @property
    def refusal(self) -> Record | None:
        """The record of the decision that refused one."""
        return self.refused.record(self.fit) if self.refused else None


def until_full(simulator: Simulator, request: Request, most: int) -> Filled:
    """Place instances like those of a request until one is refused, or ``most`` are there.

    :raises BadRequest: such a request claims nothing, so that any number of them fits.
    :raises NovaschedError: it cannot be decided.
    """
    if request.is_rebuild:
        raise BadRequest('a rebuild takes nothing, so that it can be repeated for ever')
    before = uses(simulator.hosts)
    placed: Counter[str] = Counter()
    refused: SimulatedDecision | None = None
    while refused is None and placed.total() + request.count <= most:
        outcome = simulator.decide(simulator.anew(request))
        placed.update(outcome.decision.hosts)
        if not outcome.decision.hosts:
            refused = outcome
    after = uses(simulator.hosts)
    return Filled(placed=dict(placed.most_common()), refused=refused, before=before, after=after)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run(Change):
    """Results of the requests under one configuration.

    :ivar answers: the hosts of each request's instances; none where it was refused.
    :ivar refusals: the first lines of refusals, with the number of each.
    :ivar probe: the number of instances of the reference flavor that fit afterwards.
    """

    name: str
    answers: Sequence[tuple[str, ...]]
    refusals: Counter[str]
    probe: int | None

    @property
    def servers(self) -> int:
        return sum(map(len, self.answers))


def replay(
    name: str, simulator: Simulator, entries: Sequence[Recorded], probe: Request | None, most: int
) -> Run:
    """Decide all requests, one after the other.

    :raises NovaschedError: they cannot be decided.
    """
    before = uses(simulator.hosts)
    answers: list[tuple[str, ...]] = []
    refusals: Counter[str] = Counter()
    past: dict[str, set[str]] = defaultdict(set)
    for number, entry in enumerate(entries):
        try:
            # For new instances: those of then may be there.
            outcome = simulator.decide(simulator.anew(without_the_past(entry, past)))
        except (BadRequest, BadPlugin, MetricMissing) as error:  # of this request alone
            answers.append(())
            refusals[str(error)] += 1
            continue
        answers.append(outcome.decision.hosts)
        if not outcome.decision.hosts:
            refusals[render.headline(outcome.record(number))] += 1
    after = uses(simulator.hosts)
    fits = until_full(simulator, probe, most).fit if probe else None
    return Run(
        name=name, answers=answers, refusals=refusals, before=before, after=after, probe=fits
    )


def without_the_past(entry: Recorded, past: dict[str, set[str]]) -> Request:
    """The request whose group is not where earlier requests, which go elsewhere this time, put
    it then.

    :param past: the hosts that earlier requests got, by the UUID of their group; added to.
    """
    group = entry.request.instance_group
    if group is None or group.uuid is None:
        return entry.request
    hosts = group.hosts - past[group.uuid]
    past[group.uuid].update(entry.hosts or ())
    return replace(entry.request, instance_group=replace(group, hosts=hosts))
