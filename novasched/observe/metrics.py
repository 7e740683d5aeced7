# SPDX-License-Identifier: Apache-2.0
"""Metrics for Prometheus. Imported only if ``[novasched] metrics_bind`` is set.

Workers write metrics to files of a shared directory, and the HTTP process reads the
files. A request spends hardly any time on metrics: decisions are counted after the
answer, and all other values are sampled once a second.
"""

import importlib.metadata
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal, TypeAlias

import prometheus_client
from prometheus_client import values
from prometheus_client.multiprocess import MultiProcessCollector

from novasched.concurrency import loopingcall
from novasched.observe.web.server import Environ, StartResponse
from novasched.observe.worker_view import WorkerView
from novasched.rpc.oslo_messaging_internals import MessageCounts
from novasched.scheduler.decision import CANDIDATE_SOURCES, RESULTS, STEPS, Decision

COUNTER = 'counter'
GAUGE = 'gauge'
HISTOGRAM = 'histogram'
MAX: Final = 'livemax'
"""Mode of a gauge that shows the maximum over the running workers instead of the
sum."""

SECONDS = (
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
)
"""The upper bounds of the buckets of histograms, in seconds."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric. ``mode`` applies to gauges: how the values of several workers are
    combined."""

    kind: str
    name: str
    help: str
    labels: tuple[str, ...] = ()
    mode: Literal['livesum', 'livemax'] = 'livesum'


_counter = partial(Metric, COUNTER)
_gauge = partial(Metric, GAUGE)
_histogram = partial(Metric, HISTOGRAM)

