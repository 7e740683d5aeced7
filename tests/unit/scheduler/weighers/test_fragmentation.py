# SPDX-License-Identifier: Apache-2.0
"""Hosts by the usual guests with devices that no longer fit."""

from dataclasses import replace

import pytest

from novasched.conf.settings import Settings
from novasched.placement.local_candidates import LocalCandidates, match
from novasched.scheduler.model.candidate import CandidateIndex
from novasched.scheduler.model.flavor import RequestGroup
from novasched.scheduler.model.usual_guests import UsualGuest, UsualGuests
from novasched.scheduler.weighers.fragmentation import FragmentationWeigher
from tests.lab import provider_trees
from tests.lab.builders import a_candidate, a_flavor, a_host, a_request

GPUS = {'two': (1000, 1000), 'one-and-half': (1000, 500), 'half': (500,), 'none': ()}
"""The free amounts of the GPUs of each host."""
HOSTS = [a_host(name, uuid=name) for name in GPUS]


def remembered():
    """An answer of Placement about all hosts."""
    providers = []
    for name, amounts in GPUS.items():
        devices = [('VGPU', amount) for amount in amounts]
        providers += provider_trees.a_host(name, *devices)
    answer = provider_trees.an_answer(providers)
    matched = match(answer, provider_trees.a_query(), answer.capacity_left)
    return LocalCandidates([matched], provider_trees.ASKED_AT)


def with_gpus(*amounts):
    """A flavor with a request group for each amount of a GPU."""
    specs = {'group_policy': 'isolate'} if len(amounts) > 1 else {}
    for number, amount in enumerate(amounts, 1):
        specs[f'resources{number}:VGPU'] = str(amount)
    return a_flavor(specs, root_gb=0)


HALF_GPU = RequestGroup('device', {'VGPU': 500})
WHOLE_AND_HALF = UsualGuests(
    (UsualGuest(with_gpus(1000), 1), UsualGuest(with_gpus(500), 2))
)
"""Guests of both kinds ask for the same amount of GPUs: a guest with a whole GPU is
worth a half, a guest with half a GPU a quarter, and there are two of these. A GPU in
reach of a guest counts 3 for each guest of the kind."""
PAIRS = UsualGuests((UsualGuest(with_gpus(1000, 1000), 1),))
NO_DEVICES = UsualGuests((UsualGuest(a_flavor(), 1),), {'VCPU': 1.0})

TABLE = [
    (WHOLE_AND_HALF, a_request(), [0, 0, 0, 0]),
    (WHOLE_AND_HALF, a_request(flavor=with_gpus(500)), [-7, -3.5, -3.5, 0]),
    (WHOLE_AND_HALF, a_request(requested_resources=(HALF_GPU,)), [-7, -3.5, -3.5, 0]),
    (WHOLE_AND_HALF, a_request(flavor=with_gpus(1000)), [-10.5, -10.5, 0, 0]),
    (WHOLE_AND_HALF, a_request(flavor=with_gpus(1000, 1000)), [-21, -10.5, 0, 0]),
    (WHOLE_AND_HALF, a_request(extra_specs={'resources:CUSTOM_X': '1'}), [0, 0, 0, 0]),
    (PAIRS, a_request(flavor=with_gpus(500)), [-7, 0, 0, 0]),
    (NO_DEVICES, a_request(flavor=with_gpus(500)), [-7, -7, -7, -7]),
]


@pytest.mark.parametrize(('usual', 'request_', 'weights'), TABLE)
def test_devices(usual, request_, weights):
    """A guest takes the device with the least room. Without the device, no usual guest
    that needs the device fits."""
    weigher = FragmentationWeigher(Settings(fragmentation_weight_multiplier=1.0))
    request = replace(request_, usual_guests=usual)
    assert weigher.weigh_offered(HOSTS, request, remembered()) == weights


@pytest.mark.parametrize('candidates', [None, CandidateIndex([a_candidate('two')])])
def test_unknown_devices(candidates):
    """Hosts whose devices are unknown count as hosts without devices."""
    weigher = FragmentationWeigher(Settings(fragmentation_weight_multiplier=1.0))
    for usual in (WHOLE_AND_HALF, PAIRS):
        request = a_request(flavor=with_gpus(1000, 1000), usual_guests=usual)
        assert weigher.weigh_offered(HOSTS, request, candidates) == [0, 0, 0, 0]
