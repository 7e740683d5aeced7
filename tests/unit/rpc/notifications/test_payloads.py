# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace
from datetime import datetime

import pytest

from novasched.rpc.notifications import payloads
from novasched.rpc.notifications.payloads import data
from novasched.scheduler.model.numa import CellFit, Fit
from novasched.scheduler.pending_claims import PendingClaim
from tests.lab.builders import a_host, a_request, a_uuid
from tests.lab.wire import CALLS, MADE, context_of, primitive

SENT = CALLS['boot']['args']['spec_obj']
BOOT = data(SENT)
EVERYTHING = data(MADE['everything']['spec_obj'])
CALLER = {**context_of(CALLS['boot']), 'auth_token': 'secret', 'remote_address': '192.0.2.1'}
NOW = datetime(2026, 11, 21, 12, 0, 0, 5)


def sent(**fields):
    return {**SENT, payloads.DATA: {**BOOT, **fields}}


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
def test_destination_at_start(before, wanted, expected):
    """Aggregates of prefilters stand behind those that were sent."""
    request = a_request().wanting(**wanted) if wanted else a_request()
    destination = before and primitive('Destination', '1.4', **before)
    fields = payloads.at_start(sent(requested_destination=destination), request)
    assert data(fields['requested_destination']) == (expected or {})


def a_claim(host, place=None):
    return PendingClaim(host, a_request(), None, place, {}, 0.0)


def test_instances_and_their_hosts_at_end():
    """The last instance is named, and the group has the hosts of all, in order and behind those
    that it had."""
    group = primitive('InstanceGroup', '1.11', hosts=['z'], policy='affinity')
    request = replace(a_request(), instance_uuid=a_uuid('last'))
    claims = [a_claim(a_host(name)) for name in 'bab']
    fields = payloads.at_end(sent(instance_group=group), request, claims)
    assert fields['instance_uuid'] == a_uuid('last')
    assert data(fields['instance_group'])['hosts'] == ['z', 'b', 'a', 'b']
    assert data(group)['hosts'] == ['z']


CELL_FIT = CellFit(host_cell=3, pagesize=4, pins=((0, 7),), emulator_cpus=frozenset({9, 8}))
ON_CELL_3 = {
    'id': 3, 'memory': 512, 'pagesize': 4, 'cpu_pinning_raw': {'0': 7}, 'cpuset_reserved': [8, 9],
}  # fmt: skip


@pytest.mark.parametrize(
    ('numa', 'place', 'cells'),
    [
        (lambda: object(), Fit((CELL_FIT,)), [ON_CELL_3]),
        (lambda: object(), Fit((CellFit(1),)), [{'id': 1, 'memory': 512}]),
        (lambda: object(), None, []),
        (lambda: None, None, [{'id': 0, 'memory': 512}]),
    ],
)
def test_numa_topology_at_end(numa, place, cells):
    """The guest's cells as they were fitted: null where they were not, as sent where the host
    has none."""
    cell = primitive('InstanceNUMACell', '1.6', id=0, memory=512)
    guest = primitive('InstanceNUMATopology', '1.3', instance_uuid='u', cells=[cell])
    claim = a_claim(a_host(numa=numa), place)
    fields = payloads.at_end(sent(numa_topology=guest), a_request(), [claim])
    assert list(map(data, data(fields['numa_topology']).get('cells', ()))) == cells


def test_stamped():
    """Parts without a UUID get that of the instance, and say so."""
    part = primitive('InstancePCIRequests', '1.1', requests=[])
    once = payloads.stamped(primitive('RequestSpec', '1.15', instance_uuid='u', pci_requests=part))
    assert data(data(once)['pci_requests'])['instance_uuid'] == 'u'
    assert data(once)['pci_requests'][payloads.CHANGES] == ['instance_uuid']
    assert payloads.stamped(once) == once


def legacy(spec):
    context = payloads.context_attributes(payloads.context_on_wire(CALLER, NOW))
    return payloads.legacy_payload(spec, context)['request_spec']


def test_the_legacy_payload():
    """Image and flavor are plain dicts of what is set, with times to the microsecond."""
    spec = legacy(BOOT)
    assert set(spec) == {'num_instances', 'image', 'instance_properties', 'instance_type'}
    assert spec['image']['created_at'] == '2026-11-21T00:50:50.000000'
    assert spec['image']['properties'] == {}
    assert 'direct_url' not in spec['image']
    assert spec['instance_type']['vcpus'] == spec['instance_properties']['vcpus'] == 1
    assert spec['instance_properties']['uuid'] == BOOT['instance_uuid']
    assert legacy({**BOOT, 'image': None})['image'] == {}


