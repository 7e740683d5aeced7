# SPDX-License-Identifier: Apache-2.0
import json

import pytest

from novasched.scheduler.model.pci import Pool
from novasched.scheduler.pci import parse
from tests.lab.wire import primitive


def pool(**data):
    return {**primitive('PciDevicePool', '1.1'), 'nova_object.data': data}


def listed(*pools, version='1.1'):
    data = {'nova_object.data': {'objects': list(pools)}}
    return {**primitive('PciDevicePoolList', version), **data}


NIC = {'product_id': '1520', 'vendor_id': '8086', 'count': 5}
NIC_POOL = Pool('1520', '8086', 5)


@pytest.mark.parametrize(
    ('stored', 'pools'),
    [
        (listed(), ()),
        (
            listed(pool(**NIC, numa_node=1, tags={'dev_type': 'type-VF'})),
            (Pool('1520', '8086', 5, 1, {'dev_type': 'type-VF'}),),
        ),
        (
            listed(pool(**NIC, numa_node=None, tags={'physical_network': None})),
            (Pool('1520', '8086', 5, None, {'physical_network': None}),),
        ),
        (listed(pool(**NIC), version='1.0'), (NIC_POOL,)),
        (listed(pool(**NIC, new=1), version='1.9'), (NIC_POOL,)),
        (NIC, (NIC_POOL,)),
        ([NIC], (NIC_POOL,)),
        (
            [{**NIC, 'count': '5', 'numa_node': '0', 'tag': 7, 'extra_info': '{}'}],
            (Pool('1520', '8086', 5, 0, {'tag': '7', 'extra_info': '{}'}),),
        ),
        (
            [{**NIC, 'a': '1', 'b': '2'}, {**NIC, 'a': '3'}, {**NIC, 'a': '4'}],
            (
                Pool('1520', '8086', 5, None, {'a': '3'}),
                Pool('1520', '8086', 5, None, {'a': '4'}),
                Pool('1520', '8086', 5, None, {'a': '1', 'b': '2'}),
            ),
        ),
        ([], ()),
        ({}, ()),
        (None, ()),
    ],
)
def test_pools_are_read_from_every_stored_form(stored, pools):
    """Objects and the older dicts give the same pools, pools with fewer tags first."""
    assert parse.pools(json.dumps(stored)) == pools


@pytest.mark.parametrize(('text', 'why'), [
    ('{broken', 'no JSON'),
    ('[' * 100_000, 'no JSON'),
    ('7', 'a list of pools is wanted, not int'),
    (listed(version='2.0'), 'PciDevicePoolList 2.0 cannot be read'),
    ({**listed(), 'nova_object.name': 'NUMATopology'}, 'no PciDevicePoolList'),
    (primitive('PciDevicePoolList', '1.1', objects=None), 'has no objects'),
    ({**listed(), 'nova_object.data': []}, 'has no data'),
    (listed(NIC), 'no PciDevicePool'),
    (listed(pool(**NIC, tags=[])), 'tags of PciDevicePool are list'),
    (['x'], 'pool 1 is str'),
    ([NIC, {'vendor_id': '8086', 'count': 1}], 'pool 2 has no product_id'),
    ([{**NIC, 'count': 'many'}], 'pool 1: invalid literal'),
    ([{**NIC, 'count': None}], 'pool 1: count is NoneType'),
    ([{**NIC, 'count': -1}], 'pool 1 has a count of -1'),
    ([{**NIC, 'tag': ['rx', 'tx']}], 'pool 1: tag is list'),
])  # fmt: skip
def test_an_error_says_why_a_stored_text_is_invalid(text, why):
    """The error of an invalid text says the reason."""
    if not isinstance(text, str):
        text = json.dumps(text)

    with pytest.raises(ValueError, match=why):
        parse.pools(text)
