# SPDX-License-Identifier: Apache-2.0
from urllib.parse import parse_qs, parse_qsl, unquote

import pytest

from novasched.conf.settings import Settings
from novasched.placement.query import MAX_NAME_LENGTH, Query, build, build_all
from novasched.placement.trees import Group, TraitRule, TreeQuery
from novasched.scheduler.errors import BadRequest
from novasched.scheduler.model.flavor import RequestGroup
from novasched.scheduler.model.request import Destination
from tests.lab.builders import a_flavor, a_request

PORT = 'b1b7e0a2-6d6a-4b37-9a3f-5f3f1f8f2a10'
PLAIN = {'limit': '7', 'resources': 'DISK_GB:1,MEMORY_MB:512,VCPU:1'}


def asked(request, pinned=True):
    """The parameters of the query for a request."""
    query = build(request, Settings(max_placement_results=7), pinned)
    return parameters_of(query.string)


def parameters_of(string):
    """The parameters of a query string. A repeated parameter has all values in
    order."""
    parameters = {}
    for name, values in parse_qs(string).items():
        parameters[name] = ' '.join(values)
    return parameters


@pytest.mark.parametrize(
    ('fields', 'flavor', 'extra_specs', 'changes'),
    [
        ({}, {}, {}, {}),
        (
            {},
            {'ephemeral_gb': 3, 'swap': 1},
            {},
            {'resources': 'DISK_GB:5,MEMORY_MB:512,VCPU:1'},
        ),
        ({'is_bfv': True}, {'root_gb': 9}, {}, {'resources': 'MEMORY_MB:512,VCPU:1'}),
        (
            {'is_bfv': True},
            {'swap': 1025},
            {},
            {'resources': 'DISK_GB:2,MEMORY_MB:512,VCPU:1'},
        ),
        (
            {},
            {},
            {'resources:VCPU': '0', 'resources:CUSTOM_IRON': '1'},
            {'resources': 'CUSTOM_IRON:1,DISK_GB:1,MEMORY_MB:512'},
        ),
        (
            {},
            {},
            {
                'resources:VGPU': '2',
                'trait:HW_CPU_X86_AVX2': 'required',
                'trait:CUSTOM_SLOW': 'forbidden',
            },
            {
                'resources': 'DISK_GB:1,MEMORY_MB:512,VCPU:1,VGPU:2',
                'required': 'HW_CPU_X86_AVX2,!CUSTOM_SLOW',
            },
        ),
        (
            {},
            {},
            {'resources1:VGPU': '1', 'trait1:CUSTOM_A': 'required'},
            {'resources1': 'VGPU:1', 'required1': 'CUSTOM_A'},
        ),
        (
            {},
            {},
            {
                'resources1:VGPU': '1',
                'resources_b:VGPU': '2',
                'group_policy': 'isolate',
            },
            {
                'resources1': 'VGPU:1',
                'resources_b': 'VGPU:2',
                'group_policy': 'isolate',
            },
        ),
        (
            {},
            {},
            {'hw:cpu_policy': 'dedicated'},
            {'resources': 'DISK_GB:1,MEMORY_MB:512,PCPU:1'},
        ),
        (
            {},
            {'vcpus': 4},
            {'hw:cpu_policy': 'dedicated', 'hw:emulator_threads_policy': 'isolate'},
            {'resources': 'DISK_GB:1,MEMORY_MB:512,PCPU:5'},
        ),
        (
            {},
            {'vcpus': 4},
            {'hw:cpu_policy': 'mixed', 'hw:cpu_dedicated_mask': '^0-1'},
            {'resources': 'DISK_GB:1,MEMORY_MB:512,PCPU:2,VCPU:2'},
        ),
        (
            {},
            {},
            {
                'resources1:VGPU': '0',
                'resources2:VGPU': '+1',
                'resources2:CUSTOM_A': '0',
            },
            {'resources2': 'VGPU:1'},
        ),
        (
            {'image': {'hw_firmware_type': 'uefi'}},
            {},
            {
                'hw:mem_encryption': '1',
                'resources:MEM_ENCRYPTION_CONTEXT': '5',
                'hw:pmem': 'a',
            },
            {
                'resources': 'CUSTOM_PMEM_NAMESPACE_A:1,DISK_GB:1,MEMORY_MB:512,MEM_ENCRYPTION_CONTEXT:1,VCPU:1',
                'required': 'HW_CPU_X86_AMD_SEV',
            },
        ),
        (
            {'image': {'os_secure_boot': 'required'}},
            {},
            {'trait:CUSTOM_A': 'required'},
            {'required': 'COMPUTE_SECURITY_UEFI_SECURE_BOOT,CUSTOM_A'},
        ),
        (
            {},
            {},
            {'hw:cpu_policy': 'dedicated', 'hw:cpu_thread_policy': 'require'},
            {
                'resources': 'DISK_GB:1,MEMORY_MB:512,PCPU:1',
                'required': 'HW_CPU_HYPERTHREADING',
            },
        ),
        (
            {
                'image': {
                    'hw_cpu_policy': 'dedicated',
                    'hw_cpu_thread_policy': 'isolate',
                }
            },
            {},
            {},
            {
                'resources': 'DISK_GB:1,MEMORY_MB:512,PCPU:1',
                'required': '!HW_CPU_HYPERTHREADING',
            },
        ),
        (
            {'image': {'traits_required': ['CUSTOM_B', 'CUSTOM_A']}},
            {},
            {},
            {'required': 'CUSTOM_A,CUSTOM_B'},
        ),
        (
            {
                'root_required': frozenset({'CUSTOM_R'}),
                'root_forbidden': frozenset({'COMPUTE_STATUS_DISABLED'}),
            },
            {},
            {},
            {'root_required': 'CUSTOM_R,!COMPUTE_STATUS_DISABLED'},
        ),
        (
            {'same_subtree': (frozenset({'_b', '_a'}),)},
            {},
            {},
            {'same_subtree': '_a,_b'},
        ),
        ({'in_tree': 'uuid'}, {}, {}, {'in_tree': 'uuid'}),
        (
            {'requested_destination': Destination(aggregates=(frozenset({'b', 'a'}),))},
            {},
            {},
            {'member_of': 'in:a,b'},
        ),
        (
            {
                'requested_destination': Destination(
                    aggregates=(frozenset({'z'}), frozenset({'t', 'u'}))
                )
            },
            {},
            {},
            {'member_of': 'in:t,u in:z'},
        ),
        (
            {
                'requested_destination': Destination(
                    forbidden_aggregates=frozenset({'b', 'a'})
                )
            },
            {},
            {},
            {'member_of': '!in:a,b'},
        ),
        (
            {
                'requested_resources': (
                    RequestGroup(
                        PORT,
                        {'NET_BW_EGR_KILOBIT_PER_SEC': 1000},
                        frozenset({'CUSTOM_PHYSNET'}),
                    ),
                )
            },
            {},
            {},
            {
                f'resources{PORT}': 'NET_BW_EGR_KILOBIT_PER_SEC:1000',
                f'required{PORT}': 'CUSTOM_PHYSNET',
            },
        ),
        (
            {
                'requested_resources': (
                    RequestGroup(PORT, {'CUSTOM_X': 1}, in_tree='uuid'),
                )
            },
            {},
            {},
            {f'resources{PORT}': 'CUSTOM_X:1', f'in_tree{PORT}': 'uuid'},
        ),
        (
            {
                'requested_resources': (
                    RequestGroup(PORT, {'CUSTOM_X': 0}, in_tree='uuid'),
                )
            },
            {},
            {},
            {},
        ),
    ],
)
def test_requirements_of_a_request_become_query_parameters(
    fields, flavor, extra_specs, changes
):
    """Requirements of flavor, image, ports and destination become parameters. Hosts
    must be in the aggregates of the zone and of the tenant."""
    request = a_request(flavor=a_flavor(extra_specs, **flavor), **fields)
    assert asked(request) == {**PLAIN, **changes}


