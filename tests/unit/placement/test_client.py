# SPDX-License-Identifier: Apache-2.0
"""The client of Placement over a stub adapter."""

import json
import logging
from dataclasses import replace
from urllib.parse import parse_qs

import pytest

from novasched.conf.settings import Settings
from novasched.placement.client import PlacementClient
from novasched.placement.query import MAX_PERMUTED_GROUPS
from novasched.scheduler.errors import PlacementUnauthorized, PlacementUnavailable
from novasched.scheduler.model.basis import FRESH, Basis
from tests.lab.builders import a_flavor, a_request, a_uuid
from tests.lab.processes import wait_until
from tests.lab.stub_adapter import StubAdapter, a_response, an_answer, an_error

A = a_uuid('a')
B = a_uuid('b')
AMOUNTS = {'VCPU': 1, 'MEMORY_MB': 512, 'DISK_GB': 1}
CANDIDATES = 'GET /allocation_candidates'
ALLOCATIONS = 'GET /allocations'
CLAIM = 'PUT /allocations'
CLAIMS = 'POST /allocations'
BOTH = a_response(200, an_answer({A: AMOUNTS, B: AMOUNTS}, ['HW_CPU_X86_AVX']))
PINNED = a_response(200, an_answer({A: {'PCPU': 1}}))
FLOATING = a_response(200, an_answer({A: {'VCPU': 1}, B: {'VCPU': 1}}))
DONE = a_response(204)
FULL = an_error(409, 'Unable to allocate')


@pytest.fixture
def client_of():
    """Makes clients over responses, and ends the threads of the clients."""
    clients = []

    def _client_of(responses, **settings):
        client = PlacementClient(Settings(**settings), StubAdapter(responses))
        clients.append(client)
        return client

    yield _client_of
    for client in clients:
        client.close()


def http_of(client):
    return client._api.http


@pytest.mark.parametrize(
    ('request_', 'responses', 'resources', 'offer'),
    [
        pytest.param(
            a_request(),
            [BOTH],
            ['DISK_GB:1,MEMORY_MB:512,VCPU:1'],
            {A: [AMOUNTS], B: [AMOUNTS]},
            id='plain',
        ),
        pytest.param(
            a_request(flavor=a_flavor({'hw:cpu_policy': 'dedicated'})),
            [PINNED, FLOATING],
            ['DISK_GB:1,MEMORY_MB:512,PCPU:1', 'DISK_GB:1,MEMORY_MB:512,VCPU:1'],
            {A: [{'PCPU': 1}, {'VCPU': 1}], B: [{'VCPU': 1}]},
            id='with a fallback',
        ),
        pytest.param(
            a_request(),
            [an_error(400, 'No such trait')],
            ['DISK_GB:1,MEMORY_MB:512,VCPU:1'],
            {},
            id='Placement refuses the query',
        ),
    ],
)
def test_candidates_of_all_queries_of_a_request_are_offered_in_order(
    client_of, request_, responses, resources, offer
):
    """The queries of a request, and the candidates of all answers in order."""
    client = client_of({CANDIDATES: responses})
    candidates = client.candidates(request_)
    asked = []
    for path in http_of(client).requests:
        query = path.partition('?')[2]
        asked += parse_qs(query)['resources']
    assert asked == resources
    amounts = {}
    for uuid in candidates:
        amounts[uuid] = [candidate.resources()[uuid] for candidate in candidates[uuid]]
    assert amounts == offer
    assert candidates.count == sum(map(len, offer.values()))
    assert not candidates.is_remembered


def test_traits_and_capacity_of_a_provider_come_with_candidates(client_of):
    candidates = client_of({CANDIDATES: [BOTH]}).candidates(a_request())
    assert candidates.traits(A) == ['HW_CPU_X86_AVX']
    assert candidates.capacity_left(A) == {
        name: 9 * amount for name, amount in AMOUNTS.items()
    }


