# SPDX-License-Identifier: Apache-2.0
"""Preferred and avoided traits, requested through nova's own client."""

from dataclasses import replace

import pytest

from tests.lab.compute_rows import Flavor
from tests.lab.daemon import Daemon
from tests.lab.processes import START, wait_until
from tests.lab.proxy import Proxy

SMALL = Flavor(ram_mb=512)


def a_flavor(**traits):
    """A flavor with trait extra specs, as ``CUSTOM_X='preferred'``."""
    extra_specs = {f'trait:{name}': wish for name, wish in traits.items()}
    return replace(SMALL, extra_specs=extra_specs)


OTHER_MULTIPLIERS = [f'{name}_weight_multiplier' for name in ('cpu', 'disk', 'io_ops')]
FLAVORS = {
    'any': SMALL,
    'prefers fast': a_flavor(CUSTOM_FAST='preferred'),
    'avoids hot': a_flavor(CUSTOM_HOT='avoided'),
    'prefers hot': a_flavor(CUSTOM_HOT='preferred'),
    'requires hot': a_flavor(CUSTOM_HOT='required'),
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
def test_preferred_and_avoided_traits_decide_the_host(
    cloud, client, is_remembered, options, hosts
):
    """The server gets the host with the most memory, unless the flavor or the operator
    prefers another host by a trait. A new answer of Placement and a remembered answer
    give the same host, and no query names the preferred traits."""
    cloud.reset()
    cloud.add_host('hot', ram_mb=65536, traits=('CUSTOM_HOT',))
    cloud.add_host('plain', ram_mb=32768)
    cloud.add_host('fast', ram_mb=16384, traits=('CUSTOM_FAST',))
    lines = []
    chosen = {}
    with Proxy(cloud.placement_url) as proxy:
        max_age = 3600 if is_remembered else 0
        config = {
            'placement': {'endpoint': proxy.url},
            'filter_scheduler': dict.fromkeys(OTHER_MULTIPLIERS, 0),
            'novasched': {'candidates_max_age': max_age, **options},
        }

        def place(name):
            """Place a server of a flavor; True if no query was made for the request."""
            proxy.asked.clear()
            [chosen[name]] = client.chosen(flavor=FLAVORS[name])
            has_asked = proxy.count('limit=') > 0
            lines.extend(proxy.asked)
            return not has_asked

        with Daemon(cloud, config):
            for name in FLAVORS:
                if is_remembered:
                    wait_until(
                        lambda name=name: place(name), START, 'answer about all hosts'
                    )
                else:
                    assert not place(name)

    assert [*chosen.values()] == hosts
    queries = [line for line in lines if 'allocation_candidates' in line]
    assert queries
    for query in queries:
        assert 'CUSTOM_FAST' not in query