def test_devices_show_their_insides_but_no_secret():
    """PCI requests are attributes of objects, with the caller's context less its token; a NUMA
    topology is dicts of fields."""
    instance = legacy(EVERYTHING)['instance_properties']
    cells, devices = instance['numa_topology']['cells'], instance['pci_requests']
    assert [each['pcpuset'] for each in cells] == [[2, 3], [4, 5, 6, 7]]
    assert devices['VERSION'] == '1.1'
    assert devices['_obj_requests'][0]['_obj_count'] == 2
    assert devices['_context']['user_id'] == CALLER['user_id']
    assert devices['_context']['_is_admin'] is True
    assert 'secret' not in str(devices)
    assert '192.0.2.1' not in str(devices)


def test_the_context_on_the_wire():
    """oslo.context's fields and those that nova adds, without secrets."""
    wire = payloads.context_on_wire({'user': 'u', 'project_id': 'p', 'auth_token': 'secret'}, NOW)
    assert wire['user_id'] == 'u'
    assert wire['timestamp'] == '2026-11-21T12:00:00.000005'
    assert (wire['auth_token'], wire['remote_address'], wire['service_catalog']) == (None, None, [])


def plain(payload):
    """A payload without envelopes."""
    if isinstance(payload, list):
        return [plain(each) for each in payload]
    if isinstance(payload, dict):
        return {name: plain(each) for name, each in payload.get(payloads.DATA, payload).items()}
    return payload


NODES = primitive(
    'ComputeNodeList', '1.17',
    objects=[primitive('ComputeNode', '1.19', host='h', hypervisor_hostname='n')],
)  # fmt: skip
CELL = primitive('CellMapping', '1.1', uuid='u', disabled=False, database_connection='a://secret')
SECURITY_GROUPS = primitive(
    'SecurityGroupList', '1.1',
    objects=[
        {payloads.DATA: {'name': 'web'}},
        {payloads.DATA: {'name': 'db', 'uuid': 'u'}},
    ],
)  # fmt: skip
ITS_UUID = BOOT['instance_uuid']


@pytest.mark.parametrize(
    ('name', 'sent', 'expected'),
    [
        ('force_hosts', ['a', 'b'], 'a'),
        ('force_hosts', [], None),
        ('force_nodes', None, None),
        ('ignore_hosts', [], []),
        ('retry', primitive('SchedulerRetries', '1.1', num_attempts=2, hosts=NODES),
            {'num_attempts': 2, 'hosts': ['n']}),
        ('requested_destination', primitive('Destination', '1.4', host=None, cell=CELL),
            {'cell': {'uuid': 'u', 'name': None, 'disabled': False}, 'aggregates': None}),
        ('requested_destination', primitive('Destination', '1.4', host='h', aggregates=['a,b']),
            {'host': 'h', 'aggregates': ['a,b']}),
        ('scheduler_hints', {'a': ['1']}, {'a': ['1']}),
        ('security_groups', SECURITY_GROUPS, ['web', 'u']),
        ('numa_topology', primitive('InstanceNUMATopology', '1.3', cells=[]),
            {'instance_uuid': ITS_UUID, 'cells': [], 'emulator_threads_policy': None}),
        ('pci_requests', BOOT['pci_requests'], {'instance_uuid': ITS_UUID, 'requests': []}),
    ],
)  # fmt: skip
def test_versioned_fields(name, sent, expected):
    """Each in the payload's own shape, without secrets; what is not said is null, or left out of a
    destination, but for the UUID of the instance."""
    payload = payloads.versioned_payload({**BOOT, name: sent})
    assert plain(data(payload)[name]) == expected


def test_some_image_properties_and_rules():
    """The name of a key is not sent; of a group's rules the one is, as a number in a text."""
    properties = primitive('ImageMetaProps', '1.44', hw_ephemeral_encryption_secret_uuid='k')
    group = primitive('InstanceGroup', '1.11', _rules={'max_server_per_host': ' 3', 'x': 'y'})
    fields = {
        'image': primitive('ImageMeta', '1.8', properties=properties),
        'instance_group': group,
    }
    payload = payloads.versioned_payload({**EVERYTHING, **fields})
    assert 'secret' not in str(payload)
    assert data(data(payload)['instance_group'])['rules'] == {'max_server_per_host': '3'}
