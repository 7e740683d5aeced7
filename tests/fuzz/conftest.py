# SPDX-License-Identifier: Apache-2.0
"""The time of each property, and the table at the end."""

import time
from collections import Counter

import pytest
from hypothesis import is_hypothesis_test

from tests.fuzz.clouds import Cloud
from tests.fuzz.mutation import SECONDS, TRIED, bounded_memory
from tests.lab.tables import Sheet, show

KEPT = Counter[str]()
CRASHES = Counter[str]()
"""Numbers by target: cases from earlier runs, and tests that failed in the run."""


def _is_ours(path):
    return path.startswith('tests/fuzz/')


def pytest_collection_modifyitems(items):
    """Every property has the same share of the time."""
    properties = []
    for item in items:
        if _is_ours(item.nodeid) and is_hypothesis_test(getattr(item, 'obj', None)):
            properties.append(item)
    for item in properties:
        item.user_properties.append(('seconds', SECONDS / len(properties)))


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem):
    """Repeat a property with new inputs until its time is up."""
    ends = time.monotonic() + dict(pyfuncitem.user_properties).get('seconds', 0)
    result = yield
    names = pyfuncitem._fixtureinfo.argnames
    while time.monotonic() < ends:
        pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names})
    return result


# Tests of other folders in the same session are not bounded.
@pytest.fixture(scope='module', autouse=True)
def _within_bounds():
    with bounded_memory():
        yield


def pytest_runtest_logreport(report):
    if _is_ours(report.nodeid) and (report.when == 'call' or report.failed):
        path, _, name = report.nodeid.partition('::')
        target = path.removeprefix('tests/fuzz/test_').removesuffix('.py')
        KEPT[target] += name.startswith('test_kept')
        CRASHES[target] += report.failed


def pytest_terminal_summary(terminalreporter):
    """The table: inputs that were tried, properties that failed, cases kept of earlier
    ones."""
    rows = []
    for target, kept in KEPT.items():
        rows.append([target, f'{TRIED[target]:,}', f'{CRASHES[target]:,}', f'{kept:,}'])
    if rows:
        terminalreporter.ensure_newline()
        show(
            [
                Sheet(
                    'Bad input',
                    ('target', 'inputs tried', 'crashes', 'cases kept'),
                    rows,
                )
            ]
        )


@pytest.fixture(scope='module')
def cloud(tmp_path_factory):
    made = Cloud(tmp_path_factory.mktemp('cloud'))
    yield made
    made.close()
