# SPDX-License-Identifier: Apache-2.0
"""Measure novasched beside the real nova-scheduler: ``python -m tests.perf.daemon``.

Both schedulers serve the same cloud, with the same databases, message queue and
Placement. nova runs from the virtualenv of ``NOVASCHED_NOVA_PYTHON``. The exit status
is 1 if a bound is missed.

The schedulers are asked in turn, by the queues of their host names. Figures are
medians. Claims are deleted after a request, so that every request finds the same cloud.
"""

import argparse
import os
import signal
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext, redirect_stdout
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest
import sqlalchemy as sa

from tests.lab.daemon import Daemon
from tests.lab.large_cloud import cloud, config
from tests.lab.large_cloud_hosts import LIBVIRT_TRAITS, instances_of, large_cloud
from tests.lab.large_cloud_requests import FILTERS, KINDS, REFUSALS
from tests.lab.processes import Failed, free_port
from tests.lab.results import Bound, QueryLog, Row, conclude, resident, told
from tests.lab.rpc_load import Caller
from tests.lab.tables import add_outputs, among, numbers, teller
from tests.perf.callers import (
    Bare,
    PlacementLog,
    Scheduler,
    flooding,
    refused_share,
    sync,
)

SIZES = (1_000, 5_000)
AT_ONCE = (8, 32)
CROWD = 256
"""Number of concurrent requests that read the instances of all hosts."""
SMALLEST, LARGEST = SIZES
SINGLE = tuple(name for name, kind in KINDS.items() if kind.count == 1)
MEASURES = (
    'one',
    'again',
    'stream',
    'beside',
    'ten',
    'burst',
    'queries',
    'memory',
    'refused',
    'groups',
    'instances',
    'reload',
    'metrics',
    'peers',
    'usable',
)
"""Names of the methods of :class:`Bench`, in order."""
PARTS = ('start', 'silent', *MEASURES)
ALONE = {
    'again',
    'stream',
    'beside',
    'refused',
    'groups',
    'instances',
    'reload',
    'metrics',
    'peers',
    'usable',
}
"""Measurements of novasched only."""
ONCE = ('ten', 'burst', 'reload', 'metrics', 'peers')
"""Measurements in the smallest cloud only: nova would take minutes for larger
clouds."""

# Numbers of repetitions. novasched and Placement have three turns for a turn of nova,
# which takes seconds.
ROUNDS = 3
OURS = 3
STARTS = 2
GROUP_ROUNDS = 15
BURSTS = 16
OUR_BURSTS = 13
"""Number of requests in nova's bursts, with one burst at least, and number of
novasched's bursts."""
HANGUPS = 30
HANGUP_PERIOD = 1.0  # seconds
FLOODED_REQUESTS = 30  # in each of ROUNDS

AGAIN_ROUNDS = 30
PEER_ROUNDS = 100
CLIENTS = 16
STREAM_S = 60.0
BUSY_CLIENTS = 60
BUSY_S = 20.0
CLAIMS_ALONE_S = 20.0

TO_PLACEMENT = 1.1
AGAIN_TO_PLACEMENT = 0.1
SHARING_MS = 3
STREAM_TO_PLACEMENT = 0.2
FASTER = {SMALLEST: 8, LARGEST: 12}
TEN_FASTER = 20
BURST_FASTER = 50
TO_PLAIN = 1.15
REFUSED_TO_PLAIN = 1.5
TO_BEFORE = 1.05
TO_MEDIAN = 2
HUNDRED_TO_ALONE = 3
ONE_TO_ALONE = 2
REFUSED = 0.01  # of the claims
FIFTH = 0.2
QUARTER = 0.25


