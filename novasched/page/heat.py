# SPDX-License-Identifier: Apache-2.0
"""All hosts at a glance: groups of squares, each of which is the hotter the fuller."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from novasched.model.host import Host
from novasched.page.resources import LEVELS, RESOURCES, Amount, Resource, total
from novasched.page.sight import NO_ZONE, UP, Sight, name, state
from novasched.page.wanted import Hosts
from novasched.records.facts import some
from novasched.secrets import hide

SQUARES, ROWS, NUMA_CELLS = 10_000, 200, 8
"""So many are on one page, and so many NUMA cells in a square."""
NO_AGGREGATE = '(no aggregate)'
Entry = tuple[str, Host]
"""The name of a cell, and a host of it."""


@dataclass(frozen=True, slots=True)
class Square:
    """A host in the map: a level for each NUMA cell, or one for all of it."""

    host: str
    levels: tuple[int | None, ...]
    state: str
    text: str


@dataclass(frozen=True, slots=True)
class Group:
    """Hosts that belong together. ``amount`` is that of those servers may go to; ``spread``
    is how many of these are on each level, None for those that have nothing."""

    name: str
    states: Mapping[str, int]
    amount: Amount
    told: str
    spread: Mapping[int | None, int]
    squares: tuple[Square, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """A host in the table."""

    host: str
    name: str
    state: str
    why: str
    cell: str
    zone: str
    aggregates: str
    servers: int
    amounts: tuple[tuple[Amount, str], ...]


@dataclass(frozen=True, slots=True)
class Total:
    """What the hosts that servers may go to have in all."""

    resource: Resource
    amount: Amount

    @property
    def told(self) -> str:
        """What is free."""
        return self.resource.told(self.amount)


@dataclass(frozen=True, slots=True)
class Heat:
    """The page of all hosts; of the parts that are large it has one page."""

    hosts: int
    states: Mapping[str, int]
    servers: int
    totals: tuple[Total, ...]
    groups: tuple[Group, ...]
    rows: tuple[Row, ...]
    pages: int


def view(sight: Sight, wanted: Hosts, zone: str | None) -> Heat:
    """The hosts that are wanted; ``zone`` is that of hosts in none."""
    entries = [(cell.name, host) for cell in sight.cells for host in cell.hosts]
    entries = [each for each in entries if _is_wanted(each[1], wanted)]
    groups = _grouped(entries, _names(wanted.by, zone), wanted.within)
    shown = [*{host.uuid: (cell, host) for each in groups.values() for cell, host in each}.values()]
    resource = RESOURCES[wanted.show]
    key = _order(wanted, resource)
    heads, rows = [], []
    if wanted.form == 'table':
        size, items = ROWS, len(shown)
        shown.sort(key=key)
        rows = [_row(*each, zone) for each in _page(shown, wanted.page, size)]
    else:
        size, items = SQUARES, sum(map(len, groups.values()))
        heads = [*_heads(groups, resource, key, wanted.page)]
    hosts = [host for _, host in shown]
    usable = [host for host in hosts if state(host) == UP]
    return Heat(
        len(hosts),
        Counter(map(state, hosts)),
        sum(host.num_instances for host in hosts),
        tuple(Total(each, total(map(each.of, usable))) for each in RESOURCES.values()),
        tuple(heads),
        tuple(rows),
        max(1, -(-items // size)),
    )


def natural(text: str) -> list[tuple[int, int | str]]:
    """A key by which host2 stands before host10."""
    parts = re.split(r'(\d+)', text)
    return [(0, int(each)) if each.isdecimal() else (1, each) for each in parts]


def _is_wanted(host: Host, wanted: Hosts) -> bool:
    if wanted.state not in ('all', state(host)):
        return False
    return not wanted.name or wanted.name.lower() in name(host).lower()


def _names(by: str, zone: str | None) -> Callable[[Entry], Sequence[str]]:
    """Which groups a host is in."""
    if by == 'zone':
        return lambda entry: [entry[1].zone(zone) or NO_ZONE]
    if by == 'aggregate':
        return lambda entry: [x.name for x in entry[1].aggregates] or [NO_AGGREGATE]
    return lambda entry: [entry[0]]


def _grouped(
    entries: Sequence[Entry], names: Callable[[Entry], Sequence[str]], within: str
) -> Mapping[str, list[Entry]]:
    groups: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        for group in names(entry):
            if within in ('', group):
                groups[group].append(entry)
    return {group: groups[group] for group in sorted(groups, key=natural)}


def _order(wanted: Hosts, resource: Resource) -> Callable[[Entry], Any]:
    if wanted.order == 'name':
        return lambda entry: natural(name(entry[1]))
    return lambda entry: (-(resource.of(entry[1]).share or 0.0), natural(name(entry[1])))


def _page(items: Sequence[Entry], page: int, size: int) -> Sequence[Entry]:
    return items[(page - 1) * size : page * size]


def _heads(
    groups: Mapping[str, list[Entry]],
    resource: Resource,
    key: Callable[[Entry], Any],
    page: int,
) -> Iterator[Group]:
    """The groups of which this page has squares, in their order."""
    skipped, left = (page - 1) * SQUARES, SQUARES
    for group, entries in groups.items():
        if skipped >= len(entries):
            skipped -= len(entries)
            continue
        if not left:
            return
        shown = [*islice(sorted(entries, key=key), skipped, skipped + left)]
        skipped, left = 0, left - len(shown)
        hosts = [host for _, host in entries]
        amounts = [resource.of(host) for host in hosts if state(host) == UP]
        whole = total(amounts)
        yield Group(
            group,
            Counter(map(state, hosts)),
            whole,
            resource.told(whole),
            Counter(each.level for each in amounts),
            tuple([_square(host, resource) for _, host in shown]),
        )


def _square(host: Host, resource: Resource) -> Square:
    parts, now = resource.parts(host), state(host)
    told = resource.told(total(parts))
    if len(parts) > 1:
        each = ', '.join(f'{part.free:.0f}/{part.limit:.0f}' for part in parts[:NUMA_CELLS])
        told = f'{told}, by NUMA cell {each}'
    levels = tuple(part.level for part in parts[:NUMA_CELLS]) or (None,)
    words = '' if now == UP else f', {now}'
    return Square(host.host, levels, now, f'{name(host)}{words}: {told}')


def _row(cell: str, host: Host, zone: str | None) -> Row:
    return Row(
        host.host,
        name(host),
        state(host),
        hide(host.service.disabled_reason or '') if host.service.disabled else '',
        cell,
        host.zone(zone) or NO_ZONE,
        some([each.name for each in host.aggregates]),
        host.num_instances,
        tuple(_cell(each, host) for each in RESOURCES.values()),
    )


def _cell(resource: Resource, host: Host) -> tuple[Amount, str]:
    amount = resource.of(host)
    return amount, resource.told(amount).removesuffix(' free')


def bars(spread: Mapping[int | None, int]) -> Sequence[tuple[int, int, float, float]]:
    """The levels as one bar of 100: level, hosts, where its part begins, and how wide it is."""
    whole = sum(spread.values())
    parts, start = [], 0.0
    for level in range(LEVELS):
        if hosts := spread.get(level, 0):
            width = 100 * hosts / whole
            parts.append((level, hosts, round(start, 2), round(width, 2)))
            start += width
    return parts
