# SPDX-License-Identifier: Apache-2.0
"""Metrics for Prometheus. Imported only where nova.conf enables them.

Workers write to files of a shared directory, which the process that serves HTTP reads.
A request pays next to nothing: decisions are added up afterwards, and other values
sampled once a second.
"""

import importlib.metadata
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal, TypeAlias

import prometheus_client
from prometheus_client import values

from novasched.cells.database import Database
from novasched.cells.snapshot import HostReader
from novasched.concurrency import loopingcall
from novasched.observe.records.recorder import DecisionRecorder
from novasched.placement.client import PlacementClient
from novasched.rpc.notifications.sender import QueuedNotifier
from novasched.rpc.oslo_messaging_internals import MessageCounts, RpcServer
from novasched.scheduler.decision import RESULTS, STEPS, Decision
from novasched.scheduler.model.host import HostSnapshot

COUNTER = 'counter'
GAUGE = 'gauge'
HISTOGRAM = 'histogram'
MAX: Final = 'livemax'
"""One gauge of several workers is the maximum of theirs, not the sum; those that have
ended do not count in either."""

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
"""The upper bounds of histograms' buckets."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric; ``mode`` counts for a gauge."""

    kind: str
    name: str
    help: str
    labels: tuple[str, ...] = ()
    mode: Literal['livesum', 'livemax'] = 'livesum'


