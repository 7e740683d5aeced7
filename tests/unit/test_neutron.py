# SPDX-License-Identifier: Apache-2.0
"""Neutron's client against an HTTP server that answers from a table."""

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
    """Neutron's lists with filters and fields, and the aggregates of providers;
    ``broken`` is answered instead."""

    broken = None

    def __init__(self):
        super().__init__()
        self.asked = []

    def reply(self, method, path, headers, body):
        url = urlsplit(path)
        self.asked.append(url.path)
        status, answer = self.broken or self.answer(url.path, parse_qs(url.query))
        text = answer if isinstance(answer, str) else json.dumps(answer)
        return status, JSON, text.encode()

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
        rows = [
            {name: row[name] for name in fields if name in row}
            for row in {'ports': PORTS, 'subnets': SUBNETS}[kind]
            if all(row[name] in values for name, values in query.items())
        ]
        return 200, {kind: rows}


@pytest.fixture
def server():
    with NeutronStub() as server:
        yield server


@pytest.fixture
def neutron(server):
    return client(f'http://{server.address}')


def client(url):
    """A client of Neutron, and of Placement, at a URL."""
    own = session.Session(auth=noauth.NoAuth())
    placement = adapter.Adapter(own, service_type='placement', endpoint_override=url)
    aggregates = PlacementClient(Settings(), placement).aggregates
    return Neutron(adapter.Adapter(own, endpoint_override=url), aggregates)


def test_ports(server, neutron):
    """One GET tells of all ports what is needed; those that do not exist are left
    out."""
    assert neutron.ports(['bound', 'card', 'plain', 'gone', 'card']) == {
        'bound': Port('net', subnet_id='s1'),
        'card': Port('net', vnic_type='remote-managed'),
        'plain': Port('net'),
    }
    assert server.asked == ['/v2.0/ports']


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
def test_aggregates(neutron, kind, uuid, aggregates):
    """Those of all segments, or of the subnet's one; what is not routed has none."""
    assert getattr(neutron, f'{kind}_aggregates')(uuid) == aggregates


@pytest.mark.parametrize(
    ('kind', 'uuid', 'why'),
    [
        ('subnet', 'unknown', 'subnet unknown does not exist'),
        ('subnet', 's5', 'segment seg-without-aggregate has no'),
        ('network', 'gone', 'segment seg-without-provider has no'),
    ],
)
def test_networks_that_are_set_up_wrongly(neutron, kind, uuid, why):
    """A routed network whose segments nobody can place by is an operator's mistake."""
    with pytest.raises(NetworkUnavailable, match=why):
        getattr(neutron, f'{kind}_aggregates')(uuid)


@pytest.mark.parametrize(
    ('broken', 'why'),
    [
        ((503, 'busy'), 'Neutron answered GET ports with 503'),
        ((403, '{}'), 'Neutron answered GET ports with 403'),
        ((200, '<html>'), 'sent an invalid answer'),
        ((200, '{"ports": [{}]}'), 'sent an invalid answer'),
    ],
)
def test_neutron_that_fails(server, neutron, broken, why):
    """Whatever it says instead of an answer is one kind of error."""
    server.broken = broken
    with pytest.raises(NetworkUnavailable, match=why):
        neutron.ports(['bound'])


def test_neutron_that_is_not_there():
    """So is silence."""
    with pytest.raises(NetworkUnavailable, match='Neutron: '):
        client('http://127.0.0.1:1').ports(['bound'])
