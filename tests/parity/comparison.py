# SPDX-License-Identifier: Apache-2.0
"""Runs cases on both sides, finds differences, and reduces the cases."""

import itertools
import json
import math
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.lab.daemon import Nova
from tests.lab.descriptions import Case, complete
from tests.parity.known import explanation, too_frequent

SEED = int(os.environ.get('NOVASCHED_PARITY_SEED', '1'))
"""Seed of the random cases. The same seed gives the same cases."""
TIMES = int(os.environ.get('NOVASCHED_PARITY_TIMES', '1'))
"""Factor for the number of cases, for a longer search."""
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
"""Keys that a description needs: without the keys it would describe nothing real."""

PASSES = 'passes'
REJECTS = 'rejects'
FAILS = 'fails'
ANSWERS = 'answers'


@dataclass(frozen=True)
class Difference:
    """A case with the outcomes and answers of both sides. The sides may agree."""

    case: Case
    nova: str
    ours: str
    nova_says: Any
    ours_says: Any
    agree: bool = False

    @property
    def kind(self) -> tuple[str, ...]:
        """Properties that a reduced case must share: the outcomes, and the errors."""
        errors = []
        for answer in (self.nova_says, self.ours_says):
            if isinstance(answer, dict) and 'error' in answer:
                errors.append(answer['error'])
        return self.nova, self.ours, *errors

    def reason(self, name: str) -> str | None:
        """The id of the intended difference that covers this difference, or None."""
        return explanation(name, self.case, self.nova, self.ours)

    def __str__(self) -> str:
        return (
            f'nova {self.nova}, ours {self.ours}:\n{json.dumps(self.case)}\n'
            f'nova: {self.nova_says}\nours: {self.ours_says}'
        )


@dataclass
class Figures:
    """The number of cases of a run, by outcome, and the number of intended
    differences by id."""

    name: str
    cases: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    known: Counter[str] = field(default_factory=Counter)

    def differs(self, difference: Difference) -> bool:
        """Count a case; True if the sides differ and no intended difference covers the
        case."""
        self.cases += 1
        self.outcomes[difference.nova] += 1
        if difference.agree:
            return False

        reason = difference.reason(self.name)
        if reason:
            self.known[reason] += 1
        return not reason


FIGURES: list[Figures] = []
"""The figures of all runs, for the summary."""

Differences = Callable[[Case, Any, Any], Iterable[Difference]]


@dataclass(frozen=True)
class Comparison:
    """A command of nova's side, the same command of novasched, and the comparison of
    the answers."""

    nova: Nova
    command: str
    ours: Callable[[Case], Any]
    differences: Differences
    described: bool = True
    """True if cases are descriptions, which are completed, and whose parts can be
    dropped."""

    def run(self, name: str, cases: Iterable[Case], count: int) -> Figures:
        """Run cases through both sides. Fails with the unknown differences, one of a
        kind, reduced."""
        figures = Figures(name)
        examples = dict[tuple[str, ...], Difference]()
        remaining = itertools.islice(cases, count * TIMES)
        while batch := list(itertools.islice(remaining, BATCH)):
            full = [self._complete(name, case) for case in batch]
            self.nova.put(self.command, full)
            mine = [self.ours(case) for case in full]
            theirs = self.nova.answers()

            answers = zip(batch, theirs, mine, strict=True)
            differences = itertools.starmap(self.differences, answers)
            for difference in itertools.chain.from_iterable(differences):
                if figures.differs(difference) and difference.kind not in examples:
                    if self.described:
                        difference = self._smaller(name, difference)
                    examples[difference.kind] = difference
        check(figures, list(examples.values()))
        return figures

    def _smaller(self, name: str, found: Difference) -> Difference:
        """Drop parts of the case, one after the other, while an unknown difference of
        the kind remains."""
        while smaller := next(self._smaller_ones(name, found), None):
            found = smaller
        return found

    def _smaller_ones(self, name: str, found: Difference) -> Iterator[Difference]:
        size = _size(found.case)
        for part_less in _one_part_less(found.case):
            for difference in self._again(name, part_less):
                is_smaller = _size(difference.case) < size
                is_alike = is_smaller and difference.kind == found.kind
                if is_alike and not difference.reason(name):
                    yield difference

    def _again(self, name: str, case: Case) -> list[Difference]:
        full = self._complete(name, case)
        theirs = self.nova.ask(self.command, [full])[0]
        differences = self.differences(case, theirs, self.ours(full))
        return [difference for difference in differences if not difference.agree]

    def _complete(self, name: str, case: Case) -> Case:
        if self.described:
            return {**complete(case), 'plugins': [name]}
        return case


def check(figures: Figures, differences: Sequence[Difference]) -> None:
    """Record the figures of a run, and fail with the unintended differences."""
    FIGURES.append(figures)
    hiding = too_frequent(figures.name, figures.known, figures.cases)
    assert not hiding, 'too frequent to be nothing but what known.yaml says'
    if differences:
        pytest.fail('\n\n'.join(map(str, differences)), pytrace=False)


def verdicts(case: Case, theirs: Any, mine: Any) -> Iterator[Difference]:
    """A host passes on both sides with the same limits, or on no side."""
    for i, host in enumerate(case.get('hosts', ())):
        nova = theirs[i] if isinstance(theirs, list) else theirs
        ours = mine[i] if isinstance(mine, list) else mine
        alone = {**case, 'hosts': [{'name': f'host{i + 1}', **host}]}
        yield Difference(
            alone, _verdict(nova), _verdict(ours), nova, ours, _agree(nova, ours)
        )


def _agree(nova: Any, ours: Any) -> bool:
    """True if the verdicts are equal. Where nova fails, novasched may reject the host,
    or refuse the request."""
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
    """The same hosts have equal weights, and are in the same order where the weights
    differ and nova can compare the weights."""
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
    if len(theirs) != len(mine):
        return False

    by_host = {(host, node): weight for host, node, weight in mine}
    if not all(map(math.isfinite, by_host.values())):
        return False
    has_order = True
    for host, node, weight in theirs:
        if math.isnan(weight):
            # A single NaN scatters all hosts, since nova's sort cannot compare it.
            has_order = False
            continue
        # The greatest number stands for infinity here.
        finite = max(-sys.float_info.max, min(weight, sys.float_info.max))
        if not close(finite, by_host.get((host, node), math.nan)):
            return False

    if not has_order:
        return True
    for their_host, our_host in zip(theirs, mine, strict=True):
        their_weight = by_host[tuple(their_host[:2])]
        if their_host[:2] != our_host[:2] and not close(their_weight, our_host[2]):
            return False
    return True


def queries(case: Case, theirs: Any, mine: Any) -> Iterator[Difference]:
    """The same queries, text by text. A request refused by nova is refused by novasched
    too."""
    refused = 'error' in theirs and 'error' in mine and mine['at'] == 'request'
    agree = theirs == mine or refused
    yield Difference(case, _done(theirs), _done(mine), theirs, mine, agree)


def close(a: float, b: float) -> bool:
    """True if two weights are equal."""
    return math.isclose(a, b, rel_tol=PRECISION, abs_tol=PRECISION)


def _size(case: Case) -> int:
    return len(json.dumps(case))


def _one_part_less(part: Any) -> Iterator[Any]:
    """Copies without a single key or element, the outermost parts first."""
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
