# SPDX-License-Identifier: Apache-2.0
"""The page of hosts: a heatmap with a tile for each host, or a table."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from novasched.observe.page.hosts import (
    LEVELS,
    NO_ZONE,
    RESOURCES,
    UP,
    Amount,
    HostsView,
    Resource,
    name_of,
    state,
    total,
)
from novasched.observe.page.query import HostsQuery
from novasched.scheduler.model.host import Host

TILES_PER_PAGE, ROWS_PER_PAGE, NUMA_CELLS_PER_TILE = 10_000, 200, 8
NO_AGGREGATE = '(no aggregate)'
Entry = tuple[str, Host]
"""The name of a cell, and a host in it."""


@dataclass(frozen=True, slots=True)
class Tile:
    """A host in the map, with a level for each NUMA cell, or one level."""

    host: str
    levels: tuple[int | None, ...]
    state: str
    text: str


@dataclass(frozen=True, slots=True)
class HostGroup:
    """Hosts of a cell, zone or aggregate.

    :ivar amount: the sum of the hosts that are up and enabled.
    :ivar spread: the number of these by level, which is None where the limit is 0.
    """

    name: str
    states: Mapping[str, int]
    amount: Amount
    text: str
    spread: Mapping[int | None, int]
    tiles: tuple[Tile, ...]


@dataclass(frozen=True, slots=True)
class Heatmap:
    """The hosts of a query. Groups and rows, which are those of the table, are of its page.

    :ivar totals: the sum of each resource of the hosts that are up and enabled.
    """

    hosts: int
    states: Mapping[str, int]
    servers: int
    totals: tuple[tuple[Resource, Amount], ...]
    groups: tuple[HostGroup, ...]
    rows: Sequence[Entry]
    pages: int


def view(hosts_view: HostsView, query: HostsQuery, zone: str | None) -> Heatmap:
    """The heatmap of a query.

    :param zone: the availability zone of hosts in none.
    """
    entries = [(cell.name, host) for cell in hosts_view.cells for host in cell.hosts]
    entries = [each for each in entries if _matches(each[1], query)]
    groups = _grouped(entries, _names(query.by, zone), query.within)
    shown = [*{host.uuid: (cell, host) for each in groups.values() for cell, host in each}.values()]
    resource = RESOURCES[query.show]
    key = _order(query, resource)
    heads: list[HostGroup] = []
    rows: list[Entry] = []
    if query.form == 'table':
        size, items = ROWS_PER_PAGE, len(shown)
        shown.sort(key=key)
        rows = shown[(query.page - 1) * size : query.page * size]
    else:
        size, items = TILES_PER_PAGE, sum(map(len, groups.values()))
        heads = [*_heads(groups, resource, key, query.page)]
    hosts = [host for _, host in shown]
    usable = [host for host in hosts if state(host) == UP]
    return Heatmap(
        len(hosts),
        Counter(map(state, hosts)),
        sum(host.num_instances for host in hosts),
        tuple((each, total(map(each.of, usable))) for each in RESOURCES.values()),
        tuple(heads),
        rows,
        max(1, -(-items // size)),
    )


def natural(text: str) -> list[tuple[int, int | str]]:
    """A sort key by which host2 comes before host10."""
    parts = re.split(r'(\d+)', text)
    return [(0, int(each)) if each.isdecimal() else (1, each) for each in parts]


def _matches(host: Host, query: HostsQuery) -> bool:
    if query.state not in ('all', state(host)):
        return False
    return not query.name or query.name.lower() in name_of(host).lower()


def _names(by: str, zone: str | None) -> Callable[[Entry], Sequence[str]]:
    """A function that returns the names of a host's groups."""
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


def _order(query: HostsQuery, resource: Resource) -> Callable[[Entry], Any]:
    if query.order == 'name':
        return lambda entry: natural(name_of(entry[1]))
    return lambda entry: (-(resource.of(entry[1]).share or 0.0), natural(name_of(entry[1])))


def _heads(
    groups: Mapping[str, list[Entry]],
    resource: Resource,
    key: Callable[[Entry], Any],
    page: int,
) -> Iterator[HostGroup]:
    """The groups with tiles on this page, in order."""
    skipped, left = (page - 1) * TILES_PER_PAGE, TILES_PER_PAGE
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
        yield HostGroup(
            group,
            Counter(map(state, hosts)),
            whole,
            resource.describe(whole),
            Counter(each.level for each in amounts),
            tuple([_tile(host, resource) for _, host in shown]),
        )


def _tile(host: Host, resource: Resource) -> Tile:
    parts, now = resource.parts(host), state(host)
    told = resource.describe(total(parts))
    if len(parts) > 1:
        each = ', '.join(
            f'{part.free:.0f}/{part.limit:.0f}' for part in parts[:NUMA_CELLS_PER_TILE]
        )
        told = f'{told}, by NUMA cell {each}'
    levels = tuple(part.level for part in parts[:NUMA_CELLS_PER_TILE]) or (None,)
    words = '' if now == UP else f', {now}'
    return Tile(host.host, levels, now, f'{name_of(host)}{words}: {told}')


def bars(spread: Mapping[int | None, int]) -> Sequence[tuple[int, int, float, float]]:
    """The levels as parts of a bar of length 100: level, hosts, start and width."""
    whole = sum(spread.values())
    parts, start = [], 0.0
    for level in range(LEVELS):
        if hosts := spread.get(level, 0):
            width = 100 * hosts / whole
            parts.append((level, hosts, round(start, 2), round(width, 2)))
            start += width
    return parts
