# SPDX-License-Identifier: Apache-2.0
"""The context of the caller that plugins written for nova see."""

from dataclasses import replace
from datetime import datetime

import pytest
from keystoneauth1 import exceptions as ks_exc
from oslo_context import context as oslo_context

from novasched.plugins.nova_compat.adapters import RequestViews
from novasched.plugins.nova_compat.context import context_of, get_admin_context
from novasched.plugins.nova_compat.host_state import AggregateList
from novasched.plugins.nova_compat.views import NotKnown
from novasched.rpc import decode, versions
from novasched.rpc.server import Serializer
from novasched.scheduler.model.host import Aggregate
from tests.lab.builders import a_request
from tests.lab.wire import a_spec, decoded

TOKEN = 'gAAAAABl-kG7bQz2mXw9RtLp4'
ENDPOINT = {'region': 'one', 'publicURL': 'http://cinder', 'adminURL': 'http://inner'}
SENT = {
    'user': 'u1',
    'user_id': 'u1',
    'project': 'p1',
    'project_id': 'p1',
    'project_name': 'ours',
    'user_name': 'me',
    'user_domain': 'd1',
    'project_domain': 'd2',
    'system_scope': None,
    'is_admin': False,
    'roles': ['member'],
    'auth_token': TOKEN,
    'request_id': 'req-1',
    'global_request_id': 'req-2',
    'read_deleted': 'no',
    'remote_address': '127.0.0.1',
    'timestamp': '2026-11-21T00:50:50.340382',
    'quota_class': None,
    'service_catalog': [
        {'type': 'volumev3', 'name': 'cinder', 'endpoints': [ENDPOINT]}
    ],
    'novasched_received': 1.0,
}


def received(sent, keeps_caller=True):
    """The request of a message with a context."""
    call = versions.read(decoded({'spec_obj': a_spec('1.0')}))
    context = Serializer(keeps_caller).deserialize_context(sent)
    return decode.request(call, context)


def context(**changes):
    """The context that a plugin sees."""
    return RequestViews().spec(received({**SENT, **changes}))._context


@pytest.mark.parametrize(
    ('seen', 'value'),
    [
        (lambda c: (c.user_id, c.project_id, c.project_name), ('u1', 'p1', 'ours')),
        (lambda c: (c.user_domain_id, c.project_domain_id), ('d1', 'd2')),
        (lambda c: (c.request_id, c.global_id), ('req-1', 'req-2')),
        (lambda c: (c.roles, c.is_admin, c.read_deleted), (['member'], False, 'no')),
        (lambda c: c.auth_token, TOKEN),
        (lambda c: c.timestamp, datetime(2026, 11, 21, 0, 50, 50, 340382)),
        (lambda c: c.remote_address, '127.0.0.1'),
        (lambda c: c.service_catalog[0]['type'], 'volumev3'),
        (lambda c: c.to_dict()['auth_token'], TOKEN),
        (lambda c: c.to_dict()['timestamp'], SENT['timestamp']),
        (lambda c: c.to_policy_values()['is_admin'], False),
        (lambda c: c.to_policy_values()['roles'], ['member']),
        (lambda c: c.elevated().is_admin, True),
        (lambda c: c.elevated().roles, ['member', 'admin']),
        (lambda c: c.elevated().elevated('yes').roles, ['member', 'admin']),
        (lambda c: c.elevated('yes').read_deleted, 'yes'),
        (lambda c: c.elevated().auth_token, TOKEN),
        (lambda c: c.elevated() and (c.roles, c.is_admin), (['member'], False)),
        (lambda c: type(c).from_dict(c.to_dict()).to_dict() == c.to_dict(), True),
    ],
)
def test_a_plugin_sees_the_context_by_the_names_of_nova(seen, value):
    """A plugin sees the values of the message, by the names and methods of nova."""
    assert seen(context()) == value


