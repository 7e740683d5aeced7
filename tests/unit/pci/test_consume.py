# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.model.pci import PciRequest, Pool
from novasched.pci.consume import consume, out_of_reach, supports


def pools(*described):
    """Pools by product; each is a product, a count and tags."""
    return tuple(Pool(name, '8086', count, 0, tags) for name, count, tags in described)


def left(after):
    return {pool.product_id: pool.count for pool in after}


def asks(count, **spec):
    return PciRequest(count, (spec,), alias_name='x', request_id='id')


PARENT = {'dev_type': 'type-PF', 'address': '81:00.0'}
CHILDREN = {'dev_type': 'type-VF', 'address': '81:00.0'}
VF, PF = {'dev_type': 'type-VF'}, {'dev_type': 'type-PF'}


@pytest.mark.parametrize(
    ('there', 'requests', 'after'),
    [
        ([('a', 2, {}), ('b', 2, {})], [], {'a': 2, 'b': 2}),
        ([('a', 2, {}), ('b', 2, {})], [asks(1)], {'a': 1, 'b': 2}),
        ([('a', 2, {}), ('b', 2, {})], [asks(3)], {'b': 1}),
        ([('a', 2, {}), ('b', 2, {})], [asks(2), asks(1)], {'b': 1}),
        ([('a', 2, {}), ('b', 2, {})], [asks(1, product_id='b')], {'a': 2, 'b': 1}),
        ([('a', 2, {})], [asks(0)], {'a': 2}),
        ([('a', 2, {}), ('b', 0, {})], [asks(2)], {'b': 0}),
        ([('pf', 1, PARENT), ('vf', 8, CHILDREN), ('b', 1, {})], [asks(1, **VF)], {'vf': 7, 'b': 1}),
        ([('pf', 1, PARENT), ('vf', 8, CHILDREN), ('b', 1, {})], [asks(1, **PF)], {'b': 1}),
        ([('pf', 1, PARENT), ('vf', 8, {**CHILDREN, 'address': '82:00.0'})], [asks(1, **VF)], {'pf': 1, 'vf': 7}),
        ([('pf', 1, {'dev_type': 'type-PF'}), ('vf', 8, {'dev_type': 'type-VF'})], [asks(1, **VF)], {'pf': 1, 'vf': 7}),
        ([('pf', 1, PARENT), ('vdpa', 8, {**CHILDREN, 'dev_type': 'vdpa'})], [asks(1, dev_type='vdpa')], {'vdpa': 7}),
    ],
)  # fmt: skip
def test_what_is_left(there, requests, after):
    """Devices come from the first pools that serve; empty pools go, and so do the parents
    and children of what was taken."""
    assert left(consume(pools(*there), requests)) == after


@pytest.mark.parametrize(
    ('there', 'requests', 'why'),
    [
        ([], [asks(1)], 'PCI x: 0 of 1 devices are of that kind'),
        ([('a', 2, {})], [asks(1), asks(2)], 'PCI x: 1 of 2 devices are of that kind'),
        ([('pf', 1, PARENT), ('vf', 8, CHILDREN)], [asks(1, **PF), asks(1, **VF)], 'PCI x: 0 of 1 devices are of that kind'),
        ([('pf', 1, PARENT), ('vf', 8, CHILDREN)], [PciRequest(2, (PF, VF))], 'PCI request: taking some excludes 1 more'),
    ],
)  # fmt: skip
def test_refusal(there, requests, why):
    """What cannot be had is named, with how much of it there is."""
    assert consume(pools(*there), requests) == why
    assert not supports(pools(*there), requests)


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
    """Two devices near two cells, for guests on so many of three: those on one cell have one
    device near, and another where it may be far."""
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


THEIRS = pools(('a', 2, {'rp_uuid': 'A'}), ('b', 2, {'rp_uuid': 'B'}))


@pytest.mark.parametrize(
    ('mappings', 'after'),
    [
        ({'': ['root']}, {'b': 2}),
        ({'id-0': ['B'], 'id-1': ['B']}, {'a': 2}),
        ({'id-0': ['A'], 'id-1': ['B']}, {'a': 1, 'b': 1}),
    ],
)
def test_placement_picks_the_pool(mappings, after):
    """Devices come from the providers that the claimed candidate names."""
    assert left(consume(THEIRS, [asks(2)], mappings)) == after


def test_a_provider_with_two_pools():
    """Nobody can say which of the two Placement meant."""
    there = (*THEIRS, Pool('c', '8086', 1, 0, {'rp_uuid': 'B'}))
    assert (
        consume(there, [asks(1)], {'id-0': ['A']}) == 'PCI provider B has devices in several pools'
    )