@pytest.mark.parametrize(
    ('response', 'text'),
    [
        (a_response(500), 'Placement answers 500'),
        (a_response(404, b'', 'Not Found'), 'Failed to retrieve allocation candidates'),
        (a_response(200, b'<html>'), 'sends what cannot be read'),
        (a_response(200, {'allocation_requests': 1}), 'sends what cannot be read'),
    ],
)
def test_a_failed_candidates_query_raises_placement_unavailable(
    client_of, response, text
):
    with pytest.raises(PlacementUnavailable, match=text):
        client_of({CANDIDATES: [response]}).candidates(a_request())


def test_a_refused_query_is_logged(client_of, caplog):
    client = client_of({CANDIDATES: [an_error(400, 'No such trait')]})
    client.candidates(a_request())
    [line] = [x for x in caplog.records if x.levelno == logging.WARNING]
    assert 'No such trait' in line.getMessage()


@pytest.mark.parametrize(
    ('response', 'aggregates'),
    [
        (a_response(200, {'aggregates': ['x', 'y']}), {'x', 'y'}),
        (a_response(404), set()),
    ],
)
def test_aggregates_of_a_provider_are_read_and_a_404_means_none(
    client_of, response, aggregates
):
    client = client_of({f'GET /resource_providers/{A}/aggregates': [response]})
    assert client.aggregates(A) == aggregates


def test_allocations_of_an_instance_are_read_by_provider(client_of):
    body = {'allocations': {A: {'resources': AMOUNTS}}, 'consumer_generation': 1}
    client = client_of({ALLOCATIONS: [a_response(200, body)]})
    assert client.allocations('x') == {A: AMOUNTS}
    assert http_of(client).requests == ['GET /allocations/x']


@pytest.mark.parametrize(
    ('response', 'error'),
    [
        (a_response(200), None),
        (a_response(401), PlacementUnauthorized),
        (a_response(503), PlacementUnavailable),
    ],
)
def test_the_check_at_the_start_sends_a_single_request(client_of, response, error):
    """The start of the service sends a single request."""
    client = client_of({'GET /resource_providers': [response]})
    if error is None:
        client.check()
    else:
        with pytest.raises(error):
            client.check()
    assert len(http_of(client).requests) == 1
    assert (client.trouble is not None) == (error is not None)
    assert not client.circuit_open


def boot(name):
    uuid = a_uuid(name)
    return a_request(instance_uuid=uuid, instance_uuids=(uuid,))


@pytest.mark.parametrize(('response', 'is_made'), [(DONE, True), (FULL, False)])
def test_a_claim_is_a_single_put_of_the_candidate(client_of, response, is_made):
    """A single PUT with Placement's own texts."""
    client = client_of({CANDIDATES: [BOTH], CLAIM: [response]})
    request = boot('one')
    [candidate] = client.candidates(request)[A]
    assert (client.claim(request, candidate) is not None) == is_made
    assert http_of(client).requests[1:] == [f'{CLAIM}/{request.instance_uuid}']
    body = json.loads(http_of(client).options[-1]['data'])
    assert body == {
        'allocations': {A: {'resources': AMOUNTS}},
        'mappings': {'': [A]},
        'consumer_generation': None,
        'project_id': request.project_id,
        'user_id': request.user_id,
    }


@pytest.mark.parametrize(('response', 'is_made'), [(DONE, True), (FULL, False)])
def test_claims_of_a_request_are_a_single_post(client_of, response, is_made):
    """A single POST for the instances of a request."""
    client = client_of({CANDIDATES: [BOTH], CLAIMS: [response]})
    offer = client.candidates(boot('one'))
    wanted = [(boot('one'), offer[A][0]), (boot('two'), offer[B][0])]
    claims = client.claim_together(wanted)
    assert (claims is not None) == is_made
    assert http_of(client).requests[1:] == [CLAIMS]
    body = json.loads(http_of(client).options[-1]['data'])
    assert [*body] == [a_uuid('one'), a_uuid('two')]


