# SPDX-License-Identifier: Apache-2.0
"""Requests to Placement over a stub adapter: retries and the meaning of failures."""

import json

import msgspec
import pytest
import requests
import urllib3
from keystoneauth1 import exceptions as ks_exc

from novasched.placement.api import (
    CONCURRENT_UPDATE,
    MAX_DETAIL_LENGTH,
    PROBE,
    CircuitOpen,
    OutcomeUnknown,
    PlacementApi,
    Response,
)
from novasched.placement.wire import ProviderAggregates
from novasched.scheduler.errors import PlacementUnauthorized, PlacementUnavailable
from tests.lab.processes import wait_until
from tests.lab.stub_adapter import StubAdapter, a_response, an_error


def an_api(*responses, **options):
    """An API over a stub with prepared responses, which succeeds when probed."""
    answers = {f'GET {PROBE}': [a_response(200)]}
    for method in ('GET', 'PUT', 'POST'):
        answers[method] = responses
    options = {'pause': 1e-4, 'probes': (1e-3, 2e-3), **options}
    return PlacementApi(StubAdapter(answers), **options)


def caused_by(error, cause):
    """An error of keystoneauth1, raised while an error of requests was handled."""
    error.__context__ = cause
    return error


OK = a_response(200)
CONTENDED = an_error(409, 'Another thread changed it', CONCURRENT_UPDATE)
OUTDATED = an_error(409, 'consumer generation conflict', CONCURRENT_UPDATE)
FULL = an_error(409, 'Unable to allocate', 'placement.undefined_code')
NEVER_CONNECTED = caused_by(
    ks_exc.ConnectFailure('refused'),
    requests.ConnectionError(
        urllib3.exceptions.MaxRetryError(
            None, '/', urllib3.exceptions.NewConnectionError(None, 'refused')
        )
    ),
)
RESET = caused_by(ks_exc.ConnectFailure('reset'), requests.ConnectionError('reset'))
HALF_A_BODY = caused_by(
    ks_exc.UnknownConnectionError('half', None),
    requests.exceptions.ChunkedEncodingError('half'),
)
CONNECT_TIMEOUT = caused_by(ks_exc.ConnectTimeout('slow'), requests.ConnectTimeout())
READ_TIMEOUT = caused_by(ks_exc.ConnectTimeout('slow'), requests.ReadTimeout())
KEYSTONE_AWAY = ks_exc.ServiceUnavailable(http_status=503)


@pytest.mark.parametrize(
    ('responses', 'outcome', 'attempts'),
    [
        pytest.param([OK], 200, 1, id='yes'),
        pytest.param([a_response(404)], 404, 1, id='not found'),
        pytest.param([a_response(400)], 400, 1, id='bad request'),
        pytest.param([FULL], 409, 1, id='no room'),
        pytest.param([OUTDATED], 409, 1, id='consumer has changed'),
        pytest.param([CONTENDED] * 3 + [OK], 200, 4, id='contended'),
        pytest.param([CONTENDED], 409, 4, id='contended for ever'),
        pytest.param(
            [a_response(503), a_response(502), a_response(429), OK], 200, 4, id='busy'
        ),
        pytest.param([NEVER_CONNECTED, OK], 200, 2, id='no connection'),
        pytest.param([RESET, HALF_A_BODY, OK], 200, 3, id='lost connection'),
        pytest.param([KEYSTONE_AWAY, OK], 200, 2, id='keystone is away'),
        pytest.param([a_response(500)], OutcomeUnknown, 1, id='bug'),
        pytest.param([a_response(504)], OutcomeUnknown, 1, id='proxy timeout'),
        pytest.param([READ_TIMEOUT], OutcomeUnknown, 1, id='no response in time'),
        pytest.param(
            [CONNECT_TIMEOUT], PlacementUnavailable, 1, id='no connection in time'
        ),
        pytest.param([OSError('no such file')], OutcomeUnknown, 1, id='TLS file'),
        pytest.param([a_response(401)], PlacementUnauthorized, 1, id='unauthorized'),
        pytest.param([a_response(403)], PlacementUnauthorized, 1, id='forbidden'),
        pytest.param(
            [ks_exc.Unauthorized()], PlacementUnauthorized, 1, id='keystone refuses'
        ),
        pytest.param([a_response(406)], PlacementUnavailable, 1, id='old Placement'),
        # The first attempt may have been carried out, whatever follows.
        pytest.param([RESET, a_response(401)], OutcomeUnknown, 2, id='reset before'),
        pytest.param(
            [NEVER_CONNECTED, a_response(401)],
            PlacementUnauthorized,
            2,
            id='not sent before',
        ),
    ],
)
def test_answers_of_placement_decide_the_outcome_and_the_attempts(
    responses, outcome, attempts
):
    api = an_api(*responses)
    try:
        if isinstance(outcome, int):
            assert api.send('PUT', '/allocations/x', body={}).status_code == outcome
        else:
            with pytest.raises(PlacementUnavailable) as caught:
                api.send('PUT', '/allocations/x', body={})
            assert type(caught.value) is outcome
    finally:
        api.breaker.stop()
    assert api.http.requests.count('PUT /allocations/x') == attempts


