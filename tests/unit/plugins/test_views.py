# SPDX-License-Identifier: Apache-2.0
"""The views of hosts and requests that plugins written for nova see."""

import copy
from dataclasses import replace
from operator import attrgetter
from types import SimpleNamespace

import pytest

from novasched.plugins.nova_compat.adapters import RequestViews
from novasched.scheduler.model.flavor import RequestGroup
from novasched.scheduler.model.host import Instance
from novasched.scheduler.model.numa import (
    GuestCell,
    GuestTopology,
    HostCell,
    HostTopology,
    Pages,
)
from novasched.scheduler.model.pci import PciRequest, Pool
from novasched.scheduler.model.request import Destination, RequestedNetwork, Retry
from tests.lab.builders import a_candidate, a_group, a_host, a_request, a_uuid

INSTANCE = a_uuid('s1')
CELLS = HostTopology(
    (
        HostCell(
            0,
            frozenset({0, 1}),
            512,
            frozenset({0, 1}),
            cpu_usage=1,
            memory_usage=128,
            pinned_cpus=frozenset({0}),
            siblings=(frozenset({0, 1}),),
            mempages=(Pages(4, 9, 3, 1),),
            socket=0,
            physnets=frozenset({'physnet0'}),
            tunneled=True,
        ),
        HostCell(1, frozenset({2}), 512, frozenset({2}), siblings=(frozenset({2}),)),
    )
)
POOLS = (Pool('p', 'v', 1, 0, {'dev_type': 'type-PCI'}),)
HOST = replace(
    a_host(
        'h1',
        nodename='n1',
        ram=2048,
        disk_gb=10,
        vcpus=8,
        vcpus_used=2,
        num_io_ops=3,
        disabled=True,
        why='broken',
        metadata=[{'availability_zone': 'z1', 'k': 'v'}, {}],
        cpu_info='{"arch": "x86_64"}',
        supported_instances=(('x86_64', 'kvm', 'hvm'),),
        stats={'io_workload': '3'},
        numa=lambda: CELLS,
        pci=lambda: POOLS,
        metrics=(
            {'name': 'cpu.percent', 'value': 0.25, 'timestamp': 't', 'source': 's'},
            {'name': 'cpu.frequency', 'value': 1600, 'timestamp': 't', 'source': 's'},
            'nonsense',
        ),
    ),
    instances={INSTANCE: Instance(INSTANCE, project_id='p1', instance_type_id=7)},
)
REQUEST = a_request(
    count=2,
    extra_specs={'a:b': 'c'},
    image={'hw_architecture': 'x86_64', 'hw_numa_nodes': 2},
    hints={'one': ['x'], 'two': ['x', 'y'], 'none': []},
    group=a_group(
        'anti-affinity',
        ['m2', 'm1'],
        hosts=frozenset({'h2', 'h1'}),
        rules={'max_server_per_host': '3'},
    ),
    availability_zone='z1',
    request_id='req-1',
    ignore_hosts=('h9',),
    requested_destination=Destination(
        host='h1', cell_uuid='c1', aggregates=(frozenset({'b', 'a'}), frozenset({'c'}))
    ),
    retry=Retry(2, (('h3', 'n3'),)),
    numa_topology=GuestTopology((GuestCell(0, frozenset({0, 1}), 512),)),
    pci_requests=(PciRequest(1, ({'vendor_id': '8086'},), alias_name='gpu'),),
    requested_networks=(RequestedNetwork('net'),),
    security_groups=('default',),
    physnets=frozenset({'physnet0'}),
    requested_resources=(RequestGroup('port', {'NET_BW': 1}, frozenset({'T'})),),
    root_required=frozenset({'R'}),
    same_subtree=(frozenset({'_a', '_b'}),),
)


def host():
    return RequestViews().host(HOST)


def spec():
    return RequestViews().spec(REQUEST)


def values(items, names):
    """The values of the named attributes of each item."""
    get = attrgetter(*names.split())
    return [get(item) for item in items]


def supports(host, request, cells=None):
    """The answer of the host's devices to a PCI request with some more fields."""
    return host.pci_stats.support_requests([SimpleNamespace(**request)], None, cells)