def test_a_deletion_replaces_allocations_in_the_same_generation(client_of):
    """The allocations are read, and replaced by an empty set in the same generation."""
    held = {'allocations': {A: {'resources': AMOUNTS}}, 'consumer_generation': 1}
    client = client_of(
        {CANDIDATES: [BOTH], CLAIM: [DONE], ALLOCATIONS: [a_response(200, held)]}
    )
    request = boot('one')
    claim = client.claim(request, client.candidates(request)[A][0])
    client.delete_allocations(claim)
    path = f'/allocations/{request.instance_uuid}'
    assert http_of(client).requests[-2:] == [f'GET {path}', f'PUT {path}']
    body = json.loads(http_of(client).options[-1]['data'])
    assert (body['allocations'], body['consumer_generation']) == ({}, 1)
    assert client.pending_deletions == 0


def with_devices(*amounts):
    """A request with a group for each amount of VGPU."""
    extra_specs = {'group_policy': 'none'}
    for number, amount in enumerate(amounts, 1):
        extra_specs[f'resources{number}:VGPU'] = str(amount)
    return a_request(flavor=a_flavor(extra_specs, vcpus=4))


@pytest.mark.parametrize(
    ('amounts', 'all_hosts', 'own'),
    [
        ([1], {'resources': 'DISK_GB:1,MEMORY_MB:1,VCPU:1'}, {'resources1': 'VGPU:1'}),
        (
            [1, 1, 2],
            {'resources': 'DISK_GB:1,MEMORY_MB:1,VCPU:1'},
            {
                'resources': 'DISK_GB:1,MEMORY_MB:512,VCPU:4',
                'resources3': 'VGPU:2',
            },
        ),
    ],
)
def test_the_query_of_a_request_follows_the_query_about_all_hosts(
    client_of, amounts, all_hosts, own
):
    """Placement is asked about all hosts, and then with the amounts of the request. A
    query with many groups has the largest group alone: permutations of all groups would
    take minutes."""
    gpus = {'provider_summaries': {}, 'allocation_requests': []}
    client = client_of(
        {
            'GET /resource_providers': [a_response(200, {'resource_providers': []})],
            CANDIDATES: [a_response(200, gpus)],
        }
    )
    request = with_devices(*amounts)
    assert not client.candidates(request)
    assert not client.candidates(request, replace(FRESH, own_query=True))

    first, second = [
        {name: values[0] for name, values in parse_qs(path.partition('?')[2]).items()}
        for path in http_of(client).requests
        if path.startswith(CANDIDATES)
    ]
    assert {name: first[name] for name in first if 'resources' in name} == all_hosts
    assert second.items() >= own.items()
    is_permuted = len(amounts) + 1 <= MAX_PERMUTED_GROUPS
    assert ('limit' in second) == is_permuted
    assert sum('resources' in name for name in second) == 2


def test_requests_are_served_from_the_remembered_answer(client_of):
    """After an answer about all hosts, requests are served from memory. A refused claim
    excludes the host."""
    client = client_of(
        {CANDIDATES: [BOTH], CLAIM: [FULL], CLAIMS: [FULL]}, candidates_max_age=3600.0
    )
    assert client.remembered_age is None
    request = a_request()
    basis = Basis(from_memory=True)
    wait_until(
        lambda: client.candidates(request, basis).is_remembered,
        10,
        'answer about all hosts',
    )
    number = len(http_of(client).requests)
    offer = client.candidates(request, basis)
    assert [*offer] == [A, B]
    assert len(http_of(client).requests) == number
    assert 0 <= client.remembered_age <= 10

    assert client.claim(boot('one'), offer[A][0]) is None
    assert [*client.candidates(request, basis)] == [B]
    wanted = [(boot('one'), offer[B][0]), (boot('two'), offer[B][0])]
    assert client.claim_together(wanted) is None
    assert not client.candidates(request, basis).is_remembered
