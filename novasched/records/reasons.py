# SPDX-License-Identifier: Apache-2.0
"""Reasons of many hosts, told as few: those that differ in their numbers alone are one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from novasched.records.record import Cause
from novasched.secrets import hide

MOST = 5
"""So many reasons of a filter are told apart."""
LONGEST = 200
OTHERS = 'other reasons'

_UUID = r'[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}'
_ADDRESS = r'\d+(?:\.\d+){3}'
_NUMBER = r'(?<![\w.:/-])-?\d+(?:\.\d+)?(?:e\+\d+)?(?![\w:/-]|\.\d)'
_VARIES = re.compile(rf'{_UUID}|{_ADDRESS}(?!/)|{_NUMBER}')
_IS_NUMBER = re.compile(r'-?\d+(?:\.\d+)?(?:e\+\d+)?$')


def counted(reasons: Sequence[str]) -> Mapping[str, int]:
    """How often each stands there. Often all are one, which is seen sooner than counted."""
    if reasons and reasons.count(reasons[0]) == len(reasons):
        return {reasons[0]: len(reasons)}
    return Counter(reasons)


def grouped(counts: Mapping[str, int]) -> tuple[Cause, ...]:
    """Reasons with the number of hosts of each, the commonest first; every host is counted."""
    alike: dict[str, _Alike] = {}
    latest: _Alike | None = None
    for reason, hosts in counts.items():
        # To look what varies takes long, and the next reason is mostly like the one before.
        if latest is not None and latest.takes(reason, hosts):
            continue
        shape = _VARIES.sub('\0', reason)
        if shape not in alike:
            alike[shape] = _Alike(reason, hosts)
        else:
            latest = alike[shape]
            latest.add(reason, hosts)
    causes = [Cause(told(each.text), each.hosts) for each in alike.values()]
    causes.sort(key=lambda cause: (-cause.hosts, cause.reason))
    if len(causes) > MOST:
        rest = sum(cause.hosts for cause in causes[MOST - 1 :])
        causes[MOST - 1 :] = [Cause(OTHERS, rest)]
    return tuple(causes)


def all_told(texts: Iterable[str]) -> dict[str, str]:
    """Each of many texts as :func:`told` has it; what is secret is looked for once."""
    every = list(dict.fromkeys(texts))
    lines = hide('\n'.join(map(_one_line, every))).split('\n')
    return {text: _cut(line) for text, line in zip(every, lines, strict=True)}


def told(text: str) -> str:
    """A text on one line, of a length that can be kept, without what is secret."""
    return _cut(hide(_one_line(text)))


def _one_line(text: str) -> str:
    return ' '.join(text.split())


def _cut(line: str) -> str:
    return line if len(line) <= LONGEST else f'{line[: LONGEST - 1]}…'


class _Alike:
    """Reasons that differ in what varies alone."""

    def __init__(self, first: str, hosts: int) -> None:
        self.hosts = hosts
        self._others: list[str] = []
        self._first = first

    @cached_property
    def _constant(self) -> list[str]:
        return _VARIES.split(self._first)

    @cached_property
    def _like(self) -> re.Pattern[str]:
        return re.compile(f'({_VARIES.pattern})'.join(map(re.escape, self._constant)))

    def takes(self, reason: str, hosts: int) -> bool:
        """Add a reason if it is like the others."""
        like = self._like.fullmatch(reason) is not None
        if like:
            self.add(reason, hosts)
        return like

    def add(self, reason: str, hosts: int) -> None:
        """Another reason like these, of so many hosts."""
        self._others.append(reason)
        self.hosts += hosts

    @property
    def text(self) -> str:
        """What stands for all of them."""
        if not self._others:
            return self._first
        found = map(self._like.fullmatch, (self._first, *self._others))
        columns = zip(*(each.groups() for each in found if each), strict=True)
        first, *others = self._constant
        return first + ''.join(
            f'{_range(set(column))}{text}' for column, text in zip(columns, others, strict=True)
        )


def _range(values: set[str]) -> str:
    if len(values) == 1:
        return values.pop()
    if not all(map(_IS_NUMBER.match, values)):
        return 'this or that'
    return f'{min(values, key=float)} to {max(values, key=float)}'
