# SPDX-License-Identifier: Apache-2.0
"""Hosts of all cells at one moment, their resources, and the heatmap or table of them."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from novasched.conf.redaction import redact
from novasched.observe.page.query import HostsQuery
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.numa import HostCell

MAX_PAGE_SIZES = 8
"""Page sizes of a NUMA cell that are shown."""
TILES_PER_PAGE, ROWS_PER_PAGE, NUMA_CELLS_PER_TILE = 10_000, 200, 8
LEVELS = 10
UNITS = ('MiB', 'GiB', 'TiB', 'PiB')


@dataclass(frozen=True, slots=True)
class Amount:
    """The used part of a limit, which includes overcommitment."""

    used: float = 0.0
    limit: float = 0.0

    @property
    def free(self) -> float:
        """The free part; negative if more is used than the limit."""
        return self.limit - self.used

    @property
    def share(self) -> float | None:
        """The used part as a fraction; None if the limit is 0."""
        return self.used / self.limit if self.limit > 0 else None

    @property
    def level(self) -> int | None:
        """The used part in tenths, from 0 to 9; None if the limit is 0."""
        share = self.share
        return None if share is None else int(min(max(share * LEVELS, 0), LEVELS - 1))

    @property
    def percent(self) -> int:
        """The used part as the length of a bar, from 0 to 100."""
        return int(min(max((self.share or 0.0) * 100, 0), 100))


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource of hosts. ``parts`` are the amounts of a host's NUMA cells where it has
    them, else its one amount; ``describe`` says in words how much is free; ``ratio`` is the
    attribute that has the allocation ratio, if there is one."""

    name: str
    title: str
    parts: Callable[[Host], Sequence[Amount]]
    describe: Callable[[Amount], str]
    ratio: str = ''

    def of(self, host: Host) -> Amount:
        return total(self.parts(host))


def total(amounts: Iterable[Amount]) -> Amount:
    used = limit = 0.0
    for each in amounts:
        used, limit = used + each.used, limit + each.limit
    return Amount(used, limit)


def describe_size(amount: Amount) -> str:
    """The free part of an amount in MiB, in words."""
    size, power = abs(amount.limit), 0
    while size >= 1024 and power < len(UNITS) - 1:
        size, power = size / 1024, power + 1
    if not amount.limit:
        return 'none'
    free, limit = (each / 1024**power for each in (amount.free, amount.limit))
    digits = 2 if power and size < 10 else 0 if size >= 100 or not power else 1
    return f'{free:,.{digits}f} of {limit:,.{digits}f} {UNITS[power]} free'


def describe_count(amount: Amount) -> str:
    """The free part of a number, in words."""
    return f'{amount.free:,.0f} of {amount.limit:,.0f} free' if amount.limit else 'none'


def _ram(host: Host) -> Sequence[Amount]:
    total = host.total_usable_ram_mb
    return (Amount(total - host.free_ram_mb, total * host.ram_allocation_ratio),)


def _vcpus(host: Host) -> Sequence[Amount]:
    return (Amount(host.vcpus_used, host.vcpus_total * host.cpu_allocation_ratio),)


def _disk(host: Host) -> Sequence[Amount]:
    total = host.total_usable_disk_gb * 1024
    return (Amount(total - host.free_disk_mb, total * host.disk_allocation_ratio),)


def _pinned(host: Host) -> Sequence[Amount]:
    topology = host.numa_topology
    return tuple(map(pinned_cpus, topology.cells)) if topology else ()


def pinned_cpus(cell: HostCell) -> Amount:
    """The CPUs of a NUMA cell that only one guest can have."""
    return Amount(len(cell.pcpuset) - len(cell.free_pcpus), len(cell.pcpuset))


RESOURCES = {
    each.name: each
    for each in (
        Resource('ram', 'Memory', _ram, describe_size, 'ram_allocation_ratio'),
        Resource('vcpus', 'vCPUs', _vcpus, describe_count, 'cpu_allocation_ratio'),
        Resource('disk', 'Disk', _disk, describe_size, 'disk_allocation_ratio'),
        Resource('pinned', 'Pinned CPUs', _pinned, describe_count),
    )
}

UP, DOWN, DISABLED = 'up', 'down', 'disabled'
STATES = (UP, DOWN, DISABLED)
NO_ZONE, NO_AGGREGATE = '(no zone)', '(no aggregate)'
Entry = tuple[str, Host]
"""The name of a cell, and a host in it."""


@dataclass(frozen=True, slots=True)
class CellView:
    """A cell's hosts as they were ``age`` seconds ago; None if it has never answered."""

    name: str
    hosts: Collection[Host] = ()
    age: float | None = None
    answers: bool = True


