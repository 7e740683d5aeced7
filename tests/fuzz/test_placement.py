# SPDX-License-Identifier: Apache-2.0
"""Any answer of Placement gives a request a host or a clear refusal."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from novasched.placement.candidates import AskedCandidates
from novasched.placement.wire import AllocationRequests, decode
from novasched.rpc.faults import NoValidHostFault
from novasched.scheduler.errors import PlacementUnavailable
from tests.fuzz import mutation
from tests.fuzz.clouds import HOSTS, MESSAGES, Answer, an_offer
from tests.fuzz.mutation import EFFORT, one_input
from tests.lab.builders import a_uuid

OFFER = an_offer(*map(a_uuid, HOSTS))
CONFLICT = {
    'errors': [
        {
            'status': 409,
            'title': 'Conflict',
            'code': 'placement.concurrent_update',
            'detail': 'consumer generation conflict - expected null but got 1',
            'request_id': 'r',
        }
    ]
}
HELD = {
    'allocations': {a_uuid(HOSTS[0]): {'generation': 3, 'resources': {'VCPU': 1}}},
    'consumer_generation': 1, 'project_id': 'p', 'user_id': 'u',
}  # fmt: skip
statuses = st.sampled_from([200, 204, 300, 400, 401, 404, 409, 414, 500, 599])
"""Statuses, without the statuses after which the client repeats a request for
seconds."""


def bodies(document):
    """Mutations of the document as JSON, some cut off, and random bytes."""
    damaged = mutation.mutated(document).map(
        lambda each: mutation.dumped(each).encode()
    )
    cut = st.tuples(damaged, st.integers(0, 200)).map(
        lambda each: each[0][: -each[1] or None]
    )
    return (
        damaged | cut | st.binary(max_size=20) | st.just(json.dumps(document).encode())
    )


@EFFORT
@given(body=bodies(OFFER))
def test_any_candidates_are_read_or_refused(body):
    """The client reads the candidates, or refuses the answer."""
    with one_input('placement'):
        try:
            found = decode(body, AllocationRequests)
        except PlacementUnavailable:
            return
        for each in found.allocation_requests:
            each.body()
            each.detach()
        index = AskedCandidates(found.allocation_requests, [body])
        for provider in index:
            index.capacity_left(provider)


@EFFORT
@given(
    status=statuses,
    body=bodies(OFFER),
    case=st.sampled_from(['boot', 'full', 'unshelve']),
)
def test_a_request_is_decided_on_any_offer_of_placement(cloud, status, body, case):
    """A decision on any offer."""
    offered = {('GET', 'allocation_candidates'): Answer(status, body)}
    with one_input('placement'), cloud.scheduler.http.answering(offered):
        cloud.scheduler.answer(MESSAGES[case])


@EFFORT
@given(
    claimed=st.tuples(statuses, bodies(CONFLICT)),
    held=st.tuples(statuses, bodies(HELD)),
    removed=st.tuples(statuses, bodies(CONFLICT)),
    case=st.sampled_from(['boot', 'full', 'boot of three']),
)
def test_a_request_is_decided_with_any_answer_to_claims(
    cloud, claimed, held, removed, case
):
    """A claim that is answered in any way, by a server that may hold anything."""
    answers = {
        ('PUT', 'allocations'): Answer(*claimed),
        ('POST', 'allocations'): Answer(*claimed),
        ('GET', 'allocations'): Answer(*held),
        ('DELETE', 'allocations'): Answer(*removed),
    }
    with one_input('placement'), cloud.scheduler.http.answering(answers):
        cloud.scheduler.answer(MESSAGES[case])


@EFFORT
@given(
    status=statuses,
    body=bodies({'aggregates': [a_uuid('a')], 'resource_provider_generation': 1}),
)
def test_aggregates_of_a_provider_are_texts_or_unavailable(cloud, status, body):
    """The aggregates of a provider are texts, or not to be had."""
    told = {('GET', 'resource_providers'): Answer(status, body)}
    with (
        one_input('placement'),
        cloud.scheduler.http.answering(told),
        suppress(PlacementUnavailable),
    ):
        found = cloud.scheduler.placement.aggregates('segment')
        assert all(isinstance(each, str) for each in found)


KEPT = {
    'A word in place of a list of providers': b'{"allocation_requests": [{"allocations": {"%b": {"resources": {}}}, "mappings": {"": "x"}}]}'
    % a_uuid(HOSTS[0]).encode()
}
"""Offers that earlier versions accepted without a check."""


@pytest.mark.parametrize('body', KEPT.values(), ids=KEPT)
def test_kept_offers_that_once_failed_are_refused(cloud, body):
    """Offers that caused an error before are refused."""
    offered = {('GET', 'allocation_candidates'): Answer(200, body)}
    with one_input('placement'), cloud.scheduler.http.answering(offered):
        assert isinstance(cloud.scheduler.answer(MESSAGES['full']), NoValidHostFault)
