# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.page.sight import Cell, Sight, ago, name, state
from tests.builders import a_host


@pytest.mark.parametrize(
    ('sight', 'known', 'warnings'),
    [
        (Sight(), True, []),
        (Sight((Cell('a', (), 1.0),)), True, []),
        (Sight(failure='No answer.'), False, ['No answer.']),
        (
            Sight((Cell('a', (), None, answers=False),)),
            False,
            ['Cell a does not answer; its hosts are not shown.'],
        ),
        (
            Sight((Cell('a', (), 1.0), Cell('b', (), 90.0, answers=False))),
            True,
            ['Cell b does not answer: its hosts are shown as they were 90 s ago.'],
        ),
        (
            Sight((Cell('a', (), 3700.0),), 'No answer.'),
            True,
            ['No answer.', 'Cell a: its hosts are shown as they were 61 min ago.'],
        ),
        (
            Sight((Cell('a', (), 1.0),), stale=True),
            True,
            ['The API database does not answer: zones and aggregates are shown as they were.'],
        ),
    ],
)
def test_warnings(sight, known, warnings):
    """What is old or missing is told, with its age."""
    assert sight.known is known
    assert list(sight.warnings()) == warnings


@pytest.mark.parametrize(
    ('seconds', 'text'),
    [
        (-1, '0 s ago'),
        (0.4, '0 s ago'),
        (119, '119 s ago'),
        (120, '2 min ago'),
        (7200, '2 h ago'),
        (200000, '2 d ago'),
    ],
)
def test_ages(seconds, text):
    """Two whole units at the least, or seconds."""
    assert ago(seconds) == text


@pytest.mark.parametrize(
    ('up', 'disabled', 'expected'),
    [(True, False, 'up'), (True, True, 'disabled'), (False, False, 'down'), (False, True, 'down')],
)
def test_states(up, disabled, expected):
    """Of one that is down nothing else counts."""
    assert state(a_host(up=up, disabled=disabled)) == expected


@pytest.mark.parametrize(('node', 'text'), [('a', 'a'), ('a.example.org', 'a'), ('b', 'a (b)')])
def test_names(node, text):
    """A node is named where it is not plain which it is."""
    assert name(a_host('a', nodename=node)) == text
