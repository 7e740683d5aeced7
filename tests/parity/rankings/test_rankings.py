# SPDX-License-Identifier: Apache-2.0
"""Random requests to nova-scheduler and to novasched, on the same databases."""

import itertools
from collections import Counter, defaultdict

import pytest

from tests.parity.comparison import FIGURES, SEED, TIMES, Difference, Figures, check
from tests.parity.dice import Dice
from tests.parity.plans import CURRENT_FILTERS, WEIGHERS
from tests.parity.rankings.builder import Builder
from tests.parity.rankings.pair import as_nova_asks, difference, running, ties
from tests.parity.rankings.requests import a_call
from tests.parity.rankings.world import a_config, a_world

WORLDS = 12
REQUESTS = 50
HOSTS = 24
CASES = 500
QUERIES = 300
CLAIMS = 300
RANKED = 300
"""Least numbers of compared requests, of requests that query Placement, of claims, and
of rankings with several hosts."""
DIFFERENCES = 5
"""Largest number of reported differences; more differences follow from the same
mistakes."""
OFTEN = 3
"""Least number of hosts that a filter rejects, and of rankings where a weigher gives
different weights."""


class Tally:
    """Counters over the requests to all worlds."""

    def __init__(self):
        self.totals = Counter[str]()
        self.counters = defaultdict[str, Counter[str]](Counter)

    def add(self, call, seen):
        self.totals.update(
            queries=bool(seen.queries), ties=ties(seen.rankings), claims=len(seen.tried)
        )
        self.counters['themes'].update(call.themes)
        self.counters['weighers'].update(seen.weighed)
        if seen.fault:
            name, left = seen.filtered[-1] if seen.filtered else ('none', 0)
            by = seen.fault.rpartition(': ')[2] if left or not name else name
            self.counters['refusals'][by] += 1
        for (_, before), (name, after) in itertools.pairwise(seen.filtered):
            if name and after < before:
                self.counters['filters'][name] += 1
        for ranking in seen.rankings:
            several = 'one' if len(ranking) == 1 else 'several'
            self.counters['ranked'][several] += 1

    def close(self, figures, different):
        known = figures.known.total()
        same = figures.cases - known - different
        self.totals['worlds'] += 1
        self.counters['requests'].update(same=same, known=known, different=different)


@pytest.fixture(scope='module')
def builder(cloud):
    return Builder(cloud)


@pytest.fixture(scope='module')
def tally():
    return Tally()


@pytest.mark.parametrize('number', range(WORLDS))
def test_both_schedulers_decide_the_same_in_a_random_world(
    builder, client, tally, number
):
    """Both schedulers have the same queries to Placement, remaining hosts, rankings,
    answers, claims and faults."""
    figures = Figures(f'rankings: world {number}')
    different = list[Difference]()
    for again in range(TIMES):
        dice = Dice(f'{SEED} {number} {again}')
        world = a_world(dice, HOSTS)
        config = a_config(dice, world.hosts, number)
        builder.build(dice, world)
        with running(builder.cloud, client, config) as (reference, scheduler):
            for case in range(REQUESTS):
                call = a_call(dice, world)
                nova = reference.ask(call)
                builder.undo(call, nova)
                ours = scheduler.ask(call)
                where = f'seed {SEED}, world {number} {again}, request {case}'
                each = difference({'where': where, **call.case(config)}, nova, ours)
                # Queries to Placement never differ, but for devices.
                queries = as_nova_asks(nova.queries, ours.queries)
                if figures.differs(each) or nova.queries != queries:
                    different.append(each)
                tally.add(call, nova)
                builder.keep_or_undo(dice, call, ours)
        assert not builder.leftovers(world)
    tally.close(figures, len(different))
    check(figures, different[:DIFFERENCES])


def test_random_requests_reach_every_filter_and_weigher(tally):
    """The requests reached every filter and weigher, and no two hosts weighed the
    same."""
    totals = tally.totals
    counters = tally.counters
    if totals['worlds'] < WORLDS:
        pytest.skip('not all worlds ran, or not to their end')
    for name, counter in counters.items():
        FIGURES.append(Figures(f'rankings: {name}', counter.total(), counter))
    assert counters['requests'].total() >= CASES
    assert totals['queries'] >= QUERIES
    assert counters['ranked']['several'] >= RANKED
    assert totals['ties'] == 0
    assert totals['claims'] >= CLAIMS
    rare = {name for name in CURRENT_FILTERS if counters['filters'][name] < OFTEN}
    assert rare == {'AllHostsFilter'}
    assert {name for name in WEIGHERS if counters['weighers'][name] < OFTEN} == set()
