# SPDX-License-Identifier: Apache-2.0
"""Every filter passes the hosts that nova's own passes, and sets the limits that it sets."""

from __future__ import annotations

from itertools import islice

import pytest

from tests.parity import ours
from tests.parity.child import Nova
from tests.parity.comparison import Comparison, verdicts
from tests.parity.conftest import Compare
from tests.parity.generator import cases
from tests.parity.plans import FILTERS, NOISE, NOT_COMPARED

REQUESTS, HOSTS = 1200, 2


def test_every_filter_has_a_plan(nova: Nova) -> None:
    """Whatever nova and we have is compared, or there is a reason why not."""
    theirs, mine = set(nova.ask('about', [{}])[0]['filters']), set(ours.FILTERS)
    assert (theirs | mine) - NOT_COMPARED.keys() == FILTERS.keys() & (theirs | mine)


@pytest.mark.parametrize('name', sorted(FILTERS))
def test_filter(name: str, nova: Nova, seed: int, times: int, compare: Compare) -> None:
    """Random requests and hosts, the configuration included, give equal verdicts."""
    theirs = nova.ask('about', [{}])[0]['filters']
    if name not in theirs and not nova.knows_older_releases:
        pytest.skip('no release of nova that is at hand has it')
    assert name in theirs
    made = cases(seed, FILTERS[name], HOSTS, NOISE)
    comparison = Comparison(nova, 'judge', ours.judge, verdicts)
    compare(comparison, name, islice(made, REQUESTS * times))
