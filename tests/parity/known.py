# SPDX-License-Identifier: Apache-2.0
"""The differences that are meant, from known.yaml."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.lab.descriptions import Case
from tests.parity.reasons import REASONS

LISTS = ('of', 'when', 'nova', 'ours')


@dataclass(frozen=True)
class Known:
    """An intended difference: whose, in which cases, what each side does, and why."""

    id: str
    of: tuple[str, ...]
    when: tuple[str, ...]
    nova: tuple[str, ...]
    ours: tuple[str, ...]
    why: str
    most: float = 1.0
    """In what part of a run's cases it occurs at the most."""
    smallest: Mapping[str, Any] | None = None
    """An example of nova's answer that cannot be made any smaller."""

    def covers(self, name: str, case: Case, nova: str, ours: str) -> bool:
        return (
            _subject(name) in self.of
            and nova in self.nova
            and ours in self.ours
            and all(REASONS[reason](case) for reason in self.when)
        )


def load() -> list[Known]:
    """All of them; a name in ``when`` is one of :mod:`tests.parity.reasons`."""
    rows = yaml.safe_load(Path(__file__).with_name('known.yaml').read_text()) or []
    for row in rows:
        for key in LISTS:
            row[key] = (row[key],) if isinstance(row[key], str) else tuple(row[key])
    return [Known(**row) for row in rows]


def too_frequent(known: Iterable[Known], seen: Mapping[str, int], cases: int) -> list[str]:
    """Those that occurred more often than they may: something else hides behind them."""
    return [each.id for each in known if seen.get(each.id, 0) > max(3.0, each.most * cases)]


def explanation(known: Iterable[Known], name: str, case: Case, nova: str, ours: str) -> str | None:
    """The id of the intended difference that this one is."""
    return next((each.id for each in known if each.covers(name, case, nova, ours)), None)


def stale(known: Iterable[Known], seen: Collection[str], ran: Iterable[str]) -> list[str]:
    """Those that did not occur, though everything that they are said of ran."""
    subjects = {_subject(name) for name in ran}
    return [each.id for each in known if each.id not in seen and subjects.issuperset(each.of)]


def _subject(name: str) -> str:
    """What a run is about: ``query`` for ``query: networks``."""
    return name.partition(':')[0]
