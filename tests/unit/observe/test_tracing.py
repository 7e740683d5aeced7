# SPDX-License-Identifier: Apache-2.0
"""Decisions as spans of OpenTelemetry."""

import logging
import os
import sys
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace

import pytest
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from novasched.conf import redaction
from novasched.conf.errors import ConfigError
from novasched.conf.settings import Settings
from novasched.observe.records.recorder import DecisionRecorder
from novasched.observe.tracing import DecisionExporter, QuietExporter
from novasched.observe.web import wiring
from novasched.scheduler.decision import STEPS
from novasched.scheduler.errors import PlacementUnavailable
from novasched.scheduler.model.basis import FRESH
from novasched.scheduler.model.request import Origin
from tests.lab.builders import a_flavor, a_host, a_request, a_uuid
from tests.lab.counting_placement import CountingPlacement, slots_on
from tests.lab.decision_records import RecordedScheduler

URL = 'http://collector/v1/traces'
SETTINGS = Settings(
    enabled_filters=('ComputeFilter', 'RamFilter'), placement_patience=0
)
HOSTS = [a_host('a', ram=8192), a_host('b', ram=4096), a_host('off', disabled=True)]
TRACE = 'ab' * 16
PARENT = 'cd' * 8


class Traced:
    def __init__(self, placement=None, prefilters=(), settings=SETTINGS):
        self.memory = InMemorySpanExporter()
        exporting = DecisionExporter(
            URL, 'control-1', '1.2', lambda _: SimpleSpanProcessor(self.memory)
        )
        self.recorder = DecisionRecorder(settings, observers=(exporting,))
        self.scheduler = RecordedScheduler(
            HOSTS, placement, prefilters=prefilters, settings=settings
        )
        self.scheduler.driver.deps = replace(
            self.scheduler.driver.deps, recorder=self.recorder
        )

    def ask(self, **asked):
        with suppress(Exception):
            self.scheduler.driver.select_destinations(a_request(**asked))
        self.recorder.close()
        whole, *steps = self.memory.get_finished_spans()
        return whole, steps, self.recorder.newest()[0]


def values(span, prefix='novasched.'):
    """The attributes of a span whose names have a prefix, without the prefix."""
    attributes = {}
    for name, value in span.attributes.items():
        if name.startswith(prefix):
            attributes[name.removeprefix(prefix)] = value
    return attributes


def check(whole, steps, record):
    """The steps are adjacent children of the span of the request, in its trace."""
    assert (whole.name, whole.kind) == ('select_destinations', SpanKind.SERVER)
    end_of_last = whole.start_time
    for step in steps:
        assert step.parent.span_id == whole.context.span_id
        assert step.context.trace_id == whole.context.trace_id
        assert step.start_time == end_of_last
        end_of_last = step.end_time
    assert end_of_last == whole.end_time
    assert whole.start_time / 1e9 == pytest.approx(record.at)


def test_a_placement_becomes_a_span_with_a_child_for_each_step():
    """A request becomes a span with a child span for each step, and each span has its
    attributes."""
    whole, steps, record = Traced().ask(request_id='req-1', global_request_id='req-2')
    check(whole, steps, record)
    assert [step.name for step in steps] == [*STEPS]
    assert values(whole, 'openstack.') == {
        'request_id': 'req-1', 'global_request_id': 'req-2', 'project_id': 'project',
        'server_ids': (a_uuid('server0'),),
    }  # fmt: skip
    assert values(whole) == {
        'record': record.id,
        'result': 'placed',
        'headline': 'a: 2 of 3 hosts fit, 1 disabled',
        'servers': 1,
        'flavor': '',
        'chosen': ('a',),
        'seed': record.seed,
        'candidates': 3,
        'hosts.offered': 3,
        'hosts.total': 3,
    }
    assert {step.name: values(step) for step in steps} == {
        'prefilters': {},
        'placement': {'candidates': 3, 'providers': 3},
        'hosts': {'hosts.offered': 3, 'hosts.total': 3},
        'filters': {
            'server': 1, 'hosts.in': 3, 'hosts.out': 2, 'hosts.pending': 0,
            'filter.ComputeFilter.in': 3, 'filter.ComputeFilter.out': 2,
            'filter.RamFilter.in': 2, 'filter.RamFilter.out': 2,
        },
        'weighers': {'server': 1, 'hosts': 2, 'host': 'a', 'weight': 3.0},
        'claim': {},
        'alternates': {},
    }  # fmt: skip
    assert whole.parent is None
    assert whole.status.status_code is StatusCode.UNSET
    known = {
        'service.name': 'novasched', 'service.version': '1.2', 'host.name': 'control-1',
        'service.instance.id': f'control-1:{os.getpid()}', 'process.pid': os.getpid(),
    }  # fmt: skip
    assert known.items() <= dict(whole.resource.attributes).items()


