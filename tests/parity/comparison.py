# SPDX-License-Identifier: Apache-2.0
"""Runs cases on both sides, finds what differs, and makes it small."""

import itertools
import json
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.lab.daemon import Nova
from tests.lab.descriptions import Case, complete
from tests.parity.known import explanation, too_frequent

SEED = int(os.environ.get('NOVASCHED_PARITY_SEED', '1'))
"""The same cases for the same seed."""
TIMES = int(os.environ.get('NOVASCHED_PARITY_TIMES', '1'))
"""How many times as many cases as usual; for a search that may take its time."""
BATCH = 100
PRECISION = 1e-9
KEPT = {
    'id',
    'cpuset',
    'pcpuset',
    'siblings',
    'memory',
    'mempages',
    'pagesize',
    'cpu_policy',
    'count',
    'request_id',
}
"""Keys without whose whole value a description stands for nothing that there is."""

PASSES = 'passes'
REJECTS = 'rejects'
FAILS = 'fails'
ANSWERS = 'answers'


@dataclass(frozen=True)
class Difference:
    """A case and what each side does, and says; they may agree."""

    case: Case
    nova: str
    ours: str
    nova_says: Any
    ours_says: Any
    agree: bool = False

    @property
    def kind(self) -> tuple[str, ...]:
        """What a smaller case must show as well."""
        says = self.nova_says, self.ours_says
        errors = [
            each['error'] for each in says if isinstance(each, dict) and 'error' in each
        ]
        return self.nova, self.ours, *errors

    def reason(self, name: str) -> str | None:
        """The id of the intended difference that this one is."""
        return explanation(name, self.case, self.nova, self.ours)

    def __str__(self) -> str:
        return (
            f'nova {self.nova}, ours {self.ours}:\n{json.dumps(self.case)}\n'
            f'nova: {self.nova_says}\nours: {self.ours_says}'
        )


@dataclass
class Figures:
    """How many cases a run has, with which outcomes, and how often the sides differ as
    known."""

    name: str
    cases: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    known: Counter[str] = field(default_factory=Counter)

    def differs(self, each: Difference) -> bool:
        """Count a case; true if its sides differ, and not as intended."""
        self.cases += 1
        self.outcomes[each.nova] += 1
        reason = None if each.agree else each.reason(self.name)
        if reason:
            self.known[reason] += 1
        return not (each.agree or reason)


FIGURES: list[Figures] = []
"""Of all runs, to be told at the end."""

Differences = Callable[[Case, Any, Any], Iterable[Difference]]


@dataclass(frozen=True)
class Comparison:
    """One command of nova's side, the same on ours, and how their answers compare."""

    nova: Nova
    command: str
    ours: Callable[[Case], Any]
    differences: Differences
    described: bool = True
    """Cases are descriptions, which are completed, and of which parts can be
    dropped."""

    def run(self, name: str, cases: Iterable[Case], count: int) -> Figures:
        """So many cases through both sides; fails with the differences that are not
        known, one of a kind, small."""
        figures = Figures(name)
        found = dict[tuple[str, ...], Difference]()
        left = itertools.islice(cases, count * TIMES)
        while batch := list(itertools.islice(left, BATCH)):
            full = [self._complete(name, case) for case in batch]
            self.nova.put(self.command, full)
            mine = [self.ours(case) for case in full]
            theirs = self.nova.answers()
            answers = zip(batch, theirs, mine, strict=True)
            for each in itertools.chain.from_iterable(
                itertools.starmap(self.differences, answers)
            ):
                if figures.differs(each) and each.kind not in found:
                    if self.described:
                        found[each.kind] = self._smaller(name, each)
                    else:
                        found[each.kind] = each
        check(figures, list(found.values()))
        return figures

    def _smaller(self, name: str, found: Difference) -> Difference:
        """Drop parts of the case one by one while an unknown difference of the kind
        stays."""
        while smaller := next(self._smaller_ones(name, found), None):
            found = smaller
        return found

    def _smaller_ones(self, name: str, found: Difference) -> Iterator[Difference]:
        size = _size(found.case)
        for part_less in _one_part_less(found.case):
            for each in self._again(name, part_less):
                alike = each.kind == found.kind and _size(each.case) < size
                if alike and not each.reason(name):
                    yield each

    def _again(self, name: str, case: Case) -> list[Difference]:
        full = self._complete(name, case)
        theirs = self.nova.ask(self.command, [full])[0]
        return [
            each
            for each in self.differences(case, theirs, self.ours(full))
            if not each.agree
        ]

    def _complete(self, name: str, case: Case) -> Case:
        if self.described:
            return {**complete(case), 'plugins': [name]}
        return case


