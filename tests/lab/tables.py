# SPDX-License-Identifier: Apache-2.0
"""Tables of measurements for terminals and for the documentation, and the options of the
commands that print tables."""

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

MET = 'met'
MISSED = 'MISSED'
WIDTH = 130  # characters of a table that goes into a file


@dataclass(frozen=True)
class Sheet:
    """A table of texts.

    :ivar words: number of columns at the left that are not numbers.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 1


def verdict(met):
    if met:
        return MET
    return MISSED


def show(sheets):
    """Print tables."""
    width = None
    if not sys.stdout.isatty():
        width = WIDTH
    console = Console(width=width)
    for sheet in sheets:
        table = Table(
            title=sheet.title, box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False
        )
        for number, column in enumerate(sheet.columns):
            are_numbers = all(row[number][:1].isdigit() for row in sheet.rows)
            is_last = number == len(sheet.columns) - 1
            if number < sheet.words or (is_last and not are_numbers):
                table.add_column(column, justify='left')
            else:
                table.add_column(column, justify='right')
        for row in sheet.rows:
            table.add_row(*map(Text, row))
        console.print(table)
        console.print()


def add_outputs(parser):
    """Add the options of :func:`publish`."""
    parser.add_argument('--rst', type=Path, help='where to write the tables')
    parser.add_argument('--json', type=Path, help='where to write the figures')


def teller():
    """A function that prints a text with the seconds since now to standard error."""
    begun = time.monotonic()

    def tell(what):
        print(f'{time.monotonic() - begun:6.1f} s  {what}', file=sys.stderr, flush=True)

    return tell


def publish(chosen, sheets, figures):
    """Print tables, and write tables and figures into the files of the options."""
    show(sheets)
    if chosen.rst:
        chosen.rst.write_text(rst(sheets))
    if chosen.json:
        chosen.json.write_text(
            json.dumps({'machine': machine(), **figures}, indent=2) + '\n'
        )


def numbers(text):
    """The value of an option with comma-separated numbers."""
    return sorted(map(int, text.split(',')))


def among(known):
    """The type of an option with comma-separated words.

    :param known: the allowed words.
    """

    def read(text):
        words = text.split(',')
        if unknown := set(words) - set(known):
            raise argparse.ArgumentTypeError(
                f'{", ".join(unknown)}: not in {", ".join(known)}'
            )
        return words

    return read


def rst(sheets):
    """The tables as reStructuredText, with the day and the machine."""
    lines = [f'Measured on {machine()}.', '']
    for sheet in sheets:
        lines += [f'.. list-table:: {sheet.title}', '   :header-rows: 1', '']
        for row in (sheet.columns, *sheet.rows):
            mark = '   * - '
            for text in row:
                if '\n' in text:
                    # A line block keeps the lines of a cell.
                    text = '| ' + text.replace('\n', '\n       | ')
                lines.append((mark + text).rstrip())
                mark = '     - '
        lines.append('')
    return '\n'.join(lines)


def machine():
    day = time.strftime('%Y-%m-%d', time.gmtime())
    load = os.getloadavg()[0]
    return (
        f'{day}, {os.cpu_count()} processors, {platform.system()} {platform.machine()}, '
        f'Python {platform.python_version()}, load {load:.1f} at the end'
    )
