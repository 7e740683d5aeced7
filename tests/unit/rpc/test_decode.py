# SPDX-License-Identifier: Apache-2.0
"""Requests decoded from RequestSpecs of all releases."""

from contextlib import nullcontext
from operator import attrgetter

import pytest

from novasched.rpc import decode, versions
from novasched.rpc.server import Serializer
from novasched.rpc.wire import base
from novasched.scheduler.errors import BadRequest
from novasched.scheduler.model.flavor import Flavor, Image, RequestGroup
from novasched.scheduler.model.numa import GuestCell, GuestTopology
from novasched.scheduler.model.pci import PciRequest
from novasched.scheduler.model.request import (
    Destination,
    Request,
    RequestedNetwork,
    Retry,
    ServerGroup,
)
from tests.lab.wire import CALLS, CONTEXT, MADE, a_spec, context_of, decoded, primitive


def request_of(arguments):
    """The request of a call."""
    return decode.request(versions.read(decoded(arguments)), CONTEXT)


def uuid(number):
    """A UUID with a number, as in the messages of ``MADE``."""
    return f'00000000-0000-4000-8000-{number:012d}'


@pytest.fixture(autouse=True)
def no_object_is_newer(caplog):
    """All tests: the package supports the versions of all decoded objects."""
    base._check_version.cache_clear()
    yield
    assert not caplog.messages


@pytest.mark.parametrize('case', CALLS)
def test_each_recorded_call_of_nova_becomes_a_request(case):
    """Every kind of call of nova becomes a request, with the user of the call."""
    body = CALLS[case]
    context = Serializer().deserialize_context(context_of(body))
    request = decode.request(versions.read(decoded(body['args'])), context)
    assert request.instance_uuids == tuple(body['args']['instance_uuids'])
    assert request.return_alternates == body['args']['return_alternates']
    assert (request.user_id, request.project_id) == ('e2e-user', 'e2e-project')
    assert request.request_id == body['_context_request_id']
    assert request.flavor.vcpus >= 1
    assert request.flavor.memory_mb >= 64
    group = request.instance_group
    assert group is None or request.hint('group') == (group.uuid,)


@pytest.mark.parametrize(
    ('case', 'expected'),
    [
        ('boot of three', {'count': 3, 'num_instances': 3, 'return_alternates': True}),
        ('zone', {'availability_zone': 'e2e-az'}),
        ('forced host', {'force_hosts': ('e2e-cmp4',), 'force_nodes': ()}),
        (
            'forced host and node',
            {'force_hosts': ('e2e-cmp3',), 'force_nodes': ('e2e-cmp3',)},
        ),
        ('requested host', {'requested_destination': Destination(host='e2e-cmp3')}),
        ('resize', {'ignore_hosts': ('e2e-cmp2',), 'return_alternates': True}),
        (
            'live migration or evacuation',
            {'ignore_hosts': ('e2e-cmp3',), 'return_alternates': False},
        ),
        ('move within a group', {'count': 1, 'num_instances': 3}),
        ('rebuild', {'is_rebuild': True, 'claims': False, 'requested_networks': ()}),
        (
            'unshelve',
            {
                'requested_destination': Destination(
                    cell_uuid='c20426e3-05e3-4b70-9282-0679c58899f1'
                )
            },
        ),
        (
            'anti-affinity group',
            {'instance_group.policy': 'anti-affinity', 'instance_group.rules': {}},
        ),
        (
            'anti-affinity group with rules',
            {'instance_group.rules': {'max_server_per_host': '2'}},
        ),
        ('affinity group', {'instance_group.policy': 'affinity'}),
        ('soft affinity group', {'instance_group.policy': 'soft-affinity'}),
        ('soft anti-affinity group', {'instance_group.policy': 'soft-anti-affinity'}),
    ],
)
def test_a_recorded_request_has_the_fields_of_the_operation(case, expected):
    """A request has the fields that characterise the operation."""
    request = request_of(CALLS[case]['args'])
    for name, value in expected.items():
        assert attrgetter(name)(request) == value


