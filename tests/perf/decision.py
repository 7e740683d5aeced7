# SPDX-License-Identifier: Apache-2.0
"""What a decision costs without Placement and databases: ``python -m tests.perf.decision``.

The real driver, filters, weighers and Placement client decide over hosts kept in memory,
with answers of Placement that are there at once. Prints milliseconds a request, how
straight the line over the number of hosts is, and where the time goes. Exits with 1 where
a bound is missed.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import json
import logging
import pstats
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

from oslo_context.context import RequestContext

import novasched
from novasched.cells import rows
from novasched.conf.settings import Settings
from novasched.placement.client import PlacementClient
from novasched.plugins import loading
from novasched.rpc import decode, versions
from novasched.rpc.serializer import Serializer
from novasched.scheduler.drivers import Driver, Parts
from novasched.scheduler.memory import MemoryHosts
from novasched.scheduler.model.host import Aggregate, Host, Service
from novasched.scheduler.model.request import Request
from novasched.scheduler.prefilters.request_filter import enabled_prefilters
from novasched.service.runtime import tune_gc
from tests.lab.builders import a_uuid
from tests.lab.compute_rows import Compute
from tests.lab.large_cloud_hosts import LIBVIRT_TRAITS, METADATA, aggregates_of, large_cloud
from tests.lab.large_cloud_requests import FILTERS, KINDS, UNLIMITED, Kind
from tests.lab.ports import sources
from tests.lab.tables import Sheet, add_outputs, among, numbers, publish, verdict

SIZES = (1_000, 2_000, 5_000, 10_000, 20_000)
PER_HOST = 10.0  # microseconds, the bound for the largest cloud
CROOKED = 0.15  # of a point's value, how far it may lie off the line
ENOUGH = 1.0  # seconds of measuring, and ROUNDS at least
ROUNDS = 5
PROFILED = 20  # requests
TOLD = 0.01  # the least share of the time that the profile shows
PACKAGE = f'{Path(novasched.__file__).parent}/'

SETTINGS = Settings(enabled_filters=FILTERS, max_placement_results=UNLIMITED)
AGGREGATES = {
    name: Aggregate(number, a_uuid(name), name, metadata)
    for number, (name, metadata) in enumerate(METADATA.items(), 1)
}
CALLER = RequestContext(overwrite=False)
NEW = 1_000  # the version of services newer than all rules about older ones


class StubPlacement:
    """In the place of a keystoneauth1 adapter: offers every host, allows every claim."""

    def __init__(self, computes: Sequence[Compute], kind: Kind) -> None:
        floating = {'VCPU' if x == 'PCPU' else x: n for x, n in kind.resources.items()}
        pinned = {'PCPU' if x == 'VCPU' else x: n for x, n in kind.resources.items()}
        self._floating, self._pinned = _answered(computes, floating), _answered(computes, pinned)

    def request(self, path: str, method: str, **_: Any) -> SimpleNamespace:
        if method != 'GET':
            return _response(204, b'')
        return _response(200, self._pinned if 'PCPU' in path else self._floating)


@dataclass(frozen=True)
class Cost:
    """What a request of a kind costs among so many hosts; ``collecting`` is the part that
    is garbage collection. Seconds."""

    kind: str
    hosts: int
    seconds: float
    collecting: float

    @property
    def per_host(self) -> float:
        return self.seconds / self.hosts * 1e6


@dataclass(frozen=True)
class Line:
    """The costs as a line over the number of hosts; ``off`` is the greatest distance of a
    cost from it, as a share of the cost."""

    start: float
    slope: float
    off: float

    @classmethod
    def through(cls, costs: Sequence[Cost]) -> Line:
        """The line that is off by the least squares of these shares."""
        weights = [1 / cost.seconds**2 for cost in costs]
        total = sum(weights)
        x = sum(w * c.hosts for w, c in zip(weights, costs, strict=True)) / total
        y = sum(w * c.seconds for w, c in zip(weights, costs, strict=True)) / total
        spread = [(w, c.hosts - x, c.seconds - y) for w, c in zip(weights, costs, strict=True)]
        slope = sum(w * dx * dy for w, dx, dy in spread) / sum(w * dx * dx for w, dx, _ in spread)
        start = y - slope * x
        return cls(
            start, slope, max(abs(start + slope * c.hosts - c.seconds) / c.seconds for c in costs)
        )


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = _arguments(arguments)
    logging.basicConfig(level=logging.WARNING)
    tune_gc()
    costs = []
    for hosts in chosen.hosts:
        for kind in chosen.only:
            costs.append(measure(kind, hosts))
            print(f'{kind} {hosts}: {costs[-1].seconds * 1e3:.2f} ms', file=sys.stderr)
    costs.sort(key=lambda cost: (chosen.only.index(cost.kind), cost.hosts))
    lines = {kind: line for kind in chosen.only if (line := _line(kind, costs))}
    profiles = {}
    for kind in chosen.only if chosen.profile else ():
        profiles[kind] = shares(_decision(kind, max(chosen.hosts)))
    sheets = [each for each in (_costs(costs), _lines(lines), *_profiles(profiles)) if each.rows]
    figures = {
        'costs': [asdict(cost) for cost in costs],
        'lines': {kind: asdict(line) for kind, line in lines.items()},
        'profiles': profiles,
    }
    publish(chosen, sheets, figures)
    return int(any(map(_too_dear, costs)) or any(map(_crooked, lines.values())))


def measure(kind: str, hosts: int) -> Cost:
    """The median of some requests, after one that nobody counts. Processor time: nothing
    here waits for anything but its turn."""
    decide = _decision(kind, hosts)
    decide()
    taken: list[float] = []
    with collecting() as pauses:
        while len(taken) < ROUNDS or sum(taken) < ENOUGH:
            start = time.process_time()
            decide()
            taken.append(time.process_time() - start)
    return Cost(kind, hosts, median(taken), sum(pauses) / len(taken))


@contextmanager
def collecting() -> Iterator[list[float]]:
    """A list of the processor's seconds that each garbage collection takes, in the block."""
    pauses: list[float] = []

    def called(phase: str, _: object) -> None:
        now = time.process_time()
        if phase == 'start':
            pauses.append(-now)
        else:
            pauses[-1] += now

    gc.callbacks.append(called)
    try:
        yield pauses
    finally:
        gc.callbacks.remove(called)


