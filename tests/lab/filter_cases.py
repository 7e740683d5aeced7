# SPDX-License-Identifier: Apache-2.0
"""The cases of all built-in filters, from the tables in the tests of filters.

A new filter has a table ``CASES`` in a module of tests, and every test of all filters
finds the cases there.
"""

from functools import cache
from importlib import import_module
from pathlib import Path

from tests.lab.builders import NOT_ASKED, a_host

TESTS = Path(__file__).parents[1] / 'unit' / 'scheduler' / 'filters'


@cache
def all_cases():
    """The cases of each module of tests with a table ``CASES``."""
    cases = []
    for path in sorted(TESTS.glob('test_*.py')):
        if 'CASES = ' in path.read_text():
            module = import_module(f'tests.unit.scheduler.filters.{path.stem}')
            cases += module.CASES
    return cases


def refusals():
    """The first case of each filter in which the filter rejects the host."""
    first = {}
    for case in all_cases():
        name, *_, verdict = case.values
        if verdict not in (None, NOT_ASKED):
            first.setdefault(name, case)
    return [*first.values()]


def keys_of_metadata():
    """The keys of aggregate metadata in the cases."""
    keys = set()
    for case in all_cases():
        _, _, host, _, _ = case.values
        for aggregate in a_host(**host).aggregates:
            keys |= aggregate.metadata.keys()
    return sorted(keys)
