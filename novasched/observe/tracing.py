# SPDX-License-Identifier: Apache-2.0
"""Decisions as spans of OpenTelemetry, sent to a collector by OTLP over HTTP.

A span for each request and below it one for each step, made of its decision after the
request has been answered. A collector that is away, or hangs, costs spans and one
warning: spans wait in a bounded queue for a thread of their own, and no request and no
record waits for that.
"""

import logging
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from novasched.conf.redaction import hide, learn, one_line, redact
from novasched.observe.records import render
from novasched.observe.records.record import Record
from novasched.scheduler.decision import HOSTS, PLACEMENT, WEIGHERS, Decision, Step

LOG = logging.getLogger('novasched.observe.tracing')
SERVICE_NAME = 'novasched'
COLLECTOR_TIMEOUT_S = 5
SHUTDOWN_TIMEOUT_S = 3.0
"""Seconds that a process that ends gives to the spans that wait."""
MAX_WAITING_SPANS = 4096
HEADERS = ('OTEL_EXPORTER_OTLP_HEADERS', 'OTEL_EXPORTER_OTLP_TRACES_HEADERS')
"""Variables of the environment that may hold secrets."""
Values = dict[str, AttributeValue]
MAX_SPANS = 100
"""Steps that are shown; a request for many instances has more."""
MAX_NAMES = 10
"""Instances or hosts that are named."""


@dataclass
class DecisionExporter:
    """Sends the spans of decisions; to be called by one thread. No thread or connection
    begins before the first decision, since neither survives a fork.

    :param host: the name of this scheduler.
    :param processor: makes the receiver of spans; once, in the process that makes them.
    """

    endpoint: str
    host: str
    version: str
    processor: Callable[[str], SpanProcessor] | None = None
    _provider: TracerProvider | None = None

    def __call__(self, decision: Decision, record: Record) -> None:
        """Send the spans of a decision."""
        if self._provider is None:
            self._provider = self._begin()
        tracer = self._provider.get_tracer(SERVICE_NAME, self.version)
        whole, *steps = spans_of(decision, record)
        origin = decision.request.origin
        if origin and origin.traceparent:
            caller = {'traceparent': origin.traceparent}
        else:
            caller = {}
        context = TraceContextTextMapPropagator().extract(caller)
        parent = _send(tracer, whole, context, trace.SpanKind.SERVER)
        below = trace.set_span_in_context(parent)
        for step in steps:
            _send(tracer, step, below)

    def close(self) -> None:
        """Send the spans that wait, within :data:`SHUTDOWN_TIMEOUT_S`."""
        if self._provider is None:
            return
        # The library waits longer than those who wait for this process to end.
        closing = threading.Thread(
            target=self._provider.shutdown, name='traces', daemon=True
        )
        closing.start()
        closing.join(SHUTDOWN_TIMEOUT_S)
        self._provider = None

    def _begin(self) -> TracerProvider:
        worker = os.getpid()
        resource = Resource.create(
            {
                'service.name': SERVICE_NAME,
                'service.version': self.version,
                'service.instance.id': f'{self.host}:{worker}',
                'host.name': self.host,
                'process.pid': worker,
            }
        )
        provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        provider.add_span_processor((self.processor or batches)(self.endpoint))
        return provider


def batches(endpoint: str) -> SpanProcessor:
    """A processor that sends many spans at a time to a collector. The headers that the
    environment has for it are treated as secrets."""
    for name in HEADERS:
        learn(each.partition('=')[2] for each in os.environ.get(name, '').split(','))
    return BatchSpanProcessor(QuietExporter(endpoint), max_queue_size=MAX_WAITING_SPANS)


class QuietExporter(OTLPSpanExporter):
    """Logs a failure once, until it succeeds again. Nothing else of OpenTelemetry gets
    into the log."""

    def __init__(self, endpoint: str) -> None:
        super().__init__(endpoint=endpoint, timeout=COLLECTOR_TIMEOUT_S)
        self._place = redact(endpoint)
        self._succeeds = True
        self._library = LastMessage()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            result = super().export(spans)
        except Exception as error:  # of whatever library
            self._library.text = f'{type(error).__name__}: {error}'
            result = SpanExportResult.FAILURE
        succeeds = result is SpanExportResult.SUCCESS
        if self._succeeds and not succeeds:
            why = ' '.join(hide(self._library.text).split())
            LOG.warning('Traces do not reach %s: %s', self._place, why)
        elif succeeds and not self._succeeds:
            LOG.info('Traces reach %s again', self._place)
        self._succeeds = succeeds
        return result


