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
def test_hosts_are_ranked_by_wished_traits_and_then_memory(hosts, flavors, avoided):
    """A request with wishes gets the hosts in the order of their traits, and by memory
    among equal traits. A request without wishes gets the hosts by memory."""
    settings = Settings(
        weight_classes=('RAMWeigher', 'TraitsWeigher'), avoided_traits=tuple(avoided)
    )
    traits = {}
    ranked_hosts = []
    for number, (names, ram) in enumerate(hosts):
        host = a_host(f'h{number}', ram=1024 * ram)
        ranked_hosts.append(host)
        traits[host.uuid] = names
    placement = TraitsPlacement(dict.fromkeys(traits, 9), traits)
    pipeline = Pipeline(settings, [], loading.weighers(settings))

    for flavor in flavors:
        specs = {f'trait:{name}': wish for name, wish in flavor.items()}
        request = a_request(extra_specs=specs)

        def score(host, flavor=flavor):
            penalty = 0
            for name in traits[host.uuid]:
                wish = flavor.get(name)
                if wish == 'preferred':
                    penalty -= 1
                elif wish == 'avoided' or (name in avoided and wish != 'required'):
                    penalty += 1
            return penalty, -host.free_ram_mb

        candidates = placement.candidates(request)
        ranking = pipeline.for_request().rank(
            ranked_hosts, request, 0, Random(1), candidates
        )
        assert list(ranking.hosts) == sorted(ranked_hosts, key=score)
