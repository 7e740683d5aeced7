# SPDX-License-Identifier: Apache-2.0
"""Hosts of all cells at a moment, with resources, as a heatmap or a table."""

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
from novasched.scheduler.model.usual_guests import NO_USUAL_GUESTS, UsualGuests

MAX_PAGE_SIZES = 8
"""Page sizes of a NUMA cell that the page of a host lists."""

TILES_PER_PAGE = 10_000
ROWS_PER_PAGE = 200
NUMA_CELLS_PER_TILE = 8
LEVELS = 10
UNITS = ('MiB', 'GiB', 'TiB', 'PiB')


@dataclass(frozen=True, slots=True)
class Amount:
    """The used part of a limit. The limit includes the allocation ratio."""

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
    """A resource of hosts.

    :ivar parts: reads the amount of each NUMA cell, or the one amount of a host without
        NUMA cells.
    :ivar describe: says how much of an amount is free.
    :ivar ratio: name of the host attribute with the allocation ratio; empty for a
        resource without allocation ratio.
    """

    title: str
    parts: Callable[[Host], Sequence[Amount]]
    describe: Callable[[Amount], str]
    ratio: str = ''

    def of(self, host: Host) -> Amount:
        return total(self.parts(host))


def total(amounts: Iterable[Amount]) -> Amount:
    parts = tuple(amounts)
    return Amount(sum(part.used for part in parts), sum(part.limit for part in parts))


def describe_size(amount: Amount) -> str:
    """The free part of an amount in MiB, in words."""
    if not amount.limit:
        return 'none'

    # Values of the largest unit that keeps the limit at 1 or above, with three
    # significant digits.
    size = abs(amount.limit)
    power = 0
    while size >= 1024 and power < len(UNITS) - 1:
        size /= 1024
        power += 1
    if power == 0 or size >= 100:
        digits = 0
    elif size >= 10:
        digits = 1
    else:
        digits = 2

    free = amount.free / 1024**power
    limit = amount.limit / 1024**power
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
    total, used = host.floating_vcpus
    return (Amount(used, total),)


def _disk(host: Host) -> Sequence[Amount]:
    total = host.total_usable_disk_gb * 1024
    return (Amount(total - host.free_disk_mb, total * host.disk_allocation_ratio),)


def _pinned(host: Host) -> Sequence[Amount]:
    topology = host.numa_topology
    if topology:
        return tuple(map(pinned_cpus, topology.cells))
    return ()


def pinned_cpus(cell: HostCell) -> Amount:
    """The dedicated CPUs of a NUMA cell (``[compute] cpu_dedicated_set``)."""
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
"""The name of a cell, and a host of the cell."""

Item = TypeVar('Item')


@dataclass(frozen=True, slots=True)
class CellView:
    """The hosts of a cell as of ``age`` seconds ago. ``age`` is None until the cell has
    answered for the first time."""

    name: str
    hosts: Collection[Host] = ()
    age: float | None = None
    answers: bool = True


