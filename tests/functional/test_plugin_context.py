# SPDX-License-Identifier: Apache-2.0
"""Filters written for nova that read the context of the caller.

Filters in public repositories read the roles, the service catalog and the token of the
caller, and the aggregates of other hosts. The token of a caller is nowhere but in such
a filter.
"""

import hashlib
import json
from textwrap import dedent

import oslo_messaging
import pytest

from tests.lab.daemon import Daemon, new_uuids
from tests.lab.known_secrets import a_secret
from tests.lab.nova_cloud import PROJECT, USER
from tests.lab.processes import wait_until
from tests.lab.rpc_load import arguments_for
from tests.lab.wire import primitive

from .test_plugins import add_nova, import_path

CATALOG = [
    {
        'type': 'volumev3',
        'name': 'cinder',
        'endpoints': [{'region': 'one', 'publicURL': 'http://cinder/v3/p'}],
    }
]
CODE = """
    import hashlib

    from nova import context as nova_context
    from nova import objects
    from nova.scheduler import filters
    from nova.scheduler.filters import utils
    from oslo_log import log as logging

    LOG = logging.getLogger(__name__)


    class RolesFilter(filters.BaseHostFilter):
        '''Reserves hosts for callers with a role.'''

        def host_passes(self, host_state, spec_obj):
            required = utils.aggregate_values_from_key(host_state, 'needs_role')
            return required <= set(spec_obj._context.roles)


    class CatalogFilter(filters.BaseHostFilter):
        '''Looks at a volume on behalf of the caller, as an administrator.'''

        run_filter_once_per_request = True

        def host_passes(self, host_state, spec_obj):
            wanted = spec_obj.get_scheduler_hint('token_digest')
            if not wanted:
                return True
            admin = spec_obj._context.elevated()
            auth = admin.get_auth_plugin()
            url = auth.get_endpoint(
                None, service_type='volumev3', interface='publicURL'
            )
            digest = hashlib.sha256(auth.get_token(None).encode()).hexdigest()
            return (
                admin.is_admin
                and 'admin' in admin.roles
                and 'admin' not in spec_obj._context.roles
                and spec_obj._context.project_name == 'our project'
                and digest == wanted
                and url == 'http://cinder/v3/p'
            )


    class TellingFilter(filters.BaseHostFilter):
        '''Tells whatever it knows.'''

        run_filter_once_per_request = True

        def host_passes(self, host_state, spec_obj):
            if not spec_obj.get_scheduler_hint('tell'):
                return True
            context = spec_obj._context
            LOG.warning('asked by %s, %r, %s', context, context, context.to_dict())
            LOG.info('token %s of %s', context.auth_token, spec_obj)
            host_state.limits['token'] = context.auth_token
            host_state.token = context.auth_token
            if spec_obj.get_scheduler_hint('tell') == 'error':
                raise RuntimeError(f'{context.auth_token} was refused')
            return True


    class DomainsFilter(filters.BaseHostFilter):
        '''Reads the aggregates of the other members of the group.'''

        def host_passes(self, host_state, spec_obj):
            group = spec_obj.instance_group
            if not group:
                return True
            admin = nova_context.get_admin_context()
            taken = set()
            for host in group.hosts:
                for aggregate in objects.AggregateList.get_by_host(admin, host):
                    taken.add(aggregate.metadata.get('domain'))
            return not taken & utils.aggregate_values_from_key(host_state, 'domain')
"""
LAST = 60.0
FILTERS = ('RolesFilter', 'CatalogFilter', 'TellingFilter', 'DomainsFilter')


@pytest.fixture(scope='module')
def hosts(cloud):
    """A host for operators, a host of domain A, and two hosts of domain B."""
    cloud.reset()
    for name in ('operators', 'a-1', 'b-1', 'b-2'):
        cloud.add_host(name)
    cloud.add_aggregate('operators', ['operators'], metadata={'needs_role': 'operator'})
    cloud.add_aggregate('a', ['a-1'], metadata={'domain': 'A'})
    cloud.add_aggregate('b', ['b-1', 'b-2'], metadata={'domain': 'B'})
    return cloud


