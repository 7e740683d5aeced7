# SPDX-License-Identifier: Apache-2.0
"""How many more fit: one request like the other, until the first refusal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from novasched.errors import BadRequest
from novasched.model.request import Request
from novasched.records import story
from novasched.records.record import Record
from novasched.simulating.measures import Spread, Use, spread, uses
from novasched.simulating.simulator import Outcome, Simulator


@dataclass(frozen=True, slots=True)
class Filled:
    """How many servers were placed, by host, and the decision that refused the next; None
    where it was not asked for. That one did not look at candidates ``beyond`` the limit, and
    those that are ``full`` are not offered any more, for want of which resource classes."""

    placed: Mapping[str, int]
    refusal: Record | None
    before: tuple[Use, ...]
    after: tuple[Use, ...]
    beyond: int = 0
    full: Mapping[str, int] = field(default_factory=dict)

    @property
    def fit(self) -> int:
        """How many servers fit."""
        return sum(self.placed.values())

    @property
    def headline(self) -> str | None:
        """What stops the next one."""
        return None if self.refusal is None else story.headline(self.refusal)

    @property
    def spread(self) -> Spread:
        """How full the hosts are then."""
        return spread(self.before, self.after)


def until_full(simulator: Simulator, request: Request, most: int) -> Filled:
    """Place servers like those of a request until one is refused, or so many are there.

    :raises BadRequest: such a request claims nothing, so that any number of them fits.
    :raises NovaschedError: it cannot be decided.
    """
    if request.is_rebuild:
        raise BadRequest('a rebuild takes nothing, so that it can be repeated for ever')
    before = uses(simulator.hosts)
    placed: Counter[str] = Counter()
    refused: Outcome | None = None
    while refused is None and placed.total() + request.count <= most:
        outcome = simulator.decide(simulator.anew(request))
        placed.update(outcome.hosts)
        if not outcome.hosts:
            refused = outcome
    hosts, after = dict(placed.most_common()), uses(simulator.hosts)
    if refused is None:
        return Filled(hosts, None, before, after)
    record = refused.record(placed.total())
    return Filled(hosts, record, before, after, refused.beyond, refused.full)
