# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.scheduler.model.pci import PciRequest, Pool
from novasched.scheduler.pci.pools import (
    DeviceSource,
    consume,
    out_of_reach,
    providers_of,
    usable,
)


def numbered_pools(*described):
    """Make pools named by their index, of (count, host cell, tags)."""
    pools = []
    for index, (count, node, tags) in enumerate(described):
        pools.append(Pool('1520', '8086', count, node, {'name': str(index), **tags}))
    return tuple(pools)


def indexes(pools):
    return [int(pool.tags['name']) for pool in pools]


@pytest.mark.parametrize(
    ('spec', 'found'),
    [
        ([{'vendor_id': '8086'}], [0, 1, 2]),
        ([{'vendor_id': '10DE'}], None),
        ([{'physical_network': 'PHYSNET0'}], [0]),
        ([{'physical_network': None}], [1, 2]),
        (
            [{'physical_network': 'physnet0'}, {'product_id': '1520', 'spare': 'yes'}],
            [0, 2],
        ),
        (
            [
                {
                    'vendor_id': '8086',
                    'resource_class': 'GPU',
                    'traits': 'X',
                    'rp_uuids': 'r',
                }
            ],
            [0, 1, 2],
        ),
        ([{'numa_node': '0'}], None),
        ([{}], [0, 1, 2]),
        ([], None),
    ],
)
def test_a_usable_pool_has_all_properties_of_a_spec(spec, found):
    """A usable pool has all properties of any spec, without regard to case. Properties
    for Placement are ignored."""
    there = numbered_pools(
        (1, 0, {'physical_network': 'Physnet0'}), (1, 0, {}), (1, 0, {'spare': 'Yes'})
    )

    usable_pools = usable(there, PciRequest(1, tuple(spec)), DeviceSource())

    if found is None:
        assert usable_pools == 'PCI request: 0 of 1 devices are of that kind'
    else:
        assert indexes(usable_pools) == found


def test_nearer_devices_are_preferred():
    """Near devices come first, then devices of unknown cells, then far devices."""
    there = numbered_pools((1, 0, {}), (1, 1, {}), (2, 2, {}), (1, None, {}))
    request = PciRequest(3, ({},), numa_policy='preferred')

    usable_pools = usable(there, request, DeviceSource(frozenset({1})))

    assert indexes(usable_pools) == [1, 3, 0, 2]


PF = {'dev_type': 'type-PF'}
VF = {'dev_type': 'type-VF'}
VDPA = {'dev_type': 'vdpa'}
MANAGED = {'remote_managed': 'true'}
LIVE = {'live_migratable': 'true'}


@pytest.mark.parametrize(
    ('tags', 'served', 'refused'),
    [
        (VF, [{}, VF], [PF]),
        (PF, [PF], [{}]),
        (VDPA, [VDPA], [{}]),
        ({'remote_managed': 'True'}, [MANAGED], [{}]),
        ({'remote_managed': 'false'}, [{}, {'remote_managed': 'false'}], [MANAGED]),
        ({}, [{}], [LIVE]),
        (LIVE, [{}, LIVE], []),
        ({'live_migratable': 'false'}, [{'live_migratable': 'false'}], []),
        ({'live_migratable': 'TRUE'}, [], [LIVE]),
    ],
)
def test_special_devices_serve_only_requests_that_name_the_kind(tags, served, refused):
    """Physical functions, vDPA and remote-managed devices serve only requests that name
    the kind."""
    there = numbered_pools((1, None, tags))

    for spec in served:
        pools = usable(there, PciRequest(1, (spec,)), DeviceSource())
        assert not isinstance(pools, str)
    for spec in refused:
        reason = usable(there, PciRequest(1, (spec,)), DeviceSource())
        assert isinstance(reason, str)


