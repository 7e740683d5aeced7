# SPDX-License-Identifier: Apache-2.0
"""Child processes with nova's classes, and the figures at the end of the run."""

import logging
from contextlib import closing
from pathlib import Path

import pytest

from tests.lab import fixtures
from tests.lab.daemon import Nova
from tests.parity import known
from tests.parity.comparison import FIGURES

directory = fixtures.directory
nova = fixtures.nova
mariadb = fixtures.mariadb
rabbitmq = fixtures.rabbitmq
placement = fixtures.placement
cloud = fixtures.cloud
client = fixtures.client

HERE = Path(__file__).parent


@pytest.fixture(scope='session')
def plugins(nova, directory):
    """nova's filters and weighers, in a child process."""
    with closing(Nova(nova, directory, HERE / 'nova_side.py')) as side:
        yield side


@pytest.fixture(scope='session')
def hardware(nova, directory):
    """nova's NUMA fitter and statistics of PCI devices, in a child process."""
    with closing(Nova(nova, directory, HERE / 'nova_hardware.py')) as side:
        yield side


@pytest.fixture(autouse=True)
def silence():
    """Disable logging: thousands of odd cases log thousands of warnings."""
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


def pytest_terminal_summary(terminalreporter):
    """Print the cases and outcomes of every run, and the intended differences."""
    if not FIGURES:
        return

    terminalreporter.section('parity')
    seen = set()
    for figures in FIGURES:
        line = f'{figures.name:36} {figures.cases:6} cases: {_counts(figures.outcomes)}'
        if figures.known:
            line += f'; as known: {_counts(figures.known)}'
        terminalreporter.line(line)
        seen.update(figures.known)

    for name in known.stale(seen, [figures.name for figures in FIGURES]):
        terminalreporter.line(f'known.yaml: {name} no longer occurs', yellow=True)


def _counts(counter):
    return ', '.join(f'{name} {count}' for name, count in sorted(counter.items()))