@pytest.mark.parametrize(
    ('seen', 'value'),
    [
        (
            lambda h: (h.host, h.nodename, h.uuid, h.cell_uuid),
            ('h1', 'n1', HOST.uuid, HOST.cell_uuid),
        ),
        (
            lambda h: (h.total_usable_ram_mb, h.free_ram_mb, h.free_disk_mb),
            (2048, 2048, 10240),
        ),
        (lambda h: (h.vcpus_total, h.vcpus_used, h.cpu_allocation_ratio), (8, 2, 1.0)),
        (lambda h: (h.num_instances, h.num_io_ops, h.failed_builds), (0, 3, 0)),
        (
            lambda h: (h.cpu_info, h.supported_instances, h.stats),
            ('{"arch": "x86_64"}', [['x86_64', 'kvm', 'hvm']], {'io_workload': '3'}),
        ),
        (
            lambda h: values(h.metrics, 'name value'),
            [('cpu.percent', 25), ('cpu.frequency', 1600)],
        ),
        (
            lambda h: values(h.aggregates, 'name availability_zone'),
            [('aggregate1', 'z1'), ('aggregate2', None)],
        ),
        (lambda h: h.aggregates[0].metadata, {'availability_zone': 'z1', 'k': 'v'}),
        (
            lambda h: (
                [*h.instances],
                values(h.instances.values(), 'uuid project_id instance_type_id host'),
            ),
            ([INSTANCE], [(INSTANCE, 'p1', 7, 'h1')]),
        ),
        (
            lambda h: (
                h.service['host'],
                h.service['disabled'],
                h.service['disabled_reason'],
            ),
            ('h1', True, 'broken'),
        ),
        (
            lambda h: (h.service['forced_down'], h.service.get('topic')),
            (False, 'compute'),
        ),
        (lambda h: (h.limits, h.updated), ({}, None)),
        (lambda h: (len(h.numa_topology), h.numa_topology.has_threads), (2, True)),
        (
            lambda h: values(
                h.numa_topology.cells, 'id cpuset pcpuset pinned_cpus siblings socket'
            ),
            [(0, {0, 1}, {0, 1}, {0}, [{0, 1}], 0), (1, {2}, {2}, set(), [{2}], None)],
        ),
        (
            lambda h: values(
                h.numa_topology.cells,
                'memory memory_usage avail_memory cpu_usage avail_pcpus',
            ),
            [(512, 128, 384, 1, 1), (512, 0, 512, 0, 1)],
        ),
        (
            lambda h: values(
                h.numa_topology.cells, 'free_pcpus free_siblings has_threads'
            ),
            [({1}, [{1}], True), ({2}, [{2}], False)],
        ),
        (
            lambda h: values(
                h.numa_topology.cells[0].mempages,
                'size_kb total used reserved free free_kb total_kb',
            ),
            [(4, 9, 3, 1, 5, 20, 36)],
        ),
        (
            lambda h: (
                h.numa_topology.cells[0].network_metadata.physnets,
                h.numa_topology.cells[0].network_metadata.tunneled,
            ),
            ({'physnet0'}, True),
        ),
        (
            lambda h: h.pci_stats.pools,
            [
                {
                    'product_id': 'p',
                    'vendor_id': 'v',
                    'numa_node': 0,
                    'count': 1,
                    'dev_type': 'type-PCI',
                }
            ],
        ),
        (lambda h: [pool['count'] for pool in h.pci_stats], [1]),
        (
            lambda h: (
                supports(h, {'count': 1, 'spec': [{'product_id': 'p'}]}),
                supports(h, {'count': 2, 'spec': [{'product_id': 'p'}]}),
            ),
            (True, False),
        ),
        (
            lambda h: (
                supports(
                    h,
                    {'count': 1, 'spec': [{}], 'numa_policy': 'required'},
                    [h.numa_topology.cells[1]],
                ),
                supports(
                    h,
                    {'count': 1, 'spec': [{}], 'numa_policy': 'preferred'},
                    [h.numa_topology.cells[1]],
                ),
            ),
            (False, True),
        ),
        (
            lambda h: (
                h.allocation_candidates,
                hasattr(h, 'epc_used'),
                getattr(h, 'epc_used', 9),
            ),
            ([], False, 9),
        ),
        (str, str(HOST)),
    ],
)
def test_a_host_has_the_attributes_of_nova_host_state(seen, value):
    """A host has the attributes of nova's HostState."""
    assert seen(host()) == value


