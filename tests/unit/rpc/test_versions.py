# SPDX-License-Identifier: Apache-2.0
"""Calls in all RPC versions, and the dicts of version 4.0, from Kilo to releases pinned
to 4.0."""

import json
from dataclasses import replace

import pytest

from novasched.rpc import decode, versions, wire
from novasched.rpc.versions import Call, read
from novasched.scheduler.errors import BadRequest
from novasched.scheduler.model.flavor import Flavor, Image
from novasched.scheduler.model.numa import GuestCell, GuestTopology
from novasched.scheduler.model.pci import PciRequest
from novasched.scheduler.model.request import Destination, Request, Retry, ServerGroup
from tests.lab.wire import CONTEXT, FLAVOR, MADE, decoded, primitive

SPEC = wire.RequestSpec()


@pytest.mark.parametrize(
    ('arguments', 'fields'),
    [
        ({}, {}),
        ({'instance_uuids': ['a', 'b']}, {'instance_uuids': ('a', 'b')}),
        (
            {'return_objects': True, 'return_alternates': True},
            {'return_objects': True, 'return_alternates': True},
        ),
        ({'return_objects': False, 'return_alternates': True}, {}),
    ],
    ids=['4.3', '4.4', '4.5', '4.5 no objects'],
)
def test_arguments_of_every_rpc_version_are_read(arguments, fields):
    """Arguments of every version are read. Without objects, alternates are not
    returned."""
    assert read({'spec_obj': SPEC, **arguments}) == Call(SPEC, (1, 15), **fields)


@pytest.mark.parametrize(
    ('arguments', 'why'),
    [
        ({}, 'without spec_obj, request_spec must be a dict, not NoneType'),
        (
            {'request_spec': {}},
            'without spec_obj, filter_properties must be a dict, not NoneType',
        ),
        (
            {'request_spec': [], 'filter_properties': {}},
            'without spec_obj, request_spec must be a dict, not list',
        ),
        ({'spec_obj': None}, 'spec_obj must be a RequestSpec, not NoneType'),
        ({'spec_obj': {'flavor': 1}}, 'spec_obj must be a RequestSpec, not dict'),
        ({'spec_obj': wire.Flavor()}, 'spec_obj must be a RequestSpec, not Flavor'),
        (
            {'spec_obj': SPEC, 'instance_uuids': 'abc'},
            'instance_uuids must be a list of strings',
        ),
        (
            {'spec_obj': SPEC, 'instance_uuids': [1]},
            'instance_uuids must be a list of strings',
        ),
        (
            {'spec_obj': SPEC, 'zeal': 1, 'haste': 2},
            'select_destinations has no argument haste, zeal',
        ),
    ],
)
def test_a_malformed_call_is_refused_with_the_argument(arguments, why):
    """A malformed call is refused with a text with the argument."""
    with pytest.raises(BadRequest) as caught:
        read(arguments)
    assert str(caught.value) == why


TYPE = {
    'id': 3,
    'name': 'm1.small',
    'flavorid': '2',
    'vcpus': 1,
    'memory_mb': 2048,
    'root_gb': 20,
    'ephemeral_gb': 0,
    'swap': 0,
    'rxtx_factor': 1.0,
    'vcpu_weight': 0,
    'disabled': False,
    'is_public': True,
    'extra_specs': {'hw:cpu_policy': 'dedicated'},
    'deleted': False,
    'created_at': None,
    'updated_at': None,
    'deleted_at': None,
}
SMALL = Flavor(
    name='m1.small', flavorid='2', id=3, vcpus=1, memory_mb=2048, root_gb=20,
    extra_specs={'hw:cpu_policy': 'dedicated'},
)  # fmt: skip
CELL = {
    'id': 0, 'cpuset': [0, 1], 'memory': 512, 'pagesize': 4, 'cpu_topology': None,
    'cpu_pinning_raw': None,
}  # fmt: skip
TOPOLOGY = GuestTopology(
    (GuestCell(id=0, cpuset=frozenset({0, 1}), memory=512, pagesize=4),)
)
DEVICES = {
    'count': 1, 'spec': [{'vendor_id': '8086'}], 'alias_name': 'nic', 'is_new': False,
    'request_id': None,
}  # fmt: skip


