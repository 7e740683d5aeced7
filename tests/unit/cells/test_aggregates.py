# SPDX-License-Identifier: Apache-2.0
from tests.builders import a_uuid


def test_aggregates(cloud):
    """All of them with their metadata, or those that say so."""
    cloud.add_aggregate(1, ['h1'], zone='a', filter_tenant_id='p')
    cloud.add_aggregate(2, [], zone='b')
    aggregates = cloud.reader().aggregates
    assert {each.uuid: each.metadata for each in aggregates.all()} == {
        a_uuid('agg1'): {'zone': 'a', 'filter_tenant_id': 'p'},
        a_uuid('agg2'): {'zone': 'b'},
    }
    assert [each.id for each in aggregates.having('zone', 'b')] == [2]
    assert aggregates.having('zone', 'c') == []
