# SPDX-License-Identifier: Apache-2.0
"""Weights of weighers and aggregates whose numbers are NaN or infinite."""

import itertools
import math

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from novasched.conf.settings import Settings
from novasched.scheduler.plugin import Enabled
from novasched.scheduler.weighers import BatchWeigher, Weigher
from novasched.scheduler.weights import weigh
from tests.lab.builders import a_host, a_request

NAN = math.nan
INF = math.inf
NUMBERS = st.sampled_from([0.0, 1.0, -1.0, 2.0, 3.5, -4.0, 1e300, NAN, INF, -INF])
BOUNDS = st.sampled_from([(None, None), (None, None), (0.0, None), (0.0, 1.0)])


class Told(BatchWeigher):
    """A weigher with raw weights, scales and bounds of a test."""

    def __init__(self, raw, scales, bounds):
        super().__init__(Settings())
        self.raw = raw
        self.scales = scales
        self.minval, self.maxval = bounds

    def scale(self, host):
        return self.scales[int(host.host)]

    def weigh(self, host, request):
        return self.raw[int(host.host)]

    def weigh_all(self, hosts, request):
        # The method of all other weighers, which cuts raw weights to the bounds.
        return Weigher.weigh_all(self, hosts, request)


def plain_weights(weighers, number):
    """The weights by the arithmetic of nova's documentation, in plain Python."""
    weights = [0.0] * number
    for weigher in weighers:
        raw_weights = weigher.raw
        if weigher.minval is not None:
            raw_weights = [max(raw, weigher.minval) for raw in raw_weights]
        if weigher.maxval is not None:
            raw_weights = [min(raw, weigher.maxval) for raw in raw_weights]
        low = min(raw_weights) if weigher.minval is None else weigher.minval
        high = max(raw_weights) if weigher.maxval is None else weigher.maxval
        for i, raw in enumerate(raw_weights):
            position = 0.0
            if low != high:
                position = (raw - low) / (high - low)
            weights[i] += weigher.scales[i] * position
    return weights


@st.composite
def tables(draw, raw=NUMBERS, most=3):
    """Raw weights, scales and bounds of a few weighers for a few hosts."""
    number = draw(st.integers(2, 5))
    raw_weights = st.lists(raw, min_size=number, max_size=number)
    scales = st.lists(NUMBERS, min_size=number, max_size=number)
    weigher = st.tuples(raw_weights, scales, BOUNDS)
    return draw(st.lists(weigher, min_size=1, max_size=most))


def weights_of(table):
    """The weights of hosts that weighers with these numbers weigh."""
    hosts = [a_host(str(i)) for i in range(len(table[0][0]))]
    return weigh([Enabled(Told(*row)) for row in table], hosts, a_request())


@given(table=tables())
@example(table=[([1.0, 2.0, 3.0], [INF, INF, INF], (0.0, None))])
@example(table=[([NAN, 2.0, 3.0], [1.0, 1.0, 1.0], (None, None))])
def test_every_weight_and_every_contribution_is_a_finite_number(table):
    """A decision record, in JSON, has neither NaN nor infinity."""
    weights = weights_of(table)

    assert np.isfinite(weights.sums).all()
    positions = [*range(len(weights.sums))]
    for of_host in weights.explained(positions, [a_host()] * len(positions)):
        for share in of_host.shares:
            numbers = (share.normalised, share.multiplier, share.added)
            assert all(map(math.isfinite, numbers))
            assert share.raw is None or math.isfinite(share.raw)


@given(table=tables(NUMBERS.filter(lambda number: number == number)))
@example(table=[([1.0, 2.0, 3.0], [INF, INF, INF], (0.0, None))])
def test_hosts_have_the_order_of_nova_where_nova_has_an_order(table):
    """Two hosts have nova's order if both weights are numbers in nova's arithmetic, or
    infinite."""
    ours = weights_of(table).sums.tolist()
    plain = plain_weights([Told(*row) for row in table], len(ours))
    for i, j in itertools.permutations(range(len(ours)), 2):
        if plain[i] > plain[j]:
            assert ours[i] > ours[j]
        if plain[i] == plain[j]:
            assert ours[i] == ours[j]


@given(table=tables(most=1))
@example(table=[([NAN, -5.0, 3.0], [1.0, 1.0, 1.0], (0.0, None))])
def test_a_host_without_a_raw_weight_changes_no_other_weight(table):
    """The other hosts weigh as much as without the host, in any order of the hosts, and
    the host weighs as little as any."""
    [(raw, scales, bounds)] = table
    weighed = [i for i, number in enumerate(raw) if number == number]
    if len(weighed) < 2:
        return
    few_raw = [raw[i] for i in weighed]
    few_scales = [scales[i] for i in weighed]

    sums = weights_of(table).sums.tolist()

    few_sums = weights_of([(few_raw, few_scales, bounds)]).sums.tolist()
    assert [sums[i] for i in weighed] == few_sums
    for i in range(len(raw)):
        if i not in weighed and scales[i] != 0:
            assert sums[i] == min(few_sums)
