# SPDX-License-Identifier: Apache-2.0
"""Requests of the past on hosts of today: what becomes of them, and of the hosts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from novasched.errors import BadPlugin, BadRequest, MetricMissing
from novasched.model.request import Request
from novasched.records import story
from novasched.simulating.filling import until_full
from novasched.simulating.measures import Spread, Use, spread, uses
from novasched.simulating.simulator import Simulator
from novasched.simulating.sources import Entry

UNDECIDED = (BadRequest, BadPlugin, MetricMissing)
"""What is wrong with one request, and not with all of them."""


@dataclass(frozen=True, slots=True)
class Run:
    """What came of the requests under one configuration.

    :ivar answers: the hosts of each request's servers; none where it was refused.
    :ivar refusals: the first lines of refusals, with how many there are of each.
    :ivar probe: how many more servers of the reference flavor fit afterwards.
    """

    name: str
    answers: Sequence[tuple[str, ...]]
    refusals: Counter[str]
    before: tuple[Use, ...]
    after: tuple[Use, ...]
    probe: int | None = None

    @property
    def servers(self) -> int:
        """How many servers were placed."""
        return sum(map(len, self.answers))

    @property
    def refused(self) -> int:
        """How many requests were refused."""
        return self.refusals.total()

    @property
    def spread(self) -> Spread:
        """How full the hosts are then."""
        return spread(self.before, self.after)


def replay(
    name: str, simulator: Simulator, entries: Sequence[Entry], probe: Request | None, most: int
) -> Run:
    """Decide all requests, one after the other.

    :raises NovaschedError: they cannot be decided.
    """
    before = uses(simulator.hosts)
    answers: list[tuple[str, ...]] = []
    refusals: Counter[str] = Counter()
    groups = Groups()
    for number, entry in enumerate(entries):
        try:
            # For new servers: those of then may be there.
            request = simulator.anew(groups.without_the_past(entry))
            outcome = simulator.decide(request)
        except UNDECIDED as error:
            answers.append(())
            refusals[str(error)] += 1
            continue
        answers.append(outcome.hosts)
        if not outcome.hosts:
            refusals[story.headline(outcome.record(number))] += 1
    after = uses(simulator.hosts)
    fits = until_full(simulator, probe, most).fit if probe else None
    return Run(name, answers, refusals, before, after, fits)


class Groups:
    """Server groups of the past: later requests know the hosts of earlier servers, which went
    elsewhere this time."""

    def __init__(self) -> None:
        self._gone: dict[str, set[str]] = defaultdict(set)

    def without_the_past(self, entry: Entry) -> Request:
        """The request whose group is not where earlier requests put it then."""
        group = entry.request.instance_group
        if group is None or group.uuid is None:
            return entry.request
        hosts = group.hosts - self._gone[group.uuid]
        self._gone[group.uuid].update(entry.hosts or ())
        return replace(entry.request, instance_group=replace(group, hosts=hosts))
