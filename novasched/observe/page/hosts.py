# SPDX-License-Identifier: Apache-2.0
"""Hosts of all cells at one moment, their resources, and the heatmap or table of
them."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeVar

from novasched.conf.redaction import redact
from novasched.observe.page.query import HostsQuery
from novasched.scheduler.model.host import DISABLED, DOWN, UP, Host, state
from novasched.scheduler.model.numa import HostCell

MAX_PAGE_SIZES = 8
"""Page sizes of a NUMA cell that are shown."""
TILES_PER_PAGE = 10_000
ROWS_PER_PAGE = 200
NUMA_CELLS_PER_TILE = 8
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
        if self.limit > 0:
            return self.used / self.limit
        return None

    @property
    def level(self) -> int | None:
        """The used part in tenths, from 0 to 9; None if the limit is 0."""
        if self.share is None:
            return None
        return min(self.percent * LEVELS // 100, LEVELS - 1)

    @property
    def percent(self) -> int:
        """The used part as the length of a bar, from 0 to 100."""
        return int(min(max((self.share or 0.0) * 100, 0), 100))


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource of hosts. ``parts`` are the amounts of a host's NUMA cells where it
    has them, else its one amount; ``describe`` says in words how much is free;
    ``ratio`` is the attribute that has the allocation ratio, if there is one."""

    title: str
    parts: Callable[[Host], Sequence[Amount]]
    describe: Callable[[Amount], str]
    ratio: str = ''

    def of(self, host: Host) -> Amount:
        return total(self.parts(host))


def total(amounts: Iterable[Amount]) -> Amount:
    parts = tuple(amounts)
    return Amount(sum(each.used for each in parts), sum(each.limit for each in parts))


def describe_size(amount: Amount) -> str:
    """The free part of an amount in MiB, in words."""
    size = abs(amount.limit)
    power = 0
    while size >= 1024 and power < len(UNITS) - 1:
        size = size / 1024
        power = power + 1
    if not amount.limit:
        return 'none'
    free, limit = (each / 1024**power for each in (amount.free, amount.limit))
    digits = 2 if power and size < 10 else 0 if size >= 100 or not power else 1
    return f'{free:,.{digits}f} of {limit:,.{digits}f} {UNITS[power]} free'


def describe_count(amount: Amount) -> str:
    """The free part of a number, in words."""
    if amount.limit:
        return f'{amount.free:,.0f} of {amount.limit:,.0f} free'
    return 'none'


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
    if topology:
        return tuple(map(pinned_cpus, topology.cells))
    return ()


def pinned_cpus(cell: HostCell) -> Amount:
    """The CPUs of a NUMA cell that only one guest can have."""
    return Amount(len(cell.pcpuset) - len(cell.free_pcpus), len(cell.pcpuset))


RESOURCES = {
    'ram': Resource('Memory', _ram, describe_size, 'ram_allocation_ratio'),
    'vcpus': Resource('vCPUs', _vcpus, describe_count, 'cpu_allocation_ratio'),
    'disk': Resource('Disk', _disk, describe_size, 'disk_allocation_ratio'),
    'pinned': Resource('Pinned CPUs', _pinned, describe_count),
}
STATES = (UP, DOWN, DISABLED)
NO_ZONE = '(no zone)'
NO_AGGREGATE = '(no aggregate)'
Entry = tuple[str, Host]
"""The name of a cell, and a host in it."""
Item = TypeVar('Item')


@dataclass(frozen=True, slots=True)
class CellView:
    """A cell's hosts as they were ``age`` seconds ago; None if it has never
    answered."""

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
        return bool(self.age) or not (self.cells or self.failure)

    @property
    def age(self) -> str:
        known = [cell.age for cell in self.cells if cell.age is not None]
        if known:
            return ago(min(known))
        return ''

    def warnings(self) -> Iterator[str]:
        """Limits of the view, in sentences."""
        if self.failure:
            yield self.failure
        for cell in self.cells:
            if not cell.answers and cell.age is None:
                yield f'Cell {cell.name} does not answer; its hosts are not shown.'
            elif (not cell.answers or self.failure) and cell.age is not None:
                how = f'hosts are shown as they were {ago(cell.age)}'
                yield (
                    f'Cell {cell.name}{"" if cell.answers else " does not answer"}: its'
                    f' {how}.'
                )
        if self.stale:
            yield (
                'The API database does not answer: zones and aggregates are shown as'
                ' they were.'
            )


def ago(seconds: float) -> str:
    """A time span in words."""
    for size, unit in ((86400, 'd'), (3600, 'h'), (60, 'min')):
        if seconds >= 2 * size:
            return f'{seconds // size:.0f} {unit} ago'
    return f'{max(seconds, 0):.0f} s ago'


def name_of(host: Host) -> str:
    """The name of a host, with that of its node if it differs."""
    same = host.host.partition('.')[0] == host.nodename.partition('.')[0]
    if same:
        return host.host
    return f'{host.host} ({host.nodename})'


