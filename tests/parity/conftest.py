# SPDX-License-Identifier: Apache-2.0
"""nova's side, and the figures at the end of the run."""

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
    """Thousands of odd cases give as many warnings, which say nothing of a failure."""
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


def pytest_terminal_summary(terminalreporter):
    """Cases and outcomes on nova's side, and differences that were to be expected."""
    if not FIGURES:
        return
    terminalreporter.section('parity')
    for figures in FIGURES:
        outcomes = ', '.join(
            f'{name} {n}' for name, n in sorted(figures.outcomes.items())
        )
        line = f'{figures.name:36} {figures.cases:6} cases: {outcomes}'
        expected = ', '.join(f'{name} {n}' for name, n in sorted(figures.known.items()))
        terminalreporter.line(f'{line}; as known: {expected}' if expected else line)
    seen = {each for figures in FIGURES for each in figures.known}
    for each in known.stale(seen, [figures.name for figures in FIGURES]):
        terminalreporter.line(f'known.yaml: {each} no longer occurs', yellow=True)
