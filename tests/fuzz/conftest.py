# SPDX-License-Identifier: Apache-2.0
"""How long each property is tried, and the table at the end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import is_hypothesis_test

from tests.fuzz.bounds import SECONDS, TRIED, bounded_memory
from tests.fuzz.clouds import Cloud
from tests.lab.tables import Sheet, rst, show

KEPT = 'test_kept'
"""The test of each module whose cases were found by the others."""


class Results:
    """Tests by target: what was tried, and what came of it."""

    def __init__(self) -> None:
        self.kept: dict[str, int] = {}
        self.crashes: dict[str, int] = {}

    def add(self, target: str, name: str, failed: bool) -> None:
        self.kept[target] = self.kept.get(target, 0) + (name.split('[')[0] == KEPT)
        self.crashes[target] = self.crashes.get(target, 0) + failed


RESULTS = Results()


def _is_ours(path: str) -> bool:
    return path.startswith('tests/fuzz/')


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Every property has the same share of the time."""
    properties = [
        item
        for item in items
        if _is_ours(item.nodeid) and is_hypothesis_test(getattr(item, 'obj', None))
    ]
    for item in properties:
        item.user_properties.append(('seconds', SECONDS / len(properties)))


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """Try a property again, with other inputs, until its time is up."""
    ends = time.monotonic() + dict(pyfuncitem.user_properties).get('seconds', 0)
    result = yield
    names = pyfuncitem._fixtureinfo.argnames
    while time.monotonic() < ends:
        pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names})
    return result


@pytest.fixture(scope='module', autouse=True)  # other tests of the session are not bounded
def _within_bounds() -> Iterator[None]:
    with bounded_memory():
        yield


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if _is_ours(report.nodeid) and (report.when == 'call' or report.failed):
        path, _, name = report.nodeid.partition('::')
        target = path.removeprefix('tests/fuzz/test_').removesuffix('.py')
        RESULTS.add(target, name, report.failed)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption('--fuzz-table', type=Path, help='where to write the table of bad input')


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """The table: inputs that were tried, properties that failed, cases kept of earlier ones."""
    if not RESULTS.kept:
        return
    rows = [
        [target, *(f'{n:,}' for n in (TRIED[target], RESULTS.crashes[target], kept))]
        for target, kept in RESULTS.kept.items()
    ]
    sheet = Sheet('Bad input', ('target', 'inputs tried', 'crashes', 'cases kept'), rows)
    terminalreporter.ensure_newline()
    show([sheet])
    if path := config.getoption('--fuzz-table'):
        path.write_text(rst([sheet]))


@pytest.fixture(scope='module')
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    made = Cloud(tmp_path_factory.mktemp('cloud'))
    yield made
    made.close()