def test_the_candidates_of_a_host_are_allocation_requests():
    """The candidates of a host are Placement's allocation requests."""
    offered = {HOST.uuid: [a_candidate(HOST.uuid, VCPU=2)]}
    [state] = RequestViews().offered([HOST], offered)
    assert state.allocation_candidates == [
        {
            'allocations': {HOST.uuid: {'resources': {'VCPU': 2}}},
            'mappings': {'': [HOST.uuid]},
        }
    ]


@pytest.mark.parametrize(
    ('seen', 'value'),
    [
        (
            lambda s: (s.project_id, s.user_id, s.num_instances, s.instance_uuid),
            ('project', 'user', 2, a_uuid('server0')),
        ),
        (
            lambda s: (s.availability_zone, s.is_bfv, s.ignore_hosts, s.force_hosts),
            ('z1', False, ['h9'], []),
        ),
        (
            lambda s: (s.flavor.vcpus, s.flavor.memory_mb, s.flavor['root_gb']),
            (1, 512, 1),
        ),
        (
            lambda s: (s.vcpus, s.memory_mb, s.root_gb, s.ephemeral_gb, s.swap),
            (1, 512, 1, 0, 0),
        ),
        (lambda s: s.flavor.extra_specs, {'a:b': 'c'}),
        (
            lambda s: ('extra_specs' in s.flavor, s.flavor.get('rxtx_factor', 1)),
            (True, 1),
        ),
        (
            lambda s: (
                s.image.properties.hw_architecture,
                s.image.properties.get('hw_numa_nodes'),
            ),
            ('x86_64', 2),
        ),
        (lambda s: s.image.properties.get('hw_machine_type', 'q35'), 'q35'),
        (lambda s: s.image.properties.obj_attr_is_set('hw_machine_type'), False),
        (
            lambda s: s.image.properties.to_dict(),
            {'hw_architecture': 'x86_64', 'hw_numa_nodes': 2},
        ),
        (lambda s: s.scheduler_hints, {'one': ['x'], 'two': ['x', 'y'], 'none': []}),
        (
            lambda s: [
                s.get_scheduler_hint(name, 'default')
                for name in ('one', 'two', 'none', 'three')
            ],
            ['x', ['x', 'y'], [], 'default'],
        ),
        (lambda s: (s.obj_attr_is_set('flavor'), 'no_such' in s), (True, False)),
        (
            lambda s: (
                s.instance_group.policy,
                s.instance_group.policies,
                s.instance_group.rules,
            ),
            ('anti-affinity', ['anti-affinity'], {'max_server_per_host': 3}),
        ),
        (
            lambda s: (s.instance_group.hosts, s.instance_group.members),
            (['h1', 'h2'], ['m1', 'm2']),
        ),
        (
            lambda s: (s.requested_destination.host, s.requested_destination.cell.uuid),
            ('h1', 'c1'),
        ),
        (lambda s: s.requested_destination.aggregates, ['a,b', 'c']),
        (
            lambda s: (
                s.retry.num_attempts,
                values(s.retry.hosts, 'host hypervisor_hostname'),
            ),
            (2, [('h3', 'n3')]),
        ),
        (
            lambda s: values(s.numa_topology.cells, 'id cpuset memory'),
            [(0, {0, 1}, 512)],
        ),
        (
            lambda s: values(s.pci_requests.requests, 'count spec alias_name'),
            [(1, [{'vendor_id': '8086'}], 'gpu')],
        ),
        (
            lambda s: [s.requested_networks[0].network_id, s.security_groups[0].name],
            ['net', 'default'],
        ),
        (
            lambda s: (s.network_metadata.physnets, s.network_metadata.tunneled),
            ({'physnet0'}, False),
        ),
        (
            lambda s: values(
                s.requested_resources, 'requester_id resources required_traits'
            ),
            [('port', {'NET_BW': 1}, {'T'})],
        ),
        (
            lambda s: (
                s.request_level_params.root_required,
                s.request_level_params.same_subtree,
            ),
            ({'R'}, [{'_a', '_b'}]),
        ),
        (lambda s: (s._context.user_id, s._context.request_id), ('user', 'req-1')),
    ],
)
def test_a_request_has_the_attributes_of_nova_request_spec(seen, value):
    """A request has the attributes and methods of nova's RequestSpec."""
    assert seen(spec()) == value