def shares(decide: Callable[[], object]) -> dict[str, float]:
    """Shares of a call's time by the function where it goes, greatest first."""
    decide()
    # What is not Python counts for the function that calls it.
    profile = cProfile.Profile(builtins=False)
    for _ in range(PROFILED):
        profile.runcall(decide)
    stats: Any = pstats.Stats(profile)
    own = Counter[str]()
    for (file, _, function), (_, _, seconds, *_) in stats.stats.items():
        if file.startswith(PACKAGE):
            own[f'{file.removeprefix(PACKAGE)} {function}'] += seconds / stats.total_tt
    return dict(own.most_common())


def _decision(kind: str, hosts: int) -> Callable[[], object]:
    """A call that decides one request; an answer that is no answer ends the run."""
    request = large_request(KINDS[kind])
    driver = large_driver(hosts, KINDS[kind])
    wanted = request.count

    def decide() -> None:
        found = driver.select_destinations(request)
        assert [len(each) for each in found] == [SETTINGS.max_attempts] * wanted

    return decide


def large_request(kind: Kind) -> Request:
    """A request as it is once it has been read from the wire."""
    arguments = kind.arguments([a_uuid(f'server{number}') for number in range(kind.count)])
    arguments['spec_obj'] = Serializer().deserialize_entity(CALLER, arguments['spec_obj'])
    return decode.request(versions.read(arguments), CALLER)


def large_driver(count: int, kind: Kind) -> Driver:
    stub: Any = StubPlacement(large_cloud(count), kind)
    known = sources(*AGGREGATES.values(), version=NEW)
    prefilters = enabled_prefilters(SETTINGS, known)
    driver = loading.driver(SETTINGS)
    return driver(
        Parts(
            SETTINGS,
            prefilters,
            PlacementClient(SETTINGS, stub),
            MemoryHosts(_hosts(count)),
            loading.filters(SETTINGS),
            loading.weighers(SETTINGS),
        )
    )


