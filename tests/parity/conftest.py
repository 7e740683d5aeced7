# SPDX-License-Identifier: Apache-2.0
"""How many cases there are, and the figures at the end of the run."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.lab import fixtures
from tests.lab.descriptions import Case
from tests.lab.nova_answers import Nova
from tests.lab.nova_release import NovaRelease
from tests.parity import known
from tests.parity.comparison import Comparison, Difference, Figures
from tests.parity.known import Known

directory, release = fixtures.directory, fixtures.nova

HERE = Path(__file__).parent
SEED_VARIABLE = 'NOVASCHED_PARITY_SEED'
TIMES_VARIABLE = 'NOVASCHED_PARITY_TIMES'
"""How many times as many cases; for a search that may take its time."""

FIGURES = pytest.StashKey[list[Figures]]()
KNOWN = pytest.StashKey[list[Known]]()

Check = Callable[[tuple[Figures, Sequence[Difference]]], None]
Compare = Callable[[Comparison, str, Iterable[Case]], Figures]


@pytest.fixture(scope='session')
def seed() -> int:
    """The same cases for the same seed."""
    return int(os.environ.get(SEED_VARIABLE, '1'))


@pytest.fixture(scope='session')
def times() -> int:
    """How many times as many cases as usual."""
    return int(os.environ.get(TIMES_VARIABLE, '1'))


@pytest.fixture(scope='session')
def nova(release: NovaRelease, directory: Path) -> Iterator[Nova]:
    with closing(Nova(release, directory, HERE / 'nova_side.py')) as side:
        yield side


@pytest.fixture(scope='session')
def hardware(release: NovaRelease, directory: Path) -> Iterator[Nova]:
    """nova's NUMA fitter and statistics of PCI devices, in a child process."""
    with closing(Nova(release, directory, HERE / 'nova_hardware.py')) as side:
        yield side


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    """Thousands of odd cases give as many warnings, which say nothing of a failure."""
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture(scope='session')
def intended(pytestconfig: pytest.Config) -> list[Known]:
    return pytestconfig.stash[KNOWN]


@pytest.fixture
def check(pytestconfig: pytest.Config) -> Check:
    """Notes the figures of a run, and fails with the differences that are not meant."""

    def check(ran: tuple[Figures, Sequence[Difference]]) -> None:
        figures, differences = ran
        pytestconfig.stash[FIGURES].append(figures)
        hiding = known.too_frequent(pytestconfig.stash[KNOWN], figures.known, figures.cases)
        assert not hiding, 'too frequent to be nothing but what known.yaml says'
        if differences:
            pytest.fail('\n\n'.join(map(str, differences)), pytrace=False)

    return check


@pytest.fixture
def compare(intended: Sequence[Known], check: Check) -> Compare:
    """Runs cases through both sides, and checks what comes of it."""

    def compare(comparison: Comparison, name: str, cases: Iterable[Case]) -> Figures:
        figures, differences = replace(comparison, known=intended).run(name, cases)
        check((figures, differences))
        return figures

    return compare


def pytest_configure(config: pytest.Config) -> None:
    config.stash[FIGURES] = []
    config.stash[KNOWN] = known.load()


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Cases and outcomes on nova's side, and differences that were to be expected."""
    ran = config.stash[FIGURES]
    if not ran:
        return
    terminalreporter.section('parity')
    for figures in ran:
        outcomes = ', '.join(f'{name} {n}' for name, n in sorted(figures.outcomes.items()))
        line = f'{figures.name:36} {figures.cases:6} cases: {outcomes}'
        expected = ', '.join(f'{name} {n}' for name, n in sorted(figures.known.items()))
        terminalreporter.line(f'{line}; as known: {expected}' if expected else line)
    seen = {each for figures in ran for each in figures.known}
    for each in known.stale(config.stash[KNOWN], seen, [figures.name for figures in ran]):
        terminalreporter.line(f'known.yaml: {each} no longer occurs', yellow=True)
