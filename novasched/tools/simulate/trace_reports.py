# SPDX-License-Identifier: Apache-2.0
"""Reports of played traces."""

import dataclasses
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from novasched.scheduler.weighers.fragmentation import resource_name
from novasched.scheduler.weighers.usable_capacity import Stranded
from novasched.tools import explain
from novasched.tools.simulate.trace import Moment, Played

DAY_S = 86400
REASONS = 5
"""Maximum number of reasons for refusals in a report."""


def as_json(played: Sequence[Played]) -> str:
    """``{"settings": [{"name", "asked", "refused", "rescued", "moves", "refusals":
    [{"flavor", "reason", "number"}], "moments": [...]}]}``; a moment has the fields of
    :class:`Moment`."""
    results = []
    for each in played:
        moments = []
        for moment in each.moments:
            fields = dataclasses.asdict(moment)
            for amount in fields['stranded'].values():
                by = amount['by']
                amount['by'] = {resource_name(name): part for name, part in by.items()}
            moments.append(fields)
        refusals = []
        for (flavor, reason), number in each.refusals.most_common():
            refusals.append({'flavor': flavor, 'reason': reason, 'number': number})
        results.append(
            {
                'name': each.name,
                'asked': each.asked,
                'refused': each.refused,
                'rescued': each.rescued,
                'moves': each.moves,
                'refusals': refusals,
                'moments': moments,
            }
        )
    return json.dumps({'settings': results}, indent=2)


def as_text(played: Sequence[Played]) -> str:
    """The moments of each configuration, and a comparison at the end of the trace."""
    lines = []
    for each in played:
        lines += [f'{each.name}:', '', _moments(each), '']
    lines += ['At the end:', '', _ends(played)]
    for each in played:
        for (flavor, reason), number in each.refusals.most_common(REASONS):
            lines.append(f'Refused {each.name}: {number:,} {flavor}: {reason}')
    return '\n'.join(lines)


def _moments(played: Played) -> str:
    """A table with a row for each moment."""
    names = [*played.moments[0].in_use]
    columns = ('day', 'servers', 'refused', *(f'{name} in use' for name in names))
    rows = []
    for moment in played.moments:
        shares = []
        for name in names:
            in_use = moment.in_use[name]
            shares.append(f'{in_use:.0%} of {moment.offered[name]:.0%}')
        day = f'{moment.at / DAY_S:.1f}'
        rows.append((day, f'{moment.servers:,}', f'{moment.refused:,}', *shares))
    return explain.table_of(columns, rows)


def _ends(played: Sequence[Played]) -> str:
    """A table with a column for each configuration."""
    table: dict[str, list[str]] = defaultdict(list)
    for each in played:
        table['servers refused'].append(f'{each.refused:,} of {each.asked:,}')
        if any(other.moves for other in played):
            rescued = f'{each.rescued:,} by {each.moves:,} moves'
            table['servers that got room'].append(rescued)
        for label, text in _end(each.moments[-1]):
            table[label].append(text)
    rows = [(label, *cells) for label, cells in table.items()]
    return explain.table_of(('', *(each.name for each in played)), rows)


def _end(moment: Moment) -> Iterator[tuple[str, str]]:
    """Labels and texts of the last moment."""
    for name, share in moment.in_use.items():
        yield f'{name} in use', f'{share:.1%}'
    for name, amount in moment.stranded.items():
        yield f'{name} stranded', _stranded(name, amount)
    for name, number in moment.fitting.items():
        yield f'{name} still fit', f'{number:,}'


def _stranded(name: str, stranded: Stranded) -> str:
    """The amount that no usual guest can use, and the resource that is scarcer."""
    text = f'{stranded.amount:,.0f} of {stranded.free:,.0f} free'
    if stranded.scarcest is None:
        return text
    scarcest = resource_name(stranded.scarcest)
    if scarcest == name:
        return f'{text}, most too little for a server'
    return f'{text}, most for lack of {scarcest}'


def curves(
    played: Sequence[Played],
) -> Mapping[str, Mapping[str, Sequence[tuple[float, float]]]]:
    """By resource and configuration, pairs of the offered share and the share in
    use."""
    found: dict[str, dict[str, list[tuple[float, float]]]] = defaultdict(dict)
    for each in played:
        for name in each.moments[0].in_use:
            points = []
            for moment in each.moments:
                points.append((moment.offered[name], moment.in_use[name]))
            found[name][each.name] = points
    return found
