# SPDX-License-Identifier: Apache-2.0
"""Results of a simulation, for people and for machines."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Sequence

import msgspec
from prettytable import PrettyTable

from novasched.observe.records import render
from novasched.observe.records.record import Record, Rejections
from novasched.tools import explain
from novasched.tools.simulate.runs import Filled, Run
from novasched.tools.simulate.sources import Entries

ROWS, REASONS = 10, 5
"""Numbers of hosts and of reasons for refusals that are shown."""


def decided_as_text(record: Record, host: str | None, rejections: Rejections | None) -> str:
    """As ``explain``; the hosts of several instances, too."""
    text = explain.as_text(record, 0, host, rejections)
    counts = Counter(record.result.hosts)
    if host or counts.total() < 2:
        return text
    table = _table(('host', 'servers'))
    for name, number in counts.most_common():
        table.add_row([name, f'{number:,}'])
    return f'{text}\n{table}'


def filled_as_json(filled: Filled, name: str) -> str:
    """``{"flavor", "fit", "placed": {host: number}, "stopped_by", "beyond", "full",
    "spread", "refusal"}``; the last is the record of the decision that refused one."""
    refused, refusal = filled.refused, filled.refusal
    report = {
        'flavor': name,
        'fit': filled.fit,
        'placed': filled.placed,
        'stopped_by': refusal and render.headline(refusal),
        'beyond': refused.beyond if refused else 0,
        'full': dict(refused.full) if refused else {},
        'spread': dataclasses.asdict(filled.spread),
        'refusal': refusal and msgspec.to_builtins(refusal),
    }
    return json.dumps(report, indent=2)


def filled_as_text(filled: Filled, name: str) -> str:
    """The number that fit, their hosts, and the reason against more."""
    hosts, refused, refusal = len(filled.placed), filled.refused, filled.refusal
    where = f', on {hosts:,} of {filled.spread.hosts:,} hosts' if hosts else ''
    least = '' if refused else 'at least '
    lines = [f'{least}{filled.fit:,} more {name} fit{where}', '']
    if hosts:
        lines += [*_placed(filled), '']
    if refused is None or refusal is None:
        return '\n'.join([*lines, 'No more were tried.'])
    lines.append(f'Then: {explain.as_text(refusal, 0, None, None)}')
    for lacks, number in refused.full.items():
        lines.append(f'Full by then: {number:,} candidates lack {lacks}.')
    if refused.beyond:
        lines.append(
            f'{refused.beyond:,} more candidates were beyond [scheduler] max_placement_results. '
            'Placement picks which; the number may be another one.'
        )
    return '\n'.join(lines)


def _placed(filled: Filled) -> list[str]:
    before = {use.host: f'{use.share:.0%}' for use in filled.before}
    after = {use.host: f'{use.share:.0%}' for use in filled.after}
    table = _table(('host', 'servers', 'memory before', 'memory after'))
    for host, number in list(filled.placed.items())[:ROWS]:
        table.add_row([host, f'+{number:,}', before.get(host, ''), after.get(host, '')])
    rest = len(filled.placed) - ROWS
    found = filled.spread
    return [
        str(table),
        *([f'and {rest:,} other hosts'] if rest > 0 else []),
        f'Standard deviation over all hosts: {found.servers_deviation:.2f} servers, '
        f'{found.ram_deviation_mb:,.0f} MiB; empty hosts: {found.empty:,}.',
    ]


def replayed_as_json(runs: Sequence[Run], entries: Entries, probe: str | None) -> str:
    """``{"requests", "skipped", "unread", "runs": [{name, placed, refused, refusals, spread,
    probe, answers}], "elsewhere"}``."""
    report = {
        'requests': len(entries.requests),
        'skipped': dict(entries.skipped),
        'unread': list(entries.unread),
        'probe': probe,
        'elsewhere': _elsewhere(runs),
        'runs': [
            {
                'name': each.name,
                'servers': each.servers,
                'refused': each.refusals.total(),
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
    table = _table((f'of {len(entries.requests):,} requests', *(each.name for each in runs)))
    spreads = [each.spread for each in runs]
    rows = {
        'servers placed': [f'{each.servers:,}' for each in runs],
        'requests refused': [f'{each.refusals.total():,}' for each in runs],
        'hosts touched': [f'{each.touched:,} of {each.hosts:,}' for each in spreads],
        'empty hosts left': [f'{each.empty:,}' for each in spreads],
        'deviation of servers': [f'{each.servers_deviation:.2f}' for each in spreads],
        'deviation of used memory': [f'{each.ram_deviation_mb:,.0f} MiB' for each in spreads],
        'fullest host': [f'{each.fullest} ({each.fullest_share:.0%})' for each in spreads],
    }
    if probe:
        rows[f'{probe} that fit then'] = [f'{each.probe or 0:,}' for each in runs]
    for label, cells in rows.items():
        table.add_row([label, *cells])
    lines = [str(table)]
    if len(runs) > 1:
        lines.append(f'{_elsewhere(runs):,} requests get other hosts.')
    for each in runs:
        for reason, number in each.refusals.most_common(REASONS):
            lines.append(f'Refused {each.name}: {number:,}: {reason}')
    lines += [f'Skipped: {number:,}: {why}' for why, number in entries.skipped.most_common()]
    lines += [f'Not read: {why}' for why in entries.unread[:REASONS]]
    return '\n'.join(lines)


def _elsewhere(runs: Sequence[Run]) -> int:
    """The number of requests that the first and the last run answer differently."""
    pairs = zip(runs[0].answers, runs[-1].answers, strict=True)
    return sum(Counter(one) != Counter(other) for one, other in pairs)


def _table(names: Sequence[str]) -> PrettyTable:
    table = PrettyTable(names)
    table.align, table.align[names[0]] = 'r', 'l'
    return table
