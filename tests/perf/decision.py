# SPDX-License-Identifier: Apache-2.0
"""Measure the cost of a decision without Placement and databases: ``python -m
tests.perf.decision``.

The real driver, filters, weighers and Placement client decide over hosts in memory, and
Placement's answers are there at once. A request is measured without decision records,
with records in memory, and with records in a file, in turn, so that a slow moment of
the machine affects all three.

The script prints milliseconds of processor time for a request, including the thread of
the recorder. A further column has the time of the request's own thread while records go
to a file: only this thread delays the answer.

The exit status is 1 if a bound is missed: more time per host among many hosts than
among few hosts, too much time per host, too much time for a record in memory, or too
much time before the answer. A record costs about the same among few hosts and among
many hosts, so that its bound is in milliseconds. The cost of records is the median of
the differences within a round: a slower machine in a few rounds does not change the
median.
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
from tests.lab.builders import a_uuid, numbered_uuids
from tests.lab.large_cloud_hosts import (
    LIBVIRT_TRAITS,
    METADATA,
    aggregates_of,
    large_cloud,
)
from tests.lab.large_cloud_requests import FILTERS, KINDS, REFUSALS, UNLIMITED
from tests.lab.prefilter_sources import sources
from tests.lab.results import Bound, missed_of
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
"""Requests by name. A filter rejects every host for the request ``refused``."""
CALLER = RequestContext(overwrite=False)
NEW = 1_000  # the version of services newer than all rules about older ones


class StubPlacement:
    """A keystoneauth1 adapter that offers every host and allows every claim."""

    def __init__(self, computes, kind):
        self._floating = _answer(computes, _renamed(kind.resources, 'PCPU', 'VCPU'))
        self._pinned = _answer(computes, _renamed(kind.resources, 'VCPU', 'PCPU'))

    def request(self, path, method, **_):
        if method != 'GET':
            return _response(204, b'')
        return _response(200, self._pinned if 'PCPU' in path else self._floating)


def _renamed(resources, old, new):
    return {new if name == old else name: count for name, count in resources.items()}


@dataclass(frozen=True)
class Cost:
    """Seconds for a request of a kind, among a number of hosts.

    :ivar seconds: without records.
    :ivar in_memory: with records in memory.
    :ivar in_file: with records in a file.
    :ivar own: of the request's own thread, without records.
    :ivar own_in_file: of the request's own thread, with records in a file.
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
        costs = [
            f'{self.seconds * 1e3:.2f}',
            f'{self.per_host:.2f}',
            _ms_and_increase(self.in_memory, self.seconds),
            _ms_and_increase(self.in_file, self.seconds),
            _ms_and_increase(self.own_in_file, self.own),
        ]
        return [self.kind, f'{self.hosts:,}', *costs]


def _ms_and_increase(seconds, base):
    return f'{seconds * 1e3:.2f} ({seconds / base - 1:+.1%})'


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

    # large_hosts() keeps the hosts of the last size.
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
    rows = []
    all_met = True
    for cost, bounds_of_cost in bounds.items():
        rows.append([*cost.texts(), '\n'.join(map(str, bounds_of_cost))])
        all_met = all_met and not missed_of(bounds_of_cost)
    publish(
        chosen,
        [Sheet('Cost of a decision', columns, rows)],
        {'costs': [asdict(cost) for cost in costs]},
    )
    return int(not all_met)


def measure(kind, hosts):
    """The median cost of several batches, after a batch that does not count."""
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
    """The medians of the additional seconds with records, in comparison with the batch
    without records in the same round: of the process, and of the own thread."""
    process = []
    thread = []
    for with_records, plain in zip(times, without, strict=True):
        process.append(with_records[0] - plain[0])
        thread.append(with_records[1] - plain[1])
    return median(process), median(thread)


def _batch(driver, request, is_refused):
    """Seconds of processor time for a request until all records are kept, and seconds
    of this thread. Nothing waits here, except for a processor."""
    counts = [] if is_refused else [SETTINGS.max_attempts] * request.count
    start = time.process_time()
    own = time.thread_time()
    for _ in range(BATCH):
        selections: Sequence[Sequence[object]] = ()
        with contextlib.suppress(NoValidHost):
            selections = driver.select_destinations(request)
        assert [len(of_instance) for of_instance in selections] == counts
        # The next request is for the same instances. With the claims of all requests,
        # the ledger would have hundreds of claims for each instance.
        for claim in driver.pending_claims.ledger.all():
            driver.pending_claims.release(claim)
    own = time.thread_time() - own

    if driver.deps.recorder is not None:
        driver.deps.recorder.wait()
    return (time.process_time() - start) / BATCH, own / BATCH


def large_request(kind):
    """A request after it was read from the wire."""
    uuids = numbered_uuids('server', kind.count)
    arguments = kind.arguments(uuids)
    arguments['spec_obj'] = Serializer().deserialize_entity(
        CALLER, arguments['spec_obj']
    )
    return decode.request(versions.read(arguments), CALLER)


def large_driver(count, kind):
    stub: Any = StubPlacement(large_cloud(count), kind)
    prefilters = enabled_prefilters(SETTINGS, sources(*AGGREGATES.values()))
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
    """The aggregates of a host. Hosts in the same aggregates share the tuple, as in
    ``cells/aggregates.py``."""
    return tuple(AGGREGATES[name] for name in names)


@lru_cache(maxsize=1)
def large_hosts(count):
    """The hosts, read from the rows of their computes."""
    hosts = []
    for number, compute in enumerate(large_cloud(count)):
        row = SimpleNamespace(**compute.node_row())
        aggregates = _aggregates(tuple(aggregates_of(number)))
        service = Service(compute.name)
        if host := rows.host(row, a_uuid(compute.cell), service, SETTINGS):
            hosts.append(replace(host, aggregates=aggregates))
    return hosts


def _answer(computes, amounts):
    """Placement's answer, with a candidate of the amounts on every host."""
    requests = []
    summaries = {}
    for compute in computes:
        uuid = compute.uuid
        allocations = {uuid: {'resources': amounts}}
        requests.append({'allocations': allocations, 'mappings': {'': [uuid]}})

        resources = {}
        for name, inventory in compute.inventories().items():
            capacity = int(inventory['total'] * inventory['allocation_ratio'])
            resources[name] = {'capacity': capacity, 'used': 0}
        summaries[uuid] = {
            'resources': resources,
            'traits': LIBVIRT_TRAITS,
            'parent_provider_uuid': None,
            'root_provider_uuid': uuid,
        }
    answer = {'allocation_requests': requests, 'provider_summaries': summaries}
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
    """The bounds of a cost; the first cost of its kind is among the fewest hosts."""
    first = next(other for other in costs if other.kind == cost.kind)
    bounds = []
    if cost.hosts >= RECORDED_HOSTS:
        record_ms = (cost.in_memory - cost.seconds) * 1e3
        limit_ms = RECORDING_MS + (ASKED[cost.kind].count - 1) * RECORDING_INSTANCE_MS
        bounds.append(Bound(record_ms, '≤', limit_ms, 'ms for the record'))
        own = cost.own_in_file / cost.own
        bounds.append(Bound(own, '≤', RECORDING_OWN, 'x before the answer'))
    if cost is not first:
        steeper = cost.per_host / first.per_host
        bounds.append(Bound(steeper, '≤', STEEPER, 'x among the fewest'))
    if cost.hosts == max(SIZES) and ASKED[cost.kind].count == 1:
        bounds.append(Bound(cost.per_host, '≤', PER_HOST, 'µs'))
    return bounds


if __name__ == '__main__':
    sys.exit(main())