@pytest.mark.parametrize(
    ('providers', 'found'),
    [
        ((), [0, 1, 2]),
        (('a',), [0]),
        (('a', 'b'), [0, 1]),
        (('b', 'b'), None),
        (('a', 'gone'), None),
    ],
)
def test_every_allocated_provider_must_have_enough_devices(providers, found):
    """Every allocated provider must have as many devices as Placement allocates."""
    there = numbered_pools(
        (2, None, {'rp_uuid': 'a'}), (1, None, {'rp_uuid': 'b'}), (9, None, {})
    )
    request = PciRequest(len(providers) or 1, ({},), alias_name='gpu')

    usable_pools = usable(there, request, DeviceSource(providers=providers))

    if found is None:
        assert isinstance(usable_pools, str)
    else:
        assert indexes(usable_pools) == found


@pytest.mark.parametrize(
    ('request_', 'mappings', 'providers'),
    [
        (
            PciRequest(1, ({},), 'gpu', 'id'),
            {'': ['root'], 'id-0': ['a'], 'id-1': ['b']},
            ('a', 'b'),
        ),
        (PciRequest(1, ({},), 'gpu', 'id'), {'': ['root'], 'port': ['a']}, ()),
        (PciRequest(1, ({},), 'gpu', 'id'), {'id-0': []}, ()),
        (PciRequest(1, ({},), None, 'id'), {'id-0': ['a']}, ()),
        (PciRequest(1, ({},), 'gpu'), {'id-0': ['a']}, ()),
        (PciRequest(1, ({'rp_uuids': 'a,b'},), 'gpu', 'id'), None, ('a', 'b')),
        (PciRequest(1, ({'rp_uuids': 'a,b'},), 'gpu', 'id'), {'': ['root']}, ()),
        (PciRequest(1, (), 'gpu', 'id'), None, ()),
    ],
)
def test_providers_come_from_the_groups_named_after_a_request(
    request_, mappings, providers
):
    """The groups named after a request have its providers; ports have no groups."""
    assert providers_of(request_, mappings) == providers


def pools(*described):
    """Make pools of (product, count, tags)."""
    return tuple(Pool(name, '8086', count, 0, tags) for name, count, tags in described)


def counts(pools):
    return {pool.product_id: pool.count for pool in pools}


def asks(count, **spec):
    return PciRequest(count, (spec,), alias_name='x', request_id='id')


PARENT = {**PF, 'address': '81:00.0'}
CHILDREN = {**VF, 'address': '81:00.0'}
OF_A = {'rp_uuid': 'A'}
OF_B = {'rp_uuid': 'B'}


@pytest.mark.parametrize(
    ('there', 'requests', 'mappings', 'after'),
    [
        ([('a', 2, {}), ('b', 2, {})], [asks(3)], None, {'b': 1}),
        ([('a', 2, {}), ('b', 2, {})], [asks(2), asks(1)], None, {'b': 1}),
        (
            [('a', 2, {}), ('b', 2, {})],
            [asks(1, product_id='b')],
            None,
            {'a': 2, 'b': 1},
        ),
        ([('a', 2, {}), ('b', 0, {})], [asks(2)], None, {'b': 0}),
        (
            [('pf', 1, PARENT), ('vf', 8, CHILDREN), ('b', 1, {})],
            [asks(1, **VF)],
            None,
            {'vf': 7, 'b': 1},
        ),
        (
            [('pf', 1, PARENT), ('vf', 8, CHILDREN), ('b', 1, {})],
            [asks(1, **PF)],
            None,
            {'b': 1},
        ),
        (
            [('pf', 1, PARENT), ('vf', 8, {**CHILDREN, 'address': '82:00.0'})],
            [asks(1, **VF)],
            None,
            {'pf': 1, 'vf': 7},
        ),
        ([('pf', 1, PF), ('vf', 8, VF)], [asks(1, **VF)], None, {'pf': 1, 'vf': 7}),
        (
            [('pf', 1, PARENT), ('vdpa', 8, {**CHILDREN, 'dev_type': 'vdpa'})],
            [asks(1, dev_type='vdpa')],
            None,
            {'vdpa': 7},
        ),
        ([('a', 2, OF_A), ('b', 2, OF_B)], [asks(2)], {'': ['root']}, {'b': 2}),
        (
            [('a', 2, OF_A), ('b', 2, OF_B)],
            [asks(2)],
            {'id-0': ['B'], 'id-1': ['B']},
            {'a': 2},
        ),
        (
            [('a', 2, OF_A), ('b', 2, OF_B)],
            [asks(2)],
            {'id-0': ['A'], 'id-1': ['B']},
            {'a': 1, 'b': 1},
        ),
    ],
)
def test_taken_devices_are_subtracted_from_the_pools(there, requests, mappings, after):
    """Devices come from the providers of the claimed candidate, or from the first
    usable pools. Empty pools are dropped, and the parents and children of taken
    devices."""
    assert counts(consume(pools(*there), requests, mappings)) == after


