# SPDX-License-Identifier: Apache-2.0
"""What came of the requests that a shadow decided, for people and for machines."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass

from prettytable import PrettyTable

from novasched.shadow.comparison import Difference

WIDTH = 60


@dataclass(frozen=True, slots=True)
class Row:
    """What came of one request: the line that it stands in, or its number among those that
    were heard.

    ``failure`` if it could not be read or decided; ``unknown`` says why it is not compared
    though it was decided. ``untold`` names the parts of the request that nobody told.
    """

    line: int
    hosts: tuple[str, ...] = ()
    compared: bool = False
    difference: Difference | None = None
    failure: str | None = None
    server: str | None = None
    unknown: str | None = None
    untold: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """What came of all requests."""

    rows: Sequence[Row]

    @property
    def counts(self) -> dict[str, int]:
        """How many requests there are, and how many of them are what."""
        compared = sum(row.compared for row in self.rows)
        different = sum(row.compared and row.difference is not None for row in self.rows)
        failed = sum(row.failure is not None for row in self.rows)
        return {
            'requests': len(self.rows),
            'compared': compared,
            'same': compared - different,
            'different': different,
            'unknown': len(self.rows) - compared - failed,
            'failed': failed,
        }

    @property
    def is_same(self) -> bool:
        """Whether everything that can be compared is the same, and nothing failed."""
        counts = self.counts
        return not counts['different'] and not counts['failed']


def as_json(report: Report) -> str:
    """``{"counts": {...}, "requests": [{line, hosts, compared, difference, failure, server,
    unknown, untold}]}``."""
    rows = [dataclasses.asdict(row) for row in report.rows]
    return json.dumps({'counts': report.counts, 'requests': rows}, indent=2)


def as_table(report: Report) -> str:
    """The requests that differ, failed or cannot be compared, and the counts below them."""
    table = PrettyTable(('line', 'server', 'recorded', 'ours', 'why'))
    table.align = 'l'
    table.max_width['why'] = WIDTH
    for row in report.rows:
        why = row.failure or row.unknown
        if row.difference is not None:
            found = row.difference
            cells = [found.server or row.server, found.recorded, found.ours, why or found.why]
            table.add_row([row.line, *cells])
        elif why is not None:
            table.add_row([row.line, row.server or '', '', ' '.join(row.hosts), why])
    counts = ', '.join(f'{number} {name}' for name, number in report.counts.items())
    below = [f'{counts}.', *_untold(report)]
    return '\n'.join([str(table), *below] if table.rows else below)


def _untold(report: Report) -> list[str]:
    """One line for all requests that could not be rebuilt fully."""
    partial = [row for row in report.rows if row.untold]
    if not partial:
        return []
    names = sorted({name for row in partial for name in row.untold})
    which = ', '.join(str(row.line) for row in partial)
    if len(partial) == len(report.rows):
        which = 'all'
    return [f'Not rebuilt fully, since not told: {", ".join(names)} (requests: {which}).']
