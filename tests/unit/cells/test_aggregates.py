# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.scheduler.errors import DatabaseUnavailable
from tests.lab.builders import a_uuid


@pytest.mark.parametrize(
    ('metadata', 'told'),
    [
        (
            {'cpu_allocation_ratio': '1.5', 'max_io_ops_per_host': ' 8 ', 'other': 'x'},
            [],
        ),
        ({'cpu_allocation_ratio': 'much'}, ["cpu_allocation_ratio: 'much'"]),
        ({'max_instances_per_host': '1.5'}, ["max_instances_per_host: '1.5'"]),
        ({'max_io_ops_per_host': ''}, ["max_io_ops_per_host: ''"]),
    ],
)
def test_aggregate_metadata_that_is_no_number_is_logged_once(
    cloud, caplog, metadata, told
):
    """A metadata value that is no number of the right kind cannot override an option.
    The log says so once."""
    cloud.add_aggregate(1, ['h1'], **metadata)
    aggregates = cloud.reader().aggregates
    for _ in range(2):
        aggregates.all()

    expected = []
    for each in told:
        expected.append(f'Could not decode {each} of aggregate 1')
    assert caplog.messages == expected


def ids(aggregates):
    return [aggregate.id for aggregate in aggregates.all()]


def test_the_last_aggregates_stay_while_the_api_database_fails(cloud, caplog):
    """The last aggregates stay in use while the API database fails. The log has one
    warning, and one line when the failure is over."""
    caplog.set_level('INFO')
    cloud.add_aggregate(1, ['h1'], zone='a', filter_tenant_id='p')
    aggregates = cloud.reader().aggregates
    [known] = aggregates.all()
    assert (known.uuid, known.metadata) == (
        a_uuid('agg1'),
        {'zone': 'a', 'filter_tenant_id': 'p'},
    )

    cloud.sql('api', 'ALTER TABLE aggregate_hosts RENAME TO lost')
    cloud.add_aggregate(2, [], zone='b')
    for _ in range(2):
        assert ids(aggregates) == [1]
    assert aggregates.failing

    cloud.sql('api', 'ALTER TABLE lost RENAME TO aggregate_hosts')
    assert ids(aggregates) == [1, 2]
    assert not aggregates.failing

    assert caplog.messages == [
        'API database has changed, and is looked at anew: '
        'no such table: aggregate_hosts',
        'Aggregates cannot be read, and stay as they were: API database has no table '
        'aggregate_hosts',
        'Aggregates can be read again.',
    ]


def test_aggregates_are_unavailable_before_the_api_database_answers(cloud):
    """Before the first answer there are no aggregates to use."""
    aggregates = cloud.reader().aggregates
    cloud.sql('api', 'DROP TABLE aggregates')
    with pytest.raises(DatabaseUnavailable):
        aggregates.all()
