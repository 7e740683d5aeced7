# SPDX-License-Identifier: Apache-2.0
"""Every weigher gives hosts the weights that nova's own gives them, multiplier included."""

from __future__ import annotations

from itertools import islice

import pytest

from tests.parity import ours
from tests.parity.child import Nova
from tests.parity.comparison import Comparison, weights
from tests.parity.conftest import Compare
from tests.parity.generator import cases
from tests.parity.plans import NOISE, NOT_COMPARED, WEIGHERS

REQUESTS, HOSTS = 2000, 3


def test_every_weigher_has_a_plan(nova: Nova) -> None:
    """Whatever nova and we have is compared, or there is a reason why not."""
    theirs, mine = set(nova.ask('about', [{}])[0]['weighers']), set(ours.WEIGHERS)
    assert (theirs | mine) - NOT_COMPARED.keys() <= WEIGHERS.keys()


@pytest.mark.parametrize('name', sorted(WEIGHERS))
def test_weigher(name: str, nova: Nova, seed: int, times: int, compare: Compare) -> None:
    """Random requests and hosts, the configuration included, give equal weights."""
    made = cases(seed, WEIGHERS[name], HOSTS, NOISE)
    comparison = Comparison(nova, 'weigh', ours.weigh, weights)
    compare(comparison, name, islice(made, REQUESTS * times))