def disabled_reason(host: Host) -> str:
    """The reason that an operator gave for disabling a host, without secrets."""
    if host.service.disabled:
        return redact(host.service.disabled_reason or '')
    return ''


def describe_pages(cell: HostCell) -> str:
    """The free pages of a NUMA cell, by size."""
    kinds = cell.mempages[:MAX_PAGE_SIZES]
    return ', '.join(
        f'{each.free:,} of {each.total:,} x {_page_size(each.size_kb)}'
        for each in kinds
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
    """Hosts of a cell, zone or aggregate; ``amount`` and :func:`bars` are of those that
    are up and enabled."""

    name: str
    states: Mapping[str, int]
    amount: Amount
    bars: Sequence[tuple[int, int, float, float]]
    tiles: tuple[Tile, ...]


@dataclass(frozen=True, slots=True)
class Heatmap:
    """The hosts of a query. Groups and rows, which are those of the table, are of its
    page.

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
    groups = _grouped(view, query, zone)
    shown = {host.uuid: (cell, host) for each in groups.values() for cell, host in each}
    resource = RESOURCES[query.show]

    def key(entry: Entry) -> Any:
        share = resource.of(entry[1]).share if query.order == 'fullest' else None
        return -(share or 0.0), natural(name_of(entry[1]))

    rows: Sequence[Entry] = ()
    heads: Iterable[HostGroup] = ()
    if query.form == 'table':
        rows, pages = _page(sorted(shown.values(), key=key), query.page, ROWS_PER_PAGE)
    else:
        named = [
            (name, each) for name in groups for each in sorted(groups[name], key=key)
        ]
        tiles, pages = _page(named, query.page, TILES_PER_PAGE)
        heads = (
            _group(name, groups[name], [host for _, (_, host) in part], resource)
            for name, part in groupby(tiles, key=itemgetter(0))
        )
    hosts = [host for _, host in shown.values()]
    usable = [host for host in hosts if state(host) == UP]
    return Heatmap(
        len(hosts),
        Counter(map(state, hosts)),
        sum(host.num_instances for host in hosts),
        tuple((each, total(map(each.of, usable))) for each in RESOURCES.values()),
        tuple(heads),
        rows,
        pages,
    )


def _page(items: Sequence[Item], number: int, size: int) -> tuple[Sequence[Item], int]:
    """The items of a page, and the number of pages."""
    return items[(number - 1) * size : number * size], max(1, -(-len(items) // size))


def natural(text: str) -> list[int | str]:
    """A sort key by which host2 comes before host10."""
    return [
        int(each) if each.isdecimal() else each for each in re.split(r'(\d+)', text)
    ]


def _group_names(
    cell: CellView, host: Host, by: str, zone: str | None
) -> Sequence[str]:
    if by == 'zone':
        return [host.zone(zone) or NO_ZONE]
    if by == 'aggregate':
        return [each.name for each in host.aggregates] or [NO_AGGREGATE]
    return [cell.name]


def _grouped(
    view: HostsView, query: HostsQuery, zone: str | None
) -> Mapping[str, list[Entry]]:
    groups: dict[str, list[Entry]] = defaultdict(list)
    for cell in view.cells:
        for host in cell.hosts:
            named = query.name.lower() in name_of(host).lower()
            if named and query.state in ('all', state(host)):
                for name in _group_names(cell, host, query.by, zone):
                    groups[name].append((cell.name, host))
    return {
        name: groups[name]
        for name in sorted(groups, key=natural)
        if query.within in ('', name)
    }


def _group(
    name: str, entries: Sequence[Entry], shown: Sequence[Host], resource: Resource
) -> HostGroup:
    """A group with the tiles of some of its hosts."""
    hosts = [host for _, host in entries]
    amounts = [resource.of(host) for host in hosts if state(host) == UP]
    return HostGroup(
        name,
        Counter(map(state, hosts)),
        total(amounts),
        bars(Counter(each.level for each in amounts)),
        tuple([_tile(host, resource) for host in shown]),
    )


def _tile(host: Host, resource: Resource) -> Tile:
    every = resource.parts(host)
    now = state(host)
    parts = every[:NUMA_CELLS_PER_TILE]
    text = resource.describe(total(every))
    if len(every) > 1:
        text += (
            f', by NUMA cell {", ".join(f"{x.free:.0f}/{x.limit:.0f}" for x in parts)}'
        )
    levels = tuple(part.level for part in parts) or (None,)
    words = '' if now == UP else f', {now}'
    return Tile(host.host, levels, now, f'{name_of(host)}{words}: {text}')


def bars(spread: Mapping[int | None, int]) -> Sequence[tuple[int, int, float, float]]:
    """The levels as parts of a bar of length 100: level, hosts, start and width."""
    whole = sum(spread.values())
    parts = []
    start = 0.0
    for level in range(LEVELS):
        if hosts := spread.get(level, 0):
            width = 100 * hosts / whole
            parts.append((level, hosts, round(start, 2), round(width, 2)))
            start += width
    return parts