def test_a_refusal_is_traced_without_an_error():
    """A refusal is no error. The steps end with the filters that leave no host."""
    whole, steps, record = Traced().ask(flavor=a_flavor(memory_mb=9999))

    check(whole, steps, record)
    assert [step.name for step in steps] == [*STEPS[:4]]
    assert values(whole)['result'] == 'refused'
    assert values(whole)['headline'] == '0 of 3 hosts: 2 lack free memory, 1 disabled'
    for span in (whole, *steps):
        assert span.status.status_code is StatusCode.UNSET


def test_every_instance_has_spans_of_filters_and_weighers():
    """Every server has its filters and weighers. After a refused claim for all servers,
    every server is filtered and claimed again, and the span of a refused claim names
    the host."""
    placement = CountingPlacement(
        {HOSTS[0].uuid: 2, HOSTS[1].uuid: 0}, stale=frozenset((HOSTS[1].uuid,))
    )
    whole, steps, record = Traced(placement).ask(
        count=2, flavor=a_flavor(memory_mb=4096)
    )
    check(whole, steps, record)
    ranking = [('filters', 1), ('weighers', 1), ('filters', 2), ('weighers', 2)]
    names = []
    for step in steps:
        attributes = values(step)
        names.append((step.name, attributes.get('server') or attributes.get('refused')))

    assert record.together_refused
    assert names[3:8] == [*ranking, ('claim', 'all together')]
    assert names[8:10] == ranking[:2]
    assert names[10][0] == 'claim'
    assert ('claim', 'b') in names
    assert names[-1] == ('alternates', None)
    assert [attempt.refused for attempt in record.attempts] == [(), ('b',)]
    assert values(whole)['chosen'] == ('a', 'a')
    line = '2 servers on 1 hosts: 2 of 3 hosts fit, 1 not offered by Placement'
    assert values(whole)['headline'] == line


@pytest.mark.parametrize(
    ('error', 'said'),
    [
        (PlacementUnavailable('it is down'), 'it is down'),
        (ZeroDivisionError('Kraken77'), 'ZeroDivisionError'),
    ],
)
def test_a_failed_step_marks_the_request_span_as_an_error(error, said):
    """The failed step has a span with its duration. The step and the request are
    errors."""

    class Failing(CountingPlacement):
        def candidates(self, request, basis=FRESH):
            raise error

    whole, steps, record = Traced(Failing({})).ask()
    check(whole, steps, record)
    assert [step.name for step in steps] == ['prefilters', 'placement']
    states = []
    for span in (*steps, whole):
        states.append((span.status.status_code, span.status.description))
    assert states == [
        (StatusCode.UNSET, None),
        (StatusCode.ERROR, said),
        (StatusCode.ERROR, said),
    ]
    assert values(whole)['result'] == 'failed'


def test_a_request_joins_the_trace_of_the_caller():
    """The request joins the trace that the message names, or begins a trace. An
    unsampled caller is not traced."""
    whole, _, _ = Traced().ask(origin=Origin(None, None, f'00-{TRACE}-{PARENT}-01'))
    assert f'{whole.context.trace_id:032x}' == TRACE
    assert f'{whole.parent.span_id:016x}' == PARENT
    for unknown in (None, '', 'what is this', f'00-{"0" * 32}-{PARENT}-01'):
        assert Traced().ask(origin=Origin(None, None, unknown))[0].parent is None
    traced = Traced()
    with pytest.raises(ValueError, match='not enough'):
        traced.ask(origin=Origin(None, None, f'00-{TRACE}-{PARENT}-00'))
    assert traced.memory.get_finished_spans() == ()


RANDOM = 'kG7bQz2mXw9RtLp4'


def test_no_span_has_a_secret_of_the_request(monkeypatch):
    """No span has a secret of the request, unless the secret is an ordinary word."""
    monkeypatch.setattr(redaction.KNOWN, '__dict__', vars(redaction.Secrets([RANDOM])))
    ids = {'request_id': RANDOM, 'availability_zone': RANDOM, 'hints': {'x': [RANDOM]}}
    whole, steps, _ = Traced().ask(flavor=a_flavor(name=RANDOM, memory_mb=9999), **ids)
    for span in (whole, *steps):
        assert RANDOM not in span.to_json()


