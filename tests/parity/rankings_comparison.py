# SPDX-License-Identifier: Apache-2.0
"""What two schedulers did with the same call, side by side."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl

from tests.parity.rankings_pair import Ranked, Seen

PRECISION = 1e-9
Matters = dict[str, Any]
Matter = tuple[str, Any, Any]
"""Its name, and what each side has."""

LISTS = ('member_of', 'required', 'resources', 'same_subtree')
"""Parameters whose value is a list in any order."""


def differences(nova: Seen, ours: Seen) -> tuple[Matters, Matters]:
    """What differs, by matter, as nova has it and as we have it; the earliest matter in a
    decision comes first, since the others may follow from it."""
    found = [
        *_unless(_same_queries(nova, ours), 'queries', nova.queries, ours.queries),
        *_unless(nova.filtered == ours.filtered, 'left by filters', nova.filtered, ours.filtered),
        *_in_rankings(nova.rankings, ours.rankings),
        *_unless(nova.fault == ours.fault, 'fault', nova.fault, ours.fault),
        *_unless(nova.claims == ours.claims, 'claims', nova.claims, ours.claims),
        *_unless(nova.owners == ours.owners, 'owners of claims', nova.owners, ours.owners),
        *_in_answers(selections(nova.answer), selections(ours.answer)),
    ]
    theirs: Matters = {matter: value for matter, value, _ in found}
    return theirs, {matter: value for matter, _, value in found}


def _unless(same: bool, matter: str, nova: Any, ours: Any) -> list[Matter]:
    return [] if same else [(matter, nova, ours)]


def _same_queries(nova: Seen, ours: Seen) -> bool:
    return [parameters(each) for each in nova.queries] == [
        parameters(each) for each in ours.queries
    ]


def parameters(query: str) -> list[tuple[str, Any]]:
    """The parameters of a query string; their order, and that of lists, does not matter."""
    return sorted((name, _unordered(name, value)) for name, value in parse_qsl(query))


def _unordered(name: str, value: str) -> list[str]:
    kind, colon, names = (
        value.rpartition('in:') if name.startswith('member_of') else ('', '', value)
    )
    return [kind + colon, *sorted(names.split(','))] if name.startswith(LISTS) else [value]


def selections(answer: Any) -> Any:
    """An answer with its objects as dicts, and the JSON texts in them decoded."""
    if isinstance(answer, list):
        return [selections(each) for each in answer]
    if isinstance(answer, dict) and 'nova_object.data' in answer:
        fields = {name: selections(value) for name, value in answer['nova_object.data'].items()}
        fields['object'] = answer['nova_object.name'], answer['nova_object.version']
        if 'allocation_request' in fields:
            fields['allocation_request'] = json.loads(fields['allocation_request'])
        return fields
    return answer


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