REQUESTS = _counter(
    'novasched_requests_total',
    'Scheduling requests by result: placed, refused because no host is valid, or failed'
    ' for a reason that an operator must fix.',
    ('result',),
)
INSTANCES = _counter(
    'novasched_instances_placed_total', 'Instances for which a host was selected.'
)
REQUEST_SECONDS = _histogram(
    'novasched_request_duration_seconds',
    'Seconds from the start of a request to its decision.',
)
STEP_SECONDS = _histogram(
    'novasched_step_duration_seconds',
    'Seconds that a request spent in a step of the decision.',
    ('step',),
)
HOSTS_IN = _counter(
    'novasched_filter_hosts_in_total', 'Hosts that a filter examined.', ('filter',)
)
HOSTS_OUT = _counter(
    'novasched_filter_hosts_out_total', 'Hosts that passed a filter.', ('filter',)
)
FILTER_SECONDS = _counter(
    'novasched_filter_seconds_total', 'Seconds spent in a filter.', ('filter',)
)
WEIGHER_SECONDS = _counter(
    'novasched_weigher_seconds_total', 'Seconds spent in a weigher.', ('weigher',)
)
CANDIDATES = _counter(
    'novasched_candidates_total',
    'Requests by the source of their allocation candidates: remembered (a reused answer'
    ' of Placement about all hosts), all_hosts (a new answer about all hosts) or'
    ' own_query (an answer to the query of the request).',
    ('source',),
)
CANDIDATES_AGE = _histogram(
    'novasched_remembered_candidates_age_seconds',
    'Age of the answers of Placement that were reused for a later request.',
)
CANDIDATES_OUTDATED = _counter(
    'novasched_remembered_candidates_outdated_total',
    'Requests for which a reused answer of Placement was outdated, so that Placement'
    ' was queried again.',
)
FALSE_HINTS = _counter(
    'novasched_false_rebuild_hints_total',
    'Requests with the hint _nova_check_type = rebuild whose instance was not on a host'
    ' that the request forces, so that the hint was ignored.',
)
CLAIMS_REFUSED = _counter(
    'novasched_claims_refused_total', 'Claims that Placement refused.'
)
MESSAGE_WAIT = _histogram(
    'novasched_message_wait_seconds',
    'Seconds that a message waited between its arrival from RabbitMQ and its start.',
)
MESSAGES_WAITING = _gauge(
    'novasched_messages_waiting', 'Messages that wait for a thread.'
)
MESSAGES_IN_PROGRESS = _gauge(
    'novasched_messages_in_progress', 'Messages that a thread is processing.'
)
MESSAGES_DROPPED = _counter(
    'novasched_messages_dropped_total',
    'Messages that were dropped because the caller had stopped waiting for an answer.',
)
CASTS = _counter(
    'novasched_casts_total',
    'Casts received from other services, by outcome: handled or ignored.',
    ('outcome',),
)
SNAPSHOT_AGE = _gauge(
    'novasched_snapshot_age_seconds',
    'Seconds since the hosts were last read from the databases. Requests trigger the'
    ' reading.',
    mode=MAX,
)
SNAPSHOT_HOSTS = _gauge(
    'novasched_snapshot_hosts', 'Known hosts, over all cells.', mode=MAX
)
ROWS_REFRESHED = _counter(
    'novasched_snapshot_rows_refreshed_total',
    'Rows of compute nodes and services that were found new, changed or deleted.',
)
PENDING_CLAIMS = _gauge(
    'novasched_pending_claims',
    'Instances whose selected host does not report them yet.',
)
PEERS = _gauge(
    'novasched_peers',
    'Other schedulers that exchange pending claims with this scheduler.',
    mode=MAX,
)
PEER_MESSAGES_MISSED = _counter(
    'novasched_peer_messages_missed_total',
    'Gaps in the announcements of another scheduler, after which all its claims are'
    ' requested again.',
)
PEERS_LATE = _counter(
    'novasched_peers_late_total',
    'Claims confirmed before all earlier announcements of other schedulers had'
    ' arrived.',
)
CLAIMS_GIVEN_BACK = _counter(
    'novasched_claims_given_back_total',
    'Claims that were deleted because they conflicted with an earlier claim of another'
    ' scheduler.',
)
BREAKER_OPEN = _gauge(
    'novasched_breaker_open',
    '1 while the circuit breaker of a target is open, so that a worker sends it no'
    ' requests. Targets: placement, database, api_database, and each cell.',
    ('target', 'cell'),
    MAX,
)
CLEANUPS = _gauge(
    'novasched_allocation_cleanups_pending',
    'Allocations in Placement that the scheduler still has to delete.',
)
RECORDS_DROPPED = _counter(
    'novasched_records_dropped_total',
    'Decision records that were dropped because the queue was full.',
)
NOTIFICATIONS_DROPPED = _counter(
    'novasched_notifications_dropped_total',
    'Notifications that were dropped because the queue was full.',
)
WORKERS = _gauge('novasched_workers', 'Worker processes that take requests.')
BUILD = _gauge(
    'novasched_build_info', 'Always 1; the label is the version.', ('version',), MAX
)

METRICS = tuple(value for value in list(vars().values()) if isinstance(value, Metric))

SAMPLE_INTERVAL_S = 1.0

MAX_UNSAMPLED_WAITS = 10_000
"""Waiting times of messages that are kept for the next sample. Older times are
dropped."""

Samples: TypeAlias = Mapping[tuple[str, ...], float]
"""The values of a metric by their labels."""


METRICS_CACHE_S = 1.0
"""Seconds for which a client gets the text of the client before."""

PROMETHEUS_TEXT = 'text/plain; version=0.0.4; charset=utf-8'