def test_the_number_of_spans_is_bounded_for_many_instances():
    """The number of spans is bounded, and the request has the number of steps left
    out."""
    placement = CountingPlacement(slots_on(HOSTS, 99))
    settings = Settings(enabled_filters=())
    whole, steps, _ = Traced(placement, settings=settings).ask(
        count=60, flavor=a_flavor(memory_mb=1)
    )
    assert len(steps) == 100
    assert whole.attributes['novasched.steps.left_out'] == 3 + 60 * 2 + 2 - 100
    assert steps[-1].end_time <= whole.end_time
    assert len(whole.attributes['openstack.server_ids']) == 10


def test_an_outage_of_the_collector_is_logged_once(monkeypatch, caplog):
    """An outage of the collector is logged once, and so is its end, without secrets.
    Messages of the library do not reach the log."""
    monkeypatch.setattr(
        redaction.KNOWN, '__dict__', vars(redaction.Secrets(['Kraken77']))
    )
    caplog.set_level(logging.INFO)
    outcomes = [False, False, ValueError('Kraken77'), True, True, False]

    def export(self, spans):
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        logging.getLogger('opentelemetry.exporter.x').error(
            'Kraken77 %s', 'cannot be\nreached'
        )
        if outcome:
            return SpanExportResult.SUCCESS
        return SpanExportResult.FAILURE

    monkeypatch.setattr(OTLPSpanExporter, 'export', export)
    exporter = QuietExporter('http://me:Kraken77@h/')

    for _ in range(6):
        exporter.export([])

    away = 'Traces do not reach http://***@h/: *** cannot be reached'
    assert caplog.messages == [away, 'Traces reach http://***@h/ again', away]


def test_an_exporter_without_spans_closes_without_a_processor():
    DecisionExporter(URL, 'host', '1', pytest.fail).close()


def test_missing_tracing_libraries_stop_the_start_with_a_hint(monkeypatch):
    """The start ends with a line that names the extra to install."""
    monkeypatch.delitem(sys.modules, 'novasched.observe.tracing')
    monkeypatch.setitem(sys.modules, 'opentelemetry', None)
    with pytest.raises(ConfigError, match=r'pip install novasched\[tracing\]') as error:
        wiring.traces('http://me:Kraken77@collector/', 'host', '1')
    assert str(error.value).startswith(
        '[novasched] tracing_endpoint = http://***@collector/: '
    )


BESIDE = {
    'otlp_protocol': 'http/protobuf',
    'otel_exporter_otlp_endpoint': 'http://collector:4318',
    'tracing_service_name': 'nova',
}


def test_spans_go_to_the_http_collector_of_oslo_messaging():
    """Spans go where oslo.messaging sends spans by HTTP, by the name of its service."""
    exporter = wiring.traces_beside_messages(SimpleNamespace(**BESIDE), 'host', '1')
    assert exporter.endpoint == 'http://collector:4318/v1/traces'
    assert exporter.service_name == 'nova'


def test_grpc_spans_go_through_the_provider_of_oslo_messaging(monkeypatch):
    """With another protocol, spans go through the provider of oslo.messaging, which
    novasched neither starts nor closes."""
    memory = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    monkeypatch.setattr(trace, 'get_tracer', provider.get_tracer)
    options = SimpleNamespace(**{**BESIDE, 'otlp_protocol': 'grpc'})
    exporter = wiring.traces_beside_messages(options, 'host', '1')
    exporter.start()
    recorder = DecisionRecorder(SETTINGS, observers=(exporter,))
    scheduler = RecordedScheduler(HOSTS)
    scheduler.driver.deps = replace(scheduler.driver.deps, recorder=recorder)

    scheduler.driver.select_destinations(a_request())
    recorder.close()
    exporter.close()

    names = [span.name for span in memory.get_finished_spans()]
    assert names == ['select_destinations', *STEPS]


def test_the_start_goes_on_if_oslo_messaging_lacks_libraries(monkeypatch, caplog):
    """The start goes on without traces, as oslo.messaging does, with a warning."""
    monkeypatch.delitem(sys.modules, 'novasched.observe.tracing')
    monkeypatch.setitem(sys.modules, 'opentelemetry', None)
    options = SimpleNamespace(**BESIDE)
    assert wiring.traces_beside_messages(options, 'host', '1') is None
    [warning] = caplog.messages
    assert warning.startswith('[oslo_messaging_tracing] tracing_enabled: ')
