# SPDX-License-Identifier: Apache-2.0
"""Measure small requests during a large request: ``python -m tests.perf.beside``.

The real driver, filters, weighers and Placement client decide over hosts in memory, and
Placement's answers are there at once. The script prints the time of a single request
and the time of concurrent requests, without and during a request for a thousand
instances. The exit status is 1 if a bound is missed.
"""

import argparse
import logging
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, replace
from statistics import median

from novasched.service.runtime import tune_gc
from tests.lab.builders import a_uuid
from tests.lab.large_cloud_requests import KINDS
from tests.lab.results import Bound, missed_of
from tests.lab.tables import Sheet, add_outputs, publish
from tests.perf.decision import large_driver, large_request

HOSTS = 5_000
INSTANCES = 1_000
TOGETHER = 40
ROUNDS = 20
MAX_WAIT = 4
"""Bound of the extra time of a single request, in instances of the large request."""
MAX_TOGETHER = 2
"""Bound of the time of concurrent requests, relative to their time without the large
request."""


class Requests:
    """Plain requests, every request for new instances."""

    def __init__(self):
        self.driver = large_driver(HOSTS, KINDS['plain'])
        self.first = large_request(KINDS['plain'])
        self.number = 0

    def instances(self, count):
        """The UUIDs of new instances."""
        self.number += count
        return tuple(a_uuid(f'beside{self.number - i}') for i in range(count))

    def asking(self, uuids):
        """A request for the instances."""
        return replace(self.first, instance_uuids=uuids, instance_uuid=uuids[0])

    def seconds(self, uuids):
        """The seconds of a request for the instances."""
        began = time.monotonic()
        self.driver.select_destinations(self.asking(uuids))
        return time.monotonic() - began

    def seconds_alone(self):
        """The median seconds of requests in sequence."""
        samples = [self.seconds(self.instances(1)) for _ in range(ROUNDS)]
        return median(samples)

    def seconds_together(self):
        """The seconds until all concurrent requests are answered."""
        batches = [self.instances(1) for _ in range(TOGETHER)]

        began = time.monotonic()
        with ThreadPoolExecutor(TOGETHER) as pool:
            futures = [pool.submit(self.seconds, uuids) for uuids in batches]
            for future in futures:
                future.result()
        return time.monotonic() - began

    @contextmanager
    def beside_many(self):
        """Decide a request for many instances while the context lasts."""
        many = threading.Thread(target=self.seconds, args=[self.instances(INSTANCES)])
        before = self.driver.pending_claims.count()
        many.start()
        while self.driver.pending_claims.count() == before:
            time.sleep(0.01)
        try:
            yield
            assert many.is_alive(), (
                'the large request has ended too early to be beside it'
            )
        finally:
            many.join()


def main(arguments=None):
    parser = argparse.ArgumentParser('python -m tests.perf.beside', description=__doc__)
    add_outputs(parser)
    chosen = parser.parse_args(arguments)
    logging.basicConfig(level=logging.ERROR)
    tune_gc()

    requests = Requests()
    requests.seconds(requests.instances(1))
    alone = requests.seconds_alone()
    together = requests.seconds_together()
    per_instance = requests.seconds(requests.instances(INSTANCES)) / INSTANCES
    with requests.beside_many():
        alone_beside = requests.seconds_alone()
    with requests.beside_many():
        together_beside = requests.seconds_together()

    waits = Bound((alone_beside - alone) / per_instance, '≤', MAX_WAIT, 'instances')
    share = Bound(together_beside / together, '≤', MAX_TOGETHER, 'x by themselves')
    rows = [
        [f'{INSTANCES:,} instances, each', f'{per_instance * 1e3:.2f}', '', ''],
        ['one request', f'{alone * 1e3:.1f}', f'{alone_beside * 1e3:.1f}', str(waits)],
        [
            f'{TOGETHER} requests at once',
            f'{together * 1e3:.0f}',
            f'{together_beside * 1e3:.0f}',
            str(share),
        ],
    ]
    columns = (f'{HOSTS:,} hosts', 'ms', f'ms beside {INSTANCES:,} instances', 'bound')
    bounds = [waits, share]
    publish(
        chosen,
        [Sheet('Beside a large request', columns, rows)],
        {'beside': [asdict(bound) for bound in bounds]},
    )
    return int(missed_of(bounds) > 0)


if __name__ == '__main__':
    sys.exit(main())
