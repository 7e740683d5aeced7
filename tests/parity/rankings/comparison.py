# SPDX-License-Identifier: Apache-2.0
"""What two schedulers did with the same call, side by side."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from typing import Any

from tests.lab.descriptions import Case
from tests.parity.comparison import Difference, close
from tests.parity.rankings.pair import Ranked, Seen

PARTS = 20
"""So many parts of a difference are told; more follow from the same mistakes."""


def difference(case: Case, nova: Seen, ours: Seen) -> Difference:
    """What the two sides do differently with a call; the earliest matter in a decision comes
    first, since the others may follow from it."""
    theirs, mine = _matters(nova), _matters(ours)
    if ours.began_again:
        # We claimed for all servers at once in vain, and then, as nova, for one after the other.
        for matter in ('left by filters', 'rankings'):
            mine[matter] = mine[matter][len(mine[matter]) - len(theirs[matter]) :]
    parts = list(itertools.islice(_parts(theirs, mine), PARTS))
    theirs = {part: value for part, value, _ in parts}
    mine = {part: value for part, _, value in parts}
    return Difference(case, nova.outcome, ours.outcome, theirs, mine, agree=not parts)


def _matters(seen: Seen) -> dict[str, Any]:
    return {
        'queries': seen.queries,
        'left by filters': seen.left,
        'rankings': seen.rankings,
        'fault': seen.fault,
        'claims': seen.claims,
        'written claims': seen.written,
        'answer': readable(seen.answer),
    }


def _parts(nova: Any, ours: Any, where: str = '') -> Iterator[tuple[str, Any, Any]]:
    """The innermost places where two values part, and what each side has there."""
    if isinstance(nova, list) and isinstance(ours, list) and len(nova) == len(ours):
        nova, ours = (dict(enumerate(each)) for each in (nova, ours))
    if isinstance(nova, dict) and isinstance(ours, dict) and nova.keys() == ours.keys():
        for key in nova:
            yield from _parts(nova[key], ours[key], f'{where}[{key}]')
    elif isinstance(nova, float) and isinstance(ours, float) and close(nova, ours):
        return
    elif nova != ours:
        yield where, nova, ours


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
        close(a['weight'], b['weight'])
        for ranking in rankings
        for a, b in itertools.pairwise(ranking)
    )
