# SPDX-License-Identifier: Apache-2.0
"""Neutron's client against an HTTP server that answers from a table."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import parse_qs, urlsplit

import pytest
from keystoneauth1 import adapter, noauth, session

from novasched.conf.settings import Settings
from novasched.neutron import Neutron
from novasched.placement.client import PlacementClient
from novasched.scheduler.errors import NetworkUnavailable
from novasched.scheduler.prefilters import Port

PORTS = [
    {'id': 'bound', 'network_id': 'net', 'binding:vnic_type': 'normal',
     'fixed_ips': [{'subnet_id': 's1', 'ip_address': '10.0.0.4'}, {'subnet_id': 's2'}]},
    {'id': 'card', 'network_id': 'net', 'binding:vnic_type': 'remote-managed', 'fixed_ips': []},
    {'id': 'plain', 'network_id': 'net'},
]  # fmt: skip
SUBNETS = [
    {'id': 's1', 'network_id': 'net', 'segment_id': 'seg1'},
    {'id': 's2', 'network_id': 'net', 'segment_id': 'seg2'},
    {'id': 's3', 'network_id': 'net', 'segment_id': None},
    {'id': 's4', 'network_id': 'flat'},
    {'id': 's5', 'network_id': 'half', 'segment_id': 'seg-without-aggregate'},
    {'id': 's6', 'network_id': 'gone', 'segment_id': 'seg-without-provider'},
]
AGGREGATES = {'seg1': ['agg1'], 'seg2': ['agg2', 'agg3'], 'seg-without-aggregate': []}


class Handler(BaseHTTPRequestHandler):
    """Neutron's lists with filters and fields, and the aggregates of providers."""

    def do_GET(self):
        url = urlsplit(self.path)
        self.server.asked.append(url.path)
        if self.server.broken is not None:
            return self.answer(*self.server.broken)
        if url.path.startswith('/resource_providers/'):
            provider = url.path.split('/')[2]
            if provider not in AGGREGATES:
                return self.answer(404, '{}')
            body = {'aggregates': AGGREGATES[provider], 'resource_provider_generation': 1}
            return self.answer(200, json.dumps(body))
        kind = url.path.removeprefix('/v2.0/')
        query = parse_qs(url.query)
        fields = query.pop('fields')
        rows = [
            {name: row[name] for name in fields if name in row}
            for row in {'ports': PORTS, 'subnets': SUBNETS}[kind]
            if all(row[name] in values for name, values in query.items())
        ]
        return self.answer(200, json.dumps({kind: rows}))

    def answer(self, status, text):
        self.send_response(status)
        self.send_header('Content-Type', 'application/json')
        self.send_header('Content-Length', str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        """Keep quiet."""


@pytest.fixture
def server():
    with ThreadingHTTPServer(('127.0.0.1', 0), Handler) as server:
        server.asked, server.broken = [], None
        thread = Thread(target=server.serve_forever, kwargs={'poll_interval': 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def neutron(server):
    url = f'http://127.0.0.1:{server.server_port}'
    own = session.Session(auth=noauth.NoAuth())
    placement = adapter.Adapter(own, service_type='placement', endpoint_override=url)
    return Neutron(
        adapter.Adapter(own, endpoint_override=url),
        PlacementClient(Settings(), placement).aggregates,
    )


def test_ports(server, neutron):
    """One GET tells of all ports what is needed; those that do not exist are left out."""
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
        ('subnet', 'unknown', 'there is no subnet unknown'),
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
        ((503, 'busy'), 'Neutron answers 503 for its ports'),
        ((403, '{}'), 'Neutron answers 403'),
        ((200, '<html>'), 'is not understood'),
        ((200, '{"ports": [{}]}'), 'is not understood'),
    ],
)
def test_neutron_that_fails(server, neutron, broken, why):
    """Whatever it says instead of an answer is one kind of error."""
    server.broken = broken
    with pytest.raises(NetworkUnavailable, match=why):
        neutron.ports(['bound'])


def test_neutron_that_is_not_there():
    """So is silence."""
    http = adapter.Adapter(
        session.Session(auth=noauth.NoAuth()), endpoint_override='http://127.0.0.1:1'
    )
    with pytest.raises(NetworkUnavailable, match='Neutron: '):
        Neutron(http, {}.get).ports(['bound'])