@pytest.fixture(scope='module', params=['without nova', 'with nova'])
def daemon(request, hosts, nova, tmp_path_factory):
    """A scheduler with filters written for nova, and with notifications and records."""
    site = tmp_path_factory.mktemp('site')
    if request.param == 'with nova':
        add_nova(nova, site)
    (site / 'acme_context.py').write_text(dedent(CODE))
    available = [f'acme_context.{name}' for name in FILTERS]
    config = {
        'filter_scheduler': {
            'available_filters': ['nova.scheduler.filters.all_filters', *available],
            'enabled_filters': ','.join(('ComputeFilter', *FILTERS)),
        },
        'novasched': {'decisions_file': site / 'decisions.db'},
        'oslo_messaging_notifications': {'driver': 'log'},
    }
    with Daemon(hosts, config, environment=import_path(site)) as running:
        yield running


@pytest.fixture
def token():
    return a_secret()


@pytest.fixture
def ask(caller, daemon, hosts, token):
    """A function that places a server for the caller with the token; the host of the
    server, or the text of the error."""

    def select(roles=('member',), **fields):
        context = {
            'user_id': USER,
            'project_id': PROJECT,
            'project_name': 'our project',
            'is_admin': False,
            'roles': list(roles),
            'auth_token': token,
            'service_catalog': CATALOG,
            'read_deleted': 'no',
            'timestamp': '2026-11-21T00:50:50.340382',
        }
        [server] = new_uuids()
        select.servers.append(server)
        arguments = arguments_for(server, **fields)
        try:
            [[selection]] = caller.call(
                'select_destinations', arguments, context, server=daemon.host
            )
        except oslo_messaging.MessagingException as error:
            return str(error)
        assert token not in json.dumps(selection)
        hosts.placement.release(server)
        return selection['nova_object.data']['service_host']

    select.servers = []
    return select


def test_a_filter_reads_the_roles_of_the_caller(ask):
    """A host of operators takes servers of operators only."""
    forced = {'ignore_hosts': ['a-1', 'b-1', 'b-2']}
    assert ask(['member', 'operator'], **forced) == 'operators'
    assert 'No valid host' in ask(['member'], **forced)


def test_a_filter_reads_the_token_and_catalog_of_the_caller(ask, token):
    """A filter calls other services with the token of the caller."""
    right = hashlib.sha256(token.encode()).hexdigest()
    wrong = hashlib.sha256(b'').hexdigest()
    assert ask(scheduler_hints={'token_digest': [right]}) in ('a-1', 'b-1', 'b-2')
    assert 'No valid host' in ask(scheduler_hints={'token_digest': [wrong]})


def test_a_filter_reads_the_aggregates_of_hosts_of_the_group(ask):
    """A filter reads the aggregates of the hosts of the server group."""
    group = primitive(
        'InstanceGroup', '1.11', policy='soft-anti-affinity', members=[], hosts=['b-2']
    )
    assert ask(instance_group=group) == 'a-1'


def test_log_error_and_record_hide_the_token_of_the_caller(ask, token, daemon, tool):
    """The log, the error of the caller and the decision record hide the token that a
    filter logs and raises."""
    assert ask(scheduler_hints={'tell': ['log']}) in ('a-1', 'b-1', 'b-2')
    refusal = ask(scheduler_hints={'tell': ['error']})
    assert 'No valid host' in refusal

    assert 'TellingFilter raised RuntimeError: *** was refused' in daemon.text()
    assert token not in daemon.text() + refusal

    def explained():
        status, record = tool('explain', daemon.config, server)
        return status == 0 and json.dumps(record)

    server = ask.servers[-1]
    wait_until(explained, LAST, 'record')
    assert 'TellingFilter' in explained()
    assert token not in explained()
