# SPDX-License-Identifier: Apache-2.0
"""A query for candidates with one constraint less, for each of its constraints in turn."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode

_NAME = re.compile(r'(resources|required|member_of|in_tree)(.*)$')
_LISTS = ('resources', 'required', 'root_required')

Parameters = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Relaxed:
    """A query without a constraint.

    :ivar kind: ``resource``, ``trait``, ``aggregates``, ``host``, or the parameter.
    :ivar value: what is left out, as it stands in the query.
    :ivar group: the suffix of the request group that it stood in.
    """

    kind: str
    value: str
    group: str
    string: str


def relaxed(string: str) -> list[Relaxed]:
    """The queries, those that tell most first: what is asked of one host in a tree or of an
    aggregate, traits, then amounts. Each asks for one candidate alone."""
    parameters = [each for each in parse_qsl(string) if each[0] != 'limit']
    found = [each for place in range(len(parameters)) for each in _without(parameters, place)]
    return sorted(found, key=lambda each: _ORDER.index(each.kind))


def whole(string: str) -> str:
    """The query itself, for one candidate alone."""
    return _encoded([each for each in parse_qsl(string) if each[0] != 'limit'])


_KINDS = {
    'resources': 'resource',
    'required': 'trait',
    'member_of': 'aggregates',
    'in_tree': 'host',
}
_ORDER = ('host', 'aggregates', 'trait', 'resource', 'group_policy', 'same_subtree')


def _without(parameters: Parameters, place: int) -> Iterator[Relaxed]:
    """Without one parameter, or one element of a list; a list is never left empty unless
    that is what is asked."""
    name, value = parameters[place]
    match = _NAME.match(name.removeprefix('root_'))
    base, group = (match[1], match[2]) if match else (name, '')
    kind = _KINDS.get(base, base)
    before, after = parameters[:place], parameters[place + 1 :]
    if base not in _LISTS:
        yield Relaxed(kind, value, group, _encoded([*before, *after]))
        return
    parts = value.split(',')
    for part in parts:
        others = [each for each in parts if each != part]
        if base == 'resources' and not others:
            # A group has to ask for something.
            others = [f'{part.partition(":")[0]}:1']
            if others == parts:
                continue
        kept = [(name, ','.join(others))] if others else []
        yield Relaxed(kind, part, group, _encoded([*before, *kept, *after]))


def _encoded(parameters: Parameters) -> str:
    return urlencode(sorted([*parameters, ('limit', '1')]))
