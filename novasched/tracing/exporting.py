# SPDX-License-Identifier: Apache-2.0
"""Decisions as spans of OpenTelemetry, sent to a collector by OTLP over HTTP.

A collector that is away, or hangs, costs spans and one warning: spans wait in a queue of some
length for a thread of their own, and no request and no record waits for that.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from novasched.model.request import Request
from novasched.records import timeline
from novasched.records.account import Account
from novasched.records.record import Record
from novasched.records.timeline import Span
from novasched.secrets import hide, learn

LOG = logging.getLogger('novasched.tracing')
SERVICE = 'novasched'
TIMEOUT = 5
"""Seconds for which a collector is waited for."""

LAST_WORDS = 3.0
"""Seconds that a process that ends gives to what is left."""

QUEUE = 4096
"""So many spans wait; more are dropped."""
NANO = 10**9
HEADERS = ('OTEL_EXPORTER_OTLP_HEADERS', 'OTEL_EXPORTER_OTLP_TRACES_HEADERS')


class Exporting:
    """Implements :class:`novasched.tracing.Tracing`.

    :param host: the name of this scheduler.
    :param processor: makes what gets the spans; once, in the process that makes them.
    """

    def __init__(
        self,
        endpoint: str,
        host: str,
        version: str,
        processor: Callable[[str], SpanProcessor] | None = None,
    ) -> None:
        self._endpoint, self._host, self._version = endpoint, host, version
        self._processor = processor or batches
        self._provider: TracerProvider | None = None
        self._tracer: trace.Tracer | None = None

    def __call__(self, account: Account, record: Record) -> None:
        """See :class:`novasched.tracing.Tracing`; called by one thread."""
        tracer = self._tracer or self._begun()
        told = timeline.of(account, record)
        whole = tracer.start_span(
            told.whole.name,
            context=TraceContextTextMapPropagator().extract(_carrier(account.request)),
            kind=trace.SpanKind.SERVER,
            attributes=told.whole.values,
            start_time=_nanoseconds(told.whole.start),
        )
        below = trace.set_span_in_context(whole)
        for each in told.steps:
            start = _nanoseconds(each.start)
            span = tracer.start_span(each.name, below, attributes=each.values, start_time=start)
            _end(span, each)
        _end(whole, told.whole)

    def close(self) -> None:
        """See :class:`novasched.tracing.Tracing`."""
        if self._provider is None:
            return
        # The library's own patience is longer than that of those who wait for our end.
        closing = threading.Thread(target=self._provider.shutdown, name='traces', daemon=True)
        closing.start()
        closing.join(LAST_WORDS)
        self._provider = self._tracer = None

    def _begun(self) -> trace.Tracer:
        worker = os.getpid()
        resource = Resource.create(
            {
                'service.name': SERVICE,
                'service.version': self._version,
                'service.instance.id': f'{self._host}:{worker}',
                'host.name': self._host,
                'process.pid': worker,
            }
        )
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(self._processor(self._endpoint))
        self._tracer = self._provider.get_tracer(SERVICE, self._version)
        return self._tracer


def batches(endpoint: str) -> SpanProcessor:
    """Sends spans to a collector, many at a time; what the environment has it say of who we are
    is never shown."""
    for name in HEADERS:
        learn(each.partition('=')[2] for each in os.environ.get(name, '').split(','))
    exporter = OTLPSpanExporter(endpoint=endpoint, timeout=TIMEOUT)
    return BatchSpanProcessor(Calm(exporter, endpoint), max_queue_size=QUEUE)


class Calm(SpanExporter):
    """Another exporter, of which it is told once that it fails, until it does not any more. It
    is all that this process's log has of OpenTelemetry."""

    def __init__(self, inner: SpanExporter, endpoint: str) -> None:
        self._inner, self._endpoint = inner, endpoint
        self._words = LastWords()
        self._well = True

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send spans."""
        try:
            result = self._inner.export(spans)
        except Exception as error:  # of whatever library
            self._words.text = f'{type(error).__name__}: {error}'
            result = SpanExportResult.FAILURE
        well = result is SpanExportResult.SUCCESS
        if self._well and not well:
            why = ' '.join(hide(self._words.text).split())
            LOG.warning('Traces do not reach %s: %s', hide(self._endpoint), why)
        elif well and not self._well:
            LOG.info('Traces reach %s again', hide(self._endpoint))
        self._well = well
        return result

    def shutdown(self) -> None:
        """Send no more."""
        self._inner.shutdown()


class LastWords(logging.Handler):
    """Keeps what OpenTelemetry said last; in the log it would stand again with every batch."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ''
        library = logging.getLogger('opentelemetry')
        library.propagate = False
        library.handlers = [self]

    def emit(self, record: logging.LogRecord) -> None:
        """See :class:`logging.Handler`."""
        self.text = record.getMessage()


def _carrier(request: Request) -> dict[str, str]:
    """The trace that the caller is in, if the message says so."""
    known = request.origin and request.origin.traceparent
    return {'traceparent': known} if known else {}


def _end(span: trace.Span, told: Span) -> None:
    if told.failure is not None:
        span.set_status(trace.Status(trace.StatusCode.ERROR, told.failure))
    span.end(_nanoseconds(told.end))


def _nanoseconds(moment: float) -> int:
    return int(moment * NANO)