@dataclass(frozen=True, slots=True)
class HostsView:
    """All cells.

    :ivar failure: the reason why the cells cannot be read.
    :ivar stale: zones and aggregates are old values.
    :ivar usual: the usual guests of the cloud.
    """

    cells: tuple[CellView, ...] = ()
    failure: str | None = None
    stale: bool = False
    usual: UsualGuests = NO_USUAL_GUESTS

    @property
    def known(self) -> bool:
        """True if a cell has answered at least once, or the cloud has no cell."""
        return bool(self.age) or not (self.cells or self.failure)

    @property
    def age(self) -> str:
        ages = [cell.age for cell in self.cells if cell.age is not None]
        if ages:
            return ago(min(ages))
        return ''

    def warnings(self) -> Iterator[str]:
        """Limits of the view, in sentences."""
        if self.failure:
            yield self.failure

        for cell in self.cells:
            if cell.age is None:
                if not cell.answers:
                    yield f'Cell {cell.name} does not answer; its hosts are not shown.'
            elif not cell.answers:
                yield (
                    f'Cell {cell.name} does not answer: its hosts are shown as they'
                    f' were {ago(cell.age)}.'
                )
            elif self.failure:
                yield (
                    f'Cell {cell.name}: its hosts are shown as they were'
                    f' {ago(cell.age)}.'
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
    """The name of a host. The name of the node is added where it differs, as with
    Ironic."""
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
    texts = []
    for pages in cell.mempages[:MAX_PAGE_SIZES]:
        size = _page_size(pages.size_kb)
        texts.append(f'{pages.free:,} of {pages.total:,} x {size}')
    return ', '.join(texts)


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
    """The hosts of a cell, zone or aggregate. ``amount`` and :func:`bars` count the
    hosts that are up and enabled."""

    name: str
    states: Mapping[str, int]
    amount: Amount
    bars: Sequence[tuple[int, int, float, float]]
    tiles: tuple[Tile, ...]


@dataclass(frozen=True, slots=True)
class Heatmap:
    """The hosts of a query.

    :ivar totals: the sum of each resource over the hosts that are up and enabled.
    :ivar groups: the groups on the current page of the map.
    :ivar rows: the rows on the current page of the table.
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

    :param zone: the availability zone of hosts without a zone
        (``[DEFAULT] default_availability_zone``).
    """
    grouped = _grouped(view, query, zone)
    resource = RESOURCES[query.show]

    # A host of several aggregates is in several groups, and counts once.
    entries: dict[str, Entry] = {}
    for members in grouped.values():
        for cell, host in members:
            entries[host.uuid] = (cell, host)

    def order(entry: Entry) -> Any:
        share = None
        if query.order == 'fullest':
            share = resource.of(entry[1]).share
        return -(share or 0.0), natural(name_of(entry[1]))

    rows: Sequence[Entry] = ()
    groups: list[HostGroup] = []
    if query.form == 'table':
        rows, pages = _page(
            sorted(entries.values(), key=order), query.page, ROWS_PER_PAGE
        )
    else:
        tiles: list[tuple[str, Host]] = []
        for name, members in grouped.items():
            tiles += [(name, host) for _, host in sorted(members, key=order)]
        page, pages = _page(tiles, query.page, TILES_PER_PAGE)
        for name, part in groupby(page, key=itemgetter(0)):
            shown_hosts = [host for _, host in part]
            groups.append(_group(name, grouped[name], shown_hosts, resource))

    hosts = [host for _, host in entries.values()]
    usable = [host for host in hosts if state(host) == UP]
    totals = [(kind, total(map(kind.of, usable))) for kind in RESOURCES.values()]
    return Heatmap(
        hosts=len(hosts),
        states=Counter(map(state, hosts)),
        servers=sum(host.num_instances for host in hosts),
        totals=tuple(totals),
        groups=tuple(groups),
        rows=rows,
        pages=pages,
    )


def _page(items: Sequence[Item], number: int, size: int) -> tuple[Sequence[Item], int]:
    """The items of a page, and the number of pages."""
    return items[(number - 1) * size : number * size], max(1, -(-len(items) // size))


def natural(text: str) -> list[int | str]:
    """A sort key by which host2 comes before host10."""
    key: list[int | str] = []
    for part in re.split(r'(\d+)', text):
        if part.isdecimal():
            key.append(int(part))
        else:
            key.append(part)
    return key


def _group_names(
    cell: CellView, host: Host, by: str, zone: str | None
) -> Sequence[str]:
    if by == 'zone':
        return [host.zone(zone) or NO_ZONE]
    if by == 'aggregate':
        return [aggregate.name for aggregate in host.aggregates] or [NO_AGGREGATE]
    return [cell.name]


def _grouped(
    view: HostsView, query: HostsQuery, zone: str | None
) -> Mapping[str, list[Entry]]:
    """The hosts of a query by the name of their group, in natural order."""
    groups: dict[str, list[Entry]] = defaultdict(list)
    for cell in view.cells:
        for host in cell.hosts:
            if query.name.lower() not in name_of(host).lower():
                continue
            if query.state not in ('all', state(host)):
                continue
            for name in _group_names(cell, host, query.by, zone):
                groups[name].append((cell.name, host))

    names = sorted(groups, key=natural)
    return {name: groups[name] for name in names if query.within in ('', name)}


def _group(
    name: str, entries: Sequence[Entry], shown_hosts: Sequence[Host], resource: Resource
) -> HostGroup:
    """A group with the tiles of the hosts on the current page."""
    hosts = [host for _, host in entries]
    amounts = [resource.of(host) for host in hosts if state(host) == UP]
    return HostGroup(
        name=name,
        states=Counter(map(state, hosts)),
        amount=total(amounts),
        bars=bars(Counter(amount.level for amount in amounts)),
        tiles=tuple([_tile(host, resource) for host in shown_hosts]),
    )


def _tile(host: Host, resource: Resource) -> Tile:
    amounts = resource.parts(host)
    parts = amounts[:NUMA_CELLS_PER_TILE]
    levels = tuple(part.level for part in parts) or (None,)

    text = resource.describe(total(amounts))
    if len(amounts) > 1:
        cells = [f'{part.free:.0f}/{part.limit:.0f}' for part in parts]
        text += f', by NUMA cell {", ".join(cells)}'
    current = state(host)
    title = name_of(host)
    if current != UP:
        title += f', {current}'
    return Tile(host.host, levels, current, f'{title}: {text}')


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
