# SPDX-License-Identifier: Apache-2.0
"""What came of a simulation, for people and for machines."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import msgspec
from prettytable import PrettyTable

from novasched.explaining import report as explained
from novasched.records.causes import Causes
from novasched.records.record import Record
from novasched.simulating.filling import Filled
from novasched.simulating.measures import Spread, Use
from novasched.simulating.replaying import Run
from novasched.simulating.sources import Entries

ROWS, REASONS = 10, 5
"""So many hosts are shown, and so many reasons of refusals."""


def decided_as_json(record: Record, host: str | None, causes: Causes | None) -> str:
    """As ``explain``."""
    return explained.as_json(record, 0, host, causes)


def decided_as_text(record: Record, host: str | None, causes: Causes | None) -> str:
    """As ``explain``; of several servers each host, too."""
    text = explained.as_text(record, 0, host, causes)
    counts = Counter(record.result.hosts)
    if host or counts.total() < 2:
        return text
    table = _table(('host', 'servers'))
    for name, number in counts.most_common():
        table.add_row([name, f'{number:,}'])
    return f'{text}\n{table}'


def filled_as_json(filled: Filled, name: str) -> str:
    """``{"flavor", "fit", "placed": {host: servers}, "stopped_by", "beyond", "full",
    "spread", "refusal"}``; the last is the record of the decision that refused one."""
    report = {
        'flavor': name,
        'fit': filled.fit,
        'placed': filled.placed,
        'stopped_by': filled.headline,
        'beyond': filled.beyond,
        'full': dict(filled.full),
        'spread': dataclasses.asdict(filled.spread),
        'refusal': filled.refusal and msgspec.to_builtins(filled.refusal),
    }
    return json.dumps(report, indent=2)


def filled_as_text(filled: Filled, name: str) -> str:
    """How many fit, on which hosts, and why no more do."""
    hosts = len(filled.placed)
    where = f', on {hosts:,} of {filled.spread.hosts:,} hosts' if hosts else ''
    least = '' if filled.refusal else 'at least '
    lines = [f'{least}{filled.fit:,} more {name} fit{where}']
    if filled.placed:
        lines += ['', *_placed(filled)]
    if filled.refusal is None:
        return '\n'.join([*lines, '', 'No more were tried.'])
    lines += ['', f'Then: {explained.as_text(filled.refusal, 0, None, None)}']
    for lacks, number in filled.full.items():
        lines.append(f'Full by then: {number:,} candidates lack {lacks}.')
    if filled.beyond:
        lines.append(
            f'{filled.beyond:,} more candidates were beyond [scheduler] max_placement_results. '
            'Placement picks which; the number may be another one.'
        )
    return '\n'.join(lines)


def _placed(filled: Filled) -> list[str]:
    before = {use.host: use for use in filled.before}
    after = {use.host: use for use in filled.after}
    table = _table(('host', 'servers', 'memory before', 'memory after'))
    for host, number in list(filled.placed.items())[:ROWS]:
        shares = _share(before.get(host)), _share(after.get(host))
        table.add_row([host, f'+{number:,}', *shares])
    rest = len(filled.placed) - ROWS
    more = [f'and {rest:,} other hosts'] if rest > 0 else []
    found = filled.spread
    return [
        str(table),
        *more,
        f'Standard deviation over all hosts: {found.servers_deviation:.2f} servers, '
        f'{found.ram_deviation_mb:,.0f} MiB; empty hosts: {found.empty:,}.',
    ]


def replayed_as_json(runs: Sequence[Run], entries: Entries, probe: str | None) -> str:
    """``{"requests", "skipped", "unread", "runs": [{name, placed, refused, refusals, spread,
    probe, answers}], "elsewhere"}``."""
    report = {
        'requests': len(entries.found),
        'skipped': dict(entries.skipped),
        'unread': list(entries.unread),
        'probe': probe,
        'elsewhere': _elsewhere(runs),
        'runs': [
            {
                'name': each.name,
                'servers': each.servers,
                'refused': each.refused,
                'refusals': dict(each.refusals.most_common()),
                'spread': dataclasses.asdict(each.spread),
                'probe': each.probe,
                'answers': each.answers,
            }
            for each in runs
        ],
    }
    return json.dumps(report, indent=2)


def replayed_as_text(runs: Sequence[Run], entries: Entries, probe: str | None) -> str:
    """The runs side by side, and what they refused below."""
    table = _table((f'of {len(entries.found):,} requests', *(each.name for each in runs)))
    for label, cell in LINES.items():
        table.add_row([label, *(cell(each) for each in runs)])
    if probe:
        table.add_row([f'{probe} that fit then', *(f'{each.probe or 0:,}' for each in runs)])
    lines = [str(table)]
    if len(runs) > 1:
        lines.append(f'{_elsewhere(runs):,} requests get other hosts.')
    for each in runs:
        for reason, number in each.refusals.most_common(REASONS):
            lines.append(f'Refused {each.name}: {number:,}: {reason}')
    lines += [f'Skipped: {number:,}: {why}' for why, number in entries.skipped.most_common()]
    lines += [f'Not read: {why}' for why in entries.unread[:REASONS]]
    return '\n'.join(lines)


def _of_spread(text: Callable[[Spread], str]) -> Callable[[Run], str]:
    return lambda run: text(run.spread)


LINES: Mapping[str, Callable[[Run], str]] = {
    'servers placed': lambda run: f'{run.servers:,}',
    'requests refused': lambda run: f'{run.refused:,}',
    'hosts touched': _of_spread(lambda found: f'{found.touched:,} of {found.hosts:,}'),
    'empty hosts left': _of_spread(lambda found: f'{found.empty:,}'),
    'deviation of servers': _of_spread(lambda found: f'{found.servers_deviation:.2f}'),
    'deviation of used memory': _of_spread(lambda found: f'{found.ram_deviation_mb:,.0f} MiB'),
    'fullest host': _of_spread(lambda found: f'{found.fullest} ({found.fullest_share:.0%})'),
}


def _elsewhere(runs: Sequence[Run]) -> int:
    """How many requests the first and the last run answer differently."""
    pairs = zip(runs[0].answers, runs[-1].answers, strict=True)
    return sum(Counter(one) != Counter(other) for one, other in pairs)


def _share(use: Use | None) -> str:
    return f'{use.share:.0%}' if use else ''


def _table(names: Sequence[str]) -> PrettyTable:
    table = PrettyTable(names)
    table.align, table.align[names[0]] = 'r', 'l'
    return table