FLAVOR_OF_ALL = Flavor(
    name='m1.big',
    flavorid='big',
    id=7,
    vcpus=8,
    memory_mb=8192,
    root_gb=40,
    ephemeral_gb=10,
    swap=1024,
    extra_specs={'hw:cpu_policy': 'mixed', 'resources:CUSTOM_FPGA': '1'},
)
IMAGE_OF_ALL = Image(
    id=uuid(1),
    name='debian',
    disk_format='qcow2',
    container_format='bare',
    min_ram=512,
    min_disk=5,
    size=4096,
    properties={
        'hw_architecture': 'x86_64',
        'hw_cpu_policy': 'mixed',
        'hw_numa_nodes': 2,
        'hw_vif_multiqueue_enabled': True,
        'img_hv_type': 'kvm',
        'traits_required': ['HW_CPU_X86_AVX2'],
    },
)
GROUP_OF_ALL = ServerGroup(
    uuid=uuid(10), name='g', policy='anti-affinity', rules={'max_server_per_host': '3'},
    members=frozenset({uuid(2)}), hosts=frozenset({'h1', 'h2'}),
)  # fmt: skip
SPECS = (
    {'vendor_id': '8086', 'product_id': '1515'},
    {'vendor_id': '10de', 'physical_network': None},
)
EVERYTHING = Request(
    flavor=FLAVOR_OF_ALL,
    instance_uuid=uuid(2),
    num_instances=2,
    project_id='p',
    user_id='u',
    request_id=CONTEXT.request_id,
    availability_zone='az1',
    image=IMAGE_OF_ALL,
    is_bfv=True,
    scheduler_hints={
        'same_host': (uuid(11), uuid(12)),
        'query': ('[">=","$free_ram_mb",1024]',),
    },
    instance_group=GROUP_OF_ALL,
    requested_destination=Destination(
        host='h1',
        node='n1',
        cell_uuid=uuid(5),
        allow_cross_cell_move=True,
        aggregates=(frozenset({uuid(6), uuid(7)}), frozenset({uuid(8)})),
        forbidden_aggregates=frozenset({uuid(9)}),
    ),
    ignore_hosts=('h9',),
    retry=Retry(num_attempts=2, hosts=(('h7', 'n7'), ('h8', None))),
    numa_topology=GuestTopology(
        cells=(
            GuestCell(
                id=0,
                cpuset=frozenset({0, 1}),
                pcpuset=frozenset({2, 3}),
                memory=4096,
                pagesize=2048,
                cpu_policy='mixed',
                cpu_thread_policy='prefer',
            ),
            GuestCell(
                id=1,
                cpuset=frozenset(),
                pcpuset=frozenset({4, 5, 6, 7}),
                memory=4096,
                cpu_policy='dedicated',
            ),
        ),
        emulator_threads_policy='share',
    ),
    pci_requests=(
        PciRequest(
            count=2,
            spec=SPECS,
            alias_name='nic',
            request_id=uuid(3),
            requester_id=uuid(4),
            numa_policy='socket',
        ),
    ),
    requested_networks=(RequestedNetwork(uuid(17), uuid(18), uuid(3)),),
    security_groups=('default', uuid(13)),
    physnets=frozenset({'physnet1', 'physnet2'}),
    tunneled=True,
    requested_resources=(
        RequestGroup(
            requester_id=uuid(14),
            resources={'NET_BW_EGR_KILOBIT_PER_SEC': 1000},
            required_traits=frozenset({'CUSTOM_PHYSNET1'}),
            forbidden_traits=frozenset({'CUSTOM_OLD'}),
            aggregates=(frozenset({uuid(6)}), frozenset({uuid(7), uuid(8)})),
            forbidden_aggregates=frozenset({uuid(9)}),
            in_tree=uuid(15),
            use_same_provider=False,
            provider_uuids=(uuid(16),),
        ),
    ),
    root_required=frozenset({'COMPUTE_NODE'}),
    root_forbidden=frozenset({'COMPUTE_STATUS_DISABLED'}),
    same_subtree=(frozenset({'_a', '_b'}),),
)


def test_a_request_spec_with_all_fields_is_decoded_whole():
    """A RequestSpec with all fields becomes a request with all values."""
    assert request_of(MADE['everything']) == EVERYTHING


def test_a_request_spec_of_ocata_is_decoded():
    """RequestSpec 1.8 has no user, dedicated CPUs are in ``cpuset``, and the policy of
    the group is in a list."""
    request = request_of(MADE['ocata'])
    assert request.user_id == 'caller'

    first, second = request.numa_topology.cells
    assert first.cpuset == second.cpuset == frozenset()
    assert first.pcpuset == {0, 1, 2, 3}
    assert second.pcpuset == {4, 5, 6, 7}

    assert request.instance_group == GROUP_OF_ALL
    assert request.requested_destination == Destination(host='h1', node='n1')
    assert request.retry == EVERYTHING.retry
    assert not request.is_bfv
    assert request.flavor == FLAVOR_OF_ALL