def request_of(filters=None, /, instance=None, **spec):
    """The request of the two dicts."""
    request_spec = {'instance_type': TYPE, 'instance_properties': instance, **spec}
    arguments = decoded(
        {'request_spec': request_spec, 'filter_properties': filters or {}}
    )
    return decode.request(versions.read(arguments), CONTEXT)


def test_a_build_of_kilo_in_plain_dicts_becomes_a_request():
    """Plain dicts at all depths, like a build in Kilo."""
    instance = {
        'uuid': 'u1',
        'project_id': 'p',
        'user_id': 'u',
        'availability_zone': 'az',
        'numa_topology': None,
        'pci_requests': None,
        'system_metadata': {},
        'os_type': None,
    }
    image = {
        'id': 'i',
        'name': None,
        'status': 'active',
        'size': 25165824,
        'disk_format': 'ami',
        'container_format': 'ami',
        'min_ram': 0,
        'min_disk': '0',
        'is_public': True,
        'created_at': '2015-04-30T00:00:00.000000',
        'properties': {
            'architecture': 'x86_64',
            'hypervisor_type': 'qemu',
            'os_distro': 'x',
        },
    }
    filters = {
        'scheduler_hints': {'same_host': 'u2'},
        'force_hosts': ['h'],
        'limits': {'memory_mb': 3},
        'retry': {'num_attempts': 1, 'hosts': [], 'exc': None},
        'config_drive': '',
    }
    assert request_of(
        filters, instance=instance, image=image, num_instances=2
    ) == Request(
        flavor=SMALL,
        instance_uuid='u1',
        num_instances=2,
        project_id='p',
        user_id='u',
        request_id=CONTEXT.request_id,
        availability_zone='az',
        force_hosts=('h',),
        retry=Retry(),
        scheduler_hints={'same_host': ('u2',)},
        image=Image(
            id='i',
            disk_format='ami',
            container_format='ami',
            size=25165824,
            properties={
                'hw_architecture': 'x86_64',
                'img_hv_type': 'qemu',
                'os_distro': 'x',
            },
        ),
    )


def test_dicts_of_a_release_pinned_to_4_0_become_the_same_request():
    """The dicts of a release pinned to 4.0 become the same request as a RequestSpec,
    except for values that the dicts cannot hold."""
    call = versions.read(decoded(MADE['held back to 4.0']))
    request = decode.request(call, CONTEXT)
    spec = decode.request(versions.read(decoded(MADE['everything'])), CONTEXT)
    same = (
        'flavor',
        'instance_uuid',
        'num_instances',
        'project_id',
        'user_id',
        'availability_zone',
        'scheduler_hints',
        'requested_destination',
        'ignore_hosts',
        'force_hosts',
        'force_nodes',
        'retry',
        'pci_requests',
    )
    for name in same:
        assert getattr(request, name) == getattr(spec, name)

    assert request.instance_group == replace(spec.instance_group, name=None, rules={})
    assert request.image.properties['traits_required'] == ['HW_CPU_X86_AVX2']
    assert request.numa_topology.cells[0].pcpuset == {0, 1, 2, 3}
    assert (request.instance_uuids, request.return_alternates) == (None, False)
    assert call.spec_version == (0,)


