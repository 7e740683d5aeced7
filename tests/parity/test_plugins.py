# SPDX-License-Identifier: Apache-2.0
"""The filters of novasched pass the same hosts with the same limits as nova's filters,
and the weighers give the same weights as nova's weighers, multipliers included."""

import pytest

from tests.parity import ours
from tests.parity.comparison import SEED, Comparison, verdicts, weights
from tests.parity.dice import cases
from tests.parity.plans import FILTERS, NOISE, WEIGHERS
from tests.parity.themes.aggregates import multipliers


def test_every_filter_and_weigher_of_nova_is_compared(plugins):
    """Every filter and every weigher of nova is compared."""
    theirs = plugins.ask('about', [{}])[0]
    # The attestation server that TrustedFilter asks no longer exists.
    assert {*theirs['filters']} - {'TrustedFilter'} <= FILTERS.keys()
    assert {*theirs['weighers']} <= WEIGHERS.keys()
    assert FILTERS.keys() <= ours.FILTERS.keys()
    assert WEIGHERS.keys() <= ours.WEIGHERS.keys()


@pytest.mark.parametrize('name', sorted(FILTERS))
def test_a_filter_gives_the_same_verdicts_as_in_nova(name, plugins):
    """Random requests, hosts and configurations give equal verdicts."""
    theirs = plugins.ask('about', [{}])[0]
    if name not in theirs['filters'] and not theirs['older']:
        pytest.skip('no release of nova that is at hand has it')
    assert name in theirs['filters']
    made = cases(SEED, FILTERS[name], 2, NOISE)
    comparison = Comparison(plugins, 'judge', ours.judge, verdicts)
    comparison.run(name, made, 1200)


@pytest.mark.parametrize('name', sorted(WEIGHERS))
def test_a_weigher_gives_the_same_weights_as_in_nova(name, plugins):
    """Random requests, hosts and configurations give equal weights."""
    made = cases(SEED, [*WEIGHERS[name], multipliers], 3, NOISE)
    comparison = Comparison(plugins, 'weigh', ours.weigh, weights)
    comparison.run(name, made, 2000)
