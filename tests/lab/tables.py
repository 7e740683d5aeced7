# SPDX-License-Identifier: Apache-2.0
"""Tables of what was measured: for a terminal, and for the documentation."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

MET, MISSED = 'met', 'MISSED'
WIDTH = 130  # characters of a table that goes into a file
STYLES = {MET: 'green', MISSED: 'bold red'}


@dataclass(frozen=True)
class Sheet:
    """Lines of texts under titles; the first ``words`` columns are no numbers. A text of
    several lines has one for each."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 1


def verdict(met: bool) -> str:
    return MET if met else MISSED


def show(sheets: Iterable[Sheet]) -> None:
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    for sheet in sheets:
        table = Table(title=sheet.title, box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
        for number, column in enumerate(sheet.columns):
            is_last = number == len(sheet.columns) - 1 and not _is_number(sheet, number)
            left = number < sheet.words or is_last
            table.add_column(column, justify='left' if left else 'right')
        for row in sheet.rows:
            table.add_row(*map(_coloured, row))
        console.print(table)
        console.print()


def rst(sheets: Iterable[Sheet]) -> str:
    """The tables as reStructuredText, with the day and the machine."""
    lines = [f'Measured on {machine()}.', '']
    for sheet in sheets:
        lines += [f'.. list-table:: {sheet.title}', '   :header-rows: 1', '']
        for row in (sheet.columns, *sheet.rows):
            for number, text in enumerate(row):
                mark = '   * - ' if number == 0 else '     - '
                cell = ''.join(f'| {each}\n       ' for each in text.split('\n')).rstrip()
                lines.append((mark + (cell if '\n' in text else text)).rstrip())
        lines.append('')
    return '\n'.join(lines)


def machine() -> str:
    day = time.strftime('%Y-%m-%d', time.gmtime())
    load = os.getloadavg()[0]
    return (
        f'{day}, {os.cpu_count()} processors, {platform.system()} {platform.machine()}, '
        f'Python {platform.python_version()}, load {load:.1f} at the end'
    )


def _is_number(sheet: Sheet, column: int) -> bool:
    return all(row[column][:1].isdigit() for row in sheet.rows)


def _coloured(text: str) -> Text:
    coloured = Text(text)
    for word, style in STYLES.items():
        coloured.highlight_words([word], style)
    return coloured