@dataclass(frozen=True, slots=True)
class HostsView:
    """All cells.

    :ivar failure: the reason why they cannot be read.
    :ivar stale: zones and aggregates are old values.
    """

    cells: tuple[CellView, ...] = ()
    failure: str | None = None
    stale: bool = False

    @property
    def known(self) -> bool:
        """True if any cell has ever answered, or there is none."""
        ages = [cell.age for cell in self.cells]
        return any(age is not None for age in ages) or not (ages or self.failure)

    @property
    def age(self) -> str:
        known = [cell.age for cell in self.cells if cell.age is not None]
        return ago(min(known)) if known else ''

    def warnings(self) -> Iterator[str]:
        """Limits of the view, in sentences."""
        if self.failure:
            yield self.failure
        for cell in self.cells:
            if not cell.answers and cell.age is None:
                yield f'Cell {cell.name} does not answer; its hosts are not shown.'
            elif (not cell.answers or self.failure) and cell.age is not None:
                how = f'hosts are shown as they were {ago(cell.age)}'
                yield f'Cell {cell.name}{"" if cell.answers else " does not answer"}: its {how}.'
        if self.stale:
            yield 'The API database does not answer: zones and aggregates are shown as they were.'


def ago(seconds: float) -> str:
    """A time span in words."""
    for size, unit in ((86400, 'd'), (3600, 'h'), (60, 'min')):
        if seconds >= 2 * size:
            return f'{seconds // size:.0f} {unit} ago'
    return f'{max(seconds, 0):.0f} s ago'


def state(host: Host) -> str:
    """The state of a host: down, disabled or up. A disabled host that is down is down."""
    if not host.service.up:
        return DOWN
    return DISABLED if host.service.disabled else UP


def name_of(host: Host) -> str:
    """The name of a host, with that of its node if it differs."""
    same = host.host.partition('.')[0] == host.nodename.partition('.')[0]
    return host.host if same else f'{host.host} ({host.nodename})'


def disabled_reason(host: Host) -> str:
    """The reason that an operator gave for disabling a host, without secrets."""
    return redact(host.service.disabled_reason or '') if host.service.disabled else ''


def describe_pages(cell: HostCell) -> str:
    """The free pages of a NUMA cell, by size."""
    kinds = cell.mempages[:MAX_PAGE_SIZES]
    return ', '.join(
        f'{each.free:,} of {each.total:,} x {_page_size(each.size_kb)}' for each in kinds
    )


def _page_size(kib: int) -> str:
    for size, unit in ((1024**2, 'GiB'), (1024, 'MiB')):
        if kib >= size and kib % size == 0:
            return f'{kib // size:,} {unit}'
    return f'{kib:,} KiB'


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
    :ivar bars: their levels as parts of a bar of length 100: level, hosts, start and width.
    """

    name: str
    states: Mapping[str, int]
    amount: Amount
    bars: Sequence[tuple[int, int, float, float]]
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


def heatmap(view: HostsView, query: HostsQuery, zone: str | None) -> Heatmap:
    """The heatmap of a query.

    :param zone: the availability zone of hosts in none.
    """
    entries = [(cell.name, host) for cell in view.cells for host in cell.hosts]
    entries = [each for each in entries if _matches(each[1], query)]
    groups = _grouped(entries, _names(query.by, zone), query.within)
    shown = [*{host.uuid: (cell, host) for each in groups.values() for cell, host in each}.values()]
    resource = RESOURCES[query.show]
    key = _order(query, resource)
    heads: tuple[HostGroup, ...] = ()
    rows: list[Entry] = []
    if query.form == 'table':
        size, items = ROWS_PER_PAGE, len(shown)
        rows = sorted(shown, key=key)[(query.page - 1) * size : query.page * size]
    else:
        size, items = TILES_PER_PAGE, sum(map(len, groups.values()))
        heads = tuple(_heads(groups, resource, key, query.page))
    hosts = [host for _, host in shown]
    usable = [host for host in hosts if state(host) == UP]
    return Heatmap(
        len(hosts),
        Counter(map(state, hosts)),
        sum(host.num_instances for host in hosts),
        tuple((each, total(map(each.of, usable))) for each in RESOURCES.values()),
        heads,
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
        yield HostGroup(
            group,
            Counter(map(state, hosts)),
            total(amounts),
            bars(Counter(each.level for each in amounts)),
            tuple([_tile(host, resource) for _, host in shown]),
        )


def _tile(host: Host, resource: Resource) -> Tile:
    every, now = resource.parts(host), state(host)
    parts = every[:NUMA_CELLS_PER_TILE]
    text = resource.describe(total(every))
    if len(every) > 1:
        text += f', by NUMA cell {", ".join(f"{x.free:.0f}/{x.limit:.0f}" for x in parts)}'
    levels = tuple(part.level for part in parts) or (None,)
    words = '' if now == UP else f', {now}'
    return Tile(host.host, levels, now, f'{name_of(host)}{words}: {text}')


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