def test_the_limit_is_left_out_if_required_hosts_may_be_cut_off():
    """The number of candidates is limited, unless the limit might cut off the required
    host."""
    assert 'limit' in asked(a_request(hints={'query': ['x']}))
    assert 'limit' not in asked(a_request(unlimited=True))
    for hint in ('group', 'same_host', 'different_host'):
        assert 'limit' not in asked(a_request(hints={hint: ['x']}))


def test_groups_of_several_ports_get_the_group_policy_none():
    """Groups of ports need a policy: ``none``, unless the flavor has several groups."""
    ports = (
        RequestGroup('p1', {'CUSTOM_X': 1}),
        RequestGroup('p2', {'CUSTOM_X': 1}),
    )
    query = build(a_request(requested_resources=ports), Settings())
    assert 'group_policy=none' in query.string
    assert 'more than one numbered request group' in query.warnings[0]
    own = {'resources1:VGPU': '1', 'resources2:VGPU': '1'}
    assert 'group_policy' not in asked(a_request(extra_specs=own))


@pytest.mark.parametrize(
    ('extra_specs', 'warning'),
    [
        (
            {'resources:GOLD': '1'},
            "Received an invalid ResourceClass 'GOLD' in extra_specs.",
        ),
        (
            {'resources:VGPU': 'two'},
            "Resource amounts must be nonnegative integers. Received 'two'",
        ),
        (
            {'resources:VGPU': '-2'},
            "Resource amounts must be nonnegative integers. Received '-2'",
        ),
        (
            {'trait1:CUSTOM_A': 'preferred'},
            "Only (required, forbidden) traits are supported. Received 'preferred'.",
        ),
        (
            {'trait:CUSTOM_A': 'maybe'},
            "Only (required, forbidden) traits are supported. Received 'maybe'.",
        ),
        (
            {'group_policy': 'solo'},
            "Invalid group_policy 'solo'. Valid values are 'none' and 'isolate'.",
        ),
    ],
)
def test_an_invalid_extra_spec_is_ignored_with_a_warning(extra_specs, warning):
    """An invalid extra spec changes nothing but the log."""
    request = a_request(extra_specs=extra_specs)
    assert asked(request) == PLAIN
    assert build(request, Settings()).warnings == (warning,)