class LastMessage(logging.Handler):
    """Keeps the last message of OpenTelemetry; in the log it would stand again with
    every batch."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ''
        library = logging.getLogger('opentelemetry')
        library.propagate = False
        library.handlers = [self]

    def emit(self, record: logging.LogRecord) -> None:
        self.text = record.getMessage()


@dataclass(frozen=True, slots=True)
class Span:
    """Interval of a trace (seconds since 1970) with attributes.

    :ivar failure: the fault that an operator must mend.
    """

    name: str
    start: float
    end: float
    values: Values
    failure: str | None = None


def spans_of(decision: Decision, record: Record) -> list[Span]:
    """The span of a decision that is over, and those of its steps one behind the
    other."""
    steps = decision.steps
    moments = [decision.began, *(step.ended for step in steps)]
    times = [record.at + moment - decision.began for moment in moments]
    last = {step.name: step for step in steps}
    failure = record.result.failure
    whole = _whole(record, decision.result)
    if len(steps) > MAX_SPANS:
        whole['novasched.steps.left_out'] = len(steps) - MAX_SPANS
    spans = [Span('select_destinations', times[0], times[-1], whole, failure)]
    for step, start, end in zip(steps[:MAX_SPANS], times, times[1:], strict=False):
        values = _values(step, record, latest=step is last[step.name])
        failed = failure if step is steps[-1] else None
        spans.append(Span(step.name, start, end, values, failed))
    return spans


def _send(
    tracer: trace.Tracer,
    described: Span,
    context: Context,
    kind: trace.SpanKind = trace.SpanKind.INTERNAL,
) -> trace.Span:
    values = described.values
    start = int(described.start * 10**9)
    span = tracer.start_span(described.name, context, kind, values, start_time=start)
    if described.failure is not None:
        span.set_status(trace.Status(trace.StatusCode.ERROR, described.failure))
    span.end(int(described.end * 10**9))
    return span


def _whole(record: Record, name: str) -> Values:
    asked = record.asked
    result = record.result
    offer = record.offer
    values: dict[str, AttributeValue | None] = {
        'openstack.request_id': record.request_id and one_line(record.request_id),
        'openstack.global_request_id': record.global_request_id
        and one_line(record.global_request_id),
        'openstack.project_id': asked.project,
        'openstack.server_ids': [*asked.servers[:MAX_NAMES]],
        'novasched.record': record.id,
        'novasched.result': name,
        'novasched.headline': render.headline(record),
        'novasched.servers': asked.count,
        'novasched.flavor': asked.flavor,
        'novasched.zone': asked.zone and one_line(asked.zone),
        'novasched.chosen': [*result.hosts[:MAX_NAMES]],
        'novasched.seed': record.seed,
    }
    if offer is not None:
        values['novasched.candidates'] = offer.candidates
        values['novasched.hosts.offered'] = offer.hosts
        values['novasched.hosts.total'] = offer.total
    return {
        name: value
        for name, value in values.items()
        if value is not None and value != []
    }


def _values(step: Step, record: Record, latest: bool) -> Values:
    """The attributes of a step. Placement's offer is that of the last attempt."""
    offer = record.offer
    attempt = step.attempt
    if step.name == PLACEMENT and latest and offer is not None:
        return {
            'novasched.candidates': offer.candidates,
            'novasched.providers': offer.providers,
        }
    if step.name == HOSTS and latest and offer is not None:
        return {
            'novasched.hosts.offered': offer.hosts,
            'novasched.hosts.total': offer.total,
        }
    if step.refused is not None:
        return {'novasched.refused': step.refused}
    if attempt is None:
        return {}
    ranking = attempt.ranking
    values: Values = {'novasched.server': attempt.index + 1}
    if step.name == WEIGHERS:
        values['novasched.hosts'] = attempt.passed
        for best in ranking.best[:1]:
            values |= {'novasched.host': best.host, 'novasched.weight': best.weight}
        return values
    values |= {
        'novasched.hosts.in': attempt.start,
        'novasched.hosts.out': attempt.passed,
        'novasched.hosts.in_flight': attempt.pending,
    }
    for result in ranking.filters:
        values[f'novasched.filter.{result.name}.in'] = result.start
        values[f'novasched.filter.{result.name}.out'] = result.end
    return values