CELL_OBJECT = primitive('InstanceNUMACell', '1.2', **CELL)
TOPOLOGY_OBJECT = primitive('InstanceNUMATopology', '1.1', cells=[CELL_OBJECT])
DEVICES_OBJECT = primitive(
    'InstancePCIRequests',
    '1.1',
    requests=[primitive('InstancePCIRequest', '1.1', **DEVICES)],
)
NIC = (PciRequest(count=1, spec=({'vendor_id': '8086'},), alias_name='nic'),)
PROPERTIES = primitive('ImageMetaProps', '1.12', hw_architecture='x86_64')
IMAGE_OBJECT = primitive('ImageMeta', '1.7', id='i', properties=PROPERTIES)
X86 = {'hw_architecture': 'x86_64'}


@pytest.mark.parametrize(
    ('spec', 'field', 'expected'),
    [
        (
            {'instance': {'numa_topology': {'cells': [CELL], 'instance_uuid': 'u1'}}},
            'numa_topology',
            TOPOLOGY,
        ),
        ({'instance': {'numa_topology': TOPOLOGY_OBJECT}}, 'numa_topology', TOPOLOGY),
        (
            {'instance': {'numa_topology': json.dumps(TOPOLOGY_OBJECT)}},
            'numa_topology',
            TOPOLOGY,
        ),
        (
            {'instance': {'numa_topology': {'cells': [CELL_OBJECT]}}},
            'numa_topology',
            TOPOLOGY,
        ),
        (
            {
                'instance': {
                    'pci_requests': {'instance_uuid': 'u1', 'requests': [DEVICES]}
                }
            },
            'pci_requests',
            NIC,
        ),
        ({'instance': {'pci_requests': DEVICES_OBJECT}}, 'pci_requests', NIC),
        ({'instance_type': TYPE}, 'flavor', SMALL),
        (
            {'instance_type': FLAVOR},
            'flavor',
            Flavor(vcpus=2, memory_mb=512, root_gb=1),
        ),
        ({'image': None}, 'image', None),
        ({'image': {}}, 'image', None),
        ({'image': {'id': 'i', 'properties': None}}, 'image', Image(id='i')),
        (
            {'image': {'properties': {'architecture': 'i686', **X86}}},
            'image',
            Image(properties=X86),
        ),
        (
            {'image': {'properties': {'hypervisor_version_requires': '>=6'}}},
            'image',
            Image(properties={'img_hv_requested_version': '>=6'}),
        ),
        (
            {'image': {'properties': {'unheard_of': ['x']}}},
            'image',
            Image(properties={'unheard_of': ['x']}),
        ),
        (
            {'image': {'id': 'i', 'properties': PROPERTIES}},
            'image',
            Image(id='i', properties=X86),
        ),
        ({'image': IMAGE_OBJECT}, 'image', Image(id='i', properties=X86)),
    ],
)
def test_the_request_spec_dict_is_read_in_the_forms_of_all_releases(
    spec, field, expected
):
    """NUMA topology, devices, flavor and image in the forms of all releases: dicts,
    objects, dicts of objects, texts."""
    assert getattr(request_of(**spec), field) == expected


