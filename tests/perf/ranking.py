# SPDX-License-Identifier: Apache-2.0
"""Measure the filters and weighers of hosts: ``python -m tests.perf.ranking``.

All weighers, and the filters of the other benchmarks, over hosts kept in memory, whose
rows have been read, and summed up: from nothing, as after a start; and again, when one
host has changed since. Prints processor time. Exits with 1 where a bound is missed.
"""

import argparse
import logging
import sys
import time
from dataclasses import asdict, replace
from random import Random
from statistics import median

from novasched.plugins import loading
from novasched.scheduler.pipeline import Pipeline
from novasched.service.runtime import tune_gc
from tests.lab.large_cloud_requests import KINDS
from tests.lab.results import Bound, missed_of
from tests.lab.tables import Sheet, add_outputs, numbers, publish
from tests.perf.decision import SETTINGS, large_hosts, large_request

SIZES = (1_000, 5_000, 20_000)
FROM_NOTHING = {'plain': 3.0, 'pinned': 5.0}  # microseconds for each host
AGAIN = 5.0  # milliseconds
ROUNDS = 5


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
    for kind, most in FROM_NOTHING.items():
        for count in chosen.hosts:
            first, again = measure(kind, count)
            per_host = first / count * 1e6
            its = (
                Bound(per_host, '≤', most, 'µs'),
                Bound(again * 1e3, '≤', AGAIN, 'ms again'),
            )
            bounds += its
            figures = f'{first * 1e3:.1f}', f'{per_host:.2f}', f'{again * 1e3:.2f}'
            rows.append([kind, f'{count:,}', *figures, '\n'.join(map(str, its))])
    columns = ('request', 'hosts', 'ms', 'µs per host', 'ms again', 'bound')
    publish(
        chosen,
        [Sheet('Cost of a ranking', columns, rows)],
        {'rankings': [asdict(bound) for bound in bounds]},
    )
    return int(missed_of(bounds) > 0)


def measure(kind, count):
    """Seconds from nothing and again, the least and the median of some rounds."""
    request = large_request(KINDS[kind])
    hosts = list(large_hosts(count))
    for host in hosts:
        assert host.numa_topology
        assert host.numa_topology.packed_capacities
    first = []
    again = []
    for number in range(ROUNDS):
        fresh = [replace(host) for host in hosts]
        pipeline = Pipeline(
            SETTINGS, loading.filters(SETTINGS), loading.weighers(SETTINGS)
        )
        first.append(_seconds(pipeline, fresh, request))
        changed = [*fresh]
        changed[number] = replace(fresh[number], num_instances=49, free_ram_mb=8192)
        again.append(_seconds(pipeline, changed, request))
    return min(first), median(again)


def _seconds(pipeline, hosts, request):
    began = time.process_time()
    ranking = pipeline.for_request().rank(hosts, request, 0, Random(1))
    taken = time.process_time() - began
    assert len(ranking.hosts) == len(hosts)
    return taken


if __name__ == '__main__':
    sys.exit(main())
