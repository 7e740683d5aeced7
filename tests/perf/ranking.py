# SPDX-License-Identifier: Apache-2.0
"""Measure the filters and weighers of hosts: ``python -m tests.perf.ranking``.

All weighers, and the filters of the other benchmarks, over hosts kept in memory, whose
rows have been read, and summed up: from nothing, as after a start; and again, when one
host has changed since. Each request is measured without and with the weigher of usable
capacity, whose usual guests are ten flavors, a third of them pinned. Prints processor
time. Exits with 1 where a bound is missed.
"""

import argparse
import logging
import sys
import time
from dataclasses import asdict, dataclass, replace
from itertools import product
from random import Random
from statistics import median

from novasched.plugins import loading
from novasched.scheduler.model.flavor import Flavor
from novasched.scheduler.model.host import capacity_of
from novasched.scheduler.model.host_list import HostList
from novasched.scheduler.model.usual_guests import UsualGuest, UsualGuests
from novasched.scheduler.pipeline import Pipeline
from novasched.service.runtime import tune_gc
from tests.lab import ordinary_cloud as ordinary
from tests.lab.large_cloud_requests import KINDS
from tests.lab.results import Bound, missed_of
from tests.lab.tables import Sheet, add_outputs, numbers, publish
from tests.perf.decision import SETTINGS, large_hosts, large_request

SIZES = (1_000, 5_000, 20_000)
FROM_NOTHING = {'plain': 3.0, 'pinned': 5.0}  # microseconds for each host
USABLE = 2.0  # microseconds more for each host
AGAIN = 5.0  # milliseconds
USABLE_SETTINGS = replace(SETTINGS, fragmentation_weight_multiplier=1000.0)
ROUNDS = 5


@dataclass(frozen=True)
class Cost:
    """Seconds of a ranking.

    :ivar first: from nothing, the least of some rounds.
    :ivar again: with one changed host, the median.
    """

    first: float
    again: float


def main(arguments=None):
    parser = argparse.ArgumentParser(
        'python -m tests.perf.ranking', description=__doc__
    )
    parser.add_argument(
        '--hosts', type=numbers, default=SIZES, help='sizes, with commas'
    )
    add_outputs(parser)
    chosen = parser.parse_args(arguments)
    logging.basicConfig(level=logging.ERROR)
    tune_gc()
    rows = []
    bounds = []
    for kind, count in product(FROM_NOTHING, chosen.hosts):
        plain, usable = measure(kind, count)
        per_host = plain.first / count * 1e6
        more = (usable.first - plain.first) / count * 1e6
        for title, cost, bound in (
            (kind, plain, Bound(per_host, '≤', FROM_NOTHING[kind], 'µs')),
            (f'{kind}, usable', usable, Bound(more, '≤', USABLE, 'µs more')),
        ):
            its = bound, Bound(cost.again * 1e3, '≤', AGAIN, 'ms again')
            bounds += its
            figures = (
                f'{cost.first * 1e3:.1f}',
                f'{cost.first / count * 1e6:.2f}',
                f'{cost.again * 1e3:.2f}',
            )
            rows.append([title, f'{count:,}', *figures, '\n'.join(map(str, its))])
    columns = ('request', 'hosts', 'ms', 'µs per host', 'ms again', 'bound')
    publish(
        chosen,
        [Sheet('Cost of a ranking', columns, rows)],
        {'rankings': [asdict(bound) for bound in bounds]},
    )
    return int(missed_of(bounds) > 0)


def measure(kind, count):
    """The costs of a kind without and with the weigher of usable capacity."""
    request = large_request(KINDS[kind])
    hosts = list(large_hosts(count))
    for host in hosts:
        assert host.numa_topology
        assert host.numa_topology.packed_capacities
        assert host.numa_topology.free_pages
    request = replace(request, usual_guests=usual_guests(hosts))

    first = {SETTINGS: [], USABLE_SETTINGS: []}
    again = {SETTINGS: [], USABLE_SETTINGS: []}
    for number, settings in product(range(ROUNDS), first):
        fresh = HostList.of([replace(host) for host in hosts])
        pipeline = Pipeline(
            settings, loading.filters(settings), loading.weighers(settings)
        )
        first[settings].append(_seconds(pipeline, fresh, request))
        changed = replace(fresh[number], num_instances=49, free_ram_mb=8192)
        later = fresh.with_hosts({changed.uuid: changed})
        again[settings].append(_seconds(pipeline, later, request))
    for settings in first:
        yield Cost(min(first[settings]), median(again[settings]))


def usual_guests(hosts):
    """The flavors of a cloud of ordinary guests."""
    guests = []
    for number, kind in enumerate(ordinary.KINDS, 1):
        flavor = Flavor(
            kind.name,
            kind.name,
            number,
            vcpus=kind.vcpus,
            memory_mb=kind.memory_gb * 1024,
            root_gb=kind.root_gb,
            extra_specs=dict(kind.extra_specs),
        )
        guests.append(UsualGuest(flavor, round(100 * kind.share)))
    return UsualGuests(tuple(guests), capacity_of(hosts))


def _seconds(pipeline, hosts, request):
    began = time.process_time()
    ranking = pipeline.for_request().rank(hosts, request, 0, Random(1))
    taken = time.process_time() - began
    assert len(ranking.hosts) == len(hosts)
    return taken


if __name__ == '__main__':
    sys.exit(main())
