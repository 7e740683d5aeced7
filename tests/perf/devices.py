# SPDX-License-Identifier: Apache-2.0
"""Measure requests for devices: ``python -m tests.perf.devices``.

Each host has devices, as a host with vGPUs or with PCI devices in Placement has: child
providers with one VGPU each. A request has a request group for each device, with
``group_policy=isolate``. Placement answers such a query with all permutations of the
devices. novasched works out the candidates from an answer about all hosts.

The script measures Placement with permutations, and novasched with requests for 1, 2, 4
and 8 devices beside plain requests: single requests, several clients, and a cloud that
is filled to the last device. The exit status is 1 if a bound is missed.
"""

import argparse
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle
from statistics import median
from urllib.parse import urlencode

import pytest
import requests

from tests.lab.daemon import Daemon, new_uuids
from tests.lab.large_cloud import DEVICE_CLASS, cloud, config, device_uuid
from tests.lab.large_cloud_hosts import large_cloud
from tests.lab.large_cloud_requests import (
    DEVICES,
    FILTERS,
    UNLIMITED,
    devices_title,
)
from tests.lab.nova_release import merged
from tests.lab.placement_api import PlacementApi, PlacementProcess
from tests.lab.processes import Failed
from tests.lab.results import Bound, Row, conclude, resident, told
from tests.lab.rpc_load import Caller
from tests.lab.tables import add_outputs, numbers, teller
from tests.perf.callers import (
    PLACED,
    QUERY,
    Bare,
    Burst,
    PlacementLog,
    Scheduler,
    refused_share,
    sync,
)

SIZES = (500, 1_000, 5_000)
SMALLEST = SIZES[0]
"""The number of hosts for which Placement lists permutations, and which are filled.
More hosts would take hours."""
PLAIN = 'plain'
ONE = devices_title(1)
NUMBER_OF_DEVICES = {PLAIN: 0, **{devices_title(number): number for number in DEVICES}}

MEMORY_ROUNDS = 30
ANEW_ROUNDS = 9
ROUNDS = 3

PERMUTED = (1, 2, 4)
NOVA_PERMUTED = (1, 2)
QUERY_TIMEOUT_S = 60
MAX_PLACEMENT_RESULTS = 1_000
"""The default of ``[scheduler] max_placement_results``."""
REMEDY = {
    'OS_PLACEMENT__MAX_ALLOCATION_CANDIDATES': str(MAX_PLACEMENT_RESULTS),
    'OS_PLACEMENT__ALLOCATION_CANDIDATES_GENERATION_STRATEGY': 'breadth-first',
}
"""The options of ``[placement]`` that Placement recommends for many equal devices."""

CLIENTS = 16
STREAM_S = 60.0
SLICES = 4
"""Parts of a stream. Plain requests and a mix take turns, since the machine may become
slower or faster meanwhile. The claims of a part are deleted before the next part."""
CLAIMS_ALONE_S = 10.0
"""Seconds in which a client claims without a scheduler."""
TOGETHER = 100
"""Guests of one request that fills the cloud."""

TO_PLAIN = 1.5
RATE_TO_PLAIN = 0.8
QUARTER = 0.25
MAX_MEMORY_MIB = 300


def options(**overrides):
    """The configuration of a scheduler.

    :param overrides: options that differ, by section.
    """
    # AggregateInstanceExtraSpecsFilter takes the extra spec group_policy for a key of
    # aggregate metadata, in nova as in novasched, and rejects all hosts.
    filters = [name for name in FILTERS if name != 'AggregateInstanceExtraSpecsFilter']
    # No host reports its guests, so that claims of deleted guests count for a minute.
    # Only devices are to be scarce.
    filter_options = {
        'enabled_filters': ','.join(filters),
        'max_io_ops_per_host': UNLIMITED,
        'max_instances_per_host': UNLIMITED,
    }
    base = merged(config(fallback=False), {'filter_scheduler': filter_options})
    return merged(base, overrides)