@pytest.mark.parametrize(
    ('there', 'requests', 'where', 'why'),
    [
        ([], [asks(1)], {}, 'PCI x: 0 of 1 devices are of that kind'),
        (
            [('a', 2, {})],
            [asks(1), asks(2)],
            {},
            'PCI x: 1 of 2 devices are of that kind',
        ),
        (
            [('pf', 1, PARENT), ('vf', 8, CHILDREN)],
            [asks(1, **PF), asks(1, **VF)],
            {},
            'PCI x: 0 of 1 devices are of that kind',
        ),
        (
            [('pf', 1, PARENT), ('vf', 8, CHILDREN)],
            [PciRequest(2, (PF, VF))],
            {},
            'PCI request: taking some excludes 1 more',
        ),
        (
            [('a', 1, {})],
            [PciRequest(1, ({},), numa_policy='socket')],
            {'cells': [1], 'sockets': {0: 0, 1: 0, 2: None}},
            'PCI request: 0 of 1 devices are where its NUMA policy wants them',
        ),
        (
            [('a', 1, PF)],
            [PciRequest(1, ({},))],
            {},
            'PCI request: 0 of 1 devices are not physical functions',
        ),
        (
            [('a', 2, OF_A), ('b', 2, OF_B), ('c', 2, OF_B)],
            [asks(1)],
            {'mappings': {'id-0': ['A']}},
            'PCI provider B has devices in several pools',
        ),
    ],
)
def test_a_refusal_names_the_request_and_the_available_devices(
    there, requests, where, why
):
    """The reason has the request and the number of available devices. No device is on
    the right socket if the socket of any host cell is unknown. A provider with two
    pools is ambiguous."""
    assert consume(pools(*there), requests, **where) == why


@pytest.mark.parametrize(
    ('policies', 'max_cells', 'why'),
    [
        (['required'], 1, None),
        (['required'] * 2, 1, '1 of 2 PCI devices are within reach'),
        (['required'] * 2, 2, None),
        (['legacy'] * 3, 2, '2 of 3 PCI devices are within reach'),
        (['required', 'preferred'], 1, None),
    ],
)
def test_far_devices_are_out_of_reach_unless_the_policy_allows(
    policies, max_cells, why
):
    """Two of three cells have a device each. A guest on one cell has one near device,
    and one far device if the policy allows."""
    there = (Pool('a', '8086', 1, 0), Pool('a', '8086', 1, 1))
    requests = [PciRequest(1, ({},), 'x', numa_policy=policy) for policy in policies]
    sockets = dict.fromkeys(range(3), 0)

    anywhere = out_of_reach(there, requests, None, (0, 1, 2), max_cells, sockets)
    on_third_cell = out_of_reach(there, requests, None, (2,), 1, sockets)

    assert anywhere == why
    assert on_third_cell == 'PCI x: 0 of 1 devices are within reach'


def test_equal_pools_count_as_separate_pools():
    """Equal pools are different pools, even if both are the same object."""
    pool = Pool('a', '8086', 1)
    assert consume((pool, pool), [asks(1)]) == (pool,)
    assert consume((pool, pool), [asks(2)]) == ()
