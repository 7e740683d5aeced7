# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.scheduler.filters.metadata import parts, smallest
from tests.lab.builders import a_host


@pytest.mark.parametrize(
    ('values', 'found'),
    [
        ([], set()),
        (['a'], {'a'}),
        (['a, b', 'b ,c'], {'a', 'b', 'c'}),
        ([''], {''}),
        (['a,,b'], {'a', '', 'b'}),
    ],
)
def test_lists_are_split_at_commas(values, found):
    """White space around an element does not count."""
    assert parts(values) == found


@pytest.mark.parametrize(
    ('metadata', 'kind', 'number'),
    [
        ([], int, 8),
        ([{'other': '3'}], int, 8),
        ([{'most': '3'}], int, 3),
        ([{'most': '3'}, {}, {'most': '20'}], int, 3),
        ([{'most': ' 3 '}], int, 3),
        ([{'most': '3'}, {'most': 'few'}], int, 8),
        ([{'most': '1.5'}], int, 8),
        ([{'most': '1.5'}], float, 1.5),
        ([{'most': '1,2'}], float, 8),
        ([{'most': ''}], float, 8),
    ],
)
def test_smallest_number_wins(metadata, kind, number):
    """Of several numbers the smallest holds; of one that is none the option."""
    assert smallest(a_host(metadata=metadata), 'most', 8, kind) == number
