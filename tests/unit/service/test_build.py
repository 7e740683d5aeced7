# SPDX-License-Identifier: Apache-2.0
"""The end of a scheduler's parts."""

from dataclasses import dataclass
from typing import Any

from novasched.service.build import Application


@dataclass
class Part:
    """A part that notes when it is closed, and how many seconds it may take."""

    name: str
    closed: list[tuple[Any, ...]]

    @property
    def api(self):
        return Part(f'{self.name} api', self.closed)

    def close(self, *seconds):
        self.closed.append((self.name, *seconds))


def test_placement_is_closed_first():
    """The other parts may take all the time that is left, and the instances whose
    allocations stay are to be named before the process is killed. They get half of the
    time for sure."""
    closed: list[tuple[Any, ...]] = []
    parts = {name: Part(name, closed) for name in Application.__slots__}
    Application(**parts).close(50.0)
    assert closed[0] == ('placement', 25.0)
    assert {name for name, *_ in closed} >= {
        'notifier',
        'records',
        'tracing',
        'hosts',
        'main_database',
    }
