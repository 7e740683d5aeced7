# SPDX-License-Identifier: Apache-2.0
"""nova and novasched send the same query GET /allocation_candidates to Placement."""

from contextlib import closing
from pathlib import Path

import pytest

from tests.lab.daemon import Nova
from tests.parity.comparison import SEED, Comparison, queries
from tests.parity.dice import cases
from tests.parity.plans import QUERIES
from tests.parity.themes.placement import an_image
from tests.parity.world import World

REQUESTS = 100
OLDER = 70
CURRENT = 74
"""Versions of nova-compute: the providers of OLDER lack a trait of nova."""


@pytest.fixture(scope='module', params=[CURRENT, OLDER])
def world(request, tmp_path_factory):
    """Databases for both sides."""
    with closing(World(tmp_path_factory.mktemp('world'), request.param)) as made:
        yield made


@pytest.fixture(scope='module')
def nova_asks(nova, directory, world):
    with closing(
        Nova(nova, directory, Path(__file__).with_name('nova_queries.py'))
    ) as side:
        side.ask('world', [world.description()])
        world.open()
        yield side


@pytest.mark.parametrize('theme', QUERIES)
def test_prefilters_give_the_same_query_as_in_nova(theme, world, nova_asks):
    """The prefilters of both sides give the same queries for random requests: for
    pinned CPUs, and the fallback."""
    made = cases(SEED, [an_image, *QUERIES[theme]], hosts=0)
    comparison = Comparison(nova_asks, 'query', world.ask, queries)
    comparison.run(f'query: {theme}', made, REQUESTS)
