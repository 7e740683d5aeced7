# SPDX-License-Identifier: Apache-2.0
"""The client of Neutron with an HTTP server that answers from a table."""

import json
from urllib.parse import parse_qs, urlsplit

import pytest
from keystoneauth1 import adapter, noauth, session

from novasched.conf.settings import Settings
from novasched.neutron import Neutron
from novasched.placement.client import PlacementClient
from novasched.scheduler.errors import NetworkUnavailable
from novasched.scheduler.prefilters import Port
from tests.lab.proxy import JSON, HttpStub

PORTS = [
    {
        'id': 'bound',
        'network_id': 'net',
        'binding:vnic_type': 'normal',
        'fixed_ips': [
            {'subnet_id': 's1', 'ip_address': '10.0.0.4'},
            {'subnet_id': 's2'},
        ],
    },
    {
        'id': 'card',
        'network_id': 'net',
        'binding:vnic_type': 'remote-managed',
        'fixed_ips': [],
    },
    {'id': 'plain', 'network_id': 'net'},
]
SUBNETS = [
    {'id': 's1', 'network_id': 'net', 'segment_id': 'seg1'},
    {'id': 's2', 'network_id': 'net', 'segment_id': 'seg2'},
    {'id': 's3', 'network_id': 'net', 'segment_id': None},
    {'id': 's4', 'network_id': 'flat'},
    {'id': 's5', 'network_id': 'half', 'segment_id': 'seg-without-aggregate'},
    {'id': 's6', 'network_id': 'gone', 'segment_id': 'seg-without-provider'},
]
AGGREGATES = {'seg1': ['agg1'], 'seg2': ['agg2', 'agg3'], 'seg-without-aggregate': []}


class NeutronStub(HttpStub):
    """The lists of Neutron with filters and fields, and the aggregates of providers.

    ``broken`` (status, answer) replaces all answers. ``paths`` are the requested paths.
    """

    broken = None

    def __init__(self):
        super().__init__()
        self.paths = []

    def reply(self, method, path, headers, body):
        url = urlsplit(path)
        self.paths.append(url.path)
        status, answer = self.broken or self.answer(url.path, parse_qs(url.query))
        if not isinstance(answer, str):
            answer = json.dumps(answer)
        return status, JSON, answer.encode()

    def answer(self, path, query):
        if path.startswith('/resource_providers/'):
            provider = path.split('/')[2]
            if provider not in AGGREGATES:
                return 404, {}
            return 200, {
                'aggregates': AGGREGATES[provider],
                'resource_provider_generation': 1,
            }
        kind = path.removeprefix('/v2.0/')
        fields = query.pop('fields')
        rows = []
        for row in {'ports': PORTS, 'subnets': SUBNETS}[kind]:
            if all(row[name] in values for name, values in query.items()):
                rows.append({name: row[name] for name in fields if name in row})
        return 200, {kind: rows}


@pytest.fixture
def server():
    with NeutronStub() as server:
        yield server


@pytest.fixture
def neutron(server):
    return client(f'http://{server.address}')


def client(url):
    """Make a client of Neutron, and of Placement, for a URL."""
    http = session.Session(auth=noauth.NoAuth())
    placement = adapter.Adapter(http, service_type='placement', endpoint_override=url)
    aggregates = PlacementClient(Settings(), placement).aggregates
    return Neutron(adapter.Adapter(http, endpoint_override=url), aggregates)


def test_ports_are_read_with_a_single_get(server, neutron):
    """A single GET reads all ports. Missing ports are left out."""
    ports = neutron.ports(['bound', 'card', 'plain', 'gone', 'card'])

    assert ports == {
        'bound': Port('net', subnet_id='s1'),
        'card': Port('net', vnic_type='remote-managed'),
        'plain': Port('net'),
    }
    assert server.paths == ['/v2.0/ports']


@pytest.mark.parametrize(
    ('kind', 'uuid', 'aggregates'),
    [
        ('network', 'net', {'agg1', 'agg2', 'agg3'}),
        ('network', 'flat', set()),
        ('network', 'unknown', set()),
        ('subnet', 's2', {'agg2', 'agg3'}),
        ('subnet', 's3', set()),
        ('subnet', 's4', set()),
    ],
)
def test_networks_and_subnets_have_the_aggregates_of_segments(
    neutron, kind, uuid, aggregates
):
    """A network has the aggregates of all segments, a subnet of its segment. A network
    that is not routed has no aggregates."""
    assert getattr(neutron, f'{kind}_aggregates')(uuid) == aggregates


@pytest.mark.parametrize(
    ('kind', 'uuid', 'why'),
    [
        ('subnet', 'unknown', 'subnet unknown does not exist'),
        ('subnet', 's5', 'segment seg-without-aggregate has no'),
        ('network', 'gone', 'segment seg-without-provider has no'),
    ],
)
def test_a_misconfigured_network_is_an_error(neutron, kind, uuid, why):
    """A segment without aggregates is an error, which an operator must fix."""
    with pytest.raises(NetworkUnavailable, match=why):
        getattr(neutron, f'{kind}_aggregates')(uuid)


@pytest.mark.parametrize(
    ('broken', 'why'),
    [
        ((503, 'busy'), 'Neutron answered GET ports with 503'),
        ((403, '{}'), 'Neutron answered GET ports with 403'),
        ((200, '<html>'), 'sent an invalid answer'),
        ((200, '{"ports": [{}]}'), 'sent an invalid answer'),
        ((200, '{"ports": ' + '[' * 100_000), 'sent an invalid answer'),
    ],
)
def test_a_failure_of_neutron_raises_network_unavailable(server, neutron, broken, why):
    """All failures of Neutron raise the same error."""
    server.broken = broken

    with pytest.raises(NetworkUnavailable, match=why):
        neutron.ports(['bound'])


def test_a_refused_connection_raises_network_unavailable():
    """A refused connection raises the same error as a failure of Neutron."""
    with pytest.raises(NetworkUnavailable, match='Neutron: '):
        client('http://127.0.0.1:1').ports(['bound'])