def test_names_too_long_for_placement_are_cut_but_stay_too_long():
    """A name stays too long for Placement, which refuses the query, but is not sent
    whole."""
    extra_specs = {
        f'trait:CUSTOM_{"A" * 100_000}': 'required',
        f'trait:CUSTOM_{"B" * 100_000}': 'forbidden',
        f'resources:CUSTOM_{"C" * 100_000}': '1',
    }
    parameters = asked(a_request(flavor=a_flavor(extra_specs)))
    required, forbidden = parameters['required'].split(',')
    assert required == 'CUSTOM_'.ljust(MAX_NAME_LENGTH + 1, 'A')
    assert forbidden == '!' + 'CUSTOM_'.ljust(MAX_NAME_LENGTH + 1, 'B')
    custom = parameters['resources'].partition(',')[0]
    assert custom == 'CUSTOM_'.ljust(MAX_NAME_LENGTH + 1, 'C') + ':1'


def test_a_second_query_asks_for_pinned_cpus_reported_as_vcpu():
    """A second query asks for hosts that report pinned CPUs as VCPU."""
    pinned = {'hw:cpu_policy': 'dedicated'}
    mixed = {'hw:cpu_policy': 'mixed'}
    request = a_request(flavor=a_flavor(pinned, vcpus=2))
    assert len(build_all(request, Settings())) == 2
    assert asked(request, pinned=False) == asked(a_request(flavor=a_flavor(vcpus=2)))
    for specs in (
        {},
        {'hw:cpu_policy': 'shared'},
        {**mixed, 'hw:cpu_dedicated_mask': '0'},
    ):
        request = a_request(flavor=a_flavor(specs, vcpus=2))
        assert len(build_all(request, Settings())) == 1


def test_an_invalid_or_repeated_port_group_is_refused():
    """A group of a port needs a name and resources."""
    group = RequestGroup('p1', {'CUSTOM_X': 1})
    for groups in (
        [RequestGroup(None, {'CUSTOM_X': 1})],
        [RequestGroup('p1')],
        [group, group],
    ):
        with pytest.raises(BadRequest):
            build(a_request(requested_resources=tuple(groups)), Settings())


@pytest.mark.parametrize(
    ('string', 'found'),
    [
        ('resources=VCPU:4', [('resource', 'VCPU:4', 'resources=VCPU:4')]),
        (
            'resources=DISK_GB:2,VCPU:1&limit=9',
            [
                ('resource', 'DISK_GB:2', 'resources=DISK_GB:2'),
                ('resource', 'VCPU:1', 'resources=VCPU:1'),
            ],
        ),
        (
            'resources=VCPU:1&required=A,!B',
            [
                ('forbidden root trait', 'B', 'required=B'),
                ('trait', 'A', 'required=A'),
                ('resource', 'VCPU:1', 'resources=VCPU:1'),
            ],
        ),
        (
            'root_required=A,!B',
            [
                ('forbidden root trait', 'B', 'required=B'),
                ('root trait', 'A', 'required=A'),
            ],
        ),
        (
            'member_of=in:x,y&member_of=!in:z',
            [
                ('aggregates', 'in:x,y', 'member_of=in:x,y'),
                ('forbidden root aggregates', 'in:z', 'member_of=in:z'),
            ],
        ),
        (
            'required=A&in_tree=host',
            [('host', 'host', 'in_tree=host'), ('trait', 'A', 'required=A')],
        ),
        (
            'resources_net=CUSTOM_X:1&required_net=A,!B&member_of_net=!in:x&group_policy=none&same_subtree=_a,_net',
            [
                ('trait (_net)', 'A', 'required=A'),
                ('resource (_net)', 'CUSTOM_X:1', 'resources=CUSTOM_X:1'),
            ],
        ),
        (
            'resources1=VGPU:1&resources2=VGPU:1',
            [('resource (1)', 'VGPU:1', 'resources=VGPU:1')],
        ),
    ],
)
def test_a_query_is_split_into_constraints_with_a_question_each(string, found):
    """The constraints of a query in order, each with the question to Placement. A
    constraint of several groups counts once."""

    def kind(constraint):
        words = [constraint.kind]
        if constraint.of_root:
            words.insert(0, 'root')
        if constraint.forbidden:
            words.insert(0, 'forbidden')
        if constraint.group:
            words.append(f'({constraint.group})')
        return ' '.join(words)

    described = []
    for constraint in Query(tuple(parse_qsl(string))).constraints():
        question = unquote(constraint.question)
        described.append((kind(constraint), constraint.value, question))
    assert described == found


