# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.scheduler.model.aggregate_list import AggregateList
from novasched.scheduler.model.collation import EXACT, Collation
from novasched.scheduler.model.host import Aggregate


def folded(text):
    """A key as of utf8mb3_general_ci, for ASCII texts."""
    return text.lower().rstrip(' ')


CASELESS = Collation(folded, folded)
LIKE_ALONE = Collation(like_key=folded)
METADATA = {
    1: {'filter_tenant_id': 'p1', 'availability_zone': 'zone-a'},
    2: {'filter_tenant_id_2': 'P1', 'Availability_Zone': 'Zone-A '},
    3: {'Filter_Tenant_Id': 'p1', 'zone': 'zone-a'},
    4: {'trait:CUSTOM_X': 'required'},
    5: {'trait:custom_x': 'required', 'trait:CUSTOM_Y': 'forbidden'},
    6: {'Trait:CUSTOM_X': 'required'},
    7: {'trait:CUSTOM_X ': 'Required ', 'trait': 'required'},
}
AGGREGATES = [Aggregate(id, f'agg{id}', f'agg{id}', METADATA[id]) for id in METADATA]


@pytest.mark.parametrize(
    ('method', 'value', 'exact', 'caseless'),
    [
        ('in_zone', 'zone-a', [1], [1, 2]),
        ('in_zone', 'ZONE-A', [], [1, 2]),
        ('in_zone', 'zone-a ', [], [1, 2]),
        ('in_zone', 'zone', [], []),
        ('reserved_for', 'p1', [1], [1, 2]),
        ('reserved_for', 'P1', [2], [1, 2]),
        ('reserved_for', 'p', [], []),
        ('reserved_for', None, [], []),
        ('isolated_from', [], [4, 5], [4, 5, 6, 7]),
        ('isolated_from', ['CUSTOM_X'], [5], []),
        ('isolated_from', ['CUSTOM_Y'], [4, 5], [4, 5, 6, 7]),
    ],
)
def test_keys_and_values_are_compared_by_the_collation(method, value, exact, caseless):
    """Keys and values are compared by the collation, and the prefix of projects
    exactly."""
    for collation, expected in ((EXACT, exact), (CASELESS, caseless)):
        aggregates = AggregateList(AGGREGATES, collation, collation)
        found = getattr(aggregates, method)(value)
        assert [aggregate.id for aggregate in found] == expected


def test_like_may_ignore_the_case_where_equality_does_not():
    """SQLite compares the prefix of traits without case, and the names of traits
    exactly."""
    aggregates = AggregateList(AGGREGATES, LIKE_ALONE)
    found = aggregates.isolated_from(['CUSTOM_X'])
    assert [aggregate.id for aggregate in found] == [5, 6]


def test_aggregates_keep_the_given_order():
    """The list has all aggregates in their order."""
    aggregates = AggregateList(AGGREGATES)
    assert [*aggregates] == AGGREGATES
    assert aggregates[0] is AGGREGATES[0]
    assert aggregates[1:] == (*AGGREGATES[1:],)
