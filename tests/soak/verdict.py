# SPDX-License-Identifier: Apache-2.0
"""The verdict on a run: growth of the daemon, which is sampled every few seconds, and
wrong answers."""

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median_low
from urllib.parse import urlsplit

import psutil

from tests.lab.results import Bound, resident
from tests.lab.tables import Sheet
from tests.soak.allocation_audit import ZEROS

SAMPLE_INTERVAL_S = 2.0
PARTS = 6
"""Number of parts into which the duration of the run is divided."""
WARM_PARTS = 2
"""Number of parts after which the pools of the daemon are full."""
SETTLED_PARTS = 3
"""Number of parts after which the memory of the daemon is compared with the end. Memory
takes longer than pools: pages that the worker shares with the master are copied one by
one, when the worker first writes to a page."""
WARM_UP = WARM_PARTS / PARTS

MIN_MEMORY_RUN_S = 300.0
"""Seconds from which on the memory of a run is judged. Claims are pending for a minute,
and the daemon is warm as soon as the number of pending claims no longer grows."""

MAX_GROWTH_MIB = 3.0
MAX_GROWTH_SHARE = 0.02
"""Growth of the least memory that may come by chance, in MiB or as a share."""

MAX_MORE = 3
"""Growth of a pool that may come by chance, when more callers ask at the same time than
ever before. A leak grows with each of hundreds of requests, and of some ten failures of
each kind."""

MEMORY = 'resident memory, MiB'
THREADS = 'threads'
DESCRIPTORS = 'file descriptors'
DATABASES = 'connections to the databases'
BROKER = 'connections to the broker'
PLACEMENT = 'connections to Placement'


class Watch:
    """Samples the daemon in the background, as a context manager.

    :param pid: the process ID of the master.
    :ivar samples: seconds since the start, with the figures of all processes of the
        daemon together.
    :ivar workers: the process IDs of all workers that the daemon ever had.
    """

    def __init__(self, pid, cloud):
        self.pid = pid
        self.samples: list[tuple[float, dict[str, float]]] = []
        self.workers: set[int] = set()
        urls = {
            DATABASES: cloud.api.url,
            BROKER: cloud.amqp_url,
            PLACEMENT: cloud.placement_url,
        }
        self._ports = {urlsplit(url).port: name for name, url in urls.items()}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self):
        self._begun = time.monotonic()
        self.samples.append(self._sample())
        self._thread.start()
        return self

    def __exit__(self, *exception):
        self._over.set()
        self._thread.join()

    def _watch(self):
        while not self._over.wait(SAMPLE_INTERVAL_S):
            try:
                self.samples.append(self._sample())
            except psutil.NoSuchProcess:
                # The thread that waits for answers reports the end of the daemon.
                continue

    def _sample(self):
        master = psutil.Process(self.pid)
        workers = master.children()
        self.workers.update(worker.pid for worker in workers)

        figures = dict.fromkeys((THREADS, DESCRIPTORS, *self._ports.values()), 0)
        figures[MEMORY] = resident(self.pid) / 2**20
        for process in (master, *workers):
            figures[THREADS] += process.num_threads()
            figures[DESCRIPTORS] += process.num_fds()
            for connection in process.net_connections('tcp'):
                if connection.status != psutil.CONN_ESTABLISHED:
                    continue
                if connection.raddr.port in self._ports:
                    figures[self._ports[connection.raddr.port]] += 1
        return time.monotonic() - self._begun, figures


@dataclass(frozen=True)
class Figure:
    """A resource of the daemon that must not grow.

    :ivar start: the value before the first request.
    :ivar warm: the value of the warm daemon.
    :ivar end: the value at the end.
    :ivar bound: None if the run is too short for a judgement.
    """

    what: str
    start: float
    warm: float
    end: float
    bound: Bound | None

    def texts(self):
        """The cells of a row in a table."""
        texts = [self.what]
        for value in (self.start, self.warm, self.end):
            texts.append(f'{value:,.1f}'.removesuffix('.0'))
        texts.append(str(self.bound or 'too short to tell'))
        return texts


