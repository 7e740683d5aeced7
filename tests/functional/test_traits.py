# SPDX-License-Identifier: Apache-2.0
"""Traits that hosts had better have, or lack, as nova's own client finds them."""

from dataclasses import replace

import pytest

from tests.lab.compute_rows import Flavor
from tests.lab.daemon import Daemon
from tests.lab.processes import START, wait_until
from tests.lab.proxy import Proxy

SMALL = Flavor(ram_mb=512)


def wishing(**traits):
    """A flavor with these for extra specs: ``CUSTOM_X='preferred'``."""
    return replace(
        SMALL, extra_specs={f'trait:{name}': wish for name, wish in traits.items()}
    )


OTHERS = [f'{name}_weight_multiplier' for name in ('cpu', 'disk', 'io_ops')]
FLAVORS = {
    'any': SMALL,
    'prefers fast': wishing(CUSTOM_FAST='preferred'),
    'avoids hot': wishing(CUSTOM_HOT='avoided'),
    'prefers hot': wishing(CUSTOM_HOT='preferred'),
    'requires hot': wishing(CUSTOM_HOT='required'),
}


@pytest.mark.parametrize(
    ('options', 'hosts'),
    [
        ({}, ['hot', 'fast', 'plain', 'hot', 'hot']),
        ({'avoided_traits': 'CUSTOM_HOT'}, ['plain', 'fast', 'plain', 'hot', 'hot']),
        ({'traits_weight_multiplier': 0}, ['hot'] * 5),
    ],
)
@pytest.mark.parametrize('is_remembered', [False, True])
def test_traits(cloud, client, is_remembered, options, hosts):
    """The host with the most memory unless the flavor, or else the operator, would
    rather have another one: by an answer of Placement's to this request, or to an
    earlier one. None of it is in a query."""
    cloud.reset()
    cloud.add_host('hot', ram_mb=65536, traits=('CUSTOM_HOT',))
    cloud.add_host('plain', ram_mb=32768)
    cloud.add_host('fast', ram_mb=16384, traits=('CUSTOM_FAST',))
    asked = []
    found = {}
    with Proxy(cloud.placement_url) as proxy:
        config = {
            'placement': {'endpoint': proxy.url},
            'filter_scheduler': dict.fromkeys(OTHERS, 0),
            'novasched': {
                'candidates_max_age': 3600 if is_remembered else 0,
                **options,
            },
        }

        def place(name):
            proxy.asked.clear()
            [found[name]] = client.chosen(flavor=FLAVORS[name])
            mine = [each for each in proxy.asked if 'limit=' in each]
            asked.extend(proxy.asked)
            return not mine

        with Daemon(cloud, config):
            for name in FLAVORS:
                if is_remembered:
                    wait_until(
                        lambda one=name: place(one), START, 'answer about all hosts'
                    )
                else:
                    assert not place(name)
    assert [*found.values()] == hosts
    queries = [each for each in asked if 'allocation_candidates' in each]
    assert queries
    assert not any('CUSTOM_FAST' in each for each in queries)
