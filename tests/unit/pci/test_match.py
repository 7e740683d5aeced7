# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.model.pci import PciRequest, Pool
from novasched.pci.match import Place, providers_of, usable


def pools(*described):
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
        ([{'physical_network': 'physnet0'}, {'product_id': '1520', 'spare': 'yes'}], [0, 2]),
        ([{'vendor_id': '8086', 'resource_class': 'GPU', 'traits': 'X', 'rp_uuids': 'r'}], [0, 1, 2]),
        ([{'numa_node': '0'}], None),
        ([{}], [0, 1, 2]),
        ([], None),
    ],
)  # fmt: skip
def test_spec(spec, found):
    """A pool has all properties of one of the specs, in capitals or not; what Placement was
    asked for is not looked at again."""
    there = pools((1, 0, {'physical_network': 'Physnet0'}), (1, 0, {}), (1, 0, {'spare': 'Yes'}))
    usable_ones = usable(there, PciRequest(1, tuple(spec)), Place())
    if found is None:
        assert usable_ones == 'PCI request: 0 of 1 devices are of that kind'
    else:
        assert names(usable_ones) == found


SOCKETS = {0: 0, 1: 0, 2: 1, 3: 1}
SPREAD = pools((1, 0, {}), (1, 1, {}), (2, 2, {}), (1, None, {}))


@pytest.mark.parametrize(
    ('policy', 'count', 'cells', 'found'),
    [
        ('required', 1, [], [0, 1, 2, 3]),
        ('required', 1, [0], [0]),
        ('required', 2, [0], None),
        ('required', 2, [0, 1], [0, 1]),
        ('legacy', 1, [0], [0]),
        ('legacy', 2, [0], [0, 3]),
        ('legacy', 3, [0], None),
        (None, 2, [0], [0, 3]),
        ('preferred', 1, [0], [0]),
        ('preferred', 2, [0], [0, 3]),
        ('preferred', 3, [1], [1, 3, 0, 2]),
        ('socket', 1, [0], [0]),
        ('socket', 2, [0], [0, 1]),
        ('socket', 3, [0], None),
        ('socket', 2, [3], [2]),
    ],
)
def test_numa_policy(policy, count, cells, found):
    """Each policy is content with the nearest devices that suffice, and goes no farther than
    it allows; without guest cells no device is far."""
    wanted = PciRequest(count, ({},), numa_policy=policy)
    usable_ones = usable(SPREAD, wanted, Place(frozenset(cells), SOCKETS))
    assert found == (None if isinstance(usable_ones, str) else names(usable_ones))


def test_sockets_not_known():
    """Where one cell of the host does not say its socket, no device is on the right one."""
    wanted = PciRequest(2, ({},), numa_policy='socket')
    why = usable(SPREAD, wanted, Place(frozenset({0}), {**SOCKETS, 3: None}))
    assert why == 'PCI request: 0 of 2 devices are where its NUMA policy wants them'


@pytest.mark.parametrize(
    ('tags', 'spec', 'served'),
    [
        ({'dev_type': 'type-VF'}, {}, True),
        ({'dev_type': 'type-PF'}, {}, False),
        ({'dev_type': 'type-PF'}, {'dev_type': 'type-PF'}, True),
        ({'dev_type': 'vdpa'}, {}, False),
        ({'dev_type': 'vdpa'}, {'dev_type': 'vdpa'}, True),
        ({'remote_managed': 'True'}, {}, False),
        ({'remote_managed': 'True'}, {'remote_managed': 'true'}, True),
        ({'remote_managed': 'false'}, {'remote_managed': 'false'}, True),
        ({}, {'live_migratable': 'true'}, False),
        ({'live_migratable': 'true'}, {'live_migratable': 'true'}, True),
        ({'live_migratable': 'true'}, {}, True),
        ({'live_migratable': 'false'}, {'live_migratable': 'false'}, True),
        ({'live_migratable': 'TRUE'}, {'live_migratable': 'true'}, False),
    ],
)
def test_kinds_that_must_be_asked_for(tags, spec, served):
    """Physical functions, vDPA and remotely managed devices go to those who ask for them."""
    found = usable(pools((1, None, tags)), PciRequest(1, (spec,)), Place())
    assert served is not isinstance(found, str)


def test_a_near_pool_that_is_unfit_hides_a_farther_one():
    """nova-compute settles for the near pool before it looks at its kind, so that neither the
    physical function nor the device on the other cell can be had."""
    there = pools((1, 0, {'dev_type': 'type-PF'}), (1, 1, {}))
    wanted = PciRequest(1, ({},), numa_policy='preferred')
    why = usable(there, wanted, Place(frozenset({0})))
    assert why == 'PCI request: 0 of 1 devices are not physical functions'


@pytest.mark.parametrize(
    ('providers', 'found'),
    [
        ((), [0, 1, 2]),
        (('a',), [0]),
        (('a', 'a'), [0]),
        (('a', 'b'), [0, 1]),
        (('b', 'b'), None),
        (('a', 'gone'), None),
    ],
)
def test_providers(providers, found):
    """Where Placement allocates devices, each of its providers has what it gives."""
    there = pools((2, None, {'rp_uuid': 'a'}), (1, None, {'rp_uuid': 'b'}), (9, None, {}))
    wanted = PciRequest(len(providers) or 1, ({},), alias_name='gpu')
    usable_ones = usable(there, wanted, Place(providers=providers))
    assert found == (None if isinstance(usable_ones, str) else names(usable_ones))


@pytest.mark.parametrize(
    ('request_', 'mappings', 'providers'),
    [
        (PciRequest(1, ({},), 'gpu', 'id'), {'': ['root'], 'id-0': ['a'], 'id-1': ['b']}, ('a', 'b')),
        (PciRequest(1, ({},), 'gpu', 'id'), {'': ['root'], 'port': ['a']}, ()),
        (PciRequest(1, ({},), 'gpu', 'id'), {'id-0': []}, ()),
        (PciRequest(1, ({},), None, 'id'), {'id-0': ['a']}, ()),
        (PciRequest(1, ({},), 'gpu'), {'id-0': ['a']}, ()),
        (PciRequest(1, ({'rp_uuids': 'a,b'},), 'gpu', 'id'), None, ('a', 'b')),
        (PciRequest(1, ({'rp_uuids': 'a,b'},), 'gpu', 'id'), {'': ['root']}, ()),
        (PciRequest(1, (), 'gpu', 'id'), None, ()),
    ],
)  # fmt: skip
def test_providers_of_a_request(request_, mappings, providers):
    """The groups named after a request say which providers serve it, for flavors alone."""
    assert providers_of(request_, mappings) == providers
