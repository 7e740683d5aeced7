# SPDX-License-Identifier: Apache-2.0
"""The metrics of one worker. Imported only where metrics are enabled."""

from __future__ import annotations

import importlib.metadata
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import prometheus_client
from prometheus_client import values

from novasched.cells.database import Database
from novasched.cells.snapshot import HostReader
from novasched.concurrency import loopingcall
from novasched.observe.metrics import catalogue
from novasched.observe.metrics.catalogue import Metric
from novasched.observe.records.recorder import DecisionRecorder
from novasched.placement.client import PlacementClient
from novasched.rpc.notifications.sender import QueuedNotifier
from novasched.rpc.oslo_messaging_internals import MessageCounts, RpcServer
from novasched.scheduler.decision import RESULTS, STEPS, Decision
from novasched.scheduler.model.host import HostSnapshot

PACKAGE = 'novasched'

SAMPLE_INTERVAL_S = 1.0
MAX_UNSAMPLED_WAITS = 10_000
"""Waits of messages that are kept for the next sample; older ones are dropped."""

Samples: TypeAlias = Mapping[tuple[str, ...], float]
"""Values by their labels."""


class Instruments:
    """Metrics in files, which the process that serves HTTP reads.

    Counters go on from those of the worker that had the same number before.

    :param number: differs between workers that run at the same time.
    """

    def __init__(self, number: int) -> None:
        values.ValueClass = values.MultiProcessValue(lambda: number)
        self._by_name = {metric.name: _instrument(metric) for metric in catalogue.METRICS}

    def of(self, metric: Metric, *labels: str) -> Any:
        """The counter, gauge or histogram of a metric and its labels, which is exposed from then
        on: a rate needs the 0 that a counter rises from."""
        instrument = self._by_name[metric.name]
        return instrument.labels(*labels) if labels else instrument


def _instrument(metric: Metric) -> Any:
    """A metric of prometheus_client, in no registry: it is read from the files alone."""
    arguments = (metric.name, metric.help, metric.labels)
    if metric.kind == catalogue.COUNTER:
        return prometheus_client.Counter(*arguments, registry=None)
    if metric.kind == catalogue.HISTOGRAM:
        return prometheus_client.Histogram(*arguments, registry=None, buckets=catalogue.SECONDS)
    mode: Any = metric.mode
    return prometheus_client.Gauge(*arguments, registry=None, multiprocess_mode=mode)


class DecisionCounters:
    """Adds up decisions; thread-safe."""

    def __init__(self, instruments: Instruments) -> None:
        self.instruments = instruments
        for result in RESULTS:
            instruments.of(catalogue.REQUESTS, result)
        for step in STEPS:
            instruments.of(catalogue.STEP_SECONDS, step)

    def expect(self, filters: Iterable[str], weighers: Iterable[str]) -> None:
        """Expose zeros for the plugins that are enabled."""
        for name in filters:
            for metric in (catalogue.HOSTS_IN, catalogue.HOSTS_OUT, catalogue.FILTER_SECONDS):
                self.instruments.of(metric, name)
        for name in weighers:
            self.instruments.of(catalogue.WEIGHER_SECONDS, name)

    def __call__(self, decision: Decision) -> None:
        """Add a decision. Filters, weighers and claims are those of the last attempt."""
        of = self.instruments.of
        of(catalogue.REQUESTS, decision.result).inc()
        of(catalogue.INSTANCES).inc(len(decision.selections))
        of(catalogue.REQUEST_SECONDS).observe(decision.ended - decision.began)
        for step, seconds in decision.seconds.items():
            of(catalogue.STEP_SECONDS, step).observe(seconds)
        for attempt in decision.attempts:
            for result in attempt.ranking.filters:
                of(catalogue.HOSTS_IN, result.name).inc(result.start)
                of(catalogue.HOSTS_OUT, result.name).inc(result.end)
                of(catalogue.FILTER_SECONDS, result.name).inc(result.seconds)
            for weigher, seconds in attempt.ranking.weighers:
                of(catalogue.WEIGHER_SECONDS, weigher).inc(seconds)
        refused = sum(len(attempt.refused) for attempt in decision.attempts)
        of(catalogue.CLAIMS_REFUSED).inc(refused + decision.together_refused)


@dataclass
class Sampler:
    """Exposes values that are kept elsewhere, as they are each time that it is called; by one
    thread at a time.

    :param sources: functions that return the value of a metric, or its values by labels.
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
            self.instruments.of(catalogue.MESSAGE_WAIT).observe(self.waits.popleft())

    def _expose(self, metric: Metric, samples: Samples) -> None:
        before = self._before.get(metric, {})
        self._before[metric] = samples
        for labels, value in samples.items():
            if metric.kind == catalogue.COUNTER:
                self.instruments.of(metric, *labels).inc(max(0, value - before.get(labels, 0)))
            else:
                self.instruments.of(metric, *labels).set(value)
        if metric.kind == catalogue.GAUGE:
            for labels in before.keys() - samples.keys():
                self.instruments.of(metric, *labels).set(0)


class WorkerMetrics:
    """All metrics of a worker: its decisions, its messages, and samples of its other parts."""

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
        messages, version = self.messages, importlib.metadata.version(PACKAGE)
        sources: dict[Metric, Callable[[], float | Samples]] = {
            catalogue.WORKERS: lambda: 1,
            catalogue.BUILD: lambda: {(version,): 1},
            catalogue.MESSAGES_WAITING: lambda: server.waiting,
            catalogue.MESSAGES_IN_PROGRESS: lambda: server.in_progress,
            catalogue.MESSAGES_DROPPED: lambda: messages.dropped,
            catalogue.CASTS: lambda: {
                ('handled',): messages.handled,
                ('ignored',): messages.ignored,
            },
            catalogue.SNAPSHOT_AGE: lambda: _age(hosts.host_snapshot),
            catalogue.SNAPSHOT_HOSTS: lambda: len(hosts.host_snapshot.hosts),
            catalogue.ROWS_REFRESHED: lambda: hosts.refreshed,
            catalogue.PENDING_CLAIMS: hosts.pending_claims.count,
            catalogue.BREAKER_OPEN: lambda: _open_breakers(hosts, placement, own),
            catalogue.CLEANUPS: lambda: placement.pending_deletions,
            catalogue.RECORDS_DROPPED: lambda: records.dropped,
            catalogue.NOTIFICATIONS_DROPPED: lambda: notifier.dropped if notifier else 0,
        }
        sampler = Sampler(self._instruments, sources, self._waits)
        task = loopingcall.FixedIntervalLoopingCall(sampler)
        task.start(interval=SAMPLE_INTERVAL_S, stop_on_exception=False)
        return task


def _age(host_snapshot: HostSnapshot) -> Samples:
    """Seconds since hosts were read; nothing before that."""
    age = time.monotonic() - host_snapshot.read_at
    return {(): age} if age < math.inf else {}


def _open_breakers(hosts: HostReader, placement: PlacementClient, own: Database) -> Samples:
    cells = hosts.cells
    return {
        ('placement', ''): placement.circuit_open,
        ('database', ''): own.circuit_open,
        ('api_database', ''): cells.api.circuit_open,
        **{('cell', cell.uuid): cell.database.circuit_open for cell in cells.all()},
    }