def test_optional_attributes_without_a_value_are_none():
    """Attributes without a value are ``None``."""
    bare = RequestViews().spec(a_request())
    for name in (
        'image',
        'instance_group',
        'requested_destination',
        'retry',
        'numa_topology',
    ):
        assert getattr(bare, name) is None
        assert name in bare


@pytest.mark.parametrize(
    ('seen', 'name'),
    [
        (spec, 'no_such'),
        (lambda: spec().image.properties, 'hw_machine_type'),
        (host, 'epc_used'),
        (lambda: host().aggregates[0], 'hosts'),
        (lambda: host().instances[INSTANCE], 'system_metadata'),
    ],
)
def test_an_unknown_attribute_raises_the_errors_plugins_expect(seen, name):
    """An unknown attribute raises both errors that plugins expect, with the name of the
    attribute."""
    for error in (NotImplementedError, AttributeError):
        with pytest.raises(error, match='is not known to novasched'):
            getattr(seen(), name)


def test_all_plugins_of_a_request_see_the_same_objects():
    """All plugins of a request see the same objects for a host and for an aggregate.
    Plugins of the next request see new objects."""
    shown = RequestViews()
    others = RequestViews()
    twin = replace(HOST, uuid=a_uuid('twin'))
    assert shown.host(HOST) is shown.host(HOST)
    assert shown.host(HOST).aggregates[0] is shown.host(twin).aggregates[0]
    assert shown.host(HOST) is not others.host(HOST)

    shown.host(HOST).aggregates[0].metadata['k'] = 'changed'
    assert others.host(HOST).aggregates[0].metadata['k'] == 'v'


def test_views_show_the_changes_after_a_placement():
    """After an instance is placed, the same objects show the changes. Attributes that
    plugins have set stay."""
    shown = RequestViews()
    state = shown.host(HOST)
    request = shown.spec(REQUEST)
    state.note = 'mine'
    state.limits['vcpu'] = 9
    state.stats['x'] = 'y'
    state.free_ram_mb = 1
    request.flavor.memory_mb = 2

    assert (len(state.instances), request.instance_group.hosts) == (1, ['h1', 'h2'])

    second = REQUEST.for_instance(a_uuid('server1')).with_placed_instance('h7', None)
    assert shown.host(HOST.with_instance(REQUEST)) is state
    assert shown.spec(second) is request

    assert (state.note, state.limits, state.stats['x']) == ('mine', {'vcpu': 9}, 'y')
    assert (state.free_ram_mb, len(state.instances)) == (2048 - 512, 2)
    assert request.instance_group.hosts == ['h1', 'h2', 'h7']
    assert (request.instance_uuid, request.flavor.memory_mb) == (a_uuid('server1'), 2)


def test_cells_and_devices_taken_by_earlier_instances_disappear():
    """Later plugins do not see the cells and devices that earlier instances of the
    request have taken. A host without cells may have devices."""
    shown = RequestViews()
    state = shown.host(HOST)
    assert (len(state.numa_topology), len(state.pci_stats.pools)) == (2, 1)

    one_cell = HostTopology(CELLS.cells[1:])
    shown.host(replace(HOST, numa=lambda: one_cell, pci=tuple))
    assert (len(state.numa_topology), state.pci_stats.pools) == (1, [])

    shown.host(replace(HOST, numa=lambda: None))
    assert state.numa_topology is None
    assert state.pci_stats.support_requests([SimpleNamespace(count=1, spec=[{}])])


def test_a_plugin_may_copy_views():
    """A plugin may copy views."""
    copied = copy.deepcopy(spec().flavor)
    copied.extra_specs['more'] = 'yes'
    assert copied.vcpus == 1
    assert spec().flavor.extra_specs == {'a:b': 'c'}
    assert copy.copy(host()).host == 'h1'