@dataclass(frozen=True)
class Guests:
    """Guests of a kind that fill a cloud, or a part of the cloud.

    :ivar together: number of guests of a request.
    :ivar clients: number of concurrent requests.
    """

    kind: str
    number: int
    together: int = 1
    clients: int = CLIENTS

    def batches(self):
        """New UUIDs for the guests of each request."""
        for first in range(0, self.number, self.together):
            yield new_uuids(min(self.together, self.number - first))


class Bench:
    """The measurements of a cloud.

    :ivar base_query: the path of the query about all hosts.
    """

    def __init__(self, cloud, caller, tell, plan):
        self.cloud = cloud
        self.caller = caller
        self.tell = tell
        self.plan = plan
        self.log = PlacementLog(cloud.placement_process.log)
        self.bare = Bare(cloud.placement_url)
        self.base_query = ''
        self.device_kinds = []
        for number in DEVICES:
            if number <= plan.devices:
                self.device_kinds.append(devices_title(number))
        self.kinds = [PLAIN, *self.device_kinds]

    def measure(self, computes):
        """The rows for a cloud of the computes."""
        hosts = len(computes)
        self.tell(f'{hosts:,} hosts: filling the databases')
        self.cloud.grow(computes, devices=self.plan.devices)

        if self.plan.placement or hosts == SMALLEST:
            yield from self._permutations(hosts)
        with self._started(novasched={'candidates_max_age': 0}) as asking:
            yield from self._anew(hosts, asking)
        with self._started() as ours:
            yield from self._from_memory(hosts, ours)
            yield from self._stream(hosts, ours)
            if hosts <= SMALLEST:
                yield from self._fill(hosts, ours)
            yield self._memory(hosts, ours)

    @contextmanager
    def _started(self, command=(), **overrides):
        """Run a scheduler during the block."""
        self.tell('a scheduler starts')
        daemon = Daemon(self.cloud, options(**overrides), command)
        with closing(daemon):
            with redirect_stdout(sys.stderr):
                daemon.start()
            yield Scheduler(daemon, self.caller, self.bare, self.log)

    def _permutations(self, hosts):
        """Placement's own time for permutations, and the time of nova-scheduler, which
        asks for permutations."""
        answered = []
        bare = {}
        for number in PERMUTED:
            kind = devices_title(number)
            times = self._placement_times(kind, {})
            bare[kind] = times
            if times and number in NOVA_PERMUTED:
                answered.append(kind)
        # A query that Placement does not answer would also keep nova-scheduler waiting.
        nova = {}
        if answered and not self.plan.alone:
            nova = self._nova_times(answered)

        for kind, times in bare.items():
            title = f'{kind}, permutations'
            yield _placement_row(hosts, title, times, nova.get(kind, ()))
        for kind in bare:
            title = f'{kind}, at most {MAX_PLACEMENT_RESULTS:,} permutations'
            yield _placement_row(hosts, title, self._placement_times(kind, REMEDY))

    def _placement_times(self, kind, environment):
        """Seconds of Placement for the query of a kind; none if Placement does not
        answer in time.

        Placement continues to work on a query whose client has left, and a process of
        its own ends with the measurement.

        :param environment: the options of Placement.
        """
        limits = 'limited' if environment else 'all'
        self.tell(f'Placement alone: {kind}, {limits} permutations')
        directory = self.cloud.directory / 'permutations'
        directory.mkdir(exist_ok=True)
        connection = self.cloud.placement_process.connection
        times = []
        with (
            PlacementProcess(
                connection, directory, environment=environment
            ) as placement,
            closing(PlacementApi(placement.url)) as api,
        ):
            # The first query opens connections and fills caches.
            api.send('GET', _query(PLAIN))
            while len(times) < ROUNDS and sum(times) < QUERY_TIMEOUT_S:
                start = time.perf_counter()
                try:
                    api.send('GET', _query(kind), timeout=QUERY_TIMEOUT_S)
                except requests.Timeout:
                    break
                times.append(time.perf_counter() - start)
        return times

    def _nova_times(self, kinds):
        """Seconds of nova-scheduler for requests of kinds."""
        command = [self.cloud.nova.script('nova-scheduler')]
        scheduler = {'max_placement_results': MAX_PLACEMENT_RESULTS}
        times = {}
        with self._started(command, scheduler=scheduler) as nova:
            sync(self.caller, nova.daemon.host, dict.fromkeys(self.cloud.computes, ()))
            nova.place(PLAIN)
            for kind in kinds:
                self.tell(f'nova-scheduler: {kind}')
                times[kind] = [nova.place(kind) for _ in range(ROUNDS)]
        return times

    def _anew(self, hosts, asking):
        """Single requests to a scheduler that does not remember answers."""
        self.tell('single requests, asked anew')
        queries = {kind: asking.queries(kind) for kind in self.kinds}
        [self.base_query] = queries[ONE]
        rows = self._singles(hosts, asking, 'asked anew', ANEW_ROUNDS)
        for kind, row in zip(self.kinds, rows, strict=True):
            claim = self._allocations(kind, self._first_host)
            times = [self.bare.measure(queries[kind], claim) for _ in range(ROUNDS)]
            yield replace(row, placement=median(times) * 1e3)

    @property
    def _first_host(self):
        return next(iter(self.cloud.computes))

    def _allocations(self, kind, name):
        """Allocations of a kind on a host. A claim with devices takes Placement longer,
        since it changes more providers."""
        compute = self.cloud.computes[name]
        allocations = {compute.uuid: {'resources': PLACED[kind].resources}}
        for index in range(NUMBER_OF_DEVICES[kind]):
            device = device_uuid(name, index)
            allocations[device] = {'resources': {DEVICE_CLASS: 1}}
        return allocations

    def _claims_alone(self, kinds):
        """Claims per second that Placement grants to the clients without a scheduler,
        for kinds in turn, each on another host."""
        offers = []
        for name, kind in zip(self.cloud.computes, cycle(kinds), strict=False):
            offers.append({'allocations': self._allocations(kind, name)})
        # Few devices are left on a host after a claim.
        return self.bare.pace(offers, CLIENTS, CLAIMS_ALONE_S, again=False)

    def _from_memory(self, hosts, ours):
        """Single requests, most of them served from remembered answers. Placement's own
        time is the time of the claim."""
        self.tell('single requests, from memory')
        for kind in self.kinds:
            ours.place(kind)
        rows = self._singles(hosts, ours, 'from memory', MEMORY_ROUNDS)
        for kind, row in zip(self.kinds, rows, strict=True):
            claim = self._allocations(kind, self._first_host)
            times = [self.bare.measure((), claim) for _ in range(ANEW_ROUNDS)]
            yield replace(row, placement=median(times) * 1e3)

    def _singles(self, hosts, scheduler, mode, rounds):
        """A row for each kind. The kinds are asked in turn, since the machine may
        become slower or faster meanwhile."""
        self.log.drain()
        times = {kind: [] for kind in self.kinds}
        for _ in range(rounds):
            for kind in self.kinds:
                times[kind].append(scheduler.place(kind))

        queries, _ = self.log.drain()
        count = rounds * len(self.kinds)
        self.tell(f'{len(queries)} queries to Placement for {count} requests')
        _check_queries(queries)
        plain = median(times[PLAIN])
        rows = []
        for kind in self.kinds:
            row = Row.of_times(hosts, f'{kind}, {mode}', times[kind], ())
            if kind != PLAIN:
                bound = Bound(median(times[kind]) / plain, '≤', TO_PLAIN, 'x plain')
                row = row.bounded(bound)
            rows.append(row)
        return rows

    def _stream(self, hosts, ours):
        """Clients with plain requests, and clients with a mix of requests, in turn."""
        title = f'{CLIENTS} clients'
        self.tell(f'{title}, {SLICES} times plain requests and then a mix')
        base = self._base_query_s()
        seconds = self.plan.seconds / SLICES
        mixed_kinds = [*map(PLACED.get, self.kinds)]
        plain_slices = []
        mixed_slices = []
        for _ in range(SLICES):
            plain_slices.append(ours.stream(CLIENTS, seconds, [PLACED[PLAIN]]))
            mixed_slices.append(ours.stream(CLIENTS, seconds, mixed_kinds))
        plain = _joined(plain_slices)
        mixed = _joined(mixed_slices)

        yield Row.of_times(hosts, f'{title}, plain', plain.times, ())
        pace = Row(hosts, f'{title}, plain', 'requests/s', plain.pace)
        yield replace(pace, placement=self._claims_alone([PLAIN]))
        yield Row(hosts, f'{title}, plain', 'longest, ms', max(plain.times) * 1e3)
        refused = refused_share([plain])
        yield Row(hosts, f'{title}, plain', 'claims refused', refused)

        yield Row.of_times(hosts, f'{title}, mix', mixed.times, ())
        rate = Bound(mixed.pace / plain.pace, '≥', RATE_TO_PLAIN, 'x plain')
        pace = Row(hosts, f'{title}, mix', 'requests/s', mixed.pace).bounded(rate)
        yield replace(pace, placement=self._claims_alone(self.kinds))
        longest = max(mixed.times_of(PLACED[PLAIN]))
        yield Row(hosts, f'{title}, plain in mix', 'longest, ms', longest * 1e3)
        refused = refused_share([mixed])
        yield Row(hosts, f'{title}, mix', 'claims refused', refused)
        share = mixed.queries * base / mixed.lasted
        yield Row(hosts, f'{title}, mix', "of a worker's time", share).bounded(
            Bound(share, '≤', QUARTER)
        )

    def _base_query_s(self):
        """Seconds of Placement for the answer about all hosts."""
        times = []
        for _ in range(ROUNDS):
            start = time.perf_counter()
            self.bare.send('GET', self.base_query)
            times.append(time.perf_counter() - start)
        return median(times)

    def _fill(self, hosts, ours):
        """Fill the cloud to the last device: with guests of one device, with guests of
        the most devices, and with a mix."""
        devices = hosts * self.plan.devices
        most = max(number for number in DEVICES if number <= self.plan.devices)
        single = Guests(ONE, devices, TOGETHER, clients=1)
        yield from self._filled(hosts, ONE, ours, [single])
        title = devices_title(most)
        yield from self._filled(hosts, title, ours, [Guests(title, devices // most)])

        # Large guests come first: small guests on all hosts would leave devices, but no
        # host with enough of them.
        left = devices
        mix = []
        for number in sorted(DEVICES, reverse=True):
            if 1 < number <= self.plan.devices:
                count = devices // len(self.device_kinds) // number
                mix.append(Guests(devices_title(number), count))
                left -= count * number
        mix.append(Guests(ONE, left))
        yield from self._filled(hosts, 'mix', ours, mix)

    def _filled(self, hosts, title, ours, guests_of_kinds):
        """The row of a filled cloud. The claims are deleted afterwards."""
        self.tell(f'filling the cloud: {title}')
        devices = hosts * self.plan.devices
        placed = []
        start = time.perf_counter()
        for guests in guests_of_kinds:
            placed += _place(ours, guests)
        taken = time.perf_counter() - start

        allocated = self.cloud.providers.allocated(DEVICE_CLASS)
        beyond = new_uuids()
        more = ours.hosts_of(ONE, beyond)
        if more:
            placed += beyond
        row = Row(hosts, f'filled: {title}', 'guests/s', len(placed) / taken)
        yield row.bounded(
            Bound(len(allocated) / devices, '≥', 1, 'of all devices'),
            Bound(max(allocated.values(), default=0), '≤', 1, 'times each'),
            Bound(len(more), '≤', 0, 'guests more'),
        )
        self.tell('deleting the claims')
        self.bare.give_back(placed)

    def _memory(self, hosts, ours):
        mebibytes = resident(ours.daemon.pid) / 2**20
        row = Row(hosts, 'resident memory', 'MiB', mebibytes)
        if hosts == max(self.plan.hosts):
            return row.bounded(Bound(mebibytes, '≤', MAX_MEMORY_MIB, 'MiB'))
        return row


def _query(kind):
    """The path of nova's query for a kind, with permutations of the devices."""
    flavor = PLACED[kind].flavor
    amounts = PLACED[kind].resources.items()
    parameters = {
        'limit': MAX_PLACEMENT_RESULTS,
        'resources': ','.join(f'{name}:{amount}' for name, amount in amounts),
        'root_required': '!COMPUTE_STATUS_DISABLED',
    }
    for key, value in flavor.get('extra_specs', {}).items():
        parameter, colon, resource_class = key.partition(':')
        if colon:
            value = f'{resource_class}:{value}'
        parameters[parameter] = value
    return f'{QUERY}?{urlencode(parameters)}'


def _check_queries(queries):
    """Check that Placement was asked for no permutations.

    :raises Failed: a query asks for devices, which would make the figures useless.
    """
    for query in queries:
        if DEVICE_CLASS in query:
            raise Failed(f'Placement was asked for permutations: {query}')


def _placement_row(hosts, title, times, nova=()):
    """The row for times of Placement, and of nova-scheduler."""
    if not times:
        return Row(hosts, f'{title}: no answer', 'ms', placement=QUERY_TIMEOUT_S * 1e3)
    row = Row.of_times(hosts, title, (), nova)
    return replace(row, placement=median(times) * 1e3)


def _place(scheduler, guests):
    """Request guests; the UUIDs of the guests with a host. The claims stay."""
    batches = [*guests.batches()]
    with ThreadPoolExecutor(guests.clients) as pool:
        answers = pool.map(partial(scheduler.hosts_of, guests.kind), batches)
        placed = []
        for uuids, hosts in zip(batches, answers, strict=True):
            if hosts:
                placed += uuids
    return placed


def _joined(slices):
    """A stream of several parts as one."""
    times = []
    claims = []
    kinds = []
    paths = []
    lasted = 0.0
    for part in slices:
        times += part.times
        claims += part.claims
        kinds += part.kinds
        paths += part.paths
        lasted += part.lasted
    hosts = max(part.hosts for part in slices)
    return Burst(times, hosts, paths, claims, lasted, kinds)


def main(arguments=None):
    chosen = _arguments(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    tell = teller()
    rows: list[Row] = []
    try:
        tell('servers start')
        with cloud() as made, Caller(made.config('conductor')) as caller:
            bench = Bench(made, caller, tell, chosen)
            for hosts in chosen.hosts:
                rows += told(bench.measure(large_cloud(hosts)), tell)
    except (pytest.fail.Exception, Failed) as error:
        print(error, file=sys.stderr)
        return 2
    return conclude(chosen, rows, tell)


def _arguments(arguments):
    parser = argparse.ArgumentParser(
        'python -m tests.perf.devices', description=__doc__
    )
    parser.add_argument(
        '--hosts', type=numbers, default=SIZES, help='sizes, with commas'
    )
    parser.add_argument(
        '--devices', type=int, choices=DEVICES, default=8, help='of each host'
    )
    parser.add_argument(
        '--seconds', type=float, default=STREAM_S, help='of a stream of requests'
    )
    parser.add_argument('--alone', action='store_true', help='without nova-scheduler')
    parser.add_argument(
        '--placement',
        action='store_true',
        help=f'ask Placement for permutations with every size, not only {SMALLEST}',
    )
    add_outputs(parser)
    return parser.parse_args(arguments)


if __name__ == '__main__':
    sys.exit(main())
