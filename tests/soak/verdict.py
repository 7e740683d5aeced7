# SPDX-License-Identifier: Apache-2.0
"""Whether a daemon has grown, at which one looks every few seconds while it works, and
whether answers were right."""

import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median_low
from urllib.parse import urlsplit

import psutil

from tests.lab.results import Bound, resident
from tests.lab.tables import Sheet
from tests.soak.books import ZEROS

EVERY = 2.0  # seconds between two samples
PARTS = 6
WARM = 2
SETTLED = 3
"""The time is cut into so many parts. After so many of them the pools of the daemon are
warm; after so many its memory, and the next part is compared with the last. Memory
takes longer since pages that the worker shares with the master are copied one by one,
when it first writes to them."""
WARM_UP = WARM / PARTS

TELLING = 300.0
"""Seconds from which on memory tells something. A server counts as in flight for a
minute, and the daemon is not warm before there are as many of them as there will ever
be."""

MIB_MORE = 3.0
SHARE_MORE = 0.02
"""What the least memory may differ by chance: so much, or that share."""

MORE = 3
"""A pool may get one more by chance, when more ask at the same time than ever before.
What leaks does so with each of hundreds of requests, and of some ten failures of each
kind."""

MEMORY = 'resident memory, MiB'
THREADS = 'threads'
DESCRIPTORS = 'file descriptors'
DATABASES, BROKER, PLACEMENT = (
    f'connections to {each}' for each in ('the databases', 'the broker', 'Placement')
)


class Watch:
    """Takes samples, from ``with`` to its end: seconds, and figures of all processes of
    the daemon together. ``workers`` is every process that there ever was beside the
    first."""

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
        while not self._over.wait(EVERY):
            try:
                self.samples.append(self._sample())
            except psutil.NoSuchProcess:
                continue  # who waits for its answers hears of its end

    def _sample(self):
        master = psutil.Process(self.pid)
        workers = master.children()
        self.workers.update(each.pid for each in workers)
        every = [master, *workers]
        found = Counter(
            self._ports[connection.raddr.port]
            for process in every
            for connection in process.net_connections('tcp')
            if connection.status == psutil.CONN_ESTABLISHED
            and connection.raddr.port in self._ports
        )
        return time.monotonic() - self._begun, {
            MEMORY: resident(self.pid) / 2**20,
            THREADS: sum(each.num_threads() for each in every),
            DESCRIPTORS: sum(each.num_fds() for each in every),
            **{name: found[name] for name in self._ports.values()},
        }


@dataclass(frozen=True)
class Figure:
    """Something that must not grow: as it was at first, when the daemon was warm, and
    in the end."""

    what: str
    start: float
    warm: float
    end: float
    bound: Bound | None

    def texts(self):
        figures = (
            f'{each:,.1f}'.removesuffix('.0')
            for each in (self.start, self.warm, self.end)
        )
        return [self.what, *figures, str(self.bound or 'too short to tell')]


def memory(samples):
    """The least of memory in a part: what is there when garbage has just been
    collected, which is seldom done, so that memory goes up and down."""
    start, *parts = _parts(samples, MEMORY, min)
    warm = parts[SETTLED]
    end = parts[-1]
    bound = Bound(end - warm, '≤', max(MIB_MORE, SHARE_MORE * warm), 'MiB more')
    is_telling = samples[-1][0] >= TELLING
    return Figure(MEMORY, start, warm, end, bound if is_telling else None)


def counted(what, samples):
    """The most that there was at any time of the first half, in which pools fill up for
    good; and what there is most of the time in the end, since there may be one more for
    a moment."""
    start, *most = _parts(samples, what, max)
    warm = max(most[: WARM + 1])
    end = _parts(samples, what, median_low)[-1]
    return Figure(what, start, warm, end, Bound(end - warm, '≤', MORE, 'more'))


def _parts(samples, what, one):
    """The first sample, before any request, and what stands for each part of the
    time."""
    length = samples[-1][0] / PARTS
    parts: list[list[float]] = [[] for _ in range(PARTS)]
    for seconds, figures in samples:
        parts[min(PARTS - 1, int(seconds / length))].append(figures[what])
    return [samples[0][1][what], *map(one, parts)]


@dataclass
class Verdict:
    """What came of a run; of ``zeros``, and of what is counted there, there must be
    none. What a daemon takes of the machine is looked at where it runs alone."""

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
        self.zeros = {
            **{name: self.counts.get(name, 0) for name in ZEROS},
            **self.zeros,
        }
        if self.samples:
            pools = (THREADS, DESCRIPTORS, DATABASES, BROKER, PLACEMENT)
            self.figures = [
                memory(self.samples),
                *(counted(each, self.samples) for each in pools),
            ]

    @property
    def met(self):
        bounds = [each.bound for each in self.figures if each.bound]
        return all(bound.met for bound in bounds) and not any(self.zeros.values())

    def sheets(self):
        minutes = f'{self.seconds / 60:.3g} minutes'
        counts = [
            *sorted(
                (name, n) for name, n in self.counts.items() if name not in self.zeros
            ),
            *((f'claims of {who}', n) for who, n in sorted(self.claims.items())),
        ]
        if self.faults:
            failed = sum(self.faults.values())
            counts.append(("novasched's requests to Placement that failed", failed))
        rows = [[what, f'{n:,}', ''] for what, n in counts]
        rows += [
            [name, f'{n:,}', str(Bound(n, '≤', 0))] for name, n in self.zeros.items()
        ]
        sheets = [Sheet(f'{self.title}, {minutes}', ('', 'number', 'bound'), rows)]
        if self.figures:
            columns = ('', 'at the start', 'after warm-up', 'at the end', 'bound')
            texts = [figure.texts() for figure in self.figures]
            sheets.insert(0, Sheet(f'The daemon during {minutes}', columns, texts))
        return sheets

    def report(self):
        return {**asdict(self), 'met': self.met}