TRACE = f'00-{"ab" * 16}-{"cd" * 8}-01'


@pytest.mark.parametrize(
    ('sent', 'expected'),
    [
        ({'traceparent': TRACE}, TRACE),
        ({}, None),
        ({'traceparent': None}, None),
        ({'traceparent': ['00']}, None),
        ({'traceparent': {'a': 1}}, None),
        ({'traceparent': 'two\nlines'}, None),
    ],
)
def test_a_request_has_the_trace_of_the_caller_unless_malformed(sent, expected):
    """The request has the trace in the context of the message, unless malformed."""
    call = versions.read(decoded({'spec_obj': a_spec('1.0')}))
    context = Serializer().deserialize_context(sent)
    assert decode.request(call, context).origin.traceparent == expected


def test_a_request_spec_with_only_a_flavor_asks_for_no_more():
    """A RequestSpec with only a flavor asks for nothing but the flavor."""
    flavor = Flavor(vcpus=2, memory_mb=512, root_gb=1)
    expected = Request(flavor=flavor, user_id='caller', request_id=CONTEXT.request_id)
    assert request_of({'spec_obj': a_spec('1.0')}) == expected
    nulls = dict.fromkeys(
        (
            'image',
            'numa_topology',
            'pci_requests',
            'user_id',
            'ignore_hosts',
            'force_hosts',
            'retry',
            'instance_group',
            'scheduler_hints',
            'requested_destination',
            'requested_resources',
            'requested_networks',
            'request_level_params',
            'network_metadata',
            'num_instances',
            'is_bfv',
            'security_groups',
        )
    )
    assert request_of({'spec_obj': a_spec(**nulls)}) == expected


def an_image(**properties):
    names = primitive('ImageMetaProps', '1.44', **properties)
    return primitive('ImageMeta', '1.8', properties=names)


def a_destination(**data):
    """The primitive of a Destination."""
    return primitive('Destination', '1.4', **data)


def a_topology(version, **data):
    """The primitive of a NUMA topology with a cell of a version."""
    cell = primitive('InstanceNUMACell', version, **{'id': 0, 'memory': 512, **data})
    return primitive('InstanceNUMATopology', '1.3', cells=[cell])


def a_cell(**fields):
    """The decoded value of :func:`a_topology`."""
    return GuestTopology(
        (GuestCell(**{'id': 0, 'memory': 512, 'cpuset': frozenset(), **fields}),)
    )


TWO = frozenset({0, 1})