def test_the_limit_is_no_constraint():
    """The limit of the daemon can be left out."""
    query = build(a_request(extra_specs={'trait:CUSTOM_A': 'required'}), Settings())
    parameters = [*query.parameters]
    parameters.remove(('limit', '1000'))
    assert [*query.unlimited().parameters] == parameters
    values = [constraint.value for constraint in query.constraints()]
    assert values == ['CUSTOM_A', 'DISK_GB:1', 'MEMORY_MB:512', 'VCPU:1']


ZONE = Destination(
    aggregates=(frozenset({'b', 'a'}),), forbidden_aggregates=frozenset({'c'})
)
TRAITS = {'trait:HW_CPU_X86_AVX2': 'required', 'trait:CUSTOM_SLOW': 'forbidden'}
ROOT = {
    'root_required': frozenset({'CUSTOM_R'}),
    'root_forbidden': frozenset({'CUSTOM_F'}),
}


@pytest.mark.parametrize(
    ('fields', 'extra_specs', 'base', 'amounts', 'required', 'forbidden'),
    [
        (
            {},
            {},
            {'resources': 'DISK_GB:1,MEMORY_MB:1,VCPU:1'},
            {'VCPU': 1, 'MEMORY_MB': 512, 'DISK_GB': 1},
            '',
            '',
        ),
        (
            {'is_bfv': True},
            {},
            {'resources': 'MEMORY_MB:1,VCPU:1'},
            {'VCPU': 1, 'MEMORY_MB': 512},
            '',
            '',
        ),
        (
            {'is_bfv': True, 'requested_destination': ZONE},
            {},
            {'resources': 'MEMORY_MB:1,VCPU:1', 'member_of': '!in:c in:a,b'},
            {'VCPU': 1, 'MEMORY_MB': 512},
            '',
            '',
        ),
        (
            {'is_bfv': True, **ROOT},
            TRAITS,
            {'resources': 'MEMORY_MB:1,VCPU:1'},
            {'VCPU': 1, 'MEMORY_MB': 512},
            'CUSTOM_R HW_CPU_X86_AVX2',
            'CUSTOM_F CUSTOM_SLOW',
        ),
        (
            {'is_bfv': True},
            {
                'resources:CUSTOM_IRON': '3',
                'resources:VCPU': '0',
                'resources:MEMORY_MB': '0',
            },
            {'resources': 'CUSTOM_IRON:1'},
            {'CUSTOM_IRON': 3},
            '',
            '',
        ),
    ],
)
def test_a_query_is_split_into_a_base_query_and_local_demands(
    fields, extra_specs, base, amounts, required, forbidden
):
    """The base query has the parts that an answer about all hosts does not show.
    Amounts and traits are compared with the answer."""
    local = build(a_request(flavor=a_flavor(extra_specs), **fields), Settings()).local
    assert parameters_of(local.base.string) == base

    [group] = local.trees.groups
    rules = [group.traits, local.trees.root]
    required_traits = [trait for rule in rules for [trait] in rule.required]
    assert not group.suffix
    assert not local.is_nested
    assert dict(group.amounts) == amounts
    assert ' '.join(sorted(required_traits)) == required
    assert ' '.join(sorted(local.trees.forbidden_traits)) == forbidden


