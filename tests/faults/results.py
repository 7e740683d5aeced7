# SPDX-License-Identifier: Apache-2.0
"""A line of the table for each fault."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.perf.tables import Sheet

from .fault import Outcome

COLUMNS = (
    'fault', 'schedulers', 'sent', 'answered', 'refused', 'gone with the broker', 'lost',
    'allocations left over', 'seconds to recover',
)  # fmt: skip


@dataclass(frozen=True)
class Result:
    """What became of the requests under a fault."""

    fault: str
    schedulers: str
    outcome: Outcome

    def texts(self) -> list[str]:
        """As a table takes it."""
        of = self.outcome
        counts = (of.sent, of.answered, of.refused, of.gone, of.lost, of.left_over)
        recovery = 'never' if of.recovery is None else f'{of.recovery:.1f}'
        return [self.fault, self.schedulers, *(f'{each:,}' for each in counts), recovery]


def sheet(results: Sequence[Result]) -> Sheet:
    """The table."""
    return Sheet('Faults', COLUMNS, [each.texts() for each in results], words=2)
