# SPDX-License-Identifier: Apache-2.0
"""Hosts in the order of a plain count of their traits."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from novasched.conf.settings import Settings
from novasched.plugins import loading
from novasched.scheduler.pipeline import Pipeline
from tests.lab.builders import a_host, a_request
from tests.lab.counting_placement import TraitsPlacement

NAMES = st.sampled_from(['CUSTOM_A', 'CUSTOM_B', 'COMPUTE_NODE', 'HW_CPU_X86_AVX'])
HOSTS = st.lists(
    st.tuples(st.lists(NAMES, unique=True), st.integers(1, 4)), min_size=1, max_size=8
)
WISHES = st.sampled_from(
    ['preferred', 'avoided', 'required', 'forbidden', 'unheard of']
)
FLAVORS = st.dictionaries(NAMES, WISHES)


@given(
    HOSTS,
    st.lists(FLAVORS, min_size=1, max_size=3),
    st.lists(NAMES, max_size=2, unique=True),
)
def test_the_order_of_hosts(hosts, flavors, avoided):
    """Of several requests, those with wishes get the hosts by these, the most memory
    first where that is equal; others get them as if there were no such thing."""
    settings = Settings(
        weight_classes=('RAMWeigher', 'TraitsWeigher'), avoided_traits=tuple(avoided)
    )
    made = [a_host(f'h{i}', ram=1024 * ram) for i, (_, ram) in enumerate(hosts)]
    traits = {host.uuid: each for host, (each, _) in zip(made, hosts, strict=True)}
    placement = TraitsPlacement(dict.fromkeys(traits, 9), traits)
    line = Pipeline(settings, [], loading.weighers(settings))
    for flavor in flavors:
        request = a_request(
            extra_specs={f'trait:{x}': wish for x, wish in flavor.items()}
        )

        def score(host, flavor=flavor):
            good = [x for x in traits[host.uuid] if flavor.get(x) == 'preferred']
            bad = [
                x
                for x in traits[host.uuid]
                if flavor.get(x) == 'avoided'
                or (x in avoided and flavor.get(x) not in ('preferred', 'required'))
            ]
            return len(bad) - len(good), -host.free_ram_mb

        offered = placement.candidates(request)
        ranking = line.for_request().rank(made, request, 0, Random(1), offered)
        assert list(ranking.hosts) == sorted(made, key=score)
