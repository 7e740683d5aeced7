# SPDX-License-Identifier: Apache-2.0
"""Decisions as spans of OpenTelemetry, sent to a collector by OTLP over HTTP.

A request becomes a span, and each step of the decision becomes a child span. The spans
are made from the decision after the request has been answered. Spans wait in a bounded
queue for a separate thread. A collector that is down or hangs therefore costs spans and
one warning; requests and records do not wait.
"""

import logging
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

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
"""Seconds that a process waits at its end for the queued spans to be sent."""

MAX_WAITING_SPANS = 4096
HEADERS = ('OTEL_EXPORTER_OTLP_HEADERS', 'OTEL_EXPORTER_OTLP_TRACES_HEADERS')
"""Environment variables that may hold secrets."""

MAX_SPANS = 100
"""Steps of a request that become spans. A request for many instances has more steps."""

MAX_NAMES = 10
"""Instances or hosts that a span names."""

Values = dict[str, AttributeValue]


@dataclass
class DecisionExporter:
    """Sends the spans of decisions. One thread at a time may call it.

    Threads and connections do not survive a fork, so they start in the worker.

    :param endpoint: the URL of the collector; None for the collector of oslo.messaging.
    :param host: the name of this scheduler.
    :param processor: makes the receiver of spans in the process of the worker.
    """

    endpoint: str | None
    host: str
    version: str
    processor: Callable[[str], SpanProcessor] | None = None
    service_name: str = SERVICE_NAME
    _provider: TracerProvider | None = None

    def start(self) -> None:
        """Let oslo.messaging use the same collector, before its first message: without
        a provider in the process, oslo.messaging makes one."""
        if self.endpoint is not None:
            self._provider = self._make_provider(self.endpoint)
            trace.set_tracer_provider(self._provider)

    def __call__(self, decision: Decision, record: Record) -> None:
        """Send the spans of a decision."""
        tracer = self._tracer()
        request_span, *step_spans = spans_of(decision, record)

        # The caller's trace goes on here if its message carries a traceparent.
        carrier = {}
        origin = decision.request.origin
        if origin and origin.traceparent:
            carrier['traceparent'] = origin.traceparent
        context = TraceContextTextMapPropagator().extract(carrier)

        parent = _send(tracer, request_span, context, trace.SpanKind.SERVER)
        child_context = trace.set_span_in_context(parent)
        for span in step_spans:
            _send(tracer, span, child_context)

    def close(self) -> None:
        """Send the queued spans, within :data:`SHUTDOWN_TIMEOUT_S`."""
        if self._provider is None:
            return

        # The library's own shutdown takes longer than a service manager waits.
        closing = threading.Thread(
            target=self._provider.shutdown, name='traces', daemon=True
        )
        closing.start()
        closing.join(SHUTDOWN_TIMEOUT_S)
        self._provider = None

    def _tracer(self) -> trace.Tracer:
        if self.endpoint is None:
            return trace.get_tracer(SERVICE_NAME, self.version)
        if self._provider is None:
            self._provider = self._make_provider(self.endpoint)
        return self._provider.get_tracer(SERVICE_NAME, self.version)

    def _make_provider(self, endpoint: str) -> TracerProvider:
        """Describe this process as the source of spans, and start the processor."""
        worker = os.getpid()
        resource = Resource.create(
            {
                'service.name': self.service_name,
                'service.version': self.version,
                'service.instance.id': f'{self.host}:{worker}',
                'host.name': self.host,
                'process.pid': worker,
            }
        )
        provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        make_processor = self.processor or batches
        provider.add_span_processor(make_processor(endpoint))
        return provider


def batches(endpoint: str) -> SpanProcessor:
    """A processor that sends spans to a collector in batches. The values of the headers
    that the environment sets for the collector are redacted from the log."""
    for name in HEADERS:
        headers = os.environ.get(name, '').split(',')
        learn(header.partition('=')[2] for header in headers)
    return BatchSpanProcessor(QuietExporter(endpoint), max_queue_size=MAX_WAITING_SPANS)


