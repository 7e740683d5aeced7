# SPDX-License-Identifier: Apache-2.0
"""The end of the parts of a scheduler."""

from dataclasses import dataclass
from typing import Any

from novasched.service.build import Application


@dataclass
class Part:
    """A part that records the order of closing, and the given seconds."""

    name: str
    closed: list[tuple[Any, ...]]

    @property
    def api(self):
        return Part(f'{self.name} api', self.closed)

    def close(self, *seconds):
        self.closed.append((self.name, *seconds))


def test_placement_is_closed_first():
    """Placement gets half of the time, before parts that may take all the time: the
    instances with remaining allocations must be logged before the process is
    killed."""
    closed: list[tuple[Any, ...]] = []
    parts = {name: Part(name, closed) for name in Application.__slots__}

    Application(**parts).close(50.0)

    assert closed[0] == ('placement', 25.0)
    names = {name for name, *_ in closed}
    assert names >= {'notifier', 'records', 'tracing', 'hosts', 'main_database'}