class MetricsText:
    """The WSGI application of ``/metrics``: the metrics of all workers, read from files
    at most once a second.

    :param directory: where the workers write their metrics.
    """

    def __init__(
        self, directory: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._registry = prometheus_client.CollectorRegistry()
        MultiProcessCollector(self._registry, directory)
        self._clock = clock
        self._lock = threading.Lock()
        self._read_at = -math.inf
        self._text = b''

    def __call__(self, _: Environ, start: StartResponse) -> Iterable[bytes]:
        body = self.read()
        length = ('Content-Length', str(len(body)))
        start('200 OK', [('Content-Type', PROMETHEUS_TEXT), length])
        return [body]

    def read(self) -> bytes:
        with self._lock:
            now = self._clock()
            if now - self._read_at >= METRICS_CACHE_S:
                self._text = prometheus_client.generate_latest(self._registry)
                self._read_at = now
            return self._text


class Instruments:
    """The metrics of a worker, in files.

    :param number: number of the worker. A restarted worker has the number of its
        predecessor and continues the predecessor's counters.
    """

    def __init__(self, number: int) -> None:
        values.ValueClass = values.MultiProcessValue(lambda: number)
        self._instruments = {metric: _instrument(metric) for metric in METRICS}

    def of(self, metric: Metric, *labels: str) -> Any:
        """The counter, gauge or histogram of a metric with labels. Prometheus sees the
        value 0 from now on; a rate needs a value to start from."""
        instrument = self._instruments[metric]
        if labels:
            return instrument.labels(*labels)
        return instrument


def _instrument(metric: Metric) -> Any:
    """A metric of prometheus_client without a registry, since the metric is read from
    the files."""
    arguments = (metric.name, metric.help, metric.labels)
    if metric.kind == COUNTER:
        return prometheus_client.Counter(*arguments, registry=None)
    if metric.kind == HISTOGRAM:
        return prometheus_client.Histogram(*arguments, registry=None, buckets=SECONDS)
    return prometheus_client.Gauge(
        *arguments, registry=None, multiprocess_mode=metric.mode
    )


class DecisionCounters:
    """Counts decisions. Thread-safe."""

    def __init__(self, instruments: Instruments) -> None:
        self.instruments = instruments
        for result in RESULTS:
            instruments.of(REQUESTS, result)
        for step in STEPS:
            instruments.of(STEP_SECONDS, step)
        for source in CANDIDATE_SOURCES:
            instruments.of(CANDIDATES, source)

    def expect(self, filters: Iterable[str], weighers: Iterable[str]) -> None:
        """Expose zeros for the enabled filters and weighers."""
        for name in filters:
            for metric in (HOSTS_IN, HOSTS_OUT, FILTER_SECONDS):
                self.instruments.of(metric, name)
        for name in weighers:
            self.instruments.of(WEIGHER_SECONDS, name)

    def __call__(self, decision: Decision) -> None:
        """Count a decision. Filters, weighers and refused claims are counted for the
        last time that the request was decided."""
        of = self.instruments.of
        of(REQUESTS, decision.result).inc()
        of(INSTANCES).inc(len(decision.selections))
        of(REQUEST_SECONDS).observe(decision.ended - decision.began)
        for step, seconds in decision.seconds.items():
            of(STEP_SECONDS, step).observe(seconds)

        counts = decision.counts
        if counts is not None and counts.asked:
            of(CANDIDATES, counts.source).inc()
        if counts is not None and counts.age is not None:
            of(CANDIDATES_AGE).observe(counts.age)
        of(CANDIDATES_OUTDATED).inc(decision.outdated is not None)
        of(FALSE_HINTS).inc(decision.request.had_false_hint)

        refused = int(decision.together_refused)
        for attempt in decision.attempts:
            refused += len(attempt.refused)
            for result in attempt.ranking.filters:
                of(HOSTS_IN, result.name).inc(result.start)
                of(HOSTS_OUT, result.name).inc(result.end)
                of(FILTER_SECONDS, result.name).inc(result.seconds)
            for weigher, seconds in attempt.ranking.weighers:
                of(WEIGHER_SECONDS, weigher).inc(seconds)
        of(CLAIMS_REFUSED).inc(refused)


@dataclass
class Sampler:
    """Copies values of the worker's parts to metrics, in a single thread.

    :param sources: functions that read a metric from the view: a value, or values by
        labels.
    :param waits: waiting times of messages, in seconds. A sample removes the times.
    """

    instruments: Instruments
    sources: Mapping[Metric, Callable[[WorkerView], float | Samples]]
    waits: deque[float]
    _before: dict[Metric, Samples] = field(default_factory=dict)

    def __call__(self, view: WorkerView) -> None:
        """Take a sample."""
        for metric, read in self.sources.items():
            value = read(view)
            if not isinstance(value, Mapping):
                value = {(): value}
            self._expose(metric, value)
        while self.waits:
            self.instruments.of(MESSAGE_WAIT).observe(self.waits.popleft())

    def _expose(self, metric: Metric, samples: Samples) -> None:
        before = self._before.get(metric, {})
        self._before[metric] = samples
        if metric.kind == GAUGE:
            # Labels that have disappeared, such as those of a deleted cell, go to 0.
            for labels, value in {**dict.fromkeys(before, 0.0), **samples}.items():
                self.instruments.of(metric, *labels).set(value)
            return

        for labels, value in samples.items():
            growth = max(0, value - before.get(labels, 0))
            self.instruments.of(metric, *labels).inc(growth)


class WorkerMetrics:
    """All metrics of a worker: decisions, messages, and samples of the other parts."""

    def __init__(self, number: int) -> None:
        self._instruments = Instruments(number)
        self.decisions = DecisionCounters(self._instruments)
        self._waits: deque[float] = deque(maxlen=MAX_UNSAMPLED_WAITS)
        self.messages = MessageCounts(wait_seconds=self._waits)

    def sample(
        self, read_view: Callable[[], WorkerView]
    ) -> loopingcall.FixedIntervalLoopingCall:
        """Start to sample the state of the worker once a second.

        :returns: the task, which the caller stops.
        """
        messages = self.messages
        version = importlib.metadata.version('novasched')
        sources: dict[Metric, Callable[[WorkerView], float | Samples]] = {
            WORKERS: lambda view: 1,
            BUILD: lambda view: {(version,): 1},
            MESSAGES_WAITING: lambda view: view.waiting,
            MESSAGES_IN_PROGRESS: lambda view: view.in_progress,
            MESSAGES_DROPPED: lambda view: messages.dropped,
            CASTS: lambda view: {
                ('handled',): messages.handled,
                ('ignored',): messages.ignored,
            },
            SNAPSHOT_AGE: _snapshot_age,
            SNAPSHOT_HOSTS: lambda view: len(view.hosts),
            ROWS_REFRESHED: lambda view: view.rows_refreshed,
            PENDING_CLAIMS: lambda view: view.pending_claims,
            PEERS: lambda view: view.peers.count if view.peers else 0,
            PEER_MESSAGES_MISSED: lambda view: view.peers.missed if view.peers else 0,
            PEERS_LATE: lambda view: view.peers.late if view.peers else 0,
            CLAIMS_GIVEN_BACK: lambda view: view.claims_given_back,
            BREAKER_OPEN: _open_breakers,
            CLEANUPS: lambda view: view.pending_deletions,
            RECORDS_DROPPED: lambda view: view.records_dropped,
            NOTIFICATIONS_DROPPED: lambda view: view.notifications_dropped,
        }
        sampler = Sampler(self._instruments, sources, self._waits)
        task = loopingcall.FixedIntervalLoopingCall(lambda: sampler(read_view()))
        task.start(interval=SAMPLE_INTERVAL_S, stop_on_exception=False)
        return task


def _snapshot_age(view: WorkerView) -> Samples:
    """Seconds since the hosts were read; no value before the first reading."""
    if view.read_at is None:
        return {}
    return {(): time.monotonic() - view.read_at}


def _open_breakers(view: WorkerView) -> Samples:
    samples: dict[tuple[str, ...], float] = {}
    for name, target in view.targets.items():
        samples[name, ''] = float(target.is_open)
    for cell_state in view.cells:
        samples['cell', cell_state.cell.uuid] = float(cell_state.target.is_open)
    return samples
