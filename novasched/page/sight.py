# SPDX-License-Identifier: Apache-2.0
"""What is known of all hosts, and how old that is."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from novasched.model.host import Host

UP, DOWN, DISABLED = 'up', 'down', 'disabled'
STATES = (UP, DOWN, DISABLED)
NO_ZONE = '(no zone)'


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell's hosts as they were so many seconds ago; None where it has never answered."""

    name: str
    hosts: Collection[Host] = ()
    age: float | None = None
    answers: bool = True


@dataclass(frozen=True, slots=True)
class Sight:
    """All cells. ``failure`` is why they cannot be looked at, ``stale`` that zones and
    aggregates are as they were."""

    cells: tuple[Cell, ...] = ()
    failure: str | None = None
    stale: bool = False

    @property
    def known(self) -> bool:
        """Whether any cell has ever answered, or there is none."""
        ages = [cell.age for cell in self.cells]
        return any(age is not None for age in ages) or not (ages or self.failure)

    @property
    def age(self) -> str:
        """The age of what is shown of the cells that answer."""
        known = [cell.age for cell in self.cells if cell.age is not None]
        return ago(min(known)) if known else ''

    def warnings(self) -> Iterator[str]:
        """What a reader must know before believing the rest."""
        if self.failure:
            yield self.failure
        for cell in self.cells:
            if not cell.answers and cell.age is None:
                yield f'Cell {cell.name} does not answer; its hosts are not shown.'
            elif (not cell.answers or self.failure) and cell.age is not None:
                how = f'hosts are shown as they were {ago(cell.age)}'
                yield f'Cell {cell.name}{"" if cell.answers else " does not answer"}: its {how}.'
        if self.stale:
            yield 'The API database does not answer: zones and aggregates are shown as they were.'


def ago(seconds: float) -> str:
    """A time that has passed."""
    for size, unit in ((86400, 'd'), (3600, 'h'), (60, 'min')):
        if seconds >= 2 * size:
            return f'{seconds // size:.0f} {unit} ago'
    return f'{max(seconds, 0):.0f} s ago'


def state(host: Host) -> str:
    """Whether servers may go there; of one that is down nothing else counts."""
    if not host.service.up:
        return DOWN
    return DISABLED if host.service.disabled else UP


def name(host: Host) -> str:
    """A host, and the node if that has another name."""
    same = host.host.partition('.')[0] == host.nodename.partition('.')[0]
    return host.host if same else f'{host.host} ({host.nodename})'