def check(figures: Figures, differences: Sequence[Difference]) -> None:
    """Notes the figures of a run, and fails with the differences that are not meant."""
    FIGURES.append(figures)
    hiding = too_frequent(figures.name, figures.known, figures.cases)
    assert not hiding, 'too frequent to be nothing but what known.yaml says'
    if differences:
        pytest.fail('\n\n'.join(map(str, differences)), pytrace=False)


def verdicts(case: Case, theirs: Any, mine: Any) -> Iterator[Difference]:
    """Each host passes on both sides, with the same limits, or on neither."""
    for i, host in enumerate(case.get('hosts', ())):
        nova, ours = (
            each[i] if isinstance(each, list) else each for each in (theirs, mine)
        )
        alone = {**case, 'hosts': [{'name': f'host{i + 1}', **host}]}
        yield Difference(
            alone, _verdict(nova), _verdict(ours), nova, ours, _agree(nova, ours)
        )


def _agree(nova: Any, ours: Any) -> bool:
    """Where nova fails, rejecting will do, and so will refusing the request."""
    if 'error' in ours:
        return 'error' in nova and ours['at'] == 'request'
    if 'error' in nova:
        return not ours['passes']
    return bool(nova == ours or (not nova['passes'] and not ours['passes']))


def _verdict(answer: Any) -> str:
    if 'error' in answer:
        return FAILS
    if answer['passes']:
        return PASSES
    return REJECTS


def weights(case: Case, theirs: Any, mine: Any) -> Iterator[Difference]:
    """The same hosts with equal weights, in the same order where these differ."""
    yield Difference(
        case, _done(theirs), _done(mine), theirs, mine, _equal(theirs, mine)
    )


def _done(answer: Any) -> str:
    if isinstance(answer, list):
        return ANSWERS
    return FAILS


def _equal(theirs: Any, mine: Any) -> bool:
    if isinstance(theirs, dict) or isinstance(mine, dict):
        return isinstance(theirs, dict) and isinstance(mine, dict)
    by_host = {(host, node): weight for host, node, weight in mine}
    same = len(theirs) == len(mine) and all(
        close(weight, by_host.get((host, node), math.nan))
        for host, node, weight in theirs
    )
    return same and all(
        a[:2] == b[:2] or close(a[2], b[2]) for a, b in zip(theirs, mine, strict=True)
    )


def queries(case: Case, theirs: Any, mine: Any) -> Iterator[Difference]:
    """The same queries, text by text; a request that one side refuses the other does
    too."""
    refused = 'error' in theirs and 'error' in mine and mine['at'] == 'request'
    agree = theirs == mine or refused
    yield Difference(case, _done(theirs), _done(mine), theirs, mine, agree)


def close(a: float, b: float) -> bool:
    """Whether two weights are the same; one that is no number is as another."""
    return math.isclose(a, b, rel_tol=PRECISION, abs_tol=PRECISION) or (
        a != a and b != b
    )


def _size(case: Case) -> int:
    return len(json.dumps(case))


def _one_part_less(part: Any) -> Iterator[Any]:
    """Every way to drop one key or element, the outermost first."""
    if isinstance(part, dict):
        for key in part.keys() - KEPT:
            yield {name: value for name, value in part.items() if name != key}
        for key in part.keys() - KEPT:
            for smaller in _one_part_less(part[key]):
                yield {**part, key: smaller}
    elif isinstance(part, list):
        for i in range(len(part)):
            yield part[:i] + part[i + 1 :]
        for i, value in enumerate(part):
            for smaller in _one_part_less(value):
                yield [*part[:i], smaller, *part[i + 1 :]]
