# SPDX-License-Identifier: Apache-2.0
"""Runs cases on both sides, finds what differs, and makes it small."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.lab.descriptions import Case, complete
from tests.lab.nova_answers import Nova
from tests.parity.known import Known, explanation

BATCH = 100
PRECISION = 1e-9
KEPT = {
    'id', 'cpuset', 'pcpuset', 'siblings', 'memory', 'mempages', 'pagesize', 'cpu_policy', 'count',
    'request_id',
}  # fmt: skip
"""Keys without whose whole value a description stands for nothing that there is."""

PASSES, REJECTS, FAILS, ANSWERS = 'passes', 'rejects', 'fails', 'answers'


@dataclass
class Figures:
    name: str
    cases: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    known: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Difference:
    """A case that the two sides answer differently: what each does, and says."""

    case: Case
    nova: str
    ours: str
    nova_says: Any
    ours_says: Any

    @property
    def kind(self) -> tuple[str, ...]:
        """What a smaller case must show as well."""
        says = self.nova_says, self.ours_says
        errors = [each['error'] for each in says if isinstance(each, dict) and 'error' in each]
        return self.nova, self.ours, *errors

    def __str__(self) -> str:
        return (
            f'nova {self.nova}, ours {self.ours}:\n{json.dumps(self.case)}\n'
            f'nova: {self.nova_says}\nours: {self.ours_says}'
        )


Differences = Callable[[Case, Any, Any, Figures], Iterator[Difference]]


@dataclass(frozen=True)
class Comparison:
    """One command of nova's side, the same on ours, and how their answers compare."""

    nova: Nova
    command: str
    ours: Callable[[Case], Any]
    differences: Differences
    known: Sequence[Known] = ()
    described: bool = True
    """Cases are descriptions, which are completed, and of which parts can be dropped."""

    def run(self, name: str, cases: Iterable[Case]) -> tuple[Figures, list[Difference]]:
        """Both sides on all cases; the differences that are not known, one of a kind, small."""
        figures, found = Figures(name), dict[tuple[str, ...], Difference]()
        for batch in _batches(cases):
            full = [self._complete(name, case) for case in batch]
            self.nova.put(self.command, full)
            mine = [self.ours(case) for case in full]
            theirs = self.nova.answers()
            for each in itertools.chain.from_iterable(
                self.differences(*answers, figures)
                for answers in zip(batch, theirs, mine, strict=True)
            ):
                reason = self._reason(name, each)
                if reason:
                    figures.known[reason] += 1
                elif each.kind not in found:
                    found[each.kind] = self._smaller(name, each) if self.described else each
        return figures, list(found.values())

    def _reason(self, name: str, found: Difference) -> str | None:
        return explanation(self.known, name, found.case, found.nova, found.ours)

    def _smaller(self, name: str, found: Difference) -> Difference:
        """Drop parts of the case one by one while an unknown difference of the kind stays."""
        while smaller := next(self._smaller_ones(name, found), None):
            found = smaller
        return found

    def _smaller_ones(self, name: str, found: Difference) -> Iterator[Difference]:
        size = _size(found.case)
        for part_less in _one_part_less(found.case):
            for each in self._again(name, part_less):
                alike = each.kind == found.kind and _size(each.case) < size
                if alike and not self._reason(name, each):
                    yield each

    def _again(self, name: str, case: Case) -> list[Difference]:
        full = self._complete(name, case)
        theirs = self.nova.ask(self.command, [full])[0]
        return list(self.differences(case, theirs, self.ours(full), Figures('')))

    def _complete(self, name: str, case: Case) -> Case:
        return {**complete(case), 'plugins': [name]} if self.described else case


def verdicts(case: Case, theirs: Any, mine: Any, figures: Figures) -> Iterator[Difference]:
    """Each host passes on both sides, with the same limits, or on neither."""
    for i, host in enumerate(case.get('hosts', ())):
        nova = theirs[i] if isinstance(theirs, list) else theirs
        ours = mine[i] if isinstance(mine, list) else mine
        figures.cases += 1
        figures.outcomes[_verdict(nova)] += 1
        if not _agree(nova, ours):
            alone = {**case, 'hosts': [{'name': f'host{i + 1}', **host}]}
            yield Difference(alone, _verdict(nova), _verdict(ours), nova, ours)


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
    return PASSES if answer['passes'] else REJECTS


def weights(case: Case, theirs: Any, mine: Any, figures: Figures) -> Iterator[Difference]:
    """The same hosts with equal weights, in the same order where these differ."""
    figures.cases += 1
    figures.outcomes[_weighed(theirs)] += 1
    if not _equal(theirs, mine):
        yield Difference(case, _weighed(theirs), _weighed(mine), theirs, mine)


def _weighed(answer: Any) -> str:
    return ANSWERS if isinstance(answer, list) else FAILS


def _equal(theirs: Any, mine: Any) -> bool:
    if isinstance(theirs, dict) or isinstance(mine, dict):
        return isinstance(theirs, dict) and isinstance(mine, dict)
    by_host = {(host, node): weight for host, node, weight in mine}
    same = len(theirs) == len(mine) and all(
        _close(weight, by_host.get((host, node), math.nan)) for host, node, weight in theirs
    )
    return same and all(
        a[:2] == b[:2] or _close(a[2], b[2]) for a, b in zip(theirs, mine, strict=True)
    )


def queries(case: Case, theirs: Any, mine: Any, figures: Figures) -> Iterator[Difference]:
    """The same queries, text by text; a request that one side refuses the other does too."""
    figures.cases += 1
    figures.outcomes[_weighed(theirs)] += 1
    refused = 'error' in theirs and 'error' in mine and mine['at'] == 'request'
    if theirs != mine and not refused:
        yield Difference(case, _weighed(theirs), _weighed(mine), theirs, mine)


def _close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=PRECISION, abs_tol=PRECISION) or (a != a and b != b)


def _size(case: Case) -> int:
    return len(json.dumps(case))


def _batches(cases: Iterable[Case]) -> Iterator[list[Case]]:
    left = iter(cases)
    while batch := list(itertools.islice(left, BATCH)):
        yield batch


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
