# SPDX-License-Identifier: Apache-2.0
"""The hosts of an answer that serve a query, compared with a search in each tree."""

from hypothesis import given
from hypothesis import strategies as st

from novasched.placement.base_answer import fits
from novasched.placement.tree_search import TreeSearch
from novasched.placement.trees import Group, TreeQuery
from tests.lab.provider_trees import Provider, a_rule, an_answer

CLASSES = ('VCPU', 'MEMORY_MB', 'VGPU', 'FPGA')
TRAITS = ('CUSTOM_A', 'CUSTOM_B')
AMOUNTS = st.dictionaries(st.sampled_from(CLASSES), st.integers(0, 3))
TRAIT_TUPLES = st.sets(st.sampled_from(TRAITS)).map(sorted).map(tuple)


@st.composite
def hosts(draw):
    """The providers of a few hosts. The parents of nested providers are drawn from the
    providers of the host."""
    providers = []
    for number in range(draw(st.integers(1, 4))):
        root = f'host-{number}'
        names = [root]
        free = {'VCPU': 1} | draw(AMOUNTS)
        providers.append(Provider(root, free, None, draw(TRAIT_TUPLES)))
        for index in range(draw(st.integers(0, 4))):
            parent = draw(st.sampled_from(names))
            name = f'{root}-{index}'
            traits = draw(TRAIT_TUPLES)
            providers.append(Provider(name, draw(AMOUNTS), parent, traits))
            names.append(name)
    return providers


@st.composite
def queries(draw):
    amounts = st.dictionaries(
        st.sampled_from(CLASSES), st.integers(1, 2), min_size=1, max_size=2
    )
    groups = []
    for suffix in ['', *'123'][: draw(st.integers(1, 4))]:
        pairs = tuple(sorted(draw(amounts).items()))
        groups.append(Group(suffix, pairs, a_rule(*draw(TRAIT_TUPLES)[:1])))
    return TreeQuery(tuple(groups), isolate=draw(st.booleans()))


@given(hosts(), st.lists(queries(), min_size=1, max_size=3))
def test_tree_patterns_have_the_verdict_of_a_search_in_each_tree(providers, asked):
    answer = an_answer(providers)
    for query in asked * 2:
        fitting = fits(query, answer, answer.capacity_left)
        for host, verdict in enumerate(fitting.tolist()):
            free = []
            for row in answer.trees.rows(host):
                amounts = {}
                for name, column in answer.capacity_left.items():
                    amounts[name] = int(column[row])
                free.append(amounts)
            search = TreeSearch(query, answer.trees.shape(host), free)
            assert verdict == search.fits()