class QuietExporter(OTLPSpanExporter):
    """Logs a failure once, and the recovery once. The log has nothing else of
    OpenTelemetry."""

    def __init__(self, endpoint: str) -> None:
        super().__init__(endpoint=endpoint, timeout=COLLECTOR_TIMEOUT_S)
        self._place = redact(endpoint)
        self._succeeds = True
        self._library = LastMessage()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            result = super().export(spans)
        except Exception as error:
            # requests, urllib3 and protobuf raise classes of their own.
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
    """Keeps the last message of OpenTelemetry. The library logs a failure again with
    every batch, so its loggers do not reach the log."""

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
    """An interval of a trace with attributes. ``start`` and ``end`` are seconds since
    1970.

    :ivar failure: the fault that an operator must repair.
    """

    name: str
    start: float
    end: float
    values: Values
    failure: str | None = None


def spans_of(decision: Decision, record: Record) -> list[Span]:
    """The span of a decision, followed by the spans of its steps in order."""
    steps = decision.steps
    failure = record.result.failure

    # Steps have moments of a monotonic clock; spans need seconds since 1970.
    offset = record.at - decision.began
    times = [record.at]
    times += [offset + step.ended for step in steps]

    values = _request_values(record, decision.result)
    if len(steps) > MAX_SPANS:
        values['novasched.steps.left_out'] = len(steps) - MAX_SPANS
    spans = [Span('select_destinations', times[0], times[-1], values, failure)]

    latest = {step.name: step for step in steps}
    for step, start, end in zip(steps[:MAX_SPANS], times, times[1:], strict=False):
        values = _step_values(step, record, is_latest=step is latest[step.name])
        span = Span(step.name, start, end, values)
        if step is steps[-1]:
            span = replace(span, failure=failure)
        spans.append(span)
    return spans


def _send(
    tracer: trace.Tracer,
    described_span: Span,
    context: Context,
    kind: trace.SpanKind = trace.SpanKind.INTERNAL,
) -> trace.Span:
    span = tracer.start_span(
        described_span.name,
        context,
        kind,
        described_span.values,
        start_time=int(described_span.start * 10**9),
    )
    if described_span.failure is not None:
        span.set_status(trace.Status(trace.StatusCode.ERROR, described_span.failure))
    span.end(int(described_span.end * 10**9))
    return span


def _request_values(record: Record, result: str) -> Values:
    """The attributes of the span of a request."""
    request = record.request
    servers = request.instance_uuids or ()
    offer = record.counts
    values: dict[str, AttributeValue | None] = {
        'openstack.request_id': _line(record.request_id),
        'openstack.global_request_id': _line(record.global_request_id),
        'openstack.project_id': _line(request.project_id),
        'openstack.server_ids': [*servers[:MAX_NAMES]],
        'novasched.record': record.id,
        'novasched.result': result,
        'novasched.headline': render.headline(record),
        'novasched.servers': request.count,
        'novasched.flavor': one_line(request.flavor.name),
        'novasched.zone': _line(request.availability_zone),
        'novasched.chosen': [*record.result.hosts[:MAX_NAMES]],
        'novasched.seed': record.seed,
    }
    if offer is not None:
        values['novasched.candidates'] = offer.candidates
        values['novasched.hosts.offered'] = offer.hosts
        values['novasched.hosts.total'] = offer.total

    present: Values = {}
    for name, value in values.items():
        if value is not None and value != []:
            present[name] = value
    return present


def _line(text: str | None) -> str | None:
    return text and one_line(text)


def _step_values(step: Step, record: Record, is_latest: bool) -> Values:
    """The attributes of the span of a step.

    :param is_latest: no later step has the same name. The record has the candidate
        counts of the last attempt alone.
    """
    offer = record.counts
    if step.name == PLACEMENT and is_latest and offer is not None:
        return {
            'novasched.candidates': offer.candidates,
            'novasched.providers': offer.providers,
        }
    if step.name == HOSTS and is_latest and offer is not None:
        return {
            'novasched.hosts.offered': offer.hosts,
            'novasched.hosts.total': offer.total,
        }
    if step.refused is not None:
        return {'novasched.refused': step.refused}

    attempt = step.attempt
    if attempt is None:
        return {}
    ranking = attempt.ranking
    values: Values = {'novasched.server': attempt.index + 1}
    if step.name == WEIGHERS:
        values['novasched.hosts'] = attempt.passed
        if ranking.best:
            values['novasched.host'] = ranking.best[0].host
            values['novasched.weight'] = ranking.best[0].weight
        return values

    values['novasched.hosts.in'] = attempt.start
    values['novasched.hosts.out'] = attempt.passed
    values['novasched.hosts.pending'] = attempt.pending
    for result in ranking.filters:
        values[f'novasched.filter.{result.name}.in'] = result.start
        values[f'novasched.filter.{result.name}.out'] = result.end
    return values
