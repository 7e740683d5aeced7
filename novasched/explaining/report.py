# SPDX-License-Identifier: Apache-2.0
"""A decision for people, on one screen, and for machines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone

import msgspec
from prettytable import PrettyTable

from novasched.recorder.store import DETAILED
from novasched.records import story
from novasched.records.account import STEPS
from novasched.records.causes import Causes
from novasched.records.record import Look, Record, Share, Stage, Weighed

REASONS = 2
"""So many reasons of a filter are told, and so many columns of weighers."""
COLUMNS = 4
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
        report['host'] = {'name': host, 'why': why_not(record, host, causes)}
    return json.dumps(report, indent=2)


def as_text(record: Record, others: int, host: str | None, causes: Causes | None) -> str:
    """The first line, what was asked and offered, and the filters and weighers below it."""
    lines = [story.headline(record)]
    if host:
        lines += [f'{host}: {each}' for each in why_not(record, host, causes)]
        return '\n'.join(lines)
    lines += ['', *(f'{name:<10} {text}' for name, text in _facts(record) if text)]
    look = _told_of(record)
    if look is not None:
        lines += _tables(look)
    if others:
        lines.append(f'There are {others} older decisions; --format json shows this one in full.')
    return '\n'.join(lines)


def why_not(record: Record, host: str, causes: Causes | None) -> list[str]:
    """What there was against a host, or against each of its nodes."""
    chosen = record.result.hosts.count(host)
    said = [f'chosen for {chosen} of {record.asked.count} servers'] if chosen else []
    for look in record.looks:
        said += ['Placement refused the claim'] if host in look.refused else []
        said += ['another request was faster'] if host in look.unfit else []
    found = causes.against(host) if causes else []
    if found or said:
        return [*said, *found]
    if record.offer is None:
        return ['the request was refused before any host was looked at']
    if record.offer.asked and not record.offer.candidates:
        return ['Placement offered no host at all']
    if causes is None:
        return [f'not kept; it is of the newest {DETAILED} decisions alone']
    if record.offer.asked:
        return ['Placement did not offer it, or there is no such host']
    return ['there is no such host']


def _facts(record: Record) -> Iterator[tuple[str, str]]:
    asked, offer = record.asked, record.offer
    when = datetime.fromtimestamp(record.at, timezone.utc)
    yield 'decided', f'{when:%Y-%m-%d %H:%M:%S} UTC, request {record.request_id}'
    yield 'servers', _some(asked.servers)
    yield 'asked', _asked(record)
    yield 'also', '; '.join(_conditions(record))
    if offer and offer.asked:
        known = f' of {offer.total:,}' if offer.total else ''
        away = f'; {offer.elsewhere:,} candidates on hosts that no cell shows'
        text = f'{offer.candidates:,} candidates on {offer.hosts:,}{known} hosts'
        yield 'Placement', text + (away if offer.elsewhere else '')
    if record.inquiry is not None:
        tried, every = record.inquiry.asked, record.inquiry.constraints
        yield 'asked again', f'without each of {tried} of {every} constraints'
    if record.result.refusal is not None:
        yield 'refused', record.result.refusal or '(no reason given to the caller)'
    yield 'chosen', _some(record.result.hosts)
    steps = [f'{name} {record.steps[name] * 1e3:.1f}' for name in STEPS if name in record.steps]
    total = sum(record.steps.values()) * 1e3
    yield 'time', f'{total:.1f} ms: {", ".join(steps)}; seed {record.seed}'


def _asked(record: Record) -> str:
    asked = record.asked
    size = f'{asked.vcpus} vCPUs, {asked.memory_mb} MiB, {asked.disk_gb} GiB'
    specs = ', '.join(f'{key}={value}' for key, value in asked.extra_specs.items())
    return f'{asked.count} x {asked.flavor or "flavor"} ({size}){f"; {specs}" if specs else ""}'


def _conditions(record: Record) -> Iterator[str]:
    asked = record.asked
    if asked.zone:
        yield f'zone {asked.zone}'
    if asked.policy:
        yield f'{asked.policy} group'
    if asked.destination:
        yield f'to {asked.destination}'
    yield from (f'hint {name}={value}' for name, value in asked.hints.items())
    for field in ('ignore_hosts', 'force_hosts', 'force_nodes'):
        if names := getattr(asked, field):
            yield f'{field} {_some(names)}'


def _told_of(record: Record) -> Look | None:
    """The look that decided: the last one of a refusal, else the first."""
    if not record.looks:
        return None
    return record.looks[0 if record.result.hosts else -1]


def _tables(look: Look) -> Iterator[str]:
    if look.in_flight:
        yield f'in flight  to {look.in_flight:,} hosts, taken off'
    if look.refused:
        yield f'claims     refused on {_some(look.refused)}'
    if look.unfit:
        yield f'too late   on {_some(look.unfit)}'
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
        reasons = [f'{cause.hosts:,}: {cause.reason}' for cause in stage.causes[:REASONS]]
        rest = sum(cause.hosts for cause in stage.causes[REASONS:])
        told = [*reasons, f'{rest:,}: other reasons'] if rest else reasons
        table.add_row([stage.name, f'{stage.start:,}', f'{stage.end:,}', '\n'.join(told)])
    return str(table)


def _best(best: Sequence[Weighed]) -> str:
    """The best hosts with the weighers that tell them apart, or else the greatest ones."""
    added: dict[str, list[float]] = {}
    for each in best:
        for share in each.shares:
            added.setdefault(share.weigher, []).append(share.added)
    telling = [name for name, values in added.items() if any(values)]
    names = sorted(telling, key=lambda name: _spread(added[name]), reverse=True)[:COLUMNS]
    table = PrettyTable(('host', 'weight', *names))
    table.align, table.align['host'] = 'r', 'l'
    for each in best:
        shares = {share.weigher: share for share in each.shares}
        cells = [_share(shares[name]) for name in names]
        table.add_row([each.host, f'{each.weight:.4g}', *cells])
    return str(table)


def _share(share: Share) -> str:
    """What a weigher adds; what that was before it was multiplied, and as it came."""
    return f'{share.added:.4g} ({share.normalised:.4g} of {share.raw:g})'


def _spread(values: Sequence[float]) -> tuple[float, float]:
    return max(values) - min(values), max(map(abs, values))


def _some(names: Sequence[str]) -> str:
    shown = ', '.join(names[:3])
    return f'{shown} and {len(names) - 3} others' if len(names) > 3 else shown