_counter, _gauge, _histogram = (
    partial(Metric, kind) for kind in (COUNTER, GAUGE, HISTOGRAM)
)
REQUESTS = _counter(
    'novasched_requests_total',
    'Requests for hosts: placed, refused since no host is valid, or failed for a reason'
    ' that an operator must mend.',
    ('result',),
)
INSTANCES = _counter('novasched_instances_placed_total', 'Instances that got a host.')
REQUEST_SECONDS = _histogram(
    'novasched_request_duration_seconds',
    'Seconds from when a request was begun until it was decided.',
)
STEP_SECONDS = _histogram(
    'novasched_step_duration_seconds',
    'Seconds of a request in a step of the decision.',
    ('step',),
)
HOSTS_IN = _counter(
    'novasched_filter_hosts_in_total', 'Hosts that came to a filter.', ('filter',)
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
CANDIDATES_AGE = _histogram(
    'novasched_remembered_candidates_age_seconds',
    'Age of the answers of Placement that served a later request, too.',
)
CANDIDATES_OUTDATED = _counter(
    'novasched_remembered_candidates_outdated_total',
    'Requests for which such an answer did not do, so that Placement was asked.',
)
CLAIMS_REFUSED = _counter(
    'novasched_claims_refused_total', 'Claims that Placement refused.'
)
MESSAGE_WAIT = _histogram(
    'novasched_message_wait_seconds',
    'Seconds from when a message came from the broker until it was begun.',
)
MESSAGES_WAITING = _gauge(
    'novasched_messages_waiting', 'Messages that wait for a thread.'
)
MESSAGES_IN_PROGRESS = _gauge(
    'novasched_messages_in_progress', 'Messages that have a thread.'
)
MESSAGES_DROPPED = _counter(
    'novasched_messages_dropped_total',
    'Messages that were not begun, since the caller no longer waited for the answer.',
)
CASTS = _counter(
    'novasched_casts_total',
    'Announcements of other services, handled or ignored.',
    ('outcome',),
)
SNAPSHOT_AGE = _gauge(
    'novasched_snapshot_age_seconds',
    'Seconds since the hosts were last read, which requests have done.',
    mode=MAX,
)
SNAPSHOT_HOSTS = _gauge(
    'novasched_snapshot_hosts', 'Hosts that are known, of all cells.', mode=MAX
)
ROWS_REFRESHED = _counter(
    'novasched_snapshot_rows_refreshed_total',
    'Rows of compute nodes and services that were new, changed or gone when they were'
    ' read.',
)
PENDING_CLAIMS = _gauge(
    'novasched_pending_claims',
    'Instances that got a host which does not report them yet.',
)
PEERS = _gauge(
    'novasched_peers',
    'Other schedulers with which pending claims are shared.',
    mode=MAX,
)
PEER_MESSAGES_MISSED = _counter(
    'novasched_peer_messages_missed_total',
    'Messages of other schedulers that did not come, after which one asked for all'
    ' their claims.',
)
PEERS_LATE = _counter(
    'novasched_peers_late_total',
    'Claims that did not wait any longer to hear what others had chosen before.',
)
CLAIMS_GIVEN_BACK = _counter(
    'novasched_claims_given_back_total',
    'Claims that did not fit beside what another scheduler had chosen before.',
)
BREAKER_OPEN = _gauge(
    'novasched_breaker_open',
    '1 while a worker asks nothing of a target that did not answer: placement,'
    ' database, api_database, or a cell.',
    ('target', 'cell'),
    MAX,
)
CLEANUPS = _gauge(
    'novasched_allocation_cleanups_pending',
    'Allocations that are still to be deleted in Placement.',
)
RECORDS_DROPPED = _counter(
    'novasched_records_dropped_total',
    'Decision records that were not kept, since too many waited.',
)
NOTIFICATIONS_DROPPED = _counter(
    'novasched_notifications_dropped_total',
    'Notifications that were not sent, since too many waited.',
)
WORKERS = _gauge('novasched_workers', 'Worker processes that take requests.')
BUILD = _gauge('novasched_build_info', 'Always 1, with the version.', ('version',), MAX)

METRICS = tuple(value for value in list(vars().values()) if isinstance(value, Metric))

SAMPLE_INTERVAL_S = 1.0
MAX_UNSAMPLED_WAITS = 10_000
"""Waits of messages that are kept for the next sample; older ones are dropped."""

Samples: TypeAlias = Mapping[tuple[str, ...], float]
"""Values by their labels."""


class Instruments:
    """Metrics in files. Counters go on from those of the worker that had the same
    number before; workers that run at the same time have different ones."""

    def __init__(self, number: int) -> None:
        values.ValueClass = values.MultiProcessValue(lambda: number)
        self._instruments = {metric: _instrument(metric) for metric in METRICS}

    def of(self, metric: Metric, *labels: str) -> Any:
        """The counter, gauge or histogram of a metric and its labels, which is exposed
        from then on: a rate needs the 0 that a counter rises from."""
        instrument = self._instruments[metric]
        if labels:
            return instrument.labels(*labels)
        return instrument


def _instrument(metric: Metric) -> Any:
    """A metric of prometheus_client, in no registry: it is read from the files
    alone."""
    arguments = (metric.name, metric.help, metric.labels)
    if metric.kind == COUNTER:
        return prometheus_client.Counter(*arguments, registry=None)
    if metric.kind == HISTOGRAM:
        return prometheus_client.Histogram(*arguments, registry=None, buckets=SECONDS)
    return prometheus_client.Gauge(
        *arguments, registry=None, multiprocess_mode=metric.mode
    )


class DecisionCounters:
    """Adds up decisions; thread-safe."""

    def __init__(self, instruments: Instruments) -> None:
        self.instruments = instruments
        for result in RESULTS:
            instruments.of(REQUESTS, result)
        for step in STEPS:
            instruments.of(STEP_SECONDS, step)

    def expect(self, filters: Iterable[str], weighers: Iterable[str]) -> None:
        """Expose zeros for the plugins that are enabled."""
        for name in filters:
            for metric in (HOSTS_IN, HOSTS_OUT, FILTER_SECONDS):
                self.instruments.of(metric, name)
        for name in weighers:
            self.instruments.of(WEIGHER_SECONDS, name)

    def __call__(self, decision: Decision) -> None:
        """Add a decision. Filters, weighers and claims are those of the last
        attempt."""
        of = self.instruments.of
        of(REQUESTS, decision.result).inc()
        of(INSTANCES).inc(len(decision.selections))
        of(REQUEST_SECONDS).observe(decision.ended - decision.began)
        for step, seconds in decision.seconds.items():
            of(STEP_SECONDS, step).observe(seconds)
        if decision.counts is not None and decision.counts.age is not None:
            of(CANDIDATES_AGE).observe(decision.counts.age)
        of(CANDIDATES_OUTDATED).inc(decision.outdated is not None)
        for attempt in decision.attempts:
            for result in attempt.ranking.filters:
                of(HOSTS_IN, result.name).inc(result.start)
                of(HOSTS_OUT, result.name).inc(result.end)
                of(FILTER_SECONDS, result.name).inc(result.seconds)
            for weigher, seconds in attempt.ranking.weighers:
                of(WEIGHER_SECONDS, weigher).inc(seconds)
        refused = sum(len(attempt.refused) for attempt in decision.attempts)
        of(CLAIMS_REFUSED).inc(refused + decision.together_refused)


@dataclass
class Sampler:
    """Exposes values that are kept elsewhere, as they are each time that it is called;
    by one thread at a time.

    :param sources: functions that return the value of a metric, or its values by
        labels.
    :param waits: seconds that messages waited, taken from here.
    """

    instruments: Instruments
    sources: Mapping[Metric, Callable[[], float | Samples]]
    waits: deque[float]
    _before: dict[Metric, Samples] = field(default_factory=dict)

    def __call__(self) -> None:
        """Take a sample."""
        for metric, read in self.sources.items():
            value = read()
            self._expose(metric, value if isinstance(value, Mapping) else {(): value})
        while self.waits:
            self.instruments.of(MESSAGE_WAIT).observe(self.waits.popleft())

    def _expose(self, metric: Metric, samples: Samples) -> None:
        before = self._before.get(metric, {})
        self._before[metric] = samples
        if metric.kind == GAUGE:
            for labels, value in {**dict.fromkeys(before, 0.0), **samples}.items():
                self.instruments.of(metric, *labels).set(value)
            return
        for labels, value in samples.items():
            self.instruments.of(metric, *labels).inc(
                max(0, value - before.get(labels, 0))
            )


class WorkerMetrics:
    """All metrics of a worker: its decisions, its messages, and samples of its other
    parts."""

    def __init__(self, number: int) -> None:
        self._instruments = Instruments(number)
        self.decisions = DecisionCounters(self._instruments)
        self._waits: deque[float] = deque(maxlen=MAX_UNSAMPLED_WAITS)
        self.messages = MessageCounts(wait_seconds=self._waits)

    def sample(
        self,
        hosts: HostReader,
        placement: PlacementClient,
        own: Database,
        notifier: QueuedNotifier | None,
        records: DecisionRecorder,
        server: RpcServer,
    ) -> loopingcall.FixedIntervalLoopingCall:
        peers = hosts.pending_claims.peers
        messages = self.messages
        version = importlib.metadata.version('novasched')
        sources: dict[Metric, Callable[[], float | Samples]] = {
            WORKERS: lambda: 1,
            BUILD: lambda: {(version,): 1},
            MESSAGES_WAITING: lambda: server.waiting,
            MESSAGES_IN_PROGRESS: lambda: server.in_progress,
            MESSAGES_DROPPED: lambda: messages.dropped,
            CASTS: lambda: {
                ('handled',): messages.handled,
                ('ignored',): messages.ignored,
            },
            SNAPSHOT_AGE: lambda: _age(hosts.host_snapshot),
            SNAPSHOT_HOSTS: lambda: len(hosts.host_snapshot.hosts),
            ROWS_REFRESHED: lambda: hosts.refreshed,
            PENDING_CLAIMS: hosts.pending_claims.count,
            PEERS: lambda: peers.part[1] - 1 if peers else 0,
            PEER_MESSAGES_MISSED: lambda: peers.missed if peers else 0,
            PEERS_LATE: lambda: peers.late if peers else 0,
            CLAIMS_GIVEN_BACK: lambda: hosts.pending_claims.given_back,
            BREAKER_OPEN: lambda: _open_breakers(hosts, placement, own),
            CLEANUPS: lambda: placement.pending_deletions,
            RECORDS_DROPPED: lambda: records.dropped,
            NOTIFICATIONS_DROPPED: lambda: notifier.dropped if notifier else 0,
        }
        sampler = Sampler(self._instruments, sources, self._waits)
        task = loopingcall.FixedIntervalLoopingCall(sampler)
        task.start(interval=SAMPLE_INTERVAL_S, stop_on_exception=False)
        return task


def _age(host_snapshot: HostSnapshot) -> Samples:
    """Seconds since hosts were read; nothing before that."""
    age = time.monotonic() - host_snapshot.read_at
    if age < math.inf:
        return {(): age}
    return {}


def _open_breakers(
    hosts: HostReader, placement: PlacementClient, own: Database
) -> Samples:
    cells = hosts.cells
    return {
        ('placement', ''): placement.circuit_open,
        ('database', ''): own.circuit_open,
        ('api_database', ''): cells.api.circuit_open,
        **{('cell', cell.uuid): cell.database.circuit_open for cell in cells.all()},
    }