GPU = {'resources1:VGPU': '1', 'trait1:CUSTOM_A': 'required'}
PORT_GROUP = RequestGroup(
    PORT, {'NET_BW_EGR_KILOBIT_PER_SEC': 7}, frozenset({'CUSTOM_PHYSNET'})
)
HOST = Group('', (('MEMORY_MB', 512), ('VCPU', 1)))


def with_traits(*traits):
    return TraitRule(frozenset(frozenset((trait,)) for trait in traits))


@pytest.mark.parametrize(
    ('fields', 'extra_specs', 'trees', 'further_classes'),
    [
        pytest.param(
            {},
            GPU,
            TreeQuery((HOST, Group('1', (('VGPU', 1),), with_traits('CUSTOM_A')))),
            {'VGPU'},
            id='a group',
        ),
        pytest.param(
            {},
            GPU | {'resources2:VGPU': '2', 'group_policy': 'isolate'},
            TreeQuery(
                (
                    HOST,
                    Group('1', (('VGPU', 1),), with_traits('CUSTOM_A')),
                    Group('2', (('VGPU', 2),)),
                ),
                isolate=True,
            ),
            {'VGPU'},
            id='isolated groups',
        ),
        pytest.param(
            {},
            {'resources:VGPU': '1'},
            TreeQuery((Group('', (*HOST.amounts, ('VGPU', 1))),)),
            {'VGPU'},
            id='a device of the unsuffixed group',
        ),
        pytest.param(
            {'requested_resources': (PORT_GROUP,)},
            {},
            TreeQuery(
                (
                    HOST,
                    Group(
                        PORT,
                        (('NET_BW_EGR_KILOBIT_PER_SEC', 7),),
                        with_traits('CUSTOM_PHYSNET'),
                    ),
                )
            ),
            {'NET_BW_EGR_KILOBIT_PER_SEC'},
            id='a port with bandwidth',
        ),
        pytest.param(
            {'same_subtree': (frozenset({'_b', '_a'}),)},
            {'resources_a:VGPU': '1', 'trait_b:CUSTOM_B': 'required'},
            TreeQuery(
                (
                    HOST,
                    Group('_a', (('VGPU', 1),)),
                    Group('_b', (), with_traits('CUSTOM_B')),
                ),
                isolate=True,
                same_subtrees=(frozenset({'_b', '_a'}),),
            ),
            {'VGPU'},
            id='a group without resources',
        ),
    ],
)
def test_the_base_query_of_a_device_request_leaves_out_the_devices(
    fields, extra_specs, trees, further_classes
):
    """The base query has the resource classes of every compute node."""
    if 'same_subtree' in fields:
        extra_specs = extra_specs | {'group_policy': 'isolate'}
    flavor = a_flavor(extra_specs)
    local = build(a_request(flavor=flavor, is_bfv=True, **fields), Settings()).local
    assert parse_qs(local.base.string) == {'resources': ['MEMORY_MB:1,VCPU:1']}
    assert local.is_nested
    assert local.further_classes == further_classes
    assert local.trees == trees


@pytest.mark.parametrize(
    ('fields', 'base', 'is_for_one_host'),
    [
        ({}, {}, False),
        ({'in_tree': 'uuid'}, {'in_tree': ['uuid']}, True),
        ({'unlimited': True}, {}, False),
    ],
)
def test_the_base_query_of_a_device_request_names_the_requested_host(
    fields, base, is_for_one_host
):
    """The base query of a request for devices is about the named host, unless the name
    belongs to several compute nodes."""
    request = a_request(flavor=a_flavor(GPU), is_bfv=True, **fields)
    local = build(request, Settings()).local
    assert parse_qs(local.base.string) == {'resources': ['MEMORY_MB:1,VCPU:1'], **base}
    assert local.is_for_one_host is is_for_one_host


@pytest.mark.parametrize(
    ('fields', 'extra_specs'),
    [
        ({}, {'resources1:VGPU': '1', 'resources2:VGPU': '1', 'resources3:VGPU': '1'}),
        (
            {
                'requested_resources': (
                    RequestGroup(PORT, {'X': 1}, aggregates=(frozenset({'a'}),)),
                )
            },
            {},
        ),
        ({'in_tree': 'uuid'}, {}),
        ({'unlimited': True}, {}),
        ({'is_bfv': True}, {'resources:VCPU': '0', 'resources:MEMORY_MB': '0'}),
    ],
)
def test_queries_that_cannot_be_split_are_asked_whole(fields, extra_specs):
    """Several groups without a policy, aggregates of a group, named hosts, and a query
    without resources."""
    built = build(a_request(flavor=a_flavor(extra_specs), **fields), Settings())
    assert built.local is None
