# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest

from novasched.inflight import Flight
from novasched.model.settings import Settings
from novasched.notify import spec
from tests.builders import a_host, a_request, a_uuid
from tests.unit.rpc.wire import CALLS, primitive

DATA = 'nova_object.data'
BOOT = CALLS['boot']['args']['spec_obj']


def sent(**fields):
    return {**BOOT, DATA: {**BOOT[DATA], **fields}}


@pytest.mark.parametrize(
    ('before', 'wanted', 'expected'),
    [
        (None, {}, None),
        (None, {'aggregates': (frozenset('ba'),)}, {'aggregates': ['a,b']}),
        ({'aggregates': ['b,a']}, {'aggregates': (frozenset('ab'), frozenset('c'))},
            {'aggregates': ['b,a', 'c']}),
        ({'node': 'n'}, {'host': 'h', 'node': 'n'}, {'host': 'h', 'node': 'n'}),
        ({'host': 'h'}, {'host': 'h', 'forbidden_aggregates': frozenset('x')}, {'host': 'h'}),
    ],
)  # fmt: skip
def test_where_prefilters_point(before, wanted, expected):
    """What was found before Placement was asked stands behind what was sent."""
    request = a_request()
    request = request.wanting(**wanted) if wanted else request
    destination = before and primitive('Destination', '1.4', **before)
    found = spec.at_start(sent(requested_destination=destination), request)
    assert spec.data(found['requested_destination']) == (expected or {})


def test_servers_and_their_hosts():
    """In the end it is about the last server, and the group has the hosts of all, in order
    and behind those that it had."""
    names = ['b', 'a', 'b']
    flights = [Flight(a_host(name), a_request(), None, {}, 0.0) for name in names]
    group = primitive('InstanceGroup', '1.11', hosts=['z'], policy='affinity')
    request = replace(a_request(), instance_uuid=a_uuid('last'))
    found = spec.at_end(sent(instance_group=group), request, flights, Settings())
    assert found['instance_uuid'] == a_uuid('last')
    assert spec.data(found['instance_group'])['hosts'] == ['z', 'b', 'a', 'b']
    assert spec.data(group)['hosts'] == ['z']


def test_stamped():
    """Only what has no UUID gets that of the server, and says so."""
    part = primitive('InstancePCIRequests', '1.1', requests=[])
    once = spec.stamped(primitive('RequestSpec', '1.15', instance_uuid='u', pci_requests=part))
    assert once[DATA]['pci_requests'][DATA]['instance_uuid'] == 'u'
    assert once[DATA]['pci_requests']['nova_object.changes'] == ['instance_uuid']
    assert spec.stamped(once) == once