class Bench:
    def __init__(self, cloud, caller, tell):
        self.cloud = cloud
        self.caller = caller
        self.log = PlacementLog(cloud.placement_process.log)
        self.query_log = QueryLog(cloud.placement_process.connection)
        self.tell = tell
        self.bare = Bare(cloud.placement_url)
        self.constant: dict[str, float] = {}
        self.plain: list[str] = []

    def measure(self, computes, plan):
        """The rows for a cloud of the computes."""
        hosts = len(computes)
        is_first = not self.cloud.computes
        self.tell(f'{hosts:,} hosts: filling the databases')
        self.cloud.grow(computes, plan.instances)
        with ExitStack() as stack:
            starts = STARTS if 'start' in plan.only else 1
            ours, start = self._started([], config(plan.fallback), starts, stack)
            # Only the first requests of a daemon query Placement for themselves.
            queries, _ = self.log.drain()
            self.plain = [path for path in queries if 'limit=' in path][-1:]
            if plan.alone or ALONE.issuperset(plan.only):
                yield Row(hosts, 'start to first answer', 's', start)
                for part in _chosen(plan):
                    yield from getattr(self, f'_{part}')(hosts, ours, None, plan)
                return
            nova, late = self._started(
                [self.cloud.nova.script('nova-scheduler')],
                config(plan.fallback),
                starts,
                stack,
            )
            if 'start' in plan.only:
                row = Row(hosts, 'start to first answer', 's', start, late)
                bound = Bound(start / late, '≤', FIFTH, 'of nova')
                yield row.bounded(bound) if hosts == LARGEST else row
            if 'silent' in plan.only:
                self.tell('a request, before any compute has said which servers it has')
                fast, slow, _ = self._in_turn('plain', ours, nova, (), rounds=1)
                yield Row.of_times(hosts, 'plain, computes silent', fast, slow)
            self.tell(f'nova-scheduler hears from {hosts:,} computes')
            names = self.cloud.computes
            has = {name: instances_of(name, plan.instances) for name in names}
            sync(self.caller, nova.daemon.host, has)

            for part in _chosen(plan):
                if is_first or part not in ONCE:
                    yield from getattr(self, f'_{part}')(hosts, ours, nova, plan)

    def _started(self, command, config, times, stack):
        """A scheduler after several starts, and the median seconds from a start to the
        first answer."""
        taken = []
        for left in reversed(range(times)):
            self.tell(f'{Path(command[0]).name if command else "novasched"} starts')
            daemon = Daemon(self.cloud, config, command)
            stack.callback(daemon.close)
            scheduler = Scheduler(daemon, self.caller, self.bare, self.log)
            start = time.perf_counter()
            with redirect_stdout(sys.stderr):
                daemon.start()
            started = time.perf_counter() - start
            taken.append(started + scheduler.place('plain'))
            if left:
                daemon.close()
        return scheduler, median(taken)

    def _one(self, hosts, ours, nova, plan):
        """Single requests without remembered answers."""
        with ExitStack() as stack:
            yield from self._kinds(hosts, self._asking(plan, stack), nova, plan)

    def _asking(self, plan, stack):
        """A novasched that does not remember answers of Placement."""
        options = {**config(plan.fallback), 'novasched': {'candidates_max_age': 0}}
        return self._started([], options, 1, stack)[0]

    def _again(self, hosts, ours, nova, plan):
        """Requests of a client with the same flavor."""
        self.tell('a flavor asked for again and again')
        bare = self._alone()
        times = [ours.place('plain') for _ in range(AGAIN_ROUNDS)]
        row = replace(
            Row.of_times(hosts, 'plain again', times, ()), placement=bare * 1e3
        )
        bound = Bound(median(times) / bare, '≤', AGAIN_TO_PLACEMENT, 'x Placement')
        yield row.bounded(bound) if hosts >= LARGEST else row

    def _stream(self, hosts, ours, nova, plan):
        """Requests of several clients with several flavors, a request of a client after
        the other."""
        title = f'stream of {CLIENTS} clients'
        self.tell(title)
        bare = self._alone()
        stream = ours.stream(CLIENTS, STREAM_S)
        row = replace(
            Row.of_times(hosts, title, stream.times, ()), placement=bare * 1e3
        )
        yield row.bounded(
            Bound(median(stream.times) / bare, '≤', STREAM_TO_PLACEMENT, 'x Placement')
        )
        offers = self.bare.offers(self.plain[0])
        most = self.bare.pace(offers, CLIENTS, CLAIMS_ALONE_S)
        yield replace(Row(hosts, title, 'requests/s', stream.pace), placement=most)
        refused = refused_share([stream])
        yield Row(hosts, title, 'claims refused', refused).bounded(
            Bound(refused, '≤', REFUSED)
        )
        share = stream.queries * bare / stream.lasted
        yield Row(hosts, title, "of a worker's time", share).bounded(
            Bound(share, '≤', QUARTER)
        )

    def _beside(self, hosts, ours, nova, plan):
        """Requests for a hundred servers, alone and beside clients that each request
        one server after the other."""
        self.tell(f'requests for a hundred servers beside {BUSY_CLIENTS} clients')
        alone = [ours.place('hundred') for _ in range(ROUNDS)]
        ones = ours.stream(BUSY_CLIENTS, BUSY_S).times

        beside = []
        with ThreadPoolExecutor(1) as pool:
            stream = pool.submit(ours.stream, BUSY_CLIENTS, BUSY_S)
            while not stream.done():
                beside.append(ours.place('hundred'))
        # The last request has outlasted the clients.
        beside.pop()
        ones_beside = stream.result().times

        yield Row.of_times(hosts, 'hundred servers', alone, ())
        times = median(beside) / median(alone)
        bound = Bound(times, '≤', HUNDRED_TO_ALONE, 'x alone')
        row = Row.of_times(hosts, f'beside {BUSY_CLIENTS} clients', beside, ())
        yield row.bounded(bound)
        yield Row.of_times(hosts, f'one of {BUSY_CLIENTS} clients', ones, ())
        times = median(ones_beside) / median(ones)
        bound = Bound(times, '≤', ONE_TO_ALONE, 'x without')
        row = Row.of_times(hosts, 'beside hundred servers', ones_beside, ())
        yield row.bounded(bound)

    def _alone(self):
        """Seconds of Placement for a plain request without remembered answers."""
        return median(self.bare.measure(self.plain) for _ in range(ROUNDS))

    def _kinds(self, hosts, ours, nova, plan):
        for kind in plan.kinds:
            self.tell(f'a request: {kind}')
            queries = ours.queries(kind)
            fast, slow, alone = self._in_turn(kind, ours, nova, queries)
            row = Row.of_times(hosts, kind, fast, slow)
            bare = median(alone)
            bounds = [Bound(median(fast) / bare, '≤', TO_PLACEMENT, 'x Placement')]
            if nova and hosts in FASTER:
                faster = median(slow) / median(fast)
                bounds.append(Bound(faster, '≥', FASTER[hosts], 'x faster'))
            yield replace(row, placement=bare * 1e3).bounded(*bounds)

    def _ten(self, hosts, ours, nova, plan):
        self.tell('a request for ten servers')
        fast, slow, _ = self._in_turn('ten', ours, nova, ())
        row = Row.of_times(hosts, 'ten servers', fast, slow)
        if nova and hosts == SMALLEST:
            row = row.bounded(
                Bound(median(slow) / median(fast), '≥', TEN_FASTER, 'x faster')
            )
        yield row

    def _in_turn(self, kind, ours, nova, queries, rounds=ROUNDS):
        """Seconds of the requests to novasched, to nova, and to Placement."""
        fast = []
        slow = []
        bare = []
        for _ in range(rounds):
            for _ in range(OURS):
                bare.append(self.bare.measure(queries) if queries else 0.0)
                fast.append(ours.place(kind))
            if nova:
                slow.append(nova.place(kind))
        return fast, slow, bare

    def _burst(self, hosts, ours, nova, plan):
        for size in plan.at_once:
            yield from self._bursts(hosts, ours, nova, size)

    def _bursts(self, hosts, ours, nova, size):
        title = f'{size} at once'
        self.tell(f'{size} requests at once')
        if nova is None:
            alone = [ours.burst(size) for _ in range(ROUNDS)]
            yield Row(hosts, title, 'requests/s', _median_of('pace', alone))
            yield Row(hosts, title, 'claims refused', refused_share(alone))
            return
        fast = []
        slow = []
        for number in range(OUR_BURSTS):
            fast.append(ours.burst(size))
            if number < max(1, BURSTS // size):
                slow.append(nova.burst(size))
        pace = _median_of('pace', fast)
        slow_pace = _median_of('pace', slow)
        spread = _median_of('hosts', fast)
        slow_spread = _median_of('hosts', slow)
        refused = refused_share(fast)
        slow_refused = refused_share(slow)
        yield Row.of_times(hosts, title, _all_times(fast), _all_times(slow))
        faster = Bound(pace / slow_pace, '≥', BURST_FASTER, 'x faster')
        is_bounded = hosts == SMALLEST and size == AT_ONCE[0]
        for what, figure, slow_figure, bound in (
            ('requests/s', pace, slow_pace, faster),
            ('claims refused', refused, slow_refused, Bound(refused, '≤', REFUSED)),
            ('different hosts', spread, slow_spread, Bound(spread, '≥', size / 2)),
        ):
            row = Row(hosts, title, what, figure, slow_figure)
            yield row.bounded(bound) if is_bounded else row
        asked = _median_of('queries', fast)
        slow_asked = _median_of('queries', slow)
        yield Row(hosts, title, 'queries to Placement', asked, slow_asked)

    def _queries(self, hosts, ours, nova, plan):
        for kind in plan.kinds:
            self.tell(f'queries to the databases: {kind}')
            asked = [self._asked(ours, kind) for _ in range(OURS)]
            count = median(map(len, asked))
            if plan.statements:
                for statement, times in Counter(asked[-1]).most_common():
                    self.tell(f'{times} x {statement}')
            # Larger clouds may need no more queries than the smallest cloud.
            bound = Bound(count, '≤', self.constant.setdefault(kind, count))
            if nova and kind == plan.kinds[0]:
                slow = len(self._asked(nova, kind))
            else:
                slow = None
            yield Row(hosts, kind, 'database queries', count, slow).bounded(bound)

    def _asked(self, scheduler, kind):
        with self.query_log.watch() as asked:
            scheduler.place(kind)
        return asked

    def _memory(self, hosts, ours, nova, plan):
        small = resident(ours.daemon.pid) / 2**20
        if nova is None:
            yield Row(hosts, 'resident memory', 'MiB', small)
            return
        large = resident(nova.daemon.pid) / 2**20
        row = Row(hosts, 'resident memory', 'MiB', small, large)
        bound = Bound(small / large, '≤', FIFTH, 'of nova')
        yield row.bounded(bound) if hosts == LARGEST else row

    def _refused(self, hosts, ours, nova, plan):
        """Requests that fit no host, also after new reports of all hosts. Refusals and
        plain requests query Placement alike, since nothing is remembered."""
        self.tell('requests that are refused')
        plain: list[float] = []
        refused: dict[str, list[float]] = {kind: [] for kind in REFUSALS}
        anew: dict[str, list[float]] = {kind: [] for kind in REFUSALS}
        with ExitStack() as stack:
            asking = self._asking(plan, stack)
            for _ in range(ROUNDS):
                plain.append(asking.place('plain'))
                for kind in REFUSALS:
                    refused[kind].append(asking.refuse(kind))
                for kind in REFUSALS:
                    self._report_anew()
                    anew[kind].append(asking.refuse(kind))
        for kind, times in refused.items():
            bound = Bound(
                median(times) / median(plain), '≤', REFUSED_TO_PLAIN, 'x plain'
            )
            yield Row.of_times(hosts, f'{kind}, refused', times, ()).bounded(bound)
            yield Row.of_times(
                hosts, f'{kind}, refused, hosts reported anew', anew[kind], ()
            )

    def _report_anew(self):
        """Change the NUMA text of every host to a text that no scheduler knows."""
        for cell in self.cloud.cells.values():
            text = cell.table('compute_nodes').c.numa_topology
            with cell.engine.begin() as connection:
                connection.execute(
                    sa.update(text.table).values(numa_topology=text + ' ')
                )

    def _groups(self, hosts, ours, nova, plan):
        """Requests that name instances, and plain requests."""
        self.tell(f'requests with a group, {plan.instances} instances on each host')
        plain = []
        group = []
        for _ in range(GROUP_ROUNDS):
            plain.append(ours.place('plain'))
            group.append(ours.place('group'))
        slower = Bound(median(group) / median(plain), '≤', TO_PLAIN, 'x plain')
        title = f'group, {plan.instances} instances a host'
        yield Row.of_times(hosts, title, group, ()).bounded(slower)
        before = resident(ours.daemon.pid)
        for _ in range(plan.group_requests):
            ours.place('group')
        after = resident(ours.daemon.pid)
        self.tell(
            f'memory: {before / 2**20:.1f} MiB before them, {after / 2**20:.1f} after'
        )
        row = Row(
            hosts, f'after {plan.group_requests} with a group', 'MiB', after / 2**20
        )
        yield row.bounded(Bound(after / before, '≤', TO_BEFORE, 'x before'))

    def _instances(self, hosts, ours, nova, plan):
        """Requests that read the instances of all hosts: single, and concurrent."""
        self.tell(f'requests for all instances, {plan.instances} on each host')
        with ExitStack() as stack:
            filters = {'enabled_filters': ','.join((*FILTERS, 'TypeAffinityFilter'))}
            options = {**config(plan.fallback), 'filter_scheduler': filters}
            whole, _ = self._started([], options, 1, stack)
            before = resident(whole.daemon.pid)

            times = [whole.place('plain') for _ in range(OURS)]
            yield Row.of_times(hosts, 'all instances (TypeAffinityFilter)', times, ())

            for size in (plan.at_once[0], CROWD):
                burst = whole.burst(size)
                title = f'all instances, {size} at once'
                yield Row.of_times(hosts, title, burst.times, ())
                yield Row(hosts, title, 's until the last', max(burst.times))

            after = resident(whole.daemon.pid)
            self.tell(
                f'memory: {before / 2**20:.0f} MiB before them, {after / 2**20:.0f} after'
            )
            yield Row(hosts, 'all instances, memory', 'MiB', after / 2**20)

    def _peers(self, hosts, ours, nova, plan):
        """Requests to one of three schedulers that share claims, and to a scheduler
        that does not."""
        self.tell('a request to one of three schedulers')
        options = {
            **config(plan.fallback),
            'novasched': {'share_pending_claims': False},
        }
        silent = []
        sharing = []
        with ExitStack() as stack:
            alone, _ = self._started([], options, 1, stack)
            peers = []
            for _ in range(3):
                peer, _ = self._started([], config(plan.fallback), 1, stack)
                peers.append(peer)
            one = peers[0]
            for _ in range(PEER_ROUNDS):
                silent.append(alone.place('plain'))
                sharing.append(one.place('plain'))
        yield Row.of_times(hosts, 'shares no claims', silent, ())
        more = (median(sharing) - median(silent)) * 1e3
        bound = Bound(more, '≤', SHARING_MS, 'ms more')
        yield Row.of_times(hosts, 'one of three that do', sharing, ()).bounded(bound)

    def _usable(self, hosts, ours, nova, plan):
        """Requests without and with the weigher of usable capacity, whose usual guests
        are the instances of the databases."""
        self.tell('requests with the weigher of usable capacity')
        multiplier = {'fragmentation_weight_multiplier': 1000}
        options = {**config(plan.fallback), 'novasched': multiplier}
        with ExitStack() as stack:
            weighing, _ = self._started([], options, 1, stack)
            for kind in plan.kinds:
                off = []
                on = []
                for scheduler in (ours, weighing):
                    scheduler.place(kind)
                for _ in range(AGAIN_ROUNDS):
                    off.append(ours.place(kind))
                    on.append(weighing.place(kind))
                bound = Bound(median(on) / median(off), '≤', TO_BEFORE, 'x off')
                row = Row.of_times(hosts, f'{kind}, usable capacity', on, ())
                yield row.bounded(bound)

    def _reload(self, hosts, ours, nova, plan):
        """Requests in sequence, while the scheduler gets SIGHUP every second."""
        self.tell('requests while SIGHUP comes every second')
        quiet = [ours.place('plain') for _ in range(HANGUPS)]
        taken: list[float] = []
        for _ in range(HANGUPS):
            os.kill(ours.daemon.pid, signal.SIGHUP)
            end = time.monotonic() + HANGUP_PERIOD
            while time.monotonic() < end:
                taken.append(ours.place('plain'))
        bound = Bound(max(taken) / median(taken), '≤', TO_MEDIAN, 'of the median')
        yield Row.of_times(hosts, 'without SIGHUP', quiet, ())
        yield Row.of_times(hosts, 'SIGHUP every second', taken, ()).bounded(bound)

    def _metrics(self, hosts, ours, nova, plan):
        """Requests without metrics, with metrics, and during a flood of HTTP requests.
        A flood to an unused port shows the cost of the flood alone."""
        self.tell('requests with metrics, and while a flood comes to their port')
        bind = f'127.0.0.1:{free_port()}'
        nobody = f'127.0.0.1:{free_port()}'
        with ExitStack() as stack:
            options = {**config(plan.fallback), 'novasched': {'metrics_bind': bind}}
            loud, _ = self._started([], options, 1, stack)
            ways = {
                'metrics off': (ours, None),
                'metrics on': (loud, None),
                'metrics on, a flood to nobody': (loud, nobody),
                'metrics on, a flood to them': (loud, bind),
            }
            taken: dict[str, list[float]] = {how: [] for how in ways}
            for _ in range(ROUNDS):
                for how, (scheduler, flooded) in ways.items():
                    with flooding(flooded, self.tell) if flooded else nullcontext():
                        for _ in range(FLOODED_REQUESTS):
                            taken[how].append(scheduler.place('plain'))
        for how, times in taken.items():
            yield Row.of_times(hosts, how, times, ())


def _median_of(figure, bursts):
    """The median of a figure of bursts, such as ``pace``."""
    return median(getattr(burst, figure) for burst in bursts)


def _chosen(plan):
    """The measurements of a plan, in order."""
    return [part for part in MEASURES if part in plan.only]


def _all_times(bursts):
    times = []
    for burst in bursts:
        times += burst.times
    return times


def main(arguments=None):
    chosen = _arguments(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    tell = teller()
    cells = [f'cell{i + 1}' for i in range(chosen.cells)]
    rows: list[Row] = []
    try:
        tell('servers start')
        with cloud(cells=cells) as made, Caller(made.config('conductor')) as caller:
            bench = Bench(made, caller, tell)
            for hosts in chosen.hosts:
                traits = LIBVIRT_TRAITS if chosen.traits else ()
                computes = large_cloud(hosts, traits, cells)
                rows += told(bench.measure(computes, chosen), tell)
    except (pytest.fail.Exception, Failed) as error:
        print(error, file=sys.stderr)
        return 2
    return conclude(chosen, rows, tell)


def _arguments(arguments):
    parser = argparse.ArgumentParser('python -m tests.perf.daemon', description=__doc__)
    parser.add_argument(
        '--hosts', type=numbers, default=SIZES, help='sizes, with commas'
    )
    parser.add_argument(
        '--only', type=among(PARTS), default=PARTS, help=', '.join(PARTS)
    )
    parser.add_argument(
        '--kinds', type=among(SINGLE), default=SINGLE, help=', '.join(SINGLE)
    )
    parser.add_argument(
        '--at-once', type=numbers, default=AT_ONCE, help='requests of a burst'
    )
    parser.add_argument('--instances', type=int, default=20, help='on each host')
    parser.add_argument('--alone', action='store_true', help='without nova-scheduler')
    parser.add_argument('--cells', type=int, default=2, help='that the hosts are in')
    parser.add_argument(
        '--group-requests', type=int, default=200, help='that must not cost memory'
    )
    parser.add_argument(
        '--traits', action='store_true', help="hosts have all of libvirt's traits"
    )
    parser.add_argument(
        '--fallback', action='store_true', help='pinned CPUs may be VCPU, too'
    )
    parser.add_argument(
        '--statements', action='store_true', help='show the database queries'
    )
    add_outputs(parser)
    return parser.parse_args(arguments)


if __name__ == '__main__':
    sys.exit(main())
