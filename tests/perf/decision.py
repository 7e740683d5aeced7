# SPDX-License-Identifier: Apache-2.0
"""What a decision costs without Placement and databases: ``python -m
tests.perf.decision``.

The real driver, filters, weighers and Placement client decide over hosts kept in
memory, with answers of Placement that are there at once. No records are kept, or some
in memory, or in a file as well: in turn, so that a slow moment of the machine strikes
all. Prints milliseconds of processor time a request, what the thread that keeps the
records takes included, and what of it is the request's own thread's while records go to
a file: nothing else is on the way of its answer. Exits with 1 where a bound is missed:
more time per host among many hosts than among few, too much, or too much for records in
memory, or on the way of the answer. A record costs about the same among few hosts and
among many, so its bound is in milliseconds. What records cost is the median of the
differences within a round, which a machine that becomes slower for some rounds does not
change.
"""

import argparse
import contextlib
import json
import logging
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

from oslo_context.context import RequestContext

from novasched.cells import rows
from novasched.conf.settings import Settings
from novasched.observe.records.recorder import DecisionRecorder
from novasched.observe.records.store import RecordWriter
from novasched.placement.client import PlacementClient
from novasched.plugins import loading
from novasched.rpc import decode, versions
from novasched.rpc.server import Serializer
from novasched.scheduler.drivers import SchedulerDeps
from novasched.scheduler.errors import NoValidHost
from novasched.scheduler.memory import MemoryHosts
from novasched.scheduler.model.host import Aggregate, Service
from novasched.scheduler.prefilters.request_filter import enabled_prefilters
from novasched.service.runtime import tune_gc
from tests.lab.builders import a_uuid
from tests.lab.large_cloud_hosts import (
    LIBVIRT_TRAITS,
    METADATA,
    aggregates_of,
    large_cloud,
)
from tests.lab.large_cloud_requests import FILTERS, KINDS, REFUSALS, UNLIMITED
from tests.lab.prefilter_sources import sources
from tests.lab.results import Bound
from tests.lab.tables import Sheet, add_outputs, among, numbers, publish

SIZES = (1_000, 2_000, 5_000, 10_000, 20_000)
PER_HOST = 10.0  # microseconds, the bound for the largest cloud
STEEPER = 1.3  # times the cost per host among the fewest hosts
RECORDED_HOSTS = 5_000  # the fewest hosts among which records have bounds
RECORDING_MS = 1.0  # a record in memory
RECORDING_INSTANCE_MS = 0.2  # more of each instance after the first
RECORDING_OWN = 1.05  # times the cost without records, in the thread of the request
ROUNDS = 25
BATCH = 5

SETTINGS = Settings(enabled_filters=FILTERS, max_placement_results=UNLIMITED)
AGGREGATES = {
    name: Aggregate(number, a_uuid(name), name, metadata)
    for number, (name, metadata) in enumerate(METADATA.items(), 1)
}
ASKED = {**KINDS, 'refused': REFUSALS['capability']}
"""By a filter, on every host."""
CALLER = RequestContext(overwrite=False)
NEW = 1_000  # the version of services newer than all rules about older ones


class StubPlacement:
    """In the place of a keystoneauth1 adapter: offers every host, allows every
    claim."""

    def __init__(self, computes, kind):
        floating = {'VCPU' if x == 'PCPU' else x: n for x, n in kind.resources.items()}
        pinned = {'PCPU' if x == 'VCPU' else x: n for x, n in kind.resources.items()}
        self._floating = _answered(computes, floating)
        self._pinned = _answered(computes, pinned)

    def request(self, path, method, **_):
        if method != 'GET':
            return _response(204, b'')
        return _response(200, self._pinned if 'PCPU' in path else self._floating)


@dataclass(frozen=True)
class Cost:
    """Seconds that a request of a kind takes among so many hosts: without records, with
    records in memory, and in a file, too.

    :ivar own: those of its own thread, without records.
    :ivar own_in_file: the same while they are kept in a file.
    """

    kind: str
    hosts: int
    seconds: float
    in_memory: float
    in_file: float
    own: float
    own_in_file: float

    @property
    def per_host(self):
        return self.seconds / self.hosts * 1e6

    def texts(self):
        more = [
            f'{each * 1e3:.2f} ({each / self.seconds - 1:+.1%})'
            for each in (self.in_memory, self.in_file)
        ]
        own = f'{self.own_in_file * 1e3:.2f} ({self.own_in_file / self.own - 1:+.1%})'
        costs = [f'{self.seconds * 1e3:.2f}', f'{self.per_host:.2f}', *more, own]
        return [self.kind, f'{self.hosts:,}', *costs]


def main(arguments=None):
    parser = argparse.ArgumentParser(
        'python -m tests.perf.decision', description=__doc__
    )
    parser.add_argument(
        '--hosts', type=numbers, default=SIZES, help='sizes, with commas'
    )
    parser.add_argument(
        '--only', type=among(ASKED), default=list(ASKED), help=', '.join(ASKED)
    )
    add_outputs(parser)
    chosen = parser.parse_args(arguments)
    logging.basicConfig(level=logging.ERROR)
    tune_gc()
    # The hosts of one size are made once.
    costs = [measure(kind, hosts) for hosts in chosen.hosts for kind in chosen.only]
    costs.sort(key=lambda cost: (chosen.only.index(cost.kind), cost.hosts))
    bounds = {cost: _bounds(cost, costs) for cost in costs}
    columns = (
        'request',
        'hosts',
        'ms',
        'µs per host',
        'recorded',
        'and in a file',
        "its thread's",
        'bound',
    )
    rows = [[*cost.texts(), '\n'.join(map(str, its))] for cost, its in bounds.items()]
    publish(
        chosen,
        [Sheet('Cost of a decision', columns, rows)],
        {'costs': [asdict(cost) for cost in costs]},
    )
    return int(not all(bound.met for its in bounds.values() for bound in its))


