# SPDX-License-Identifier: Apache-2.0
"""What a host cell lacks for a guest cell."""

from __future__ import annotations

from typing import NamedTuple


class Lack(NamedTuple):
    """A resource, and how much of it is missing; None where no amount would help."""

    what: str
    amount: int | None = None


def told(lacks: list[tuple[int, Lack]]) -> str:
    """What host cells lack, given as (id, lack), in one line: those that lack the same stand
    together with the least amount, which is what would have to be freed."""
    alike: dict[str, list[tuple[int, Lack]]] = {}
    for each in lacks:
        alike.setdefault(each[1].what, []).append(each)
    return '; '.join(_told(what, group) for what, group in alike.items())


def _told(what: str, group: list[tuple[int, Lack]]) -> str:
    cells = ', '.join(str(cell) for cell, _ in group)
    subject = f'host cell {cells} lacks' if len(group) == 1 else f'host cells {cells} lack'
    amounts = [lack.amount for _, lack in group if lack.amount is not None]
    if not amounts:
        return f'{subject} {what}'
    least = 'at least ' if len(set(amounts)) > 1 else ''
    return f'{subject} {least}{min(amounts)} {what}'
