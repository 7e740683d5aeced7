# SPDX-License-Identifier: Apache-2.0
"""The metadata that only the collation of the API database makes match."""

import pytest

from novasched.conf.settings import Settings
from novasched.scheduler.model.aggregate_list import AggregateList
from novasched.scheduler.model.collation import EXACT, Collation
from novasched.scheduler.model.host import Aggregate
from novasched.tools.check.metadata import inexact_matches


def folded(text):
    """A key as of utf8mb3_general_ci, for ASCII texts."""
    return text.lower().rstrip(' ')


CASELESS = Collation(folded, folded)
ALL_ON = Settings(
    limit_tenants_to_placement_aggregate=True,
    enable_isolated_aggregate_filtering=True,
)
ALL_OFF = Settings(query_placement_for_availability_zone=False)


@pytest.mark.parametrize(
    ('metadata', 'expected'),
    [
        ([{'availability_zone': 'z'}, {'availability_zone': 'z'}], []),
        ([{'availability_zone': 'z'}, {'availability_zone': 'y'}], []),
        (
            [{'availability_zone': 'Z'}, {'availability_zone': 'z'}],
            [
                "'availability_zone=z' of agg1 is zone Z",
                "'availability_zone=Z' of agg0 is zone z",
            ],
        ),
        (
            [{'Availability_Zone': 'z'}],
            ["'Availability_Zone=z' of agg0 is zone z"],
        ),
        ([{'filter_tenant_id': 'p1'}], []),
        (
            [{'filter_tenant_id': 'P1', 'filter_tenant_id2': 'p1'}],
            ["'filter_tenant_id=P1' of agg0 is project p1"],
        ),
        (
            [{'filter_tenant_id': 'p1 '}],
            ["'filter_tenant_id=p1 ' of agg0 is project p1"],
        ),
        ([{'filter_tenant_id': 'P2'}], []),
        ([{'trait:CUSTOM_X': 'required'}], []),
        ([{'trait:custom_x': 'forbidden'}], []),
        (
            [{'trait:CUSTOM_X': 'Required', 'other': 'Required'}],
            ["'trait:CUSTOM_X=Required' of agg0 is required trait CUSTOM_X"],
        ),
        (
            [{'trait:CUSTOM_X': 'required'}, {'trait:custom_x': 'required'}],
            ["'trait:custom_x=required' of agg1 is required trait CUSTOM_X"],
        ),
        (
            [{'Trait:CUSTOM_X': 'required'}],
            ["'Trait:CUSTOM_X=required' of agg0 is required trait CUSTOM_X"],
        ),
    ],
)
def test_inexact_matches_of_metadata_are_found(metadata, expected):
    """Metadata is found if it matches without regard to case and trailing blanks, and
    not exactly, and if a prefilter is enabled that reads the metadata."""
    rows = []
    for number, pairs in enumerate(metadata):
        rows.append(Aggregate(number, f'uuid{number}', f'agg{number}', pairs))

    def found(collation, settings):
        aggregates = AggregateList(rows, collation, collation)
        return [*inexact_matches(aggregates, ['p1'], settings)]

    assert found(CASELESS, ALL_ON) == expected
    assert found(CASELESS, ALL_OFF) == []
    assert found(EXACT, ALL_ON) == []