def measure(kind, hosts):
    """The median of some batches, after one that nobody counts."""
    request = large_request(ASKED[kind])
    driver: Any = large_driver(hosts, ASKED[kind])
    taken: list[list[tuple[float, float]]] = [[], [], []]
    with TemporaryDirectory() as folder:
        store = RecordWriter(str(Path(folder, 'decisions')), 1_000, 100)
        recorders = [
            None,
            DecisionRecorder(SETTINGS, None),
            DecisionRecorder(SETTINGS, store),
        ]
        for _ in range(1 + ROUNDS):
            for recorder, times in zip(recorders, taken, strict=True):
                driver.deps = replace(driver.deps, recorder=recorder)
                times.append(_batch(driver, request, is_refused=kind == 'refused'))
        store.close()
    without, memory, file = [times[1:] for times in taken]
    plain, own = [median(column) for column in zip(*without, strict=True)]
    memory_more, _ = _differences(memory, without)
    file_more, own_more = _differences(file, without)
    print(f'{kind} {hosts}: {plain * 1e3:.2f} ms', file=sys.stderr)
    return Cost(
        kind, hosts, plain, plain + memory_more, plain + file_more, own, own + own_more
    )


def _differences(times, without):
    """The median of what each column has more than without records, in the same
    round."""
    columns = zip(zip(*times, strict=True), zip(*without, strict=True), strict=True)
    return [
        median(with_records - plain for with_records, plain in zip(*pair, strict=True))
        for pair in columns
    ]


def _batch(driver, request, is_refused):
    """Seconds a request, until all records are kept, and those of this thread alone.
    Processor time: nothing here waits for anything but its turn."""
    chosen = [] if is_refused else [SETTINGS.max_attempts] * request.count
    start = time.process_time()
    own = time.thread_time()
    for _ in range(BATCH):
        found: Sequence[Sequence[object]] = ()
        with contextlib.suppress(NoValidHost):
            found = driver.select_destinations(request)
        assert [len(each) for each in found] == chosen
    own = time.thread_time() - own
    if driver.deps.recorder is not None:
        driver.deps.recorder.wait()
    return (time.process_time() - start) / BATCH, own / BATCH


def large_request(kind):
    """A request as it is once it has been read from the wire."""
    arguments = kind.arguments(
        [a_uuid(f'server{number}') for number in range(kind.count)]
    )
    arguments['spec_obj'] = Serializer().deserialize_entity(
        CALLER, arguments['spec_obj']
    )
    return decode.request(versions.read(arguments), CALLER)


def large_driver(count, kind):
    stub: Any = StubPlacement(large_cloud(count), kind)
    known = sources(*AGGREGATES.values())
    prefilters = enabled_prefilters(SETTINGS, known)
    driver = loading.driver(SETTINGS)
    hosts = MemoryHosts(large_hosts(count))
    hosts.compute_version = NEW
    return driver(
        SchedulerDeps(
            SETTINGS,
            prefilters,
            PlacementClient(SETTINGS, stub),
            hosts,
            loading.filters(SETTINGS),
            loading.weighers(SETTINGS),
        )
    )


@lru_cache
def _aggregates(names):
    """Shared by the hosts that are in the same, as where they are read."""
    return tuple(AGGREGATES[name] for name in names)


@lru_cache(maxsize=1)
def large_hosts(count):
    """The hosts as they are read from the rows of their computes."""
    found = []
    for number, compute in enumerate(large_cloud(count)):
        row = SimpleNamespace(**compute.node_row())
        aggregates = _aggregates(tuple(aggregates_of(number)))
        service = Service(compute.name)
        if host := rows.host(row, a_uuid(compute.cell), service, SETTINGS):
            found.append(replace(host, aggregates=aggregates))
    return found


def _answered(computes, amounts):
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
                    name: {
                        'capacity': int(has['total'] * has['allocation_ratio']),
                        'used': 0,
                    }
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


def _response(status, body):
    return SimpleNamespace(
        status_code=status,
        content=body,
        headers={},
        reason='',
        json=lambda: json.loads(body),
    )


def _bounds(cost, costs):
    first = next(each for each in costs if each.kind == cost.kind)
    found = []
    if cost.hosts >= RECORDED_HOSTS:
        record_ms = (cost.in_memory - cost.seconds) * 1e3
        limit_ms = RECORDING_MS + (ASKED[cost.kind].count - 1) * RECORDING_INSTANCE_MS
        found.append(Bound(record_ms, '≤', limit_ms, 'ms for the record'))
        found.append(
            Bound(
                cost.own_in_file / cost.own, '≤', RECORDING_OWN, 'x before the answer'
            )
        )
    if cost is not first:
        found.append(
            Bound(cost.per_host / first.per_host, '≤', STEEPER, 'x among the fewest')
        )
    if cost.hosts == max(SIZES) and ASKED[cost.kind].count == 1:
        found.append(Bound(cost.per_host, '≤', PER_HOST, 'µs'))
    return found


if __name__ == '__main__':
    sys.exit(main())