@lru_cache
def _aggregates(names: tuple[str, ...]) -> tuple[Aggregate, ...]:
    """Shared by the hosts that are in the same, as where they are read."""
    return tuple(AGGREGATES[name] for name in names)


@lru_cache(maxsize=1)
def _hosts(count: int) -> Sequence[Host]:
    """The hosts as they are read from the rows of their computes."""
    found = []
    for number, compute in enumerate(large_cloud(count)):
        row = SimpleNamespace(**compute.node_row())
        aggregates = _aggregates(tuple(aggregates_of(number)))
        service = Service(compute.name)
        if host := rows.host(row, a_uuid(compute.cell), service, SETTINGS):
            found.append(replace(host, aggregates=aggregates))
    return found


def _answered(computes: Sequence[Compute], amounts: Mapping[str, int]) -> bytes:
    """Placement's text when it offers these amounts on every host."""
    inventories = [(each.uuid, each.inventories()) for each in computes]
    answer = {
        'allocation_requests': [
            {'allocations': {uuid: {'resources': amounts}}, 'mappings': {'': [uuid]}}
            for uuid, _ in inventories
        ],
        'provider_summaries': {
            uuid: {
                'resources': {
                    name: {'capacity': int(has['total'] * has['allocation_ratio']), 'used': 0}
                    for name, has in inventory.items()
                },
                'traits': LIBVIRT_TRAITS,
                'parent_provider_uuid': None,
                'root_provider_uuid': uuid,
            }
            for uuid, inventory in inventories
        },
    }
    return json.dumps(answer).encode()


def _response(status: int, body: bytes) -> SimpleNamespace:
    return SimpleNamespace(
        status_code=status, content=body, headers={}, reason='', json=lambda: json.loads(body)
    )


def _line(kind: str, costs: Sequence[Cost]) -> Line | None:
    """The line of one kind; none through fewer than three points."""
    ours = [cost for cost in costs if cost.kind == kind]
    return Line.through(ours) if len(ours) > 2 else None


def _is_bounded(cost: Cost) -> bool:
    return cost.hosts == max(SIZES) and KINDS[cost.kind].count == 1


def _too_dear(cost: Cost) -> bool:
    return _is_bounded(cost) and cost.per_host > PER_HOST


def _crooked(line: Line) -> bool:
    return line.off > CROOKED


def _costs(costs: Sequence[Cost]) -> Sheet:
    columns = ('request', 'hosts', 'ms', 'µs per host', 'of it collecting, ms', 'bound')
    rows = [
        [
            cost.kind,
            f'{cost.hosts:,}',
            f'{cost.seconds * 1e3:.2f}',
            f'{cost.per_host:.2f}',
            f'{cost.collecting * 1e3:.2f}',
            f'≤ {PER_HOST:g} µs: {verdict(not _too_dear(cost))}' if _is_bounded(cost) else '',
        ]
        for cost in costs
    ]
    return Sheet('Cost of a decision', columns, rows)


def _lines(lines: Mapping[str, Line]) -> Sheet:
    columns = ('request', 'ms at no host', 'µs for each host', 'off by', 'bound')
    rows = [
        [
            kind,
            f'{line.start * 1e3:.2f}',
            f'{line.slope * 1e6:.2f}',
            f'{line.off:.0%}',
            f'≤ {CROOKED:.0%}: {verdict(not _crooked(line))}',
        ]
        for kind, line in lines.items()
    ]
    return Sheet('The costs as straight lines', columns, rows)


def _profiles(profiles: Mapping[str, Mapping[str, float]]) -> list[Sheet]:
    return [
        Sheet(
            f'Where the time goes: {kind}',
            ('place', 'share'),
            [[place, f'{share:.1%}'] for place, share in found.items() if share >= TOLD],
        )
        for kind, found in profiles.items()
    ]


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser('python -m tests.perf.decision', description=__doc__)
    parser.add_argument('--hosts', type=numbers, default=SIZES, help='sizes, with commas')
    parser.add_argument('--only', type=among(KINDS), default=list(KINDS), help=', '.join(KINDS))
    parser.add_argument('--no-profile', dest='profile', action='store_false')
    add_outputs(parser)
    return parser.parse_args(arguments)


if __name__ == '__main__':
    sys.exit(main())
