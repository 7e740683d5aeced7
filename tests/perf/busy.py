# SPDX-License-Identifier: Apache-2.0
"""Measure a large request beside busy clients: ``python -m tests.perf.busy``.

The real driver, filters, weighers and Placement client decide over hosts in memory, and
Placement's answers are there at once. Clients request single instances one after the
other, while a further client requests a hundred instances at once. The script prints the
time of the large request, alone and beside the clients, and the times of the single
instances, without and beside the large request. Times are processor time of the process,
which does not depend on the load of the machine: nothing waits here, except for a
processor. The exit status is 1 if a bound is missed.
"""

import argparse
import logging
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from statistics import median, quantiles

from novasched.scheduler.claims.decision_lock import DecisionLock
from novasched.service.runtime import tune_gc
from tests.lab.builders import a_uuid
from tests.lab.large_cloud_requests import KINDS
from tests.lab.results import Bound, missed_of
from tests.lab.tables import Sheet, add_outputs, numbers, publish
from tests.perf.decision import large_driver, large_request

HOSTS = (1_000, 5_000)
CLIENTS = (20, 60)
INSTANCES = 100
ROUNDS = 5
CALM_S = 1.5
"""Seconds of a round in which single instances are requested without the large
request."""
MAX_LARGE = 3
"""Bound of the time of the large request, relative to its time alone."""
MAX_SINGLE = 2
"""Bound of the median time of single requests, relative to their time without the large
request."""


class Requests:
    """Requests for new instances of a plain flavor."""

    def __init__(self, hosts):
        self.driver = large_driver(hosts, KINDS['plain'])
        lock = DecisionLock(clock=time.process_time)
        self.driver.pending_claims.decision_lock = lock
        self.first = large_request(KINDS['plain'])
        self.number = 0

    def seconds(self, count=1):
        """The seconds of a request for a number of instances."""
        self.number += count
        last = self.number
        uuids = tuple(a_uuid(f'busy{last - i}') for i in range(count))
        request = replace(self.first, instance_uuids=uuids, instance_uuid=uuids[0])
        began = time.process_time()
        self.driver.select_destinations(request)
        return time.process_time() - began


@dataclass
class Clients:
    """Clients that request single instances.

    :ivar spans: begin and end of all requests.
    """

    spans: list[tuple[float, float]] = field(default_factory=list)

    @contextmanager
    def busy(self, number, requests):
        """Request single instances, in a number of threads, while the context lasts."""
        is_over = threading.Event()

        def work():
            while not is_over.is_set():
                began = time.process_time()
                requests.seconds()
                self.spans.append((began, time.process_time()))

        threads = [threading.Thread(target=work) for _ in range(number)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            is_over.set()
            for thread in threads:
                thread.join()

    def milliseconds(self, since, until):
        """The times of the requests that were in progress between two moments."""
        times = []
        for began, ended in [*self.spans]:
            if ended > since and began < until:
                times.append((ended - began) * 1e3)
        return times


def main(arguments=None):
    parser = argparse.ArgumentParser('python -m tests.perf.busy', description=__doc__)
    parser.add_argument('--hosts', type=numbers, default=HOSTS, help='with commas')
    parser.add_argument('--clients', type=numbers, default=CLIENTS, help='with commas')
    add_outputs(parser)
    chosen = parser.parse_args(arguments)
    logging.basicConfig(level=logging.ERROR)
    tune_gc()

    rows = []
    bounds = []
    for hosts in chosen.hosts:
        requests = Requests(hosts)
        requests.seconds(INSTANCES)
        for number in chosen.clients:
            row, bounds_of_row = measure(requests, number)
            rows.append([f'{hosts:,}', str(number), *row])
            bounds += bounds_of_row
    columns = (
        'hosts',
        'clients',
        f'{INSTANCES} instances alone, s',
        'beside, s',
        'bound',
        'one instance, ms: p50, p95',
        'beside, ms: p50, p95',
        'bound',
    )
    publish(
        chosen,
        [Sheet('A large request beside busy clients', columns, rows)],
        {'busy': [asdict(bound) for bound in bounds]},
    )
    return int(missed_of(bounds) > 0)


def measure(requests, number):
    """The row and the bounds of a number of clients. All figures are from the same
    rounds, so that a slow moment of the machine affects all."""
    alone = []
    beside = []
    calm_times = []
    times = []
    for _ in range(ROUNDS):
        alone.append(requests.seconds(INSTANCES))
        clients = Clients()
        with clients.busy(number, requests):
            began = time.process_time()
            while time.process_time() < began + CALM_S:
                time.sleep(0.1)
            since = time.process_time()
            beside.append(requests.seconds(INSTANCES))
            until = time.process_time()
        calm_times += clients.milliseconds(began, since)
        times += clients.milliseconds(since, until)

    calm = median(calm_times)
    large = Bound(median(beside) / median(alone), '≤', MAX_LARGE, 'x alone')
    single = Bound(median(times) / calm, '≤', MAX_SINGLE, 'x without')
    row = [
        f'{median(alone):.2f}',
        f'{median(beside):.2f}',
        str(large),
        f'{calm:.0f}, {quantiles(calm_times, n=20)[-1]:.0f}',
        f'{median(times):.0f}, {quantiles(times, n=20)[-1]:.0f}',
        str(single),
    ]
    print(f'{number} clients: {row}', file=sys.stderr)
    return row, [large, single]


if __name__ == '__main__':
    sys.exit(main())
