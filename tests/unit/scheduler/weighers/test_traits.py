# SPDX-License-Identifier: Apache-2.0
"""Hosts by preferred and avoided traits of flavors and of the operator."""

import json

import numpy as np
import pytest

from novasched.conf.settings import Settings
from novasched.placement import query
from novasched.placement.candidates import AskedCandidates
from novasched.placement.local_candidates import LocalCandidates, MatchedHosts
from novasched.scheduler.model.candidate import CandidateIndex
from novasched.scheduler.weighers.traits import TraitsWeigher
from tests.lab.builders import NOT_ASKED, a_candidate, a_flavor, a_host, a_request

TRAITS = {
    'none': [],
    'fast': ['CUSTOM_FAST', 'COMPUTE_NODE'],
    'hot': ['CUSTOM_HOT'],
    'both': ['CUSTOM_HOT', 'CUSTOM_FAST'],
}


def asked_now():
    """Placement's answer to the request."""
    summaries = {}
    for name, traits in TRAITS.items():
        summaries[name] = {'resources': {}, 'traits': traits}
    text = json.dumps({'provider_summaries': summaries}).encode()
    return AskedCandidates(map(a_candidate, TRAITS), [text])


def remembered():
    """An earlier answer of Placement."""
    rows = {name: row for row, name in enumerate(TRAITS)}
    kinds = np.array([*rows.values()]), [*map(frozenset, TRAITS.values())]
    fits = np.ones(len(TRAITS), bool)
    hosts = MatchedHosts({'VCPU': 1}, [*TRAITS], rows, fits, *kinds)
    return LocalCandidates([hosts], 100.0, 2.5)


FAST = 'trait:CUSTOM_FAST'
HOT = 'trait:CUSTOM_HOT'
TABLE = [
    ({}, {}, [], NOT_ASKED),
    ({FAST: 'required', HOT: 'forbidden'}, {}, [], NOT_ASKED),
    ({'trait1:CUSTOM_FAST': 'preferred', 'resources1:VGPU': '1'}, {}, [], NOT_ASKED),
    ({FAST: 'Preferred'}, {}, [], NOT_ASKED),
    ({FAST: 'preferred'}, {}, [], [0, 1, 0, 1]),
    ({HOT: 'avoided'}, {}, [], [0, 0, -1, -1]),
    ({FAST: 'preferred', HOT: 'avoided'}, {}, [], [0, 1, -1, 0]),
    ({FAST: 'preferred', HOT: 'preferred'}, {}, [], [0, 1, 1, 2]),
    ({'trait:CUSTOM_NOBODYS': 'preferred'}, {}, [], [0, 0, 0, 0]),
    ({}, {}, ['CUSTOM_HOT'], [0, 0, -1, -1]),
    ({}, {}, ['CUSTOM_HOT', 'CUSTOM_FAST'], [0, -1, -1, -2]),
    ({HOT: 'avoided'}, {}, ['CUSTOM_HOT'], [0, 0, -1, -1]),
    ({HOT: 'forbidden'}, {}, ['CUSTOM_HOT'], [0, 0, -1, -1]),
    ({HOT: 'preferred'}, {}, ['CUSTOM_HOT'], [0, 0, 1, 1]),
    ({HOT: 'required'}, {}, ['CUSTOM_HOT'], NOT_ASKED),
    ({HOT: 'required'}, {}, ['CUSTOM_HOT', 'CUSTOM_FAST'], [0, -1, 0, -1]),
    ({}, {'traits_required': ['CUSTOM_HOT']}, ['CUSTOM_HOT'], NOT_ASKED),
]  # fmt: skip


@pytest.mark.parametrize('offer', [asked_now, remembered])
@pytest.mark.parametrize(('extra_specs', 'image', 'avoided', 'weights'), TABLE)
def test_preferred_traits_raise_and_avoided_traits_lower_weights(
    offer, extra_specs, image, avoided, weights
):
    """A preferred trait counts for a host, and an avoided trait against the host, by
    the latest answer of Placement. The flavor overrides the option, and so do required
    traits."""
    weigher = TraitsWeigher(Settings(avoided_traits=tuple(avoided)))
    request = a_request(extra_specs=extra_specs, image=image)
    assert weigher.applies(request) is (weights is not NOT_ASKED)
    if weights is NOT_ASKED:
        return

    hosts = [a_host(name, uuid=name) for name in TRAITS]
    assert weigher.weigh_offered(hosts, request, offer()) == weights
    # An answer without traits gives every host the same weight.
    for answer in (None, CandidateIndex(), AskedCandidates((), [b'[]'])):
        assert weigher.weigh_offered(hosts, request, answer) == [0.0] * len(TRAITS)


def test_preferred_and_avoided_traits_are_not_in_the_query():
    """The query is the query of a flavor without preferred and avoided traits, and no
    warning is logged."""
    wishes = {'trait:CUSTOM_FAST': 'preferred', 'trait:HW_CPU_X86_AVX': 'avoided'}
    rules = {'trait:CUSTOM_GOLD': 'required', 'trait:CUSTOM_LEAD': 'forbidden'}
    for specs in ({}, rules):
        plain = a_request(flavor=a_flavor(specs))
        wishing = a_request(flavor=a_flavor(wishes | specs))
        queries = query.build_all(wishing, Settings())
        assert queries == query.build_all(plain, Settings())
        assert [placement_query.warnings for placement_query in queries] == [()]
