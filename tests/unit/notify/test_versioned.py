# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.notify import versioned
from tests.unit.rpc.wire import CALLS, MADE, primitive

DATA = 'nova_object.data'
EVERYTHING = MADE['everything']['spec_obj'][DATA]
BOOT = CALLS['boot']['args']['spec_obj'][DATA]


def told(name, value):
    """A field of the payload for a request that says ``value`` there."""
    return versioned.payload({**BOOT, name: value})[DATA][name]


def plain(payload):
    """A payload without envelopes."""
    if isinstance(payload, list):
        return [plain(each) for each in payload]
    if isinstance(payload, dict):
        return {name: plain(each) for name, each in payload.get(DATA, payload).items()}
    return payload


NODES = primitive(
    'ComputeNodeList', '1.17',
    objects=[primitive('ComputeNode', '1.19', host='h', hypervisor_hostname='n')],
)  # fmt: skip
CELL = primitive('CellMapping', '1.1', uuid='u', disabled=False)


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
    ],
)  # fmt: skip
def test_fields(name, sent, expected):
    """Each in the payload's own shape; what is not said is null, or left out of a destination."""
    assert plain(told(name, sent)) == expected


def test_security_groups_by_uuid_or_name():
    """A group that has a UUID is told by it."""
    groups = [
        {**primitive('SecurityGroup', '1.2'), DATA: fields}
        for fields in ({'name': 'web'}, {'name': 'db', 'uuid': 'u'})
    ]
    assert told('security_groups', primitive('SecurityGroupList', '1.1', objects=groups)) == [
        'web',
        'u',
    ]


def test_objects_without_a_uuid_get_that_of_the_server():
    """NUMA topology and PCI requests always name a server."""
    numa = primitive('InstanceNUMATopology', '1.3', cells=[])
    assert told('numa_topology', numa)[DATA]['instance_uuid'] == BOOT['instance_uuid']
    assert (
        told('pci_requests', BOOT['pci_requests'])[DATA]['instance_uuid'] == (BOOT['instance_uuid'])
    )


def test_secrets_stay():
    """Neither a cell's URLs nor the name of a key are told."""
    image = primitive(
        'ImageMeta', '1.8',
        properties=primitive('ImageMetaProps', '1.44', hw_ephemeral_encryption_secret_uuid='k'),
    )  # fmt: skip
    payload = versioned.payload({**EVERYTHING, 'image': image})
    assert 'secret' not in str(payload)


def test_rules_are_texts():
    """The one rule that there is, as a number in a text."""
    group = primitive('InstanceGroup', '1.11', _rules={'max_server_per_host': ' 3', 'x': 'y'})
    assert told('instance_group', group)[DATA]['rules'] == {'max_server_per_host': '3'}