def memory(samples):
    """The growth of memory. The least memory of a part counts: the interpreter collects
    garbage seldom, so that memory goes up and down."""
    start, *parts = _parts(samples, MEMORY, min)
    warm = parts[SETTLED_PARTS]
    end = parts[-1]
    bound = None
    if samples[-1][0] >= MIN_MEMORY_RUN_S:
        max_growth = max(MAX_GROWTH_MIB, MAX_GROWTH_SHARE * warm)
        bound = Bound(end - warm, '≤', max_growth, 'MiB more')
    return Figure(MEMORY, start, warm, end, bound)


def counted(name, samples):
    """The growth of a resource that can be counted. Pools fill up for good in the first
    half, whose maximum counts. At the end the median counts, since the pool may have
    one member more for a moment."""
    start, *maxima = _parts(samples, name, max)
    warm = max(maxima[: WARM_PARTS + 1])
    end = _parts(samples, name, median_low)[-1]
    return Figure(name, start, warm, end, Bound(end - warm, '≤', MAX_MORE, 'more'))


def _parts(samples, name, statistic):
    """The value of the first sample, before any request, and a statistic of the values
    in each part of the run."""
    length = samples[-1][0] / PARTS
    parts: list[list[float]] = [[] for _ in range(PARTS)]
    for seconds, figures in samples:
        parts[min(PARTS - 1, int(seconds / length))].append(figures[name])
    return [samples[0][1][name], *map(statistic, parts)]


@dataclass
class Verdict:
    """The result of a run.

    :ivar counts: numbers of requests, answers and failures.
    :ivar zeros: numbers that must be 0, beside the failures in ``counts``.
    :ivar samples: samples of a daemon that runs alone.
    :ivar figures: the growth of the daemon.
    """

    title: str
    seconds: float
    counts: Mapping[str, int]
    zeros: Mapping[str, int]
    samples: Sequence[tuple[float, Mapping[str, float]]] = ()
    events: Mapping[str, int] = field(default_factory=dict)
    claims: Mapping[str, int] = field(default_factory=dict)
    faults: Mapping[str, int] = field(default_factory=dict)
    figures: Sequence[Figure] = ()

    def __post_init__(self):
        failures = {name: self.counts.get(name, 0) for name in ZEROS}
        self.zeros = {**failures, **self.zeros}
        if self.samples:
            pools = (THREADS, DESCRIPTORS, DATABASES, BROKER, PLACEMENT)
            self.figures = [memory(self.samples)]
            self.figures += [counted(pool, self.samples) for pool in pools]

    @property
    def met(self):
        bounds = [figure.bound for figure in self.figures if figure.bound]
        return all(bound.met for bound in bounds) and not any(self.zeros.values())

    def sheets(self):
        """The tables of the verdict."""
        minutes = f'{self.seconds / 60:.3g} minutes'

        rows = []
        for name, number in sorted(self.counts.items()):
            if name not in self.zeros:
                rows.append([name, f'{number:,}', ''])
        for name, number in sorted(self.claims.items()):
            rows.append([f'claims of {name}', f'{number:,}', ''])
        if self.faults:
            number = sum(self.faults.values())
            title = "novasched's requests to Placement that failed"
            rows.append([title, f'{number:,}', ''])
        for name, number in self.zeros.items():
            rows.append([name, f'{number:,}', str(Bound(number, '≤', 0))])
        sheets = [Sheet(f'{self.title}, {minutes}', ('', 'number', 'bound'), rows)]

        if self.figures:
            columns = ('', 'at the start', 'after warm-up', 'at the end', 'bound')
            texts = [figure.texts() for figure in self.figures]
            sheets.insert(0, Sheet(f'The daemon during {minutes}', columns, texts))
        return sheets

    def report(self):
        """All figures of the verdict, for JSON."""
        return {**asdict(self), 'met': self.met}
