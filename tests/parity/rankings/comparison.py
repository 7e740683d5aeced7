# SPDX-License-Identifier: Apache-2.0
"""What two schedulers did with the same call, side by side."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from tests.lab.descriptions import Case
from tests.parity.comparison import Difference, Figures
from tests.parity.known import Known, explanation
from tests.parity.rankings.pair import Ranked, Seen

PRECISION = 1e-9
SHOWN = 5
"""So many differences are told; more follow from the same mistakes."""
Matter = tuple[str, Any, Any]
"""Its name, and what each side has."""


class Comparison:
    """What a run of calls came to."""

    def __init__(self, name: str, intended: Sequence[Known]) -> None:
        self.figures = Figures(f'rankings: {name}')
        self.different: list[Difference] = []
        self._intended = intended

    def add(self, case: Case, nova: Seen, ours: Seen) -> None:
        """Note what both sides did with a call."""
        self.figures.cases += 1
        self.figures.outcomes[nova.outcome] += 1
        each = difference(case, nova, ours)
        if each and (reason := self._reason(each)):
            self.figures.known[reason] += 1
        elif each:
            self.different.append(each)

    def _reason(self, each: Difference) -> str | None:
        """The intended difference that this one is; queries to Placement never differ."""
        if 'queries' in each.nova_says:
            return None
        return explanation(self._intended, self.figures.name, each.case, each.nova, each.ours)

    @property
    def result(self) -> tuple[Figures, Sequence[Difference]]:
        """Figures, and some of the differences that are not meant."""
        return self.figures, self.different[:SHOWN]


def difference(case: Case, nova: Seen, ours: Seen) -> Difference | None:
    """What the two sides do differently with a call; the earliest matter in a decision comes
    first, since the others may follow from it."""
    found = [
        *_unless(nova.queries == ours.queries, 'queries', nova.queries, ours.queries),
        *_on_the_way(nova, ours),
        *_unless(nova.fault == ours.fault, 'fault', nova.fault, ours.fault),
        *_unless(nova.claims == ours.claims, 'claims', nova.claims, ours.claims),
        *_unless(nova.written == ours.written, 'written claims', nova.written, ours.written),
        *_in_answers(readable(nova.answer), readable(ours.answer)),
    ]
    theirs = {matter: value for matter, value, _ in found}
    mine = {matter: value for matter, _, value in found}
    return Difference(case, nova.outcome, ours.outcome, theirs, mine) if found else None


def _on_the_way(nova: Seen, ours: Seen) -> Iterator[Matter]:
    """What the logs tell; the end of it, where we claimed for all servers at once in vain
    and then, as nova, for one after the other."""
    left, rankings = ours.left, ours.rankings
    if ours.began_again:
        rankings = rankings[len(rankings) - len(nova.rankings) :]
        left = left[len(left) - len(nova.left) :]
    yield from _unless(nova.left == left, 'left by filters', nova.left, left)
    yield from _in_rankings(nova.rankings, rankings)


def _unless(same: bool, matter: str, nova: Any, ours: Any) -> list[Matter]:
    return [] if same else [(matter, nova, ours)]


def readable(answer: Any) -> Any:
    """An answer with its objects as dicts, the JSON texts in them decoded, and sets, which
    travel as lists, in order."""
    if isinstance(answer, list):
        return [readable(each) for each in answer]
    if not isinstance(answer, dict):
        return answer
    fields = {
        name: readable(value) for name, value in answer.get('nova_object.data', answer).items()
    }
    if 'nova_object.data' in answer:
        fields['object'] = answer['nova_object.name'], answer['nova_object.version']
    if 'physnets' in fields:
        fields['physnets'] = sorted(fields['physnets'])
    if 'allocation_request' in fields:
        fields['allocation_request'] = json.loads(fields['allocation_request'])
    return fields


def ties(rankings: Sequence[Sequence[Ranked]]) -> int:
    """How many hosts weigh the same as the one in front of them."""
    return sum(
        _close(a.weight, b.weight) for ranking in rankings for a, b in itertools.pairwise(ranking)
    )


def _in_rankings(
    nova: Sequence[Sequence[Ranked]], ours: Sequence[Sequence[Ranked]]
) -> Iterator[Matter]:
    """The first ranking that differs: another order, or other figures for a host."""
    if len(nova) != len(ours):
        yield 'times weighed', len(nova), len(ours)
    for number, (theirs, mine) in enumerate(zip(nova, ours, strict=False)):
        matter = f'ranking {number}'
        if [(each.host, each.node) for each in theirs] != [(each.host, each.node) for each in mine]:
            yield matter, _in_short(theirs), _in_short(mine)
            return
        for a, b in zip(theirs, mine, strict=True):
            if not _alike(a, b):
                yield f'{matter}, {a.node}', vars(a), vars(b)
                return


def _in_short(ranking: Sequence[Ranked]) -> list[str]:
    return [f'{each.node} {each.weight}' for each in ranking]


def _alike(a: Ranked, b: Ranked) -> bool:
    return replace(a, weight=0) == replace(b, weight=0) and _close(a.weight, b.weight)


def _close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=PRECISION, abs_tol=PRECISION)


def _in_answers(nova: Any, ours: Any, where: str = 'answer') -> Iterator[Matter]:
    """The innermost places where two answers part."""
    if isinstance(nova, list) and isinstance(ours, list) and len(nova) == len(ours):
        nova, ours = (dict(enumerate(each)) for each in (nova, ours))
    if isinstance(nova, dict) and isinstance(ours, dict) and nova.keys() == ours.keys():
        for key in nova:
            yield from _in_answers(nova[key], ours[key], f'{where}[{key}]')
    elif nova != ours:
        yield where, nova, ours