@pytest.mark.parametrize(
    ('options', 'responses', 'attempts'),
    [
        ({}, [a_response(503)], 1),
        ({'status_code_retries': 0}, [a_response(503)], 1),
        ({'status_code_retries': 2}, [a_response(503)], 3),
        ({'connect_retries': 2}, [a_response(503)], 1),
        ({'connect_retries': 2, 'connect_retry_delay': 0.0}, [RESET], 3),
        ({'status_code_retries': 2}, [RESET], 1),
        ({'status_code_retries': 9}, [a_response(500)], 1),
        # An answer between two failures begins a new count.
        (
            {'status_code_retries': 1},
            [a_response(503), CONTENDED, a_response(503)],
            4,
        ),
    ],
)
def test_retry_options_of_nova_conf_limit_the_attempts(options, responses, attempts):
    """The options of keystoneauth1 replace the limit of time. The limit is 0 here."""
    api = an_api(*responses, retry_limit=0.0)
    vars(api.http).update(options)
    with pytest.raises(PlacementUnavailable):
        api.send('PUT', '/x')
    assert len(api.http.requests) == attempts


@pytest.mark.parametrize(
    ('response', 'outcome'),
    [(OK, 200), (CONTENDED, 409), (a_response(503), None), (RESET, None)],
)
def test_a_request_to_send_once_is_not_repeated(response, outcome):
    """The request is sent once, even if nova.conf permits retries."""
    api = an_api(response)
    api.http.status_code_retries = api.http.connect_retries = 9
    if outcome is None:
        with pytest.raises(OutcomeUnknown):
            api.send('PUT', '/x', once=True)
    else:
        assert api.send('PUT', '/x', once=True).status_code == outcome
    assert api.http.requests == ['PUT /x']


@pytest.mark.parametrize(
    ('response', 'repeated'), [(RESET, True), (NEVER_CONNECTED, False)]
)
def test_an_answer_tells_whether_an_attempt_may_have_taken_effect(response, repeated):
    assert an_api(response, FULL).send('PUT', '/x').repeated is repeated


@pytest.mark.parametrize(
    ('arguments', 'headers', 'data', 'microversion'),
    [
        ({}, {}, None, '1.36'),
        ({'microversion': '1.28'}, {}, None, '1.28'),
        (
            {'trace_id': 'req-1', 'body': {'a': 1}},
            {
                'X-Openstack-Request-Id': 'req-1',
                'Content-Type': 'application/json',
            },
            {'a': 1},
            '1.36',
        ),
    ],
)
def test_a_request_is_sent_without_retries_of_keystoneauth1(
    arguments, headers, data, microversion
):
    """keystoneauth1 repeats nothing by itself, and raises no error for a status."""
    api = an_api(OK)
    api.send('PUT', '/x', **arguments)
    [options] = api.http.options
    body = options.pop('data')
    assert (body and json.loads(body)) == data
    assert options == {
        'headers': headers,
        'microversion': microversion,
        'raise_exc': False,
        'connect_retries': 0,
        'status_code_retries': 0,
    }


def test_requests_fail_at_once_while_the_circuit_is_open():
    """After a timeout requests fail at once, until Placement answers a probe."""
    api = an_api(a_response(504), OK)
    api.http.responses[f'GET {PROBE}'] = [a_response(503)]
    try:
        with pytest.raises(OutcomeUnknown):
            api.send('PUT', '/x')
        with pytest.raises(CircuitOpen, match='circuit open'):
            api.send('PUT', '/x')
        assert api.http.requests.count('PUT /x') == 1

        api.http.responses[f'GET {PROBE}'] = [OK]
        wait_until(lambda: api.breaker.reason is None, 10, 'closed circuit')
        assert api.send('PUT', '/x').status_code == 200
    finally:
        api.breaker.stop()


@pytest.mark.parametrize(
    ('body', 'detail'),
    [
        (b'', 'Conflict'),
        (b'<html>', 'Conflict'),
        (b'{"errors": []}', 'Conflict'),
        (b'{"errors": [{"status": 409}]}', 'Conflict'),
        (b'{"errors": [{"detail": "two\\n  lines"}]}', 'two lines'),
        (
            b'{"errors": [{"detail": "%s"}]}' % (b'x' * 999),
            'x' * MAX_DETAIL_LENGTH,
        ),
    ],
)
def test_an_error_has_the_detail_of_placement_or_the_reason(body, detail):
    response = Response(409, body, 'Conflict')
    assert response.detail == detail
    assert str(response) == f'409 {detail}'


@pytest.mark.parametrize(
    ('response', 'aggregates'),
    [
        (Response(200, b'{"aggregates": ["a"], "resource_provider_generation": 1}'), ['a']),
        (Response(200, b'{"aggregates": [1]}'), None),
        (Response(200, b'{}'), None),
        (Response(200, b'<html>'), None),
        (Response(200, b'[' * 100_000), None),
        (Response(404, b'{"aggregates": ["a"]}'), None),
    ],
)  # fmt: skip
def test_an_answer_of_the_wrong_form_or_status_is_not_decoded(response, aggregates):
    if aggregates is None:
        with pytest.raises(PlacementUnavailable):
            response.decode(ProviderAggregates)
    else:
        decoded = response.decode(ProviderAggregates)
        assert msgspec.to_builtins(decoded) == {'aggregates': aggregates}