@pytest.mark.parametrize(
    ('changes', 'seen', 'value'),
    [
        ({'user_id': None, 'user': 'old'}, lambda c: c.user_id, 'old'),
        ({'project_id': None, 'tenant': 'old'}, lambda c: c.project_id, 'old'),
        ({'is_admin': None}, lambda c: c.is_admin, False),
        ({'is_admin': None, 'roles': ['Admin']}, lambda c: c.is_admin, True),
        ({'roles': None}, lambda c: c.roles, []),
        ({'service_catalog': None}, lambda c: c.service_catalog, []),
        ({'read_deleted': None}, lambda c: c.read_deleted, 'no'),
        ({'timestamp': 'noon'}, lambda c: type(c.timestamp), datetime),
        ({'timestamp': 7}, lambda c: type(c.timestamp), datetime),
    ],
)
def test_contexts_of_older_releases_are_read_with_defaults(changes, seen, value):
    """Releases before Queens have other names; missing values have defaults."""
    assert seen(context(**changes)) == value


def test_the_auth_plugin_has_the_token_and_endpoints_of_the_caller():
    """The plugin for keystoneauth has the token and the endpoints of the caller."""
    auth = context().get_auth_plugin()

    assert auth.get_token(None) == TOKEN
    assert auth.get_endpoint(None, service_type='volumev3', interface='admin') == (
        'http://inner'
    )
    with pytest.raises(ks_exc.EndpointNotFound):
        auth.get_endpoint(None, service_type='image', interface='public')


def test_a_plugin_can_replace_the_auth_plugin_of_a_context():
    given = object()
    seen = context()
    seen.user_auth_plugin = given
    assert seen.get_auth_plugin() is given
    assert seen.elevated().get_auth_plugin() is given


def test_the_token_stays_within_the_plugin():
    """No text of a request or a context has the token, and the logging context of the
    thread stays without the token."""
    request = received(SENT)
    logged = oslo_context.get_current()
    seen = context_of(request)

    assert seen.auth_token == TOKEN
    for shown in (request, request.origin, seen, seen.elevated(), [seen]):
        assert TOKEN not in f'{shown} {shown!r}'
    assert TOKEN not in str(seen.get_logging_values())
    assert 'service_catalog' not in seen.get_logging_values()
    assert oslo_context.get_current() is logged
    assert logged.auth_token is None
    assert TOKEN not in str(request.origin.context.to_dict())


def test_the_token_of_the_caller_is_dropped_without_plugins():
    """A request keeps nothing of the context that no plugin reads."""
    request = received(SENT, keeps_caller=False)
    assert request.origin.caller == {}
    assert context_of(request).auth_token is None
    assert context_of(request).user_id == 'u1'


def test_the_context_of_a_simulated_request_has_user_and_project():
    """A simulated request has the user and project only."""
    request = replace(a_request(request_id='req-1'), project_id='p1', user_id='u1')
    seen = context_of(request)
    assert (seen.user_id, seen.project_id, seen.request_id) == ('u1', 'p1', 'req-1')
    assert (seen.roles, seen.is_admin, seen.auth_token) == ([], False, None)


def test_the_admin_context_has_no_user_and_no_token():
    """The context of an administrator has no user and no token, and does not replace
    the logging context."""
    oslo_context.RequestContext(user_id='other')
    seen = get_admin_context()
    assert (seen.is_admin, seen.user_id, seen.auth_token) == (True, None, None)
    assert oslo_context.get_current().user_id == 'other'


def test_aggregate_list_has_the_aggregates_of_any_host(monkeypatch):
    """AggregateList has the aggregates of any host; a plugin may change the objects."""
    aggregates = (
        Aggregate(1, 'a', 'one', {'rack': 'r1'}),
        Aggregate(2, 'b', 'two', {}),
    )
    monkeypatch.setattr(AggregateList, 'source', lambda: {'h1': aggregates})

    def names(*arguments):
        found = AggregateList.get_by_host(get_admin_context(), *arguments)
        return [aggregate.name for aggregate in found]

    assert names('h1') == ['one', 'two']
    assert names('h1', 'rack') == ['one']
    assert names('h2') == []
    AggregateList.get_by_host(None, 'h1')[0].metadata.clear()
    assert aggregates[0].metadata == {'rack': 'r1'}

    monkeypatch.setattr(AggregateList, 'source', None)
    with pytest.raises(NotKnown):
        names('h1')