@pytest.mark.parametrize(
    ('sent', 'field', 'expected'),
    [
        (
            {'scheduler_hints': {'a': ['1', '2'], 'b': ['3']}},
            'scheduler_hints',
            {'a': ('1', '2'), 'b': ('3',)},
        ),
        (
            {'scheduler_hints': {'a': [7, 1.5], 'b': [True], 'c': []}},
            'scheduler_hints',
            {'a': ('7', '1.5'), 'b': ('True',), 'c': ()},
        ),
        ({'force_hosts': []}, 'force_hosts', ()),
        ({'availability_zone': ''}, 'availability_zone', None),
        (
            {'requested_destination': a_destination()},
            'requested_destination',
            Destination(),
        ),
        (
            {'requested_destination': a_destination(host='h', node=None)},
            'requested_destination',
            Destination(host='h'),
        ),
        (
            {'requested_destination': a_destination(cell=None, aggregates=None)},
            'requested_destination',
            Destination(),
        ),
        (
            {
                'instance_group': primitive(
                    'InstanceGroup', '1.11', policy='affinity', _rules={}
                )
            },
            'instance_group',
            ServerGroup(policy='affinity'),
        ),
        (
            {
                'instance_group': primitive(
                    'InstanceGroup', '1.11', policy=None, policies=[]
                )
            },
            'instance_group',
            ServerGroup(),
        ),
        (
            {
                'instance_group': primitive(
                    'InstanceGroup', '1.9', policies=['affinity'], members=['m']
                )
            },
            'instance_group',
            ServerGroup(policy='affinity', members=frozenset({'m'})),
        ),
        (
            {'numa_topology': a_topology('1.0', cpuset=[0, 1])},
            'numa_topology',
            a_cell(cpuset=TWO),
        ),
        (
            {'numa_topology': a_topology('1.1', cpuset=[0, 1], pagesize=-1)},
            'numa_topology',
            a_cell(cpuset=TWO, pagesize=-1),
        ),
        (
            {'numa_topology': a_topology('1.4', cpuset=[0, 1], cpu_policy='shared')},
            'numa_topology',
            a_cell(cpuset=TWO, cpu_policy='shared'),
        ),
        (
            {
                'numa_topology': a_topology(
                    '1.6', cpuset=[0, 1], pcpuset=[], cpu_policy='mixed'
                )
            },
            'numa_topology',
            a_cell(cpuset=TWO, cpu_policy='mixed'),
        ),
        (
            {'network_metadata': primitive('NetworkMetadata', '1.0', physnets=[])},
            'physnets',
            frozenset(),
        ),
        ({'network_metadata': None}, 'physnets', None),
        (
            {'retry': primitive('SchedulerRetries', '1.0', num_attempts=3)},
            'retry',
            Retry(num_attempts=3),
        ),
        (
            {'image': primitive('ImageMeta', '1.6', id='i', min_ram=None)},
            'image',
            Image(id='i'),
        ),
        (
            {
                'image': primitive(
                    'ImageMeta',
                    '1.8',
                    properties=primitive('ImageMetaProps', '1.44', hw_boot_menu=None),
                )
            },
            'image',
            Image(),
        ),
    ],
)
def test_a_field_has_the_meaning_of_the_release_of_the_caller(sent, field, expected):
    """A field has the meaning of the release of the caller."""
    assert getattr(request_of({'spec_obj': a_spec(**sent)}), field) == expected


@pytest.mark.parametrize(
    ('sent', 'why'),
    [
        ({'flavor': None}, 'the request has no flavor'),
        (
            {'flavor': primitive('Flavor', '1.2', memory_mb=1)},
            'the flavor has no vcpus, root_gb',
        ),
        ({'scheduler_hints': ['group']}, 'scheduler_hints must be a dict, not list'),
        (
            {'scheduler_hints': {'group': 'g'}},
            'the scheduler hint group must be a list, not str',
        ),
        (
            {'scheduler_hints': {'group': None}},
            'the scheduler hint group must be a list, not null',
        ),
        (
            {'scheduler_hints': {'group': {}}},
            'the scheduler hint group must be a list, not dict',
        ),
        (
            {'scheduler_hints': {'a': [['y']]}},
            'the scheduler hint a must list strings, not list',
        ),
        (
            {'scheduler_hints': {'a': [None]}},
            'the scheduler hint a must list strings, not null',
        ),
        (
            {'image': an_image(traits_required=False)},
            'traits_required of the image must be a list of strings',
        ),
        (
            {'image': an_image(traits_required='')},
            'traits_required of the image must be a list of strings',
        ),
    ],
)
def test_a_request_with_a_missing_or_invalid_part_is_refused(sent, why):
    """A request without a necessary part is refused, with the reason."""
    with pytest.raises(BadRequest) as caught:
        request_of({'spec_obj': a_spec(**sent)})
    assert str(caught.value) == why


@pytest.mark.parametrize(
    ('arguments', 'is_refused'),
    [
        ({'instance_uuids': ['x'] * decode.MAX_INSTANCES}, False),
        ({'instance_uuids': ['x'] * (decode.MAX_INSTANCES + 1)}, True),
        # The number of the request that once created the instance.
        ({'instance_uuids': ['x'], 'num_instances': decode.MAX_INSTANCES + 1}, False),
        ({'num_instances': decode.MAX_INSTANCES}, False),
        ({'num_instances': decode.MAX_INSTANCES + 1}, True),
        ({'num_instances': 0}, True),
    ],
)
def test_the_number_of_instances_in_a_request_is_limited(arguments, is_refused):
    """The number of instances in a request is bounded."""
    fields = {'num_instances': arguments.pop('num_instances', 1)}
    if is_refused:
        expectation = pytest.raises(BadRequest, match='for 1 to 10000 instances')
    else:
        expectation = nullcontext()
    with expectation:
        request_of({'spec_obj': a_spec(**fields), **arguments})
