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
    """Pools of vendor 8086 by name; each is a count, a host cell and tags."""
    return tuple(
        Pool('1520', '8086', count, node, {'name': str(i), **tags})
        for i, (count, node, tags) in enumerate(described)
    )


def names(found):
    return [int(pool.tags['name']) for pool in found]


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
def test_spec(spec, found):
    """A pool has all properties of one of the specs, in capitals or not; what Placement
    was asked for is not looked at again."""
    there = numbered_pools(
        (1, 0, {'physical_network': 'Physnet0'}), (1, 0, {}), (1, 0, {'spare': 'Yes'})
    )
    usable_ones = usable(there, PciRequest(1, tuple(spec)), DeviceSource())
    if found is None:
        assert usable_ones == 'PCI request: 0 of 1 devices are of that kind'
    else:
        assert names(usable_ones) == found


def test_nearer_devices_are_preferred():
    """Behind those near the guest stand those whose place is not known, then the
    farther ones."""
    there = numbered_pools((1, 0, {}), (1, 1, {}), (2, 2, {}), (1, None, {}))
    wanted = PciRequest(3, ({},), numa_policy='preferred')
    assert names(usable(there, wanted, DeviceSource(frozenset({1})))) == [1, 3, 0, 2]


PF, VF, VDPA = ({'dev_type': kind} for kind in ('type-PF', 'type-VF', 'vdpa'))
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
def test_kinds_that_must_be_asked_for(tags, served, refused):
    """Physical functions, vDPA and remotely managed devices go to those who ask for
    them."""
    there = numbered_pools((1, None, tags))
    found = [
        usable(there, PciRequest(1, (spec,)), DeviceSource())
        for spec in served + refused
    ]
    reasons = [isinstance(each, str) for each in found]
    assert reasons == [False] * len(served) + [True] * len(refused)


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
def test_providers(providers, found):
    """Where Placement allocates devices, each of its providers has what it gives."""
    there = numbered_pools(
        (2, None, {'rp_uuid': 'a'}), (1, None, {'rp_uuid': 'b'}), (9, None, {})
    )
    wanted = PciRequest(len(providers) or 1, ({},), alias_name='gpu')
    usable_ones = usable(there, wanted, DeviceSource(providers=providers))
    assert found == (None if isinstance(usable_ones, str) else names(usable_ones))


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
def test_providers_of_a_request(request_, mappings, providers):
    """The groups named after a request say which providers serve it, for flavors
    alone."""
    assert providers_of(request_, mappings) == providers


def pools(*described):
    """Pools by product; each is a product, a count and tags."""
    return tuple(Pool(name, '8086', count, 0, tags) for name, count, tags in described)


def left(after):
    return {pool.product_id: pool.count for pool in after}


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
def test_what_is_left(there, requests, mappings, after):
    """Devices come from the providers that the claimed candidate names, or else from
    the first pools that serve; empty pools go, and so do the parents and children of
    what was taken."""
    assert left(consume(pools(*there), requests, mappings)) == after


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
            [(name, 2, {'rp_uuid': rp}) for name, rp in ('aA', 'bB', 'cB')],
            [asks(1)],
            {'mappings': {'id-0': ['A']}},
            'PCI provider B has devices in several pools',
        ),
    ],
)
def test_refusal(there, requests, where, why):
    """What cannot be had is named, with how much of it there is. No device is on the
    right socket where one cell of the host does not say its own, and nobody can say
    which of a provider's two pools Placement meant."""
    assert consume(pools(*there), requests, **where) == why


@pytest.mark.parametrize(
    ('policies', 'most', 'why'),
    [
        (['required'], 1, None),
        (['required'] * 2, 1, '1 of 2 PCI devices are within reach'),
        (['required'] * 2, 2, None),
        (['legacy'] * 3, 2, '2 of 3 PCI devices are within reach'),
        (['required', 'preferred'], 1, None),
    ],
)
def test_out_of_reach(policies, most, why):
    """Two devices near two cells, for guests on so many of three: those on one cell
    have one device near, and another where it may be far."""
    there = tuple(Pool('a', '8086', 1, cell) for cell in (0, 1))
    requests = [PciRequest(1, ({},), 'x', numa_policy=policy) for policy in policies]
    sockets = dict.fromkeys(range(3), 0)
    assert out_of_reach(there, requests, None, (0, 1, 2), most, sockets) == why
    assert out_of_reach(there, requests, None, (2,), 1, sockets) == (
        'PCI x: 0 of 1 devices are within reach'
    )


def test_one_pool_of_several_that_are_equal():
    """A pool that stands twice is two pools."""
    one = Pool('a', '8086', 1)
    assert consume((one, one), [asks(1)]) == (one,)
    assert consume((one, one), [asks(2)]) == ()
