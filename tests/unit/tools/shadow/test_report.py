# SPDX-License-Identifier: Apache-2.0
"""Reports, as people and scripts read them."""

import json

from novasched.tools.shadow.comparison import (
    ComparedRequest,
    Difference,
    as_json,
    as_table,
    count_results,
    is_same,
)

DIFFERENCE = Difference('s', 'a', 'b', 'RAMWeigher')
SAME = ComparedRequest(1, ('a',), compared=True)
DIFFERENT = ComparedRequest(2, ('b',), compared=True, difference=DIFFERENCE)
HALF = ComparedRequest(
    3, ('b',), False, DIFFERENCE, unknown='half', server='s', missing_fields=('retry.hosts',)
)
UNKNOWN = ComparedRequest(4, ('b',), unknown='no answer', server='t')
FAILED = ComparedRequest(5, failure='away')


def test_counts():
    """Every request is compared, unknown or failed; what is compared is the same or different.
    All is well without a difference and a failure."""
    assert count_results([SAME, DIFFERENT, HALF, UNKNOWN, FAILED]) == {
        'requests': 5, 'compared': 2, 'same': 1, 'different': 1, 'unknown': 2, 'failed': 1,
    }  # fmt: skip
    assert is_same([SAME, HALF, UNKNOWN])
    assert not is_same([DIFFERENT])
    assert not is_same([FAILED])


def test_the_table():
    """Each request that is not the same has a line with its reason; half requests are named."""
    lines = as_table([SAME, DIFFERENT, HALF, UNKNOWN, FAILED]).splitlines()
    cells = [[cell.strip() for cell in line.split('|')[1:-1]] for line in lines if '|' in line]
    assert cells[1:] == [
        ['2', 's', 'a', 'b', 'RAMWeigher'],
        ['3', 's', 'a', 'b', 'half'],
        ['4', 't', '', 'b', 'no answer'],
        ['5', '', '', '', 'away'],
    ]
    assert lines[-1] == 'Not rebuilt fully, since not told: retry.hosts (requests: 3).'
    assert as_table([SAME]) == ('1 requests, 1 compared, 1 same, 0 different, 0 unknown, 0 failed.')


def test_json():
    """The same for scripts."""
    found = json.loads(as_json([HALF]))
    assert found['counts']['unknown'] == 1
    assert found['requests'][0]['difference']['why'] == 'RAMWeigher'
    assert found['requests'][0]['untold'] == ['retry.hosts']
    names = 'line hosts compared difference failure server unknown untold'
    assert [*found['requests'][0]] == names.split()
