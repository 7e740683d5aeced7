# SPDX-License-Identifier: Apache-2.0
"""A decision for people, on one screen, and for machines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import msgspec
from prettytable import PrettyTable

from novasched.records import facts, story
from novasched.records.causes import Causes
from novasched.records.record import Look, Record, Stage, Weighed

COLUMNS = 4
"""So many columns of weighers are told, and so many hosts."""
ROWS = 5
WIDTH = 60


def as_json(record: Record, others: int, host: str | None, causes: Causes | None) -> str:
    """``{"headline", "counts", "others", "record", "host"}``: the last is why not that host."""
    report = {
        'headline': story.headline(record),
        'counts': dict(story.tally(record)),
        'others': others,
        'record': msgspec.to_builtins(record),
    }
    if host:
        report['host'] = {'name': host, 'why': facts.why_not(record, host, causes)}
    return json.dumps(report, indent=2)


def as_text(record: Record, others: int, host: str | None, causes: Causes | None) -> str:
    """The first line, what was asked and offered, and the filters and weighers below it."""
    lines = [story.headline(record)]
    if host:
        lines += [f'{host}: {each}' for each in facts.why_not(record, host, causes)]
        return '\n'.join(lines)
    lines += ['', *(f'{name:<10} {text}' for name, text in facts.of(record) if text)]
    look = facts.told_of(record)
    if look is not None:
        lines += _tables(look)
    if others:
        lines.append(f'There are {others} older decisions; --format json shows this one in full.')
    return '\n'.join(lines)


def _tables(look: Look) -> Iterator[str]:
    yield from (f'{name:<10} {text}' for name, text in facts.troubles(look))
    dropping = [stage for stage in look.stages if stage.causes]
    idle = [stage.name for stage in look.stages if not stage.causes]
    if dropping:
        yield _stages(dropping)
    if idle:
        yield f'None dropped by {", ".join(idle)}.'
    if look.best:
        yield _best(look.best[:ROWS])


def _stages(stages: Sequence[Stage]) -> str:
    table = PrettyTable(('filter', 'in', 'out', 'why not'))
    table.align, table.align['in'], table.align['out'] = 'l', 'r', 'r'
    table.max_width['why not'] = WIDTH
    for stage in stages:
        told = '\n'.join(facts.reasons(stage))
        table.add_row([stage.name, f'{stage.start:,}', f'{stage.end:,}', told])
    return str(table)


def _best(best: Sequence[Weighed]) -> str:
    """The best hosts with the weighers that tell them apart, or else the greatest ones."""
    names = facts.telling(best)[:COLUMNS]
    table = PrettyTable(('host', 'weight', *names))
    table.align, table.align['host'] = 'r', 'l'
    for each in best:
        table.add_row([each.host, *facts.weighed(each, names)])
    return str(table)