@pytest.mark.parametrize(
    ('filters', 'field', 'expected'),
    [
        (
            {'scheduler_hints': {'group': 'g', 'same_host': ['a', 'b']}},
            'scheduler_hints',
            {'group': ('g',), 'same_host': ('a', 'b')},
        ),
        ({'scheduler_hints': None}, 'scheduler_hints', {}),
        (
            {'scheduler_hints': {'a': 'plain', 'b': ['x', 7], 'c': None}},
            'scheduler_hints',
            {'a': ('plain',), 'b': ('x', '7')},
        ),
        (
            {'scheduler_hints': {'a': 7, 'b': [True]}},
            'scheduler_hints',
            {'a': ('7',), 'b': ('true',)},
        ),
        ({'retry': {}}, 'retry', None),
        (
            {'scheduler_hints': {'query': {'and': [1]}}},
            'scheduler_hints',
            {'query': ('{"and": [1]}',)},
        ),
        ({'force_hosts': ['h'], 'force_nodes': None}, 'force_hosts', ('h',)),
        (
            {'retry': {'num_attempts': 2, 'hosts': [['h', 'n'], ['h2', None]]}},
            'retry',
            Retry(2, (('h', 'n'), ('h2', None))),
        ),
        (
            {
                'group_updated': True,
                'group_policies': ['affinity'],
                'group_hosts': ['h'],
                'group_members': ['m'],
            },
            'instance_group',
            ServerGroup(
                policy='affinity', hosts=frozenset({'h'}), members=frozenset({'m'})
            ),
        ),
        (
            {'group_updated': True, 'group_policies': [], 'group_hosts': []},
            'instance_group',
            ServerGroup(),
        ),
        ({'group_hosts': ['h']}, 'instance_group', None),
        (
            {
                'instance_group': primitive(
                    'InstanceGroup', '1.10', policies=['affinity']
                )
            },
            'instance_group',
            ServerGroup(policy='affinity'),
        ),
        (
            {
                'requested_destination': primitive(
                    'Destination', '1.0', host='h', node=None
                )
            },
            'requested_destination',
            Destination(host='h'),
        ),
    ],
)
def test_filter_properties_are_read_as_fields_of_a_request_spec(
    filters, field, expected
):
    """A key of ``filter_properties`` has the meaning of the field of a RequestSpec."""
    assert getattr(request_of(filters), field) == expected


@pytest.mark.parametrize(
    ('filters', 'spec', 'why'),
    [
        ({}, {'instance_type': None}, 'the request has no flavor'),
        (
            {},
            {'instance_type': 'm1.small'},
            'Flavor 1.2 must have a dict of fields, not str',
        ),
        (
            {},
            {'instance_type': {**TYPE, 'vcpus': {}}},
            'Flavor 1.2, vcpus: invalid value of type dict',
        ),
        (
            {},
            {'instance_type': primitive('Selection', '1.1')},
            'RequestSpec 1.15, flavor: invalid value of type Selection',
        ),
        ({}, {'instance': ['u1']}, 'instance_properties must be a dict, not list'),
        (
            {},
            {'instance': {'numa_topology': '{'}},
            'expected an object, not invalid JSON',
        ),
        (
            {},
            {'instance': {'numa_topology': '[' * 100_000}},
            'expected an object, not invalid JSON',
        ),
        (
            {},
            {'instance': {'numa_topology': {'cells': 3}}},
            'cells must be a list, not int',
        ),
        (
            {},
            {'instance': {'numa_topology': {'cells': [{'cpuset': '0-1'}]}}},
            'InstanceNUMACell 1.6, cpuset: invalid value of type str',
        ),
        (
            {},
            {'instance': {'pci_requests': [1]}},
            'InstancePCIRequests 1.1 must have a dict of fields, not list',
        ),
        (
            {},
            {'image': {'properties': 'x'}},
            'ImageMeta 1.8, properties: expected an object, not str',
        ),
        ({'retry': {'hosts': ['h', 3]}}, {}, 'retry: hosts must be a list of pairs'),
        (
            {'scheduler_hints': {'query': FLAVOR}},
            {},
            'the scheduler hint query must not contain a versioned object',
        ),
        (
            {'scheduler_hints': {'group': [{'id': FLAVOR}]}},
            {},
            'the scheduler hint group must not contain a versioned object',
        ),
        (
            {'force_hosts': 'h'},
            {},
            'RequestSpec 1.15, force_hosts: invalid value of type str',
        ),
        (
            {'instance_group': {'policy': 'x'}},
            {},
            'RequestSpec 1.15, instance_group: '
            'a dict without nova_object.name and nova_object.version is not an object',
        ),
    ],
)
def test_malformed_dicts_are_refused_with_the_reason(filters, spec, why):
    """Malformed dicts are refused with a text with the part."""
    with pytest.raises(BadRequest) as caught:
        request_of(filters, **spec)
    assert str(caught.value) == why
