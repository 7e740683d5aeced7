# SPDX-License-Identifier: Apache-2.0
"""Reports, as people and scripts read them."""

import json

from novasched.shadow.comparison import Difference
from novasched.shadow.report import Report, Row, as_json, as_table

DIFFERENCE = Difference('s', 'a', 'b', 'RAMWeigher')
SAME = Row(1, ('a',), compared=True)
DIFFERENT = Row(2, ('b',), compared=True, difference=DIFFERENCE)
HALF = Row(3, ('b',), False, DIFFERENCE, unknown='half', server='s', untold=('retry.hosts',))
UNKNOWN = Row(4, ('b',), unknown='no answer', server='t')
FAILED = Row(5, failure='away')


def test_counts():
    """Every request is compared, unknown or failed; what is compared is the same or different."""
    assert Report([SAME, DIFFERENT, HALF, UNKNOWN, FAILED]).counts == {
        'requests': 5, 'compared': 2, 'same': 1, 'different': 1, 'unknown': 2, 'failed': 1,
    }  # fmt: skip


def test_what_is_well():
    """Neither a difference nor a failure; what is unknown is neither."""
    rows = {row.line: Report([row]).is_same for row in (SAME, DIFFERENT, HALF, UNKNOWN, FAILED)}
    assert rows == {1: True, 2: False, 3: True, 4: True, 5: False}


def test_the_table():
    """Each request that is not the same has a line with its reason; half requests are named."""
    lines = as_table(Report([SAME, DIFFERENT, HALF, UNKNOWN, FAILED])).splitlines()
    cells = [[cell.strip() for cell in line.split('|')[1:-1]] for line in lines if '|' in line]
    assert cells[1:] == [
        ['2', 's', 'a', 'b', 'RAMWeigher'],
        ['3', 's', 'a', 'b', 'half'],
        ['4', 't', '', 'b', 'no answer'],
        ['5', '', '', '', 'away'],
    ]
    assert lines[-1] == 'Not rebuilt fully, since not told: retry.hosts (requests: 3).'
    assert as_table(Report([SAME])) == (
        '1 requests, 1 compared, 1 same, 0 different, 0 unknown, 0 failed.'
    )


def test_json():
    """The same for scripts."""
    found = json.loads(as_json(Report([HALF])))
    assert found['counts']['unknown'] == 1
    assert found['requests'][0]['difference']['why'] == 'RAMWeigher'
    assert found['requests'][0]['untold'] == ['retry.hosts']
